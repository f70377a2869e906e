//! Exposure in one number, 0 (nothing reachable) to 10 (no fence), with the table it is the sum of.
use crate::effective::Effective;
use crate::fsmap::Grade;
use crate::host::HostPattern;
use crate::net::NetMode;
use crate::netrule::NetTarget;
use bastle_contract::{BackendKind, LaunchPlan, LimitKind};
use serde::Serialize;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contribution {
    /// What is looked at.
    pub what: String,
    /// How much it exposes, in tenths.
    pub tenths: u32,
    /// Why.
    pub note: String,
}

/// The number and its table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Exposure in tenths, 0 to 100.
    pub tenths: u32,
    /// `SAFE`, `OK`, `MEDIUM`, `EXPOSED`, `UNSAFE`.
    pub word: &'static str,
    /// What adds up to it.
    pub table: Vec<Contribution>,
}

/// Scores a policy as the backend would hold it.
#[must_use]
pub fn score(effective: &Effective, backend: BackendKind) -> Score {
    sum(effective, backend, None)
}

/// Scores a policy as a plan holds it: with what a person gave up for it.
#[must_use]
pub fn score_of(effective: &Effective, plan: &LaunchPlan) -> Score {
    sum(effective, plan.backend, Some(plan))
}

fn sum(effective: &Effective, backend: BackendKind, plan: Option<&LaunchPlan>) -> Score {
    let mut table = Vec::new();
    let mut add = |what: &str, tenths: u32, note: String| {
        table.push(Contribution {
            what: what.to_owned(),
            tenths,
            note,
        })
    };
    match backend {
        BackendKind::Native => add("fence", 0, "kernel-enforced".to_owned()),
        BackendKind::Host => add("fence", 60, "none: nothing is enforced".to_owned()),
    }
    if plan.is_some_and(LaunchPlan::is_without_landlock) {
        add(
            "landlock",
            10,
            "given up: one layer where others have two".to_owned(),
        );
    }
    files(effective, &mut add);
    match backend {
        BackendKind::Native => network(effective, &mut add),
        BackendKind::Host => add("network", 10, "the host's own".to_owned()),
    }
    let limits = [
        (LimitKind::WallTime, 3),
        (LimitKind::Memory, 4),
        (LimitKind::Pids, 4),
        (LimitKind::Disk, 3),
        (LimitKind::Cpu, 2),
    ];
    for (limit, tenths) in limits {
        match effective.limit(limit) {
            Some(value) => add(
                &format!("limits.{limit}"),
                0,
                crate::plan::show_limit(limit, value.value),
            ),
            None => add(&format!("limits.{limit}"), tenths, "not limited".to_owned()),
        }
    }
    let variables = effective.env_set.len()
        + effective
            .env_pass
            .iter()
            .filter(|name| looks_secret(name.value.as_str()))
            .count();
    let secret = effective
        .env_pass
        .iter()
        .any(|name| looks_secret(name.value.as_str()));
    add(
        "environment",
        if secret { 8 } else { 0 },
        format!("{variables} variables set or passed that may matter"),
    );
    let tenths = table.iter().map(|line| line.tenths).sum::<u32>().min(100);
    Score {
        tenths,
        word: word(tenths),
        table,
    }
}

fn network(effective: &Effective, add: &mut impl FnMut(&str, u32, String)) {
    let net = &effective.net;
    match net.mode {
        NetMode::None | NetMode::Offline => return add("network", 0, "none".to_owned()),
        NetMode::Open => return add("network", 25, "open: every host that no rule denies".to_owned()),
        NetMode::Allowlist => {}
    }
    let rules = || {
        net.tiers
            .first()
            .into_iter()
            .flat_map(|tier| tier.allow.iter().flatten())
    };
    // Subdomains nobody listed and bytes nobody looks at expose more than a named host.
    let wide = rules().filter(|rule| {
        rule.value.terms.opaque || matches!(&rule.value.target, NetTarget::Host(HostPattern::Below(_)))
    });
    let (all, wide) = (rules().count(), wide.count());
    let weight = |count: usize, each: u32, most: u32| {
        u32::try_from(count)
            .unwrap_or(most)
            .saturating_mul(each)
            .min(most)
    };
    let note = if all == 0 {
        "no host is allowed".to_owned()
    } else {
        format!("{all} allow rules, {wide} of them wide")
    };
    add("network", weight(all, 1, 8) + weight(wide, 3, 9), note);
    if net.learn {
        add("learning", 6, "unknown hosts can be read".to_owned());
    }
    let ranges: Vec<String> = net
        .addresses
        .iter()
        .map(|range| range.value.to_string())
        .collect();
    if !ranges.is_empty() {
        add("special addresses", weight(ranges.len(), 3, 9), ranges.join(", "));
    }
}

fn files(effective: &Effective, add: &mut impl FnMut(&str, u32, String)) {
    let workspace = &effective.surroundings.workspace;
    let home = &effective.surroundings.home;
    let granted = |grade: Grade| {
        effective
            .granted(grade)
            .into_iter()
            .map(|rule| rule.value)
            .collect::<Vec<_>>()
    };
    let writes = granted(Grade::Write);
    let outside: Vec<String> = writes
        .iter()
        .filter(|path| !path.is_within(workspace))
        .map(ToString::to_string)
        .collect();
    let inside = writes.iter().any(|path| workspace.is_within(path));
    add(
        "workspace",
        if inside { 5 } else { 1 },
        if inside {
            "writable".to_owned()
        } else {
            "not writable as a whole".to_owned()
        },
    );
    let count = u32::try_from(outside.len()).unwrap_or(10).min(4);
    add(
        "writes elsewhere",
        count * 6,
        if outside.is_empty() {
            "none".to_owned()
        } else {
            outside.join(", ")
        },
    );
    let personal: Vec<String> = granted(Grade::Read)
        .iter()
        .filter(|path| path.is_within(home) && !path.is_within(workspace))
        .map(ToString::to_string)
        .collect();
    let count = u32::try_from(personal.len()).unwrap_or(10).min(5);
    add(
        "reads of the home directory",
        count * 2,
        if personal.is_empty() {
            "none".to_owned()
        } else {
            personal.join(", ")
        },
    );
    let opened: Vec<String> = effective.unprotect.iter().map(ToString::to_string).collect();
    let count = u32::try_from(opened.len()).unwrap_or(10).min(3);
    add(
        "floor re-opened",
        count * 15,
        if opened.is_empty() {
            "no".to_owned()
        } else {
            opened.join(", ")
        },
    );
}

fn looks_secret(name: &str) -> bool {
    ["TOKEN", "SECRET", "KEY", "PASS", "CREDENTIAL", "AUTH"]
        .iter()
        .any(|word| name.to_ascii_uppercase().contains(word))
}

fn word(tenths: u32) -> &'static str {
    match tenths {
        0..=9 => "SAFE",
        10..=29 => "OK",
        30..=49 => "MEDIUM",
        50..=74 => "EXPOSED",
        _ => "UNSAFE",
    }
}
