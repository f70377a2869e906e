//! Who may do what: roles, callers, tokens, questions and profiles as values.
use bastle_contract::RunId;
use bastle_policy::AuthorityCeiling;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// What somebody may do. Each includes the ones before it, but a run's own token is apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The token of a run: starts children within itself and reads itself.
    Run,
    /// Reads.
    Viewer,
    /// Starts, stops, pauses and removes runs.
    Operator,
    /// Also answers questions.
    Approver,
    /// Also tokens and profiles.
    Admin,
}

impl Role {
    /// Every role, weakest first.
    pub const ALL: [Self; 5] = [
        Self::Run,
        Self::Viewer,
        Self::Operator,
        Self::Approver,
        Self::Admin,
    ];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }
}

/// What a caller wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// See runs, events, output.
    Read,
    /// Start runs.
    Spawn,
    /// Stop, pause, resume, attach, execute, change files of runs.
    Control,
    /// Remove runs.
    Remove,
    /// Answer questions.
    Answer,
    /// Tokens, profiles, backups.
    Administer,
}

/// What kind of principal acts. Told with every approval, so that a person's answer and a program's can be told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrincipalKind {
    /// The user of this machine on the local socket or at the terminal of the run, who declares nothing else.
    LocalPerson,
    /// Whoever has a token that was made for a person.
    #[default]
    TokenPerson,
    /// A program: over MCP or A2A, with a token that was made for one, or a run with its own token.
    Program,
    /// bastle itself: a rule, a timeout, nobody to ask.
    Automatic,
}

impl PrincipalKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [
        Self::LocalPerson,
        Self::TokenPerson,
        Self::Program,
        Self::Automatic,
    ];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::LocalPerson => "local-person",
            Self::TokenPerson => "token-person",
            Self::Program => "program",
            Self::Automatic => "automatic",
        }
    }

    /// The kind of this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// Somebody who was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Who, for the record: `uid:1000`, `token:k3v9…`, `agent:mcp`.
    pub id: String,
    /// A person or a program.
    pub kind: PrincipalKind,
    /// What they may do.
    pub role: Role,
    /// The run whose own token this is.
    pub run: Option<RunId>,
    /// Only runs whose names begin so.
    pub prefix: Option<String>,
    /// Only these verbs; all of the role when `None`.
    pub verbs: Option<BTreeSet<Verb>>,
    /// What its token states about the most it may give to runs. What it does not state, the daemon's default does.
    pub ceiling: AuthorityCeiling,
}

impl Caller {
    /// Somebody of a role, held to nothing else.
    #[must_use]
    pub fn new(id: impl Into<String>, role: Role) -> Self {
        Self {
            id: id.into(),
            kind: PrincipalKind::LocalPerson,
            role,
            run: None,
            prefix: None,
            verbs: None,
            ceiling: AuthorityCeiling::default(),
        }
    }

    /// The owner of the state directory on this machine.
    #[must_use]
    pub fn owner(uid: u32) -> Self {
        Self::new(format!("uid:{uid}"), Role::Admin)
    }

    /// Whether its word counts as the operator's own. Everybody else's only narrows.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        match self.role {
            Role::Admin => true,
            Role::Run | Role::Viewer | Role::Operator | Role::Approver => false,
        }
    }

    /// Whether it is limited to some runs.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.run.is_some() || self.prefix.is_some()
    }

    /// Whether the role and the verbs of the token allow this at all.
    #[must_use]
    pub fn may(&self, verb: Verb) -> bool {
        let by_role = match (self.role, verb) {
            (Role::Run, Verb::Read | Verb::Spawn) => true,
            (Role::Run, Verb::Control | Verb::Remove | Verb::Answer | Verb::Administer) => false,
            (_, Verb::Read) => true,
            (role, Verb::Spawn | Verb::Control | Verb::Remove) => role >= Role::Operator,
            (role, Verb::Answer) => role >= Role::Approver,
            (role, Verb::Administer) => role == Role::Admin,
        };
        by_role && self.verbs.as_ref().is_none_or(|verbs| verbs.contains(&verb))
    }

    /// Whether this run is one of theirs.
    #[must_use]
    pub fn may_on(&self, verb: Verb, run: &RunId) -> bool {
        let own = self.run.as_ref().is_none_or(|own| own == run);
        let within = self
            .prefix
            .as_ref()
            .is_none_or(|prefix| run.as_str().starts_with(prefix.as_str()));
        self.may(verb) && own && within
    }
}

