//! A policy document in a request of somebody who is no admin: which keys it may not have, and what of it would have been
//! dropped or lowered by merging. Nothing is dropped in silence.
use super::form::numbers;
use super::{AuthorityCeiling, Bounded, Excess};
use crate::caches::CacheMerge;
use crate::document::{Document, Mode, NetDefault, Reference};
use crate::effective::Effective;
use crate::fsmap::Grade;
use crate::layers::{LayerKind, Surroundings};
use crate::netrule::NetTarget;
use bastle_contract::AbsPath;

/// Keys that only an admin, the configuration or a profile may state.
#[must_use]
pub fn reserved(document: &Document) -> Vec<Excess> {
    let Document {
        schema: _,
        extends: _,
        mode,
        min_landlock_abi: _,
        lock,
        system,
        agent,
        fs: _,
        net,
        exec: _,
        tools: _,
        env,
        secrets,
        git: _,
        limits: _,
        cache,
        cache_merge,
        budget: _,
        approvals,
        audit,
        tests: _,
        notes: _,
    } = document;
    let keys = [
        ("secrets", !secrets.is_empty()),
        ("net.addresses", net.addresses.is_some()),
        ("net.resolvers", net.resolvers.is_some()),
        ("net.upstream", net.upstream.is_some()),
        ("net.mode", net.mode.is_some()),
        ("env.set", !env.set.is_empty()),
        ("mode", mode.as_ref().is_some_and(|at| at.value != Mode::Enforce)),
        ("lock", !lock.is_empty()),
        ("system", !system.is_empty()),
        ("agent", agent.is_some()),
        ("cache", !cache.is_empty()),
        (
            "cacheMerge",
            cache_merge
                .as_ref()
                .is_some_and(|at| at.value != CacheMerge::Never),
        ),
        ("approvals.reviewers", !approvals.reviewers.is_empty()),
        ("audit.canary", audit.canary.as_ref().is_some_and(|at| !at.value)),
    ];
    keys.into_iter()
        .filter(|(_, stated)| *stated)
        .map(|(key, _)| Excess::Key(key))
        .collect()
}

/// A path that a document asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedPath {
    /// As a refusal tells it, e.g. `fs.read ./docs`.
    pub spelt: String,
    /// Where that is, before any symlink is followed.
    pub path: AbsPath,
    /// What is asked for there.
    pub grade: Grade,
}

/// The paths that a document asks for, for whoever can follow their symlinks. One that is no path is told when the document is
/// merged.
#[must_use]
pub fn asked_paths(document: &Document, surroundings: &Surroundings) -> Vec<AskedPath> {
    let lists = [
        ("read", &document.fs.read, Grade::Read),
        ("write", &document.fs.write, Grade::Write),
    ];
    let rules = lists
        .into_iter()
        .flat_map(|(name, list, grade)| list.iter().flatten().map(move |at| (name, at, grade)));
    rules
        .filter_map(|(name, at, grade)| {
            Some(AskedPath {
                spelt: format!("fs.{name} {}", at.value),
                path: at.value.resolve(surroundings).ok()?,
                grade,
            })
        })
        .collect()
}

/// What a request's document asks for and does not get: `effective` was merged with it as a layer of its own.
#[must_use]
pub fn beyond(document: &Document, effective: &Effective, ceiling: &AuthorityCeiling) -> Vec<Excess> {
    let mut found: Vec<Excess> = effective
        .not_granted
        .iter()
        .filter(|request| request.origin.layer == LayerKind::Request)
        .map(|request| Excess::NotGranted(request.what.clone()))
        .collect();
    hosts(document, ceiling, &mut found);
    for (kind, asked) in numbers(document) {
        match (ceiling.most(kind), in_force(effective, kind)) {
            (Some(most), _) if kind.exceeds(asked, most) => found.push(Excess::Number(kind, asked, most)),
            (_, Some(most)) if kind.exceeds(asked, most) => {
                let what = format!("{} {asked} (the configuration has {most})", kind.path());
                found.push(Excess::NotGranted(what));
            }
            (_, _) => {}
        }
    }
    let mut dropped = |what: &str, is: bool| found.extend(is.then(|| Excess::NotGranted(what.to_owned())));
    let net = &document.net;
    dropped(
        "net.default ask",
        net.default.as_ref().is_some_and(|at| at.value == NetDefault::Ask)
            && effective.net.default.value == NetDefault::Deny,
    );
    dropped(
        "net.ipLiterals true",
        net.ip_literals.as_ref().is_some_and(|at| at.value) && !effective.net.ip_literals,
    );
    let budgets = &effective.budgets;
    let asks_more = |asked: &Option<crate::document::At<u64>>,
                     got: &Option<crate::effective::Sourced<u64>>| {
        matches!((asked, got), (Some(asked), Some(got)) if asked.value > got.value)
    };
    dropped(
        "approvals.timeout",
        asks_more(&document.approvals.timeout, &budgets.approval_timeout),
    );
    dropped(
        "approvals.onTimeout pause",
        matches!((&document.approvals.on_timeout, &budgets.on_timeout), (Some(a), Some(b)) if a.value > b.value),
    );
    dropped(
        "budget.onExceed pause",
        matches!((&document.budget.on_exceed, &budgets.on_exceed), (Some(a), Some(b)) if a.value > b.value),
    );
    dropped(
        "audit.level metadata",
        matches!((&document.audit.level, &budgets.audit_level), (Some(a), Some(b)) if a.value < b.value),
    );
    found
}

/// Hosts that the document would allow and that the ceiling does not name.
fn hosts(document: &Document, ceiling: &AuthorityCeiling, found: &mut Vec<Excess>) {
    if !ceiling.states_hosts() {
        return;
    }
    let net = &document.net;
    for rule in net.allow.iter().flatten().chain(&net.ask) {
        match &rule.value.target {
            NetTarget::Host(pattern) if !ceiling.allows_hosts(pattern) => {
                found.push(Excess::Host(pattern.to_string()));
            }
            // The hosts of a group are known when the run starts; each is held to the ceiling then.
            NetTarget::Host(_) | NetTarget::Group(_) => {}
        }
    }
    let groups = document.extends.iter().filter_map(|at| match &at.value {
        Reference::Group(group) => Some(format!("group:{}", group.name)),
        Reference::Preset(..) => None,
    });
    // Named beside no list of its own a group asks for hosts that nobody can compare here.
    found.extend(groups.filter(|_| net.allow.is_none()).map(Excess::Host));
}

/// The value that holds in the merged policy.
pub(super) fn in_force(effective: &Effective, kind: Bounded) -> Option<u64> {
    let budgets = &effective.budgets;
    let number = |value: &Option<crate::effective::Sourced<u64>>| value.as_ref().map(|value| value.value);
    match kind {
        Bounded::Turns => number(&budgets.turns),
        Bounded::Limit(limit) => effective.limit(limit).map(|value| value.value),
        Bounded::Tokens => number(&budgets.tokens),
        Bounded::Cost => budgets.usd.as_ref().map(|usd| super::form::micro(usd.value)),
        Bounded::BytesOut => number(&budgets.bytes_out),
        Bounded::BytesIn => number(&budgets.bytes_in),
        Bounded::Requests => number(&budgets.requests),
        Bounded::Connections => number(&budgets.connections),
    }
}
