//! Judging a push, one reference at a time.
//!
//! **Trust:** repository and reference come from the agent; the kind of change from what the wire says about it.
use super::NetPolicy;
use super::answer::{no, yes};
use crate::decide::{Decision, Outcome};
use crate::document::Decided;
use crate::effective::{GitRules, Sourced};
use crate::host::Host;
use crate::names::glob;
use bastle_contract::Code;
use serde::{Deserialize, Serialize};

/// Longest repository path or reference that is judged; servers accept less.
const MAX_NAME: usize = 1024;

/// One reference that a push wants to change.
#[derive(Clone, Copy, Debug)]
pub struct GitPush<'a> {
    /// Server.
    pub host: &'a Host,
    /// Port.
    pub port: u16,
    /// Path of the repository on the server, as in the URL.
    pub repository: &'a str,
    /// Full name: `refs/heads/main`.
    pub reference: &'a str,
    /// What happens to it.
    pub kind: PushKind,
    /// Whether commits of others would be lost.
    pub force: Force,
}

/// What a push does to a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PushKind {
    /// It did not exist.
    Create,
    /// It is moved.
    Update,
    /// It is removed.
    Delete,
}

/// Whether an update is forced (not a fast-forward).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Force {
    /// The new commit descends from the old one.
    No,
    /// It does not.
    Yes,
    /// The wire does not tell.
    Unknown,
}

/// A remote of the workspace: what a name in `git.remotes` stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    /// Its name, e.g. `origin`.
    pub name: String,
    /// Its server.
    pub host: Host,
    /// Path of the repository there.
    pub path: String,
}

impl NetPolicy {
    /// Judges one reference of a push.
    pub fn push(&self, push: &GitPush<'_>) -> Decision {
        if let Some(refusal) = self.outright(push.host) {
            return refusal;
        }
        if !is_reference(push.reference) || push.repository.len() > MAX_NAME {
            return denied("the reference or repository has no plain name");
        }
        if let Some(refusal) = self
            .wrong_repository(push.host, push.repository)
            .or_else(|| self.wrong_branch(push.reference))
        {
            return refusal;
        }
        let (pushing, forcing) = Pushing::of(&self.git);
        match (push.kind, push.force) {
            (PushKind::Delete, _) => {
                pushing.with(&forcing, "it removes the reference, which counts as force")
            }
            (PushKind::Update, Force::Yes) => {
                pushing.with(&forcing, "it is forced: commits of the server would be lost")
            }
            (PushKind::Update, Force::Unknown) if forcing.decided != Decided::Allow => {
                // Neither a yes nor a no would be true, so a person looks, unless pushing is denied anyway.
                let reason = "whether it is forced cannot be told from what was sent; push after git fetch, or to a new branch";
                if pushing.decided == Decided::Deny {
                    pushing.answer("pushing is denied")
                } else {
                    Pushing {
                        decided: Decided::Ask,
                        ..forcing
                    }
                    .answer(reason)
                }
            }
            (PushKind::Create, _) | (PushKind::Update, Force::No | Force::Unknown) => {
                pushing.answer("a push that adds")
            }
        }
    }

    /// Judges one push option; servers run what they say (skip checks, open and merge requests).
    pub fn push_option(&self, option: &str) -> Decision {
        let named = |pattern: &str| glob(pattern.as_bytes(), option.as_bytes());
        if let Some(rule) = self.git.push_options.iter().find(|own| named(&own.value)) {
            return yes("push", "git.pushOptions names it").rule("git.pushOptions", rule);
        }
        denied("git.pushOptions does not name this push option")
            .help("add it to git.pushOptions of your user policy, or push without -o")
    }

