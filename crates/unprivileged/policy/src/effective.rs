//! The effective policy: every rule of every layer, merged, each with the place it came from.
//!
//! **Trust:** holds what untrusted layers asked for, but nothing of it as a grant: their rules sit in tiers that only narrow.
use crate::caches::CacheMerge;
use crate::commands::CommandTier;
use crate::document::{AuditLevel, Decided, Group, Mode, OnExceed, OnTimeout, Secret, Section, TestCase};
use crate::fsmap::{FsMap, Grade};
use crate::layers::{LayerKind, Surroundings};
use crate::names::{NameSet, Place};
use crate::net::NetPolicy;
use crate::netrule::{NetRule, NetTarget};
use crate::pathrule::PathRule;
use bastle_contract::{AbsPath, EnvName, LimitKind, Opening};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a rule stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Which layer.
    pub layer: LayerKind,
    /// File or preset.
    pub file: String,
    /// Line, from 1; 0 when there is none.
    pub line: u32,
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Its origin.
    pub origin: Origin,
}

/// Something an untrusted layer asked for and did not get.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Request {
    /// What, e.g. `fs.write ./target`.
    pub what: String,
    /// Who asked.
    pub origin: Origin,
}

/// A rule of a trusted layer that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Inactive {
    /// The rule.
    pub what: String,
    /// Where it stands.
    pub origin: Origin,
    /// Why it has no effect.
    pub reason: String,
}

/// What the project's files did to the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum ExpansionSummary {
    /// The project's files changed nothing.
    Unchanged,
    /// They took away.
    Restricted {
        /// Paths that lost reach, and names hidden or protected.
        paths: usize,
        /// Network rules.
        hosts: usize,
        /// Everything else.
        rules: usize,
        /// How much more they asked for.
        requested: usize,
    },
    /// They added, because the operator let them.
    Expanded {
        /// Paths that gained reach.
        paths: usize,
        /// Network rules.
        hosts: usize,
        /// Everything else.
        rules: usize,
    },
}

/// Network rules of one tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetRules {
    /// Allowed; `None`: this tier does not say.
    pub allow: Option<Vec<Sourced<NetRule>>>,
    /// Asked about.
    pub ask: Vec<Sourced<NetRule>>,
    /// Refused.
    pub deny: Vec<Sourced<NetRule>>,
    /// Ports that may be dialled when a rule names none; `None`: this tier does not say.
    pub ports: Option<Vec<Sourced<u16>>>,
}

impl NetRules {
    /// Every rule of every list.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Sourced<NetRule>> {
        self.allow.iter().flatten().chain(&self.ask).chain(&self.deny)
    }

    /// Groups that allow rules name and whose hosts are not resolved.
    pub(crate) fn groups(&self) -> Vec<&str> {
        let rules = self.allow.iter().flatten();
        rules
            .filter_map(|rule| match &rule.value.target {
                NetTarget::Group(name) => Some(name.as_str()),
                NetTarget::Host(_) => None,
            })
            .collect()
    }
}

/// Git rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitRules {
    /// Pushing.
    pub push: Option<Sourced<Decided>>,
    /// Pushing with force.
    pub force_push: Option<Sourced<Decided>>,
    /// Branches that may be pushed; `None`: any.
    pub branches: Option<Vec<Sourced<String>>>,
    /// Remotes that may be pushed to; `None`: any.
    pub remotes: Option<Vec<Sourced<String>>>,
    /// Push options that may be sent; others are refused.
    #[serde(default)]
    pub push_options: Vec<Sourced<String>>,
}

/// Spending, approvals and audit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budgets {
    /// Money.
    pub usd: Option<Sourced<f64>>,
    /// Model tokens.
    pub tokens: Option<Sourced<u64>>,
    /// Turns.
    pub turns: Option<Sourced<u64>>,
    /// Bytes out.
    pub bytes_out: Option<Sourced<u64>>,
    /// Bytes in.
    pub bytes_in: Option<Sourced<u64>>,
    /// Requests.
    pub requests: Option<Sourced<u64>>,
    /// Connections.
    pub connections: Option<Sourced<u64>>,
    /// What follows.
    pub on_exceed: Option<Sourced<OnExceed>>,
    /// How long an approval waits, in milliseconds.
    pub approval_timeout: Option<Sourced<u64>>,
    /// What follows.
    pub on_timeout: Option<Sourced<OnTimeout>>,
    /// Who may answer.
    pub reviewers: Vec<Sourced<String>>,
    /// How much is recorded.
    pub audit_level: Option<Sourced<AuditLevel>>,
    /// What is blacked out.
    pub redact: Vec<Sourced<String>>,
    /// Whether a decoy credential lies in the run's home directory; `None`: it does.
    pub canary: Option<Sourced<bool>>,
}

