//! What one policy reaches that another does not.
use crate::effective::{Effective, Sourced};
use crate::fsmap::Grade;
use serde::Serialize;
use std::collections::BTreeSet;

/// One difference: `+` is more reach in the second policy, `-` is less.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DiffLine {
    /// `fs`, `net.allow`, …
    pub section: String,
    /// `true`: the second policy reaches more.
    pub wider: bool,
    /// What.
    pub what: String,
}

/// What an entry more in a list means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entries {
    /// More reach.
    Widen,
    /// Less reach.
    Narrow,
}

/// Differences in reach from `a` to `b`.
#[must_use]
pub fn diff(a: &Effective, b: &Effective) -> Vec<DiffLine> {
    let mut lines = Vec::new();
    let paths: BTreeSet<_> = a.fs.iter().chain(b.fs.iter()).map(|(path, _)| path).collect();
    for path in paths {
        let (before, after) = (a.fs.grade(path), b.fs.grade(path));
        if before != after {
            let what = format!("{path} {} → {}", grade(before), grade(after));
            lines.push(DiffLine {
                section: "fs".to_owned(),
                wider: after > before,
                what,
            });
        }
    }
    // Of restricting lists, an entry more is reach less.
    let texts =
        |rules: &[Sourced<crate::pathrule::PathRule>]| rules.iter().map(|r| r.value.to_string()).collect();
    sets(
        "fs.hide",
        &texts(&a.hide),
        &texts(&b.hide),
        Entries::Narrow,
        &mut lines,
    );
    sets(
        "fs.protect",
        &texts(&a.protect),
        &texts(&b.protect),
        Entries::Narrow,
        &mut lines,
    );
    for (name, grants) in [
        ("allow", Entries::Widen),
        ("ask", Entries::Narrow),
        ("deny", Entries::Narrow),
    ] {
        sets(
            &format!("net.{name}"),
            &net(a, name),
            &net(b, name),
            grants,
            &mut lines,
        );
        for (section, of) in [("exec", (&a.exec, &b.exec)), ("tools", (&a.tools, &b.tools))] {
            sets(
                &format!("{section}.{name}"),
                &commands(of.0, name),
                &commands(of.1, name),
                grants,
                &mut lines,
            );
        }
    }
    reach_of_net(a, b, &mut lines);
    let pass = |e: &Effective| {
        e.env_pass
            .iter()
            .map(|name| name.value.as_str().to_owned())
            .collect()
    };
    sets("env.pass", &pass(a), &pass(b), Entries::Widen, &mut lines);
    let set = |e: &Effective| {
        e.env_set
            .iter()
            .map(|entry| entry.value.0.as_str().to_owned())
            .collect()
    };
    sets("env.set", &set(a), &set(b), Entries::Widen, &mut lines);
    let secrets = |e: &Effective| {
        e.secrets
            .iter()
            .map(|secret| secret.value.name.as_str().to_owned())
            .collect()
    };
    sets("secrets", &secrets(a), &secrets(b), Entries::Widen, &mut lines);
    let caches = |e: &Effective| e.caches.iter().map(|cache| cache.value.clone()).collect();
    sets("cache", &caches(a), &caches(b), Entries::Widen, &mut lines);
    limits(a, b, &mut lines);
    lines.sort();
    lines
}

fn sets(
    section: &str,
    a: &BTreeSet<String>,
    b: &BTreeSet<String>,
    entries: Entries,
    lines: &mut Vec<DiffLine>,
) {
    for what in b.difference(a) {
        lines.push(DiffLine {
            section: section.to_owned(),
            wider: entries == Entries::Widen,
            what: format!("added {what}"),
        });
    }
    for what in a.difference(b) {
        lines.push(DiffLine {
            section: section.to_owned(),
            wider: entries == Entries::Narrow,
            what: format!("removed {what}"),
        });
    }
}

fn net(effective: &Effective, list: &str) -> BTreeSet<String> {
    let rules = effective.net.tiers.iter().flat_map(|tier| match list {
        "allow" => tier.allow.as_deref().unwrap_or_default(),
        "ask" => &tier.ask,
        _ => &tier.deny,
    });
    rules.map(|rule| rule.value.to_string()).collect()
}

/// What widens or narrows the network beside its rules.
fn reach_of_net(a: &Effective, b: &Effective, lines: &mut Vec<DiffLine>) {
    let ranges = |e: &Effective| {
        e.net
            .addresses
            .iter()
            .map(|range| range.value.to_string())
            .collect()
    };
    sets("net.addresses", &ranges(a), &ranges(b), Entries::Widen, lines);
    if a.net.mode != b.net.mode {
        lines.push(DiffLine {
            section: "net".to_owned(),
            wider: b.net.mode > a.net.mode,
            what: format!("{} → {}", a.net.mode.name(), b.net.mode.name()),
        });
    }
    if a.net.ip_literals != b.net.ip_literals {
        lines.push(DiffLine {
            section: "net.ipLiterals".to_owned(),
            wider: b.net.ip_literals,
            what: format!("{} → {}", a.net.ip_literals, b.net.ip_literals),
        });
    }
}

fn commands(tiers: &[crate::commands::CommandTier], list: &str) -> BTreeSet<String> {
    let rules = tiers.iter().flat_map(|tier| match list {
        "allow" => tier.allow.as_deref().unwrap_or_default(),
        "ask" => &tier.ask,
        _ => &tier.deny,
    });
    rules.map(|rule| rule.value.clone()).collect()
}

fn limits(a: &Effective, b: &Effective, lines: &mut Vec<DiffLine>) {
    for kind in bastle_contract::LimitKind::ALL {
        let (before, after) = (a.limit(kind).map(|v| v.value), b.limit(kind).map(|v| v.value));
        if before != after {
            // No limit is the widest.
            let wider = after.unwrap_or(u64::MAX) > before.unwrap_or(u64::MAX);
            let show = |value: Option<u64>| {
                value.map_or("none".to_owned(), |value| crate::plan::show_limit(kind, value))
            };
            lines.push(DiffLine {
                section: "limits".to_owned(),
                wider,
                what: format!("{kind} {} → {}", show(before), show(after)),
            });
        }
    }
}

fn grade(grade: Grade) -> &'static str {
    match grade {
        Grade::None => "invisible",
        Grade::Read => "read",
        Grade::Write => "write",
    }
}
