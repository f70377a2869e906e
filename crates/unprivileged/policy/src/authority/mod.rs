//! The authority ceiling: the most that somebody may give to the runs they start. Pure values.
//!
//! A field that is not stated bounds nothing by itself; what is left unstated by everybody is filled from the built-in
//! default ([`AuthorityCeiling::built_in`]). A ceiling never grants: the operator's configuration does, and the ceiling cuts
//! it down. [`AuthorityCeiling::meet`] is the greatest ceiling within two others.
//!
//! **Trust:** read from a token's record, a profile, the daemon's settings or an admin's request. Reading checks every value
//! and takes its canonical form; nothing is compared by spelling.
mod derived;
mod excess;
mod form;
mod reserved;

pub use excess::{Excess, Wanted};
pub use form::CeilingForm;
pub use reserved::{AskedPath, asked_paths, beyond, reserved};

use crate::document::{At, Budget, Document, Limits};
use crate::host::{Host, HostPattern};
use crate::net::NetMode;
use bastle_contract::{AbsPath, BackendKind, EnvName, LimitKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How a run gets its project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceMode {
    /// A copy of it.
    Copy,
    /// A layer above it.
    Overlay,
    /// A git work tree.
    Worktree,
    /// The project itself.
    InPlace,
}

impl WorkspaceMode {
    /// Every mode, the usual one first.
    pub const ALL: [Self; 4] = [Self::Copy, Self::Overlay, Self::Worktree, Self::InPlace];

    /// The word of requests.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Overlay => "overlay",
            Self::Worktree => "worktree",
            Self::InPlace => "in-place",
        }
    }

    /// The mode of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

/// A number that a ceiling bounds: a limit of the kernel's kind, or a budget that egress counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bounded {
    /// A limit.
    Limit(LimitKind),
    /// Model requests.
    Turns,
    /// Model tokens.
    Tokens,
    /// Money, in millionths of a dollar.
    Cost,
    /// Bytes sent.
    BytesOut,
    /// Bytes received.
    BytesIn,
    /// Requests.
    Requests,
    /// Connections.
    Connections,
}

impl Bounded {
    /// The value of two that binds more: of what stays free the larger one, of everything else the smaller.
    fn stricter(self, one: u64, other: u64) -> u64 {
        let less = match self {
            Self::Limit(kind) => kind.stricter_first(&one, &other),
            _ => one.cmp(&other),
        };
        if less.is_le() { one } else { other }
    }

    /// Whether `asked` is more than `most` allows.
    pub(super) fn exceeds(self, asked: u64, most: u64) -> bool {
        asked != most && self.stricter(asked, most) == most
    }
}

/// The most that somebody may give to a run. See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "CeilingForm", into = "CeilingForm")]
pub struct AuthorityCeiling {
    /// Directories that projects lie in or below; none within another.
    roots: Option<BTreeSet<AbsPath>>,
    profiles: Option<BTreeSet<String>>,
    /// Without versions.
    presets: Option<BTreeSet<String>>,
    /// None covered by another.
    hosts: Option<BTreeSet<HostPattern>>,
    secrets: Option<BTreeSet<EnvName>>,
    net: Option<NetMode>,
    modes: Option<BTreeSet<WorkspaceMode>>,
    backends: Option<BTreeSet<Backend>>,
    limits: BTreeMap<Bounded, u64>,
    max_runs: Option<u32>,
}

/// A backend in an order, for sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Backend {
    Native,
    Host,
}

impl From<BackendKind> for Backend {
    fn from(kind: BackendKind) -> Self {
        match kind {
            BackendKind::Native => Self::Native,
            BackendKind::Host => Self::Host,
        }
    }
}

impl AuthorityCeiling {
    /// What holds where nobody states a field: projects below this home directory, on a copy, with what rules allow, in the
    /// native fence. Everything else is as the operator's configuration grants it.
    #[must_use]
    pub fn built_in(home: &AbsPath) -> Self {
        Self {
            roots: Some(BTreeSet::from([home.clone()])),
            net: Some(NetMode::Allowlist),
            modes: Some(BTreeSet::from([
                WorkspaceMode::Copy,
                WorkspaceMode::Overlay,
                WorkspaceMode::Worktree,
            ])),
            backends: Some(BTreeSet::from([Backend::Native])),
            ..Self::default()
        }
    }

