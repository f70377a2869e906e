//! The words of a network decision: code, reason and what to do, in one voice wherever it is shown.
use super::NetPolicy;
use crate::decide::{Decision, Outcome, allowed, refused};
use crate::effective::Origin;
use crate::host::Host;
use crate::netrule::NetTarget;
use crate::tiers::tier_of;
use bastle_contract::{Code, Mechanism};

/// Where a person keeps rules of their own.
const USER_POLICY: &str = "~/.config/bastle/policy.json";

/// An allowed request; `operation` is a row of the danger matrix.
pub(super) fn yes(operation: &str, reason: impl Into<String>) -> Decision {
    allowed(tier_of("net", operation), Mechanism::Proxy, reason)
}

/// A refused request.
pub(super) fn no(outcome: Outcome, code: Code, reason: impl Into<String>) -> Decision {
    refused(outcome, code, Mechanism::Proxy, reason)
}

/// No network at all.
pub(super) fn none() -> Decision {
    refused(
        Outcome::Deny,
        Code::NetNone,
        Mechanism::Netns,
        "the run has no network: it was started with --net none or offline",
    )
    .help("leave --net out, or allow hosts: bastle run --allow-net HOST -- CMD")
}

/// How to allow what was asked, once and always. `rule` is the narrowest rule that would.
pub(super) fn advise(decision: Decision, rule: &str) -> Decision {
    decision
        .help(format!("once     bastle run --allow-net {} -- CMD", quoted(rule)))
        .help(format!(
            "always   add \"{rule}\" to net.allow of your user policy ({USER_POLICY})"
        ))
}

fn quoted(rule: &str) -> String {
    if rule.contains(' ') {
        format!("'{rule}'")
    } else {
        rule.to_owned()
    }
}

/// The narrowest rule for a host and port.
pub(super) fn rule_for(host: &Host, port: u16) -> String {
    match port {
        0 | 80 | 443 => host.to_string(),
        other => format!("{host}:{other}"),
    }
}

impl NetPolicy {
    /// The allowed host that shares most trailing labels.
    pub(crate) fn nearest(&self, host: &Host) -> Option<(String, Origin)> {
        let shared = |other: &str| {
            host.as_str()
                .rsplit('.')
                .zip(other.rsplit('.'))
                .take_while(|(a, b)| a == b)
                .count()
        };
        let rules = self.tiers.first()?.allow.iter().flatten();
        let scored = rules.filter_map(|rule| match &rule.value.target {
            NetTarget::Host(pattern) => Some((shared(pattern.host().as_str()), rule)),
            NetTarget::Group(_) => None,
        });
        let best = scored
            .filter(|(n, _)| *n > 0)
            .max_by_key(|(n, rule)| (*n, std::cmp::Reverse(*rule)));
        best.map(|(_, rule)| (format!("net.allow {}", rule.value), rule.origin.clone()))
    }
}