    /// Refuses a repository that `git.remotes` does not name.
    pub(super) fn wrong_repository(&self, host: &Host, repository: &str) -> Option<Decision> {
        let remotes = self.git.remotes.as_ref()?;
        let target = format!("{host}/{}", plain(repository));
        let fits = |pattern: &str| match pattern.contains('/') {
            true => glob(plain(pattern).as_bytes(), target.as_bytes()),
            false => self.remotes.iter().any(|remote| {
                remote.name == pattern && remote.host == *host && plain(&remote.path) == plain(repository)
            }),
        };
        if remotes.iter().any(|remote| fits(&remote.value)) {
            return None;
        }
        let names: Vec<&str> = remotes.iter().map(|remote| remote.value.as_str()).collect();
        let decision = denied(format!(
            "git.remotes does not name {target}; it names {}",
            listed(&names)
        ));
        Some(match remotes.first() {
            Some(first) => decision.rule("git.remotes", first),
            None => decision,
        })
    }

    fn wrong_branch(&self, reference: &str) -> Option<Decision> {
        let branches = self.git.branches.as_ref()?;
        let fits = |pattern: &str| {
            let full = if pattern.starts_with("refs/") {
                pattern.to_owned()
            } else {
                format!("refs/heads/{pattern}")
            };
            glob(full.as_bytes(), reference.as_bytes())
        };
        if branches.iter().any(|branch| fits(&branch.value)) {
            return None;
        }
        let names: Vec<&str> = branches.iter().map(|branch| branch.value.as_str()).collect();
        let decision = denied(format!(
            "git.branches does not name {reference}; it names {}",
            listed(&names)
        ));
        Some(match branches.first() {
            Some(first) => decision.rule("git.branches", first),
            None => decision,
        })
    }
}

/// One of the two decisions about pushing, and who made it.
pub(super) struct Pushing<'p> {
    pub(super) decided: Decided,
    rule: Option<&'p Sourced<Decided>>,
    section: &'static str,
}

impl<'p> Pushing<'p> {
    /// What is decided about pushing, and about force.
    pub(super) fn of(git: &'p GitRules) -> (Self, Self) {
        (
            Self::new(git.push.as_ref(), Decided::Ask, "git.push"),
            Self::new(git.force_push.as_ref(), Decided::Deny, "git.forcePush"),
        )
    }

    fn new(rule: Option<&'p Sourced<Decided>>, unstated: Decided, section: &'static str) -> Self {
        Self {
            decided: rule.map_or(unstated, |rule| rule.value),
            rule,
            section,
        }
    }

    /// The stricter of the two.
    fn with(self, other: &Self, reason: &str) -> Decision {
        if self.decided < other.decided {
            self.answer(reason)
        } else {
            other.answer(reason)
        }
    }

    pub(super) fn answer(&self, reason: &str) -> Decision {
        let decision = match self.decided {
            Decided::Allow => yes("push", reason),
            Decided::Ask => no(Outcome::Ask, Code::NetGit, reason),
            Decided::Deny => denied(reason),
        };
        match self.rule {
            Some(rule) => {
                let word = Sourced {
                    value: Outcome::from(rule.value).name(),
                    origin: rule.origin.clone(),
                };
                decision.rule(self.section, &word)
            }
            None => decision,
        }
    }
}

pub(super) fn denied(reason: impl Into<String>) -> Decision {
    no(Outcome::Deny, Code::NetGit, reason)
        .help("push to a branch that git.branches allows, or push yourself after review")
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// A repository's path without what URLs may or may not have around it.
fn plain(path: &str) -> &str {
    let path = path.trim_matches('/');
    path.strip_suffix(".git").unwrap_or(path)
}

/// What git itself accepts as a full name; nothing that two readers could split differently.
fn is_reference(name: &str) -> bool {
    name.starts_with("refs/")
        && name.len() <= MAX_NAME
        && !name.contains("..")
        && !name.contains("//")
        && !name.contains("@{")
        && !name.ends_with(['/', '.'])
        && !name
            .split('/')
            .any(|part| part.starts_with('.') || part.ends_with(".lock"))
        && !name
            .chars()
            .any(|c| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\'))
}