    /// Whether it states nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The greatest ceiling within both.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        let mut limits = self.limits.clone();
        for (kind, most) in &other.limits {
            limits
                .entry(*kind)
                .and_modify(|own| *own = kind.stricter(*own, *most))
                .or_insert(*most);
        }
        Self {
            roots: both(&self.roots, &other.roots, nested_roots),
            profiles: both(&self.profiles, &other.profiles, common),
            presets: both(&self.presets, &other.presets, common),
            hosts: both(&self.hosts, &other.hosts, nested_hosts),
            secrets: both(&self.secrets, &other.secrets, common),
            net: both(&self.net, &other.net, |a, b| *a.min(b)),
            modes: both(&self.modes, &other.modes, common),
            backends: both(&self.backends, &other.backends, common),
            limits,
            max_runs: both(&self.max_runs, &other.max_runs, |a, b| *a.min(b)),
        }
    }

    /// This ceiling, with fields that it does not state taken from `other`.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let mut limits = other.limits.clone();
        limits.extend(&self.limits);
        Self {
            roots: self.roots.clone().or_else(|| other.roots.clone()),
            profiles: self.profiles.clone().or_else(|| other.profiles.clone()),
            presets: self.presets.clone().or_else(|| other.presets.clone()),
            hosts: self.hosts.clone().or_else(|| other.hosts.clone()),
            secrets: self.secrets.clone().or_else(|| other.secrets.clone()),
            net: self.net.or(other.net),
            modes: self.modes.clone().or_else(|| other.modes.clone()),
            backends: self.backends.clone().or_else(|| other.backends.clone()),
            limits,
            max_runs: self.max_runs.or(other.max_runs),
        }
    }

    /// A ceiling that bounds these numbers and nothing else.
    #[must_use]
    pub fn of_limits(limits: impl IntoIterator<Item = (Bounded, u64)>) -> Self {
        Self {
            limits: limits.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Its roots with each taken through `settle`, for whoever can resolve symlinks.
    pub fn settle_roots<E>(mut self, settle: impl Fn(&AbsPath) -> Result<AbsPath, E>) -> Result<Self, E> {
        if let Some(roots) = &self.roots {
            let settled = roots.iter().map(settle).collect::<Result<_, _>>()?;
            self.roots = Some(outermost(settled));
        }
        Ok(self)
    }

    /// Whether a directory lies in or below a root. It must be canonical: `..` and symlinks resolved.
    #[must_use]
    pub fn allows_root(&self, path: &AbsPath) -> bool {
        allows(&self.roots, |roots| roots.iter().any(|root| path.is_within(root)))
    }

    /// Whether a profile may be named.
    #[must_use]
    pub fn allows_profile(&self, name: &str) -> bool {
        allows(&self.profiles, |all| all.contains(name))
    }

    /// Whether a preset may be used, in any version.
    #[must_use]
    pub fn allows_preset(&self, name: &str) -> bool {
        let plain = name.split('@').next().unwrap_or(name);
        allows(&self.presets, |all| all.contains(plain))
    }

    /// Whether a host may be reached, where the policy allows it.
    #[must_use]
    pub fn allows_host(&self, host: &Host) -> bool {
        allows(&self.hosts, |all| all.iter().any(|pattern| pattern.matches(host)))
    }

    /// Whether every host of a pattern may be reached.
    #[must_use]
    pub fn allows_hosts(&self, wanted: &HostPattern) -> bool {
        allows(&self.hosts, |all| {
            all.iter().any(|pattern| pattern.covers(wanted))
        })
    }

    /// Whether a secret of the configuration may be used.
    #[must_use]
    pub fn allows_secret(&self, name: &EnvName) -> bool {
        allows(&self.secrets, |all| all.contains(name))
    }

    /// Whether a workspace mode may be used.
    #[must_use]
    pub fn allows_mode(&self, mode: WorkspaceMode) -> bool {
        allows(&self.modes, |all| all.contains(&mode))
    }

    /// Whether a backend may be used.
    #[must_use]
    pub fn allows_backend(&self, kind: BackendKind) -> bool {
        allows(&self.backends, |all| all.contains(&kind.into()))
    }

    /// The widest network mode.
    #[must_use]
    pub fn net(&self) -> Option<NetMode> {
        self.net
    }

    /// The hosts it names.
    #[must_use]
    pub fn hosts(&self) -> Option<Vec<HostPattern>> {
        self.hosts.as_ref().map(|hosts| hosts.iter().cloned().collect())
    }

    /// Whether it states roots.
    #[must_use]
    pub fn states_roots(&self) -> bool {
        self.roots.is_some()
    }

    /// Whether it states hosts.
    #[must_use]
    pub fn states_hosts(&self) -> bool {
        self.hosts.is_some()
    }

    /// Whether it states secrets.
    #[must_use]
    pub fn states_secrets(&self) -> bool {
        self.secrets.is_some()
    }

    /// The most of a number.
    #[must_use]
    pub fn most(&self, kind: Bounded) -> Option<u64> {
        self.limits.get(&kind).copied()
    }

    /// Most runs at once.
    #[must_use]
    pub fn max_runs(&self) -> Option<u32> {
        self.max_runs
    }

    /// What it says about numbers, as a document that narrows.
    #[must_use]
    pub fn document(&self) -> Document {
        let limits = self.limits.iter().filter_map(|(kind, most)| match kind {
            Bounded::Limit(limit) => Some((*limit, At::nowhere(*most))),
            _ => None,
        });
        let most = |kind: Bounded| self.most(kind).map(At::nowhere);
        Document {
            limits: Limits(limits.collect()),
            budget: Budget {
                usd: self.most(Bounded::Cost).map(|micro| At::nowhere(dollars(micro))),
                tokens: most(Bounded::Tokens),
                turns: most(Bounded::Turns),
                bytes_out: most(Bounded::BytesOut),
                bytes_in: most(Bounded::BytesIn),
                requests: most(Bounded::Requests),
                connections: most(Bounded::Connections),
                on_exceed: None,
            },
            ..Document::default()
        }
    }
}

/// Millionths of a dollar in dollars.
#[expect(
    clippy::cast_precision_loss,
    reason = "beyond 2^53 millionths nobody counts cents"
)]
pub(crate) fn dollars(micro: u64) -> f64 {
    micro as f64 / 1e6
}

