//! Rules that do nothing, do less than they seem to, or allow more than they seem to.
use crate::decide::{Outcome, decide};
use crate::document::Mode;
use crate::effective::{Budgets, Effective, Origin, Sourced};
use crate::fsmap::Grade;
use crate::host::HostPattern;
use crate::layers::LayerKind;
use crate::netrule::{NetRule, NetTarget};
use crate::pathrule::Anchor;
use crate::query::{NetQuery, Query};
use crate::terms::Operations;
use bastle_contract::{AbsPath, LimitKind};
use serde::Serialize;

/// What kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// Another rule already says it, or takes it back.
    Shadowed,
    /// It can match nothing.
    Unmatchable,
    /// Nothing on this backend holds it.
    Unenforceable,
    /// It allows far more than it seems to.
    TooWide,
    /// It is advice.
    Advisory,
    /// It stands in a file but has no effect.
    Inactive,
}

/// One remark about one rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// What kind of trouble.
    pub kind: FindingKind,
    /// The rule.
    pub rule: String,
    /// Where it stands.
    pub origin: Origin,
    /// What about it.
    pub message: String,
}

/// Remarks about every rule of the effective policy. Built-in layers are not remarked upon.
#[must_use]
pub fn lint(effective: &Effective) -> Vec<Finding> {
    let mut findings = Vec::new();
    paths(effective, &mut findings);
    names(effective, &mut findings);
    net(effective, &mut findings);
    commands(effective, &mut findings);
    reach(effective, &mut findings);
    waiting(effective, &mut findings);
    for inactive in &effective.inactive {
        findings.push(finding(
            FindingKind::Inactive,
            &inactive.what,
            &inactive.origin,
            &inactive.reason,
        ));
    }
    for request in &effective.not_granted {
        let why = "a project only restricts: requested, not granted";
        findings.push(finding(
            FindingKind::Inactive,
            &request.what,
            &request.origin,
            why,
        ));
    }
    for (limit, value) in &effective.limits {
        if *limit == LimitKind::Files && value.value == 0 {
            findings.push(finding(
                FindingKind::Shadowed,
                "limits.files 0",
                &value.origin,
                "no file can be changed, so fs.write grants nothing",
            ));
        }
    }
    findings.retain(|finding| !matches!(finding.origin.layer, LayerKind::Floor | LayerKind::Preset));
    findings.sort();
    findings.dedup();
    findings
}

/// What is read and merged but nothing acts on yet: said, so that nobody relies on it.
fn waiting(effective: &Effective, findings: &mut Vec<Finding>) {
    let mut add = |rule: &str, origin: &Origin, message: &str| {
        findings.push(finding(FindingKind::Unenforceable, rule, origin, message));
    };
    let Budgets {
        usd: _,
        tokens: _,
        turns: _,
        bytes_out: _,
        bytes_in: _,
        requests: _,
        connections: _,
        on_exceed: _,
        approval_timeout: _,
        on_timeout,
        reviewers,
        audit_level,
        redact,
        canary: _,
    } = &effective.budgets;
    let asked = "this version asks the person who started the run, and denies what is not answered";
    let approvals = [
        ("approvals.onTimeout", on_timeout.as_ref().map(|s| &s.origin)),
        ("approvals.reviewers", reviewers.first().map(|s| &s.origin)),
    ];
    for (rule, origin) in approvals {
        origin.into_iter().for_each(|origin| add(rule, origin, asked));
    }
    let level = audit_level.as_ref().map(|s| &s.origin);
    level
        .into_iter()
        .for_each(|origin| add("audit.level", origin, "this build records metadata only"));
    redact.iter().for_each(|rule| {
        add(
            &format!("audit.redact {}", rule.value),
            &rule.origin,
            "this build records no content to redact",
        )
    });
}

fn finding(kind: FindingKind, rule: &str, origin: &Origin, message: &str) -> Finding {
    Finding {
        kind,
        rule: rule.to_owned(),
        origin: origin.clone(),
        message: message.to_owned(),
    }
}