/// The merged policy.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The layers it was merged from, strongest first.
    pub layers: Vec<(LayerKind, String)>,
    /// What `~/` and `./` meant.
    pub surroundings: Surroundings,
    /// How strictly it is held.
    pub mode: Sourced<Mode>,
    /// Sections that were locked, and by whom.
    pub locks: Vec<Sourced<Section>>,
    /// Names that are never visible.
    pub hide: Vec<Sourced<PathRule>>,
    /// Names that cannot be changed without approval.
    pub protect: Vec<Sourced<PathRule>>,
    /// What the command line opened of the floor.
    pub unprotect: Vec<Opening>,
    /// Requests that go out: the evaluator that egress holds, `can-i` and `why` ask.
    pub net: NetPolicy,
    /// Ports inside that are forwarded.
    pub listen: Vec<Sourced<u16>>,
    /// Groups whose hosts are not resolved yet.
    pub groups: Vec<Sourced<Group>>,
    /// Command tiers; the first grants, the others only narrow.
    pub exec: Vec<CommandTier>,
    /// Tool tiers; the first grants, the others only narrow.
    pub tools: Vec<CommandTier>,
    /// Variables taken from the host.
    pub env_pass: Vec<Sourced<EnvName>>,
    /// Variables that are set.
    pub env_set: Vec<Sourced<(EnvName, String)>>,
    /// Credentials by reference.
    pub secrets: Vec<Sourced<Secret>>,
    /// Git.
    pub git: GitRules,
    /// Limits.
    pub limits: Vec<(LimitKind, Sourced<u64>)>,
    /// Named caches.
    pub caches: Vec<Sourced<String>>,
    /// What becomes of a run's layer above them.
    pub cache_merge: Option<Sourced<CacheMerge>>,
    /// Spending, approvals and audit.
    pub budgets: Budgets,
    /// The lowest Landlock ABI whose parts must all be enforced.
    pub min_landlock_abi: Option<Sourced<u64>>,
    /// Expectations.
    pub tests: Vec<Sourced<TestCase>>,
    /// What a project asked for beyond.
    pub not_granted: Vec<Request>,
    /// Rules without effect.
    pub inactive: Vec<Inactive>,
    /// What the project's files did.
    pub summary: ExpansionSummary,
    pub(crate) fs: FsMap,
    /// The map before any layer narrowed it: what the operator typed.
    pub(crate) base: FsMap,
    /// Outermost trees granted by the operator. `**/` patterns hold below these; were they taken from the narrowed
    /// map, a project could move a tree's root below a hidden name and so unhide it.
    pub(crate) trees: Vec<AbsPath>,
    /// Paths in the run's private places that the operator granted: there the host's are shown.
    pub(crate) shared: Vec<AbsPath>,
    pub(crate) hidden: NameSet,
    pub(crate) protected: NameSet,
}

impl Effective {
    /// Paths granted by rules (not the system's), each with the grade it has.
    #[must_use]
    pub fn granted(&self, grade: Grade) -> Vec<Sourced<AbsPath>> {
        self.fs.listed(grade)
    }

    /// What the operator's own layers grant at `path`, before any other layer narrows it.
    #[must_use]
    pub fn configured(&self, path: &AbsPath) -> Grade {
        self.base.grade(path)
    }

    /// The first rule that hides `path`, unless it belongs to the floor and was re-opened.
    #[must_use]
    pub fn hidden_by(&self, path: &AbsPath) -> Option<&Sourced<PathRule>> {
        self.named_by(&self.hidden, &self.hide, path)
    }

