//! Decisions about requests that go out. In this build nothing gets out; the rules are judged all the same.
use super::{Decision, Outcome, allowed, refused};
use crate::document::NetDefault;
use crate::effective::{Effective, Origin};
use crate::netrule::Asked;
use crate::query::NetQuery;
use crate::tiers::tier_of;
use bastle_contract::{Code, Mechanism};

/// Ports that may be dialled when no layer names any.
const USUAL_PORTS: [u16; 2] = [443, 80];

pub(super) fn request(effective: &Effective, query: &NetQuery) -> Decision {
    let asked = Asked {
        method: query.method.as_deref(),
        host: &query.host,
        port: query.port,
        path: query.path.as_deref(),
    };
    if query.host.is_forbidden() {
        return refused(
            Outcome::Deny,
            Code::NetDenied,
            Mechanism::Netns,
            "it names this machine or a metadata service, which no policy opens",
        );
    }
    if query.host.is_literal() && !effective.ip_literals {
        return refused(
            Outcome::Deny,
            Code::NetDenied,
            Mechanism::Netns,
            "IP addresses are refused unless net.ipLiterals allows them",
        );
    }
    let decision = effective
        .net
        .iter()
        .enumerate()
        .fold(None::<Decision>, |strictest, (index, tier)| {
            let next = net_tier(
                effective,
                tier,
                &asked,
                if index == 0 {
                    TierRole::Grants
                } else {
                    TierRole::Narrows
                },
            );
            match strictest {
                Some(best) if best.outcome <= next.outcome => Some(best),
                Some(_) | None => Some(next),
            }
        });
    let none = || {
        refused(
            Outcome::Deny,
            Code::NetDenied,
            Mechanism::Netns,
            "no rule grants it",
        )
    };
    let decision = decision.unwrap_or_else(none);
    match decision.outcome {
        Outcome::Allow => {
            decision.help("the policy allows it, but this build has no egress: nothing gets out")
        }
        Outcome::Ask | Outcome::Deny => {
            decision.help("this build has no egress: nothing gets out whatever the rules say")
        }
    }
}

/// What a tier's silence means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TierRole {
    /// The operator's: what it does not allow, nobody does.
    Grants,
    /// Any other: what it does not speak about stays as it was.
    Narrows,
}

fn net_tier(
    effective: &Effective,
    tier: &crate::effective::NetRules,
    asked: &Asked<'_>,
    role: TierRole,
) -> Decision {
    let grants = role == TierRole::Grants;
    let no = |outcome, reason: &str| refused(outcome, Code::NetDenied, Mechanism::Netns, reason);
    if let Some(rule) = tier.deny.iter().find(|rule| rule.value.meets(asked)) {
        return no(Outcome::Deny, "a deny rule names it").rule("net.deny", rule);
    }
    let ask = tier.ask.iter().find(|rule| rule.value.meets(asked));
    if let (Some(rule), true) = (ask, grants) {
        return no(Outcome::Ask, "an ask rule names it").rule("net.ask", rule);
    }
    let usual = tier
        .ports
        .as_ref()
        .map_or(!grants || USUAL_PORTS.contains(&asked.port), |ports| {
            ports.iter().any(|p| p.value == asked.port)
        });
    let allow = tier
        .allow
        .iter()
        .flatten()
        .find(|rule| rule.value.allows(asked) && (usual || rule.value.port == Some(asked.port)));
    let silent = tier.allow.is_none() && !grants && usual;
    match (allow, ask) {
        // In a tier that narrows, an ask rule lowers what would be allowed and lifts nothing.
        (_, Some(rule)) if allow.is_some() || silent => {
            no(Outcome::Ask, "an ask rule names it").rule("net.ask", rule)
        }
        (Some(rule), _) => allowed(
            tier_of("net", "request"),
            Mechanism::Netns,
            "an allow rule names it",
        )
        .rule("net.allow", rule),
        (None, _) if silent => allowed(
            tier_of("net", "request"),
            Mechanism::Netns,
            "this layer does not speak about it",
        ),
        (None, _) => {
            let outcome = match effective.net_default.value {
                NetDefault::Ask => Outcome::Ask,
                NetDefault::Deny => Outcome::Deny,
            };
            no(outcome, "no rule matched, so the default holds")
        }
    }
}

/// The allowed host that shares most trailing labels.
pub(super) fn nearest_host(effective: &Effective, query: &NetQuery) -> Option<(String, Origin)> {
    let name = query.host.as_str();
    let shared = |other: &str| {
        name.rsplit('.')
            .zip(other.rsplit('.'))
            .take_while(|(a, b)| a == b)
            .count()
    };
    let rules = effective.net.first()?.allow.iter().flatten();
    let scored = rules.filter_map(|rule| match &rule.value.target {
        crate::netrule::NetTarget::Host(pattern) => Some((shared(pattern.host().as_str()), rule)),
        crate::netrule::NetTarget::Group(_) => None,
    });
    let best = scored
        .filter(|(n, _)| *n > 0)
        .max_by_key(|(n, rule)| (*n, std::cmp::Reverse(*rule)));
    best.map(|(_, rule)| (format!("net.allow {}", rule.value), rule.origin.clone()))
}