fn paths(effective: &Effective, findings: &mut Vec<Finding>) {
    const WIDE: &[&str] = &[
        "/", "/etc", "/usr", "/var", "/opt", "/home", "/root", "/srv", "/mnt", "/media",
    ];
    for (path, reach) in effective
        .fs
        .iter()
        .filter(|(_, reach)| !reach.system && reach.grade > Grade::None)
    {
        let section = if reach.grade == Grade::Write {
            "fs.write"
        } else {
            "fs.read"
        };
        let rule = format!("{section} {path}");
        if let Some(hide) = effective.hidden_by(path) {
            let message = format!("{} hides it ({})", hide.value, hide.origin);
            findings.push(finding(FindingKind::Shadowed, &rule, &reach.origin, &message));
        }
        if effective.surroundings.home.is_within(path) {
            findings.push(finding(
                FindingKind::TooWide,
                &rule,
                &reach.origin,
                "it contains the home directory and is refused at start",
            ));
        } else if WIDE.contains(&path.as_str()) {
            findings.push(finding(
                FindingKind::TooWide,
                &rule,
                &reach.origin,
                "it hands over a whole system directory",
            ));
        }
        let above = path.parent().and_then(|parent| effective.fs.find(&parent));
        if let Some((outer, outer_reach)) =
            above.filter(|(_, outer)| outer.grade == reach.grade && !outer.system)
        {
            let message = format!("{outer} already grants it ({})", outer_reach.origin);
            findings.push(finding(FindingKind::Shadowed, &rule, &reach.origin, &message));
        }
    }
}

fn names(effective: &Effective, findings: &mut Vec<Finding>) {
    for (section, rules) in [("fs.hide", &effective.hide), ("fs.protect", &effective.protect)] {
        for rule in rules {
            let text = format!("{section} {}", rule.value);
            if rule.value.anchor == Anchor::Anywhere {
                continue;
            }
            let Some(place) = literal_prefix(effective, rule) else {
                continue;
            };
            let inside = effective.fs.iter().any(|(path, reach)| {
                reach.grade > Grade::None && (path.is_within(&place) || place.is_within(path))
            });
            if !inside {
                findings.push(finding(
                    FindingKind::Unmatchable,
                    &text,
                    &rule.origin,
                    "nothing is granted there, so it does not exist inside anyway",
                ));
            }
            let system = effective.fs.find(&place).is_some_and(|(_, reach)| reach.system);
            if system && rule.value.is_pattern() {
                findings.push(finding(
                    FindingKind::Unenforceable,
                    &text,
                    &rule.origin,
                    "system directories are not searched: name the path without wildcards",
                ));
            }
        }
    }
}

/// The part of an anchored rule before its first wildcard.
fn literal_prefix(effective: &Effective, rule: &Sourced<crate::pathrule::PathRule>) -> Option<AbsPath> {
    let slash = AbsPath::root();
    let root = rule.value.root(&effective.surroundings, &slash)?;
    let parts: Vec<&str> = rule
        .value
        .below
        .split('/')
        .take_while(|part| !part.contains(['*', '?']))
        .collect();
    if parts.is_empty() {
        Some(root.clone())
    } else {
        root.join(&parts.join("/")).ok()
    }
}

fn net(effective: &Effective, findings: &mut Vec<Finding>) {
    for tier in &effective.net {
        let allow = tier.allow.as_deref().unwrap_or_default();
        for (index, rule) in allow.iter().enumerate() {
            let text = format!("net.allow {}", rule.value);
            let deny = effective
                .net
                .tiers
                .iter()
                .flat_map(|tier| &tier.deny)
                .find(|deny| deny.value.covers(&rule.value));
            if let Some(deny) = deny {
                let message = format!("net.deny {} takes it back ({})", deny.value, deny.origin);
                findings.push(finding(FindingKind::Shadowed, &text, &rule.origin, &message));
            }
            let wider = allow
                .iter()
                .enumerate()
                .find(|(other, own)| *other != index && own.value.covers(&rule.value));
            if let Some((_, wider)) = wider {
                let message = format!("net.allow {} already allows it ({})", wider.value, wider.origin);
                findings.push(finding(FindingKind::Shadowed, &text, &rule.origin, &message));
            }
            unmatchable_host(effective, rule, &text, findings);
        }
    }
}

