//! The lines of a plan about the network: every rule that egress holds, with its place. Values of secrets are not
//! known here, and where they are kept is not shown.
use super::{PlanLine, built_in};
use crate::effective::{Effective, Origin, Sourced};
use crate::net::{NetMode, UNREAD};
use crate::netrule::NetTarget;
use bastle_contract::{Guarantee, Mechanism};
use std::fmt::Display;

/// Lists them.
pub(super) fn list(effective: &Effective, listing: &mut Vec<PlanLine>) {
    let (mechanism, note) = match effective.net.mode {
        NetMode::None | NetMode::Offline => (Mechanism::Netns, "no network in this run: nothing gets out"),
        NetMode::Allowlist | NetMode::Open => (Mechanism::Proxy, ""),
    };
    let mut put = |section: &str, rule: String, origin: &Origin, note: &str| {
        listing.push(PlanLine {
            section: section.to_owned(),
            rule,
            origin: origin.clone(),
            mechanism,
            probe: Some(Guarantee::NetConfined),
            note: note.to_owned(),
        });
    };
    for tier in &effective.net.tiers {
        let lists = [
            ("net.allow", tier.allow.as_deref().unwrap_or_default()),
            ("net.ask", &tier.ask),
            ("net.deny", &tier.deny),
        ];
        for (section, rules) in lists {
            for rule in rules {
                let unread = match &rule.value.target {
                    NetTarget::Host(pattern) if section == "net.allow" => effective
                        .net
                        .passes_unread(pattern.host(), rule.value.port.unwrap_or(443)),
                    NetTarget::Host(_) | NetTarget::Group(_) => false,
                };
                put(
                    section,
                    rule.value.to_string(),
                    &rule.origin,
                    if unread { UNREAD } else { note },
                );
            }
        }
    }
    let mut add = |section: &str, rule: String, origin: &Origin| put(section, rule, origin, note);
    for Sourced { value, origin } in &effective.secrets {
        let kept = value.from.split(':').next().unwrap_or_default();
        let rule = format!("{} ({kept}) for {}", value.name.as_str(), joined(&value.hosts));
        add("secrets", rule, origin);
    }
    let git = &effective.git;
    for (section, decided) in [("git.push", &git.push), ("git.forcePush", &git.force_push)] {
        if let Some(Sourced { value, origin }) = decided {
            add(
                section,
                crate::decide::Outcome::from(*value).name().to_owned(),
                origin,
            );
        }
    }
    for (section, names) in [("git.branches", &git.branches), ("git.remotes", &git.remotes)] {
        for Sourced { value, origin } in names.iter().flatten() {
            add(section, value.clone(), origin);
        }
    }
    for Sourced { value, origin } in &git.push_options {
        add("git.pushOptions", value.clone(), origin);
    }
    listing.push(PlanLine {
        section: "net".to_owned(),
        rule: match effective.net.mode {
            NetMode::None | NetMode::Offline => "own loopback only",
            NetMode::Allowlist | NetMode::Open => "own loopback, and on it the way to egress",
        }
        .to_owned(),
        origin: built_in(),
        mechanism: Mechanism::Netns,
        probe: Some(Guarantee::NetConfined),
        note: String::new(),
    });
}

fn joined<T: Display>(items: &[T]) -> String {
    let texts: Vec<String> = items.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