    /// The first rule that protects `path`.
    #[must_use]
    pub fn protected_by(&self, path: &AbsPath) -> Option<&Sourced<PathRule>> {
        self.named_by(&self.protected, &self.protect, path)
    }

    /// The rules of the floor that would hold `path` without an exception: in `fs.hide` and in `fs.protect`.
    pub(crate) fn floor_rules(&self, path: &AbsPath) -> [Option<&Sourced<PathRule>>; 2] {
        let find = |set: &NameSet, rules: &[Sourced<PathRule>]| {
            set.find(path, self.place(path), |rule| {
                rules[rule].origin.layer == LayerKind::Floor
            })
        };
        [
            find(&self.hidden, &self.hide).map(|rule| &self.hide[rule]),
            find(&self.protected, &self.protect).map(|rule| &self.protect[rule]),
        ]
    }

    fn named_by<'e>(
        &self,
        set: &NameSet,
        rules: &'e [Sourced<PathRule>],
        path: &AbsPath,
    ) -> Option<&'e Sourced<PathRule>> {
        let reopened = self.unprotect.iter().any(|open| open.opens(path));
        let counts = |rule: usize| !(reopened && rules[rule].origin.layer == LayerKind::Floor);
        set.find(path, self.place(path), counts).map(|rule| &rules[rule])
    }

    fn place(&self, path: &AbsPath) -> Place {
        match self.fs.find(path) {
            Some((_, reach)) if reach.system => Place::System,
            Some(_) | None => {
                let tree = self.trees.iter().find(|tree| path.is_within(tree));
                Place::Granted(tree.map_or(0, |tree| {
                    tree.as_str().split('/').filter(|part| !part.is_empty()).count()
                }))
            }
        }
    }

    /// Whether a layer has an allow list of commands: then only the programs of every such list execute inside.
    #[must_use]
    pub fn lists_programs(&self) -> bool {
        self.exec.iter().any(|tier| tier.allow.is_some())
    }

    /// The value of a limit.
    #[must_use]
    pub fn limit(&self, kind: LimitKind) -> Option<&Sourced<u64>> {
        self.limits
            .iter()
            .find(|(k, _)| *k == kind)
            .map(|(_, value)| value)
    }

    /// The first line of a run: layers, and what the project's files did.
    #[must_use]
    pub fn headline(&self) -> String {
        let names: Vec<&str> = self
            .layers
            .iter()
            .filter(|(kind, _)| *kind != LayerKind::Floor)
            .map(|(kind, name)| match kind {
                LayerKind::Preset | LayerKind::Managed => name.as_str(),
                LayerKind::Floor
                | LayerKind::User
                | LayerKind::Flags
                | LayerKind::Request
                | LayerKind::Ceiling => kind.name(),
                LayerKind::Project | LayerKind::ProjectLocal => name.rsplit('/').next().unwrap_or(name),
            })
            .collect();
        let mut shown: Vec<&str> = Vec::new();
        for name in names {
            if !shown.contains(&name) {
                shown.push(name);
            }
        }
        let change = match &self.summary {
            ExpansionSummary::Unchanged => String::new(),
            ExpansionSummary::Restricted {
                paths,
                hosts,
                rules,
                requested,
            } => {
                let mut parts = vec![format!("−{paths} paths")];
                parts.extend((*hosts > 0).then(|| format!("−{hosts} hosts")));
                parts.extend((*rules > 0).then(|| format!("−{rules} rules")));
                let asked = if *requested > 0 {
                    format!("; {requested} requested, not granted")
                } else {
                    String::new()
                };
                format!(" (restricted: {}, +0{asked})", parts.join(", "))
            }
            ExpansionSummary::Expanded { paths, hosts, rules } => {
                format!(" (EXPANDED: +{paths} paths, +{hosts} hosts, +{rules} rules)")
            }
        };
        crate::text::shown(&format!("policy: {}{change}", shown.join(" ⊂ ")))
    }
}

impl Origin {
    /// The command line, where it opens something of the floor.
    #[must_use]
    pub fn unprotect() -> Self {
        Self {
            layer: LayerKind::Flags,
            file: "--unprotect".to_owned(),
            line: 0,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}