/// What lets more out than it seems to, or nothing though it seems to.
fn reach(effective: &Effective, findings: &mut Vec<Finding>) {
    let net = &effective.net;
    let mut add = |kind, rule: &str, origin: &Origin, message: &str| {
        findings.push(finding(kind, rule, origin, message));
    };
    if effective.mode.value != Mode::Enforce {
        let message = "hosts that no rule names can be read (GET, HEAD); files and programs are held as ever";
        add(FindingKind::TooWide, "mode", &effective.mode.origin, message);
    }
    let allow = || net.tiers.iter().flat_map(|tier| tier.allow.iter().flatten());
    for rule in allow().filter(|rule| rule.value.terms.opaque) {
        let message = "nothing inside is looked at: neither requests nor pushes are judged there";
        add(
            FindingKind::TooWide,
            &format!("net.allow {}", rule.value),
            &rule.origin,
            message,
        );
    }
    for secret in &net.secrets {
        let meets = |pattern: &HostPattern| {
            allow().any(|rule| match &rule.value.target {
                NetTarget::Host(own) => own.covers(pattern) || pattern.covers(own),
                NetTarget::Group(_) => true,
            })
        };
        for pattern in secret.hosts.iter().filter(|pattern| !meets(pattern)) {
            let rule = format!("secrets {} for {pattern}", secret.name.as_str());
            let message = "no rule allows that host, so it is never sent";
            add(FindingKind::Unmatchable, &rule, &secret.origin, message);
        }
    }
    if let (Some(upstream), Some(range)) = (&net.upstream, net.addresses.first()) {
        let message = format!("{upstream} resolves names itself, so addresses cannot be checked here");
        add(
            FindingKind::Unenforceable,
            "net.addresses",
            &range.origin,
            &message,
        );
    }
}

fn unmatchable_host(effective: &Effective, rule: &Sourced<NetRule>, text: &str, findings: &mut Vec<Finding>) {
    let host = match &rule.value.target {
        NetTarget::Host(HostPattern::Exact(host)) => host.clone(),
        // A group's hosts are resolved when a run starts.
        NetTarget::Group(_) | NetTarget::Host(HostPattern::Below(_)) => return,
    };
    if host.is_literal() && !effective.net.ip_literals {
        findings.push(finding(
            FindingKind::Unmatchable,
            text,
            &rule.origin,
            "net.ipLiterals is off, so an address never matches",
        ));
        return;
    }
    let method = rule.value.methods.first().cloned();
    let query = Query::Net(NetQuery {
        method,
        host,
        port: rule.value.port.unwrap_or(443),
        path: None,
    });
    if rule.value.path.is_none()
        && rule.value.terms.operations == Operations::Any
        && decide(effective, &query).outcome == Outcome::Deny
    {
        findings.push(finding(
            FindingKind::Shadowed,
            text,
            &rule.origin,
            "another layer's rules take it back in full",
        ));
    }
}

fn commands(effective: &Effective, findings: &mut Vec<Finding>) {
    const INTERPRETERS: &[&str] = &[
        "python", "python3", "node", "perl", "ruby", "deno", "bun", "php", "make", "npx", "uvx",
    ];
    for (section, tiers) in [("exec", &effective.exec), ("tools", &effective.tools)] {
        for tier in tiers {
            let lists = [
                ("allow", tier.allow.as_deref().unwrap_or_default()),
                ("ask", &tier.ask),
                ("deny", &tier.deny),
            ];
            for (list, rule) in lists
                .iter()
                .flat_map(|(list, rules)| rules.iter().map(move |rule| (*list, rule)))
            {
                let text = format!("{section}.{list} {}", rule.value);
                let held = section == "exec" && list == "allow";
                let why = if held {
                    "inside, the program file is held; its arguments and the scripts it reads are advice"
                } else {
                    "advice to the agent; the fence holds without it"
                };
                findings.push(finding(FindingKind::Advisory, &text, &rule.origin, why));
                let program = rule
                    .value
                    .trim_start_matches("Bash(")
                    .split([' ', ')'])
                    .next()
                    .unwrap_or_default();
                let open = rule.value.ends_with('*') || rule.value.ends_with("*)");
                if list == "allow" && open && INTERPRETERS.contains(&program) {
                    findings.push(finding(
                        FindingKind::TooWide,
                        &text,
                        &rule.origin,
                        "an interpreter with any arguments runs anything",
                    ));
                }
                if list == "allow" && tier.deny.iter().any(|deny| deny.value == rule.value) {
                    findings.push(finding(
                        FindingKind::Shadowed,
                        &text,
                        &rule.origin,
                        "the same rule stands in deny, which wins",
                    ));
                }
            }
        }
    }
}
