//! The effective policy: every rule of every layer, merged, each with the place it came from.
//!
//! **Trust:** holds what untrusted layers asked for, but nothing of it as a grant: their rules sit in tiers that only narrow.
use crate::commands::CommandTier;
use crate::document::{
    AuditLevel, Decided, Group, Mode, NetDefault, OnExceed, OnTimeout, Secret, Section, TestCase,
};
use crate::fsmap::{FsMap, Grade};
use crate::layers::{LayerKind, Surroundings};
use crate::names::{NameSet, Place};
use crate::netrule::NetRule;
use crate::pathrule::PathRule;
use bastle_contract::{AbsPath, Digest, EnvName, LimitKind};
use serde::Serialize;
use std::fmt;

/// Where a rule stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Origin {
    /// Which layer.
    pub layer: LayerKind,
    /// File or preset.
    pub file: String,
    /// Line, from 1; 0 when there is none.
    pub line: u32,
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Nothing.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// Git rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitRules {
    /// Pushing.
    pub push: Option<Sourced<Decided>>,
    /// Pushing with force.
    pub force_push: Option<Sourced<Decided>>,
    /// Branches that may be pushed; `None`: any.
    pub branches: Option<Vec<Sourced<String>>>,
    /// Remotes that may be pushed to; `None`: any.
    pub remotes: Option<Vec<Sourced<String>>>,
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
    /// Paths re-opened on the command line.
    pub unprotect: Vec<AbsPath>,
    /// For hosts that no rule names.
    pub net_default: Sourced<NetDefault>,
    /// Network tiers; the first grants, the others only narrow.
    pub net: Vec<NetRules>,
    /// Whether IP addresses may be dialled.
    pub ip_literals: bool,
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
    /// Spending, approvals and audit.
    pub budgets: Budgets,
    /// Expectations.
    pub tests: Vec<Sourced<TestCase>>,
    /// What a project asked for beyond.
    pub not_granted: Vec<Request>,
    /// Rules without effect.
    pub inactive: Vec<Inactive>,
    /// What the project's files did.
    pub summary: ExpansionSummary,
    pub(crate) fs: FsMap,
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

    fn named_by<'e>(&self, set: &NameSet, rules: &'e [Sourced<PathRule>], path: &AbsPath) -> Option<&'e Sourced<PathRule>> {
        let place = match self.fs.find(path) {
            Some((_, reach)) if reach.system => Place::System,
            Some(_) | None => {
                let tree = self.trees.iter().find(|tree| path.is_within(tree));
                Place::Granted(tree.map_or(0, |tree| tree.as_str().split('/').filter(|part| !part.is_empty()).count()))
            }
        };
        let reopened = self.unprotect.iter().any(|open| path.is_within(open));
        let counts = |rule: usize| !(reopened && rules[rule].origin.layer == LayerKind::Floor);
        set.find(path, place, counts).map(|rule| &rules[rule])
    }

    /// The value of a limit.
    #[must_use]
    pub fn limit(&self, kind: LimitKind) -> Option<&Sourced<u64>> {
        self.limits.iter().find(|(k, _)| *k == kind).map(|(_, value)| value)
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
                LayerKind::Floor | LayerKind::User | LayerKind::Flags => kind.name(),
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
            ExpansionSummary::Restricted { paths, hosts, rules, requested } => {
                let mut parts = vec![format!("−{paths} paths")];
                parts.extend((*hosts > 0).then(|| format!("−{hosts} hosts")));
                parts.extend((*rules > 0).then(|| format!("−{rules} rules")));
                let asked = if *requested > 0 { format!("; {requested} requested, not granted") } else { String::new() };
                format!(" (restricted: {}, +0{asked})", parts.join(", "))
            }
            ExpansionSummary::Expanded { paths, hosts, rules } => {
                format!(" (EXPANDED: +{paths} paths, +{hosts} hosts, +{rules} rules)")
            }
        };
        crate::text::shown(&format!("policy: {}{change}", shown.join(" ⊂ ")))
    }

    /// One line per rule in a fixed order, without origins: equal policies have equal text.
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut lines: Vec<String> = vec!["bastle.policy/v1".to_owned(), format!("mode {:?}", self.mode.value)];
        let mut add = |section: &str, text: String| lines.push(format!("{section} {}", text.escape_default()));
        for (path, reach) in self.fs.iter() {
            let kind = if reach.system { "system" } else { "fs" };
            add(kind, format!("{:?} {path}", reach.grade));
        }
        add("home", self.surroundings.home.to_string());
        add("workspace", self.surroundings.workspace.to_string());
        self.hide.iter().for_each(|r| add(if r.origin.layer == LayerKind::Floor { "hide!" } else { "hide" }, r.value.to_string()));
        self.protect.iter().for_each(|r| add(if r.origin.layer == LayerKind::Floor { "protect!" } else { "protect" }, r.value.to_string()));
        self.unprotect.iter().for_each(|p| add("unprotect", p.to_string()));
        add("net.default", format!("{:?} {}", self.net_default.value, self.ip_literals));
        for (tier, net) in self.net.iter().enumerate() {
            let mut list = |name: &str, rules: &[Sourced<NetRule>]| {
                rules.iter().for_each(|r| add(&format!("net.{name}.{tier}"), r.value.to_string()));
            };
            list("allow", net.allow.as_deref().unwrap_or_default());
            list("ask", &net.ask);
            list("deny", &net.deny);
            add(&format!("net.ports.{tier}"), format!("{:?}", net.ports.as_ref().map(|p| p.iter().map(|s| s.value).collect::<Vec<_>>())));
        }
        for (section, tiers) in [("exec", &self.exec), ("tools", &self.tools)] {
            for (tier, rules) in tiers.iter().enumerate() {
                add(&format!("{section}.{tier}"), rules.allow.is_some().to_string());
                let lists = [("allow", rules.allow.as_deref().unwrap_or_default()), ("ask", &rules.ask), ("deny", &rules.deny)];
                for (name, list) in lists {
                    list.iter().for_each(|r| add(&format!("{section}.{name}.{tier}"), r.value.clone()));
                }
            }
        }
        self.listen.iter().for_each(|p| add("listen", p.value.to_string()));
        self.groups.iter().for_each(|g| add("group", format!("{}@{:?}", g.value.name, g.value.version)));
        self.env_pass.iter().for_each(|e| add("env.pass", e.value.as_str().to_owned()));
        self.env_set.iter().for_each(|e| add("env.set", format!("{}={}", e.value.0.as_str(), e.value.1)));
        self.secrets.iter().for_each(|s| add("secret", format!("{:?}", s.value)));
        add("git", format!("{:?} {:?}", self.git.push.as_ref().map(|s| s.value), self.git.force_push.as_ref().map(|s| s.value)));
        for list in [&self.git.branches, &self.git.remotes] {
            add("git.list", format!("{:?}", list.as_ref().map(|l| l.iter().map(|s| s.value.as_str()).collect::<Vec<_>>())));
        }
        self.limits.iter().for_each(|(kind, value)| add("limit", format!("{kind} {}", value.value)));
        let b = &self.budgets;
        add("budget", format!("{:?} {:?} {:?} {:?}", value_of(&b.usd), value_of(&b.tokens), value_of(&b.turns), value_of(&b.on_exceed)));
        add("approvals", format!("{:?} {:?}", value_of(&b.approval_timeout), value_of(&b.on_timeout)));
        lines.join("\n")
    }

    /// The digest of [`Self::canonical`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        let hex = blake3::hash(self.canonical().as_bytes()).to_hex().to_string();
        // BLAKE3's own hexadecimal text always has the digest's form.
        Digest::try_from(hex).unwrap_or_else(|_| unreachable!("BLAKE3 gives 64 lower-case hexadecimal digits"))
    }
}

fn value_of<T: Copy>(sourced: &Option<Sourced<T>>) -> Option<T> {
    sourced.as_ref().map(|s| s.value)
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}