/// A field that is not stated bounds nothing.
fn allows<T>(field: &Option<T>, contains: impl FnOnce(&T) -> bool) -> bool {
    field.as_ref().is_none_or(contains)
}

fn both<T: Clone>(a: &Option<T>, b: &Option<T>, meet: impl FnOnce(&T, &T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(meet(a, b)),
        (stated, None) | (None, stated) => stated.clone(),
    }
}

fn common<T: Ord + Clone>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> BTreeSet<T> {
    a.intersection(b).cloned().collect()
}

/// Of every pair where one lies within the other, the inner one.
fn nested_roots(a: &BTreeSet<AbsPath>, b: &BTreeSet<AbsPath>) -> BTreeSet<AbsPath> {
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    let inner = pairs.filter_map(|(x, y)| match (x.is_within(y), y.is_within(x)) {
        (true, _) => Some(x.clone()),
        (false, true) => Some(y.clone()),
        (false, false) => None,
    });
    outermost(inner.collect())
}

/// Without directories that lie in another of them: one form for one meaning.
fn outermost(roots: BTreeSet<AbsPath>) -> BTreeSet<AbsPath> {
    let inside = |one: &AbsPath| roots.iter().any(|other| other != one && one.is_within(other));
    roots.iter().filter(|root| !inside(root)).cloned().collect()
}

fn nested_hosts(a: &BTreeSet<HostPattern>, b: &BTreeSet<HostPattern>) -> BTreeSet<HostPattern> {
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    let narrower = pairs.filter_map(|(x, y)| match (y.covers(x), x.covers(y)) {
        (true, _) => Some(x.clone()),
        (false, true) => Some(y.clone()),
        (false, false) => None,
    });
    widest(narrower.collect())
}

fn widest(patterns: BTreeSet<HostPattern>) -> BTreeSet<HostPattern> {
    let inside = |one: &HostPattern| patterns.iter().any(|other| other != one && other.covers(one));
    patterns
        .iter()
        .filter(|pattern| !inside(pattern))
        .cloned()
        .collect()
}