/// A token that is wished for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWish {
    /// For a person or for a program; a token that a program makes is a program's.
    pub kind: PrincipalKind,
    /// What it may do.
    pub role: Role,
    /// What it is for, in a person's words.
    pub note: String,
    /// How long it holds; `None`: until it is revoked.
    pub lasts: Option<Duration>,
    /// Only runs whose names begin so.
    pub prefix: Option<String>,
    /// Only these verbs.
    pub verbs: Option<BTreeSet<Verb>>,
    /// The run it belongs to; only for [`Role::Run`].
    pub run: Option<RunId>,
    /// The most it may give to runs; only for roles that start some and are no admin.
    pub ceiling: AuthorityCeiling,
}

impl TokenWish {
    /// A token of a role, until it is revoked, for all runs and verbs of it.
    #[must_use]
    pub fn new(role: Role, note: impl Into<String>) -> Self {
        Self {
            kind: match role {
                Role::Run => PrincipalKind::Program,
                Role::Viewer | Role::Operator | Role::Approver | Role::Admin => PrincipalKind::TokenPerson,
            },
            role,
            note: note.into(),
            lasts: None,
            prefix: None,
            verbs: None,
            run: None,
            ceiling: AuthorityCeiling::default(),
        }
    }
}

/// What is known of a token. Never its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its id.
    pub id: String,
    /// For a person or for a program.
    #[serde(default)]
    pub kind: PrincipalKind,
    /// What it may do.
    pub role: Role,
    /// What it is for.
    pub note: String,
    /// Who made it.
    pub maker: String,
    /// When, milliseconds since 1970.
    pub created_ms: u64,
    /// Until when.
    pub expires_ms: Option<u64>,
    /// Since when it does not hold any more.
    pub revoked_ms: Option<u64>,
    /// Only runs whose names begin so.
    pub prefix: Option<String>,
    /// Only these verbs.
    pub verbs: Option<BTreeSet<Verb>>,
    /// The run it belongs to.
    pub run: Option<RunId>,
    /// The most it may give to runs, as far as it was stated.
    #[serde(default)]
    pub ceiling: AuthorityCeiling,
}

/// Where a question is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalState {
    /// Waits for an answer.
    Open,
    /// Answered with yes.
    Approved,
    /// Answered with no.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// The run ended, or does not ask it any more.
    Stale,
}

/// A question of a run and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Its number among all questions.
    pub id: u64,
    /// Who asks.
    pub run: RunId,
    /// The id of the question within the run.
    pub question: String,
    /// Digest of the exact request.
    pub hash: String,
    /// What is asked, in words. Holds text of the agent: show it escaped.
    pub text: String,
    /// What it is about: `net`, `push`, `grant`, `budget`, …
    pub about: String,
    /// When it was asked, milliseconds since 1970.
    pub asked_ms: u64,
    /// Until when it waits.
    pub expires_ms: u64,
    /// Whether it waits, was answered or expired.
    pub state: ApprovalState,
    /// Who answered.
    pub approver: Option<String>,
    /// A person, a program, or bastle itself.
    pub approver_kind: Option<PrincipalKind>,
    /// When.
    pub answered_ms: Option<u64>,
    /// `once` or `session`.
    pub scope: Option<String>,
    /// How often the answer may be used: 1 for `once`.
    pub uses: Option<u64>,
    /// What the approver said.
    pub message: Option<String>,
}

/// Which questions are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalQuery {
    /// In this state.
    pub state: Option<ApprovalState>,
    /// Of this run.
    pub run: Option<RunId>,
    /// The last number of the page before; 0 for the first page. The newest questions come first.
    pub after: u64,
    /// At most so many; 0 is 100, never more than 1000.
    pub limit: usize,
}

/// A yes or a no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Yes.
    Approve,
    /// The request is refused.
    Deny,
}

/// A profile as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileRecord {
    /// The name that requests refer to the profile by.
    pub name: String,
    /// Grows with every change; 0 for one that is built in.
    pub version: u64,
    /// Whether it comes with bastle.
    pub builtin: bool,
    /// The document.
    pub document: Value,
    /// When it was changed last, milliseconds since 1970; 0 for one that is built in.
    pub changed_ms: u64,
}
