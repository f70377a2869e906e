//! Judging one request: every tier answers, the strictest answer holds.
use super::answer::{advise, no, none, rule_for, yes};
use super::headers::UNREAD;
use super::{BodyNeed, NetMode, NetPolicy, NetRequest, SecretUse, USUAL_PORTS};
use crate::decide::{Decision, Outcome};
use crate::document::NetDefault;
use crate::effective::{NetRules, Sourced};
use crate::host::Host;
use crate::netrule::{Asked, NetRule};
use crate::query::NetQuery;
use crate::terms::Operations;
use crate::urlpath::PathDemand;
use bastle_contract::Code;
use bastle_contract::egress::{CANARY_NAME, LOCAL_NAME};
use std::net::{IpAddr, Ipv4Addr};

/// What a tier's silence means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TierRole {
    /// The operator's: what it does not allow, nobody does.
    Grants,
    /// Any other: what it does not speak about stays as it was.
    Narrows,
}

/// What a tier says, and whether a rule (and not silence) stands behind an answer that is not a yes.
pub(super) struct Said {
    pub(super) decision: Decision,
    pub(super) by_rule: bool,
}

/// What a request is for, as far as a run that learns cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It reads and brings nothing along; or it is a connection, in which such a request may come.
    Reading,
    /// Anything else.
    Other,
}

/// Reasons of a yes.
pub(super) const NAMED: &str = "an allow rule names it";
pub(super) const OPEN: &str = "--net open: no rule denies it";
pub(super) const SILENT: &str = "this layer does not speak about it";

impl NetPolicy {
    /// Judges a request that was parsed.
    pub fn request(&self, request: &NetRequest<'_>) -> Decision {
        let asked = Asked {
            method: Some(request.method),
            host: request.host,
            port: request.port,
            path: Some(request.path),
            operation: request.operation,
            websocket: request.websocket,
        };
        // Port 0 stands for any port in a lookup; no request goes to it.
        if request.port == 0 {
            return no(Outcome::Deny, Code::NetPort, "port 0 is none");
        }
        let decision = self.judge(&asked, request.body_len);
        let reading = matches!(request.method, "GET" | "HEAD")
            && request.body_len.unwrap_or(0) == 0
            && !request.websocket;
        let purpose = if reading { Purpose::Reading } else { Purpose::Other };
        self.learned(decision, &asked, purpose)
    }

    /// Judges a question of `can-i`, `why` or an in-file test.
    pub(crate) fn query(&self, query: &NetQuery) -> Decision {
        let asked = Asked {
            method: query.method.as_deref(),
            host: &query.host,
            port: query.port,
            path: query.path.as_deref(),
            operation: None,
            websocket: false,
        };
        let decision = self.judge(&asked, None);
        let purpose = match query.method.as_deref() {
            Some("GET" | "HEAD") => Purpose::Reading,
            Some(_) | None => Purpose::Other,
        };
        let decision = self.learned(decision, &asked, purpose);
        if decision.outcome == Outcome::Allow && self.passes_unread(&query.host, query.port) {
            return decision.help(format!("note     {UNREAD}"));
        }
        decision
    }

    /// What must be read of a body before a request can be judged.
    #[must_use]
    pub fn body_need(&self, method: &str, host: &Host, port: u16, path: &str) -> BodyNeed {
        let asked = Asked {
            method: Some(method),
            host,
            port,
            path: Some(path),
            operation: None,
            websocket: false,
        };
        let lists = self.tiers.iter().flat_map(NetRules::all);
        let meeting = lists.filter(|rule| rule.value.meets_but_operations(&asked));
        meeting
            .map(|rule| match rule.value.terms.operations {
                Operations::Any => BodyNeed::None,
                Operations::Rpc(_) => BodyNeed::Rpc,
                Operations::GraphQl(_) => BodyNeed::GraphQl,
            })
            .find(|need| *need != BodyNeed::None)
            .unwrap_or(BodyNeed::None)
    }

    /// Which forms of a path can be judged for a request of this method to this host.
    #[must_use]
    pub fn path_demand(&self, method: &str, host: &Host, port: u16) -> PathDemand {
        let reads = matches!(method, "GET" | "HEAD" | "OPTIONS");
        let rules = || self.rules_inside(host, port);
        let secrets = || self.secrets_for(host, port);
        let git = self.judges_pushes(host);
        if rules().any(|rule| rule.path.is_some())
            || secrets().any(|secret| !secret.paths.is_empty())
            || (git && !reads)
        {
            PathDemand::Plain
        } else if git || rules().next().is_some() || secrets().next().is_some() {
            PathDemand::Honest
        } else {
            PathDemand::Any
        }
    }

    /// Whether a request to this host may name another method or path than its own, in the ways some servers follow
    /// (`X-HTTP-Method-Override`, `_method`, `X-Original-URL`). Where methods or paths decide, it may not.
    #[must_use]
    pub fn refuses_overrides(&self, host: &Host, port: u16) -> bool {
        let narrow = |secret: &SecretUse| !secret.methods.is_empty() || !secret.paths.is_empty();
        self.rules_inside(host, port).next().is_some()
            || self.secrets_for(host, port).any(narrow)
            || self.judges_pushes(host)
    }

    /// Rules about this host for which something inside a connection makes a difference.
    fn rules_inside<'p>(&'p self, host: &'p Host, port: u16) -> impl Iterator<Item = &'p NetRule> {
        let lists = self.tiers.iter().flat_map(NetRules::all);
        lists.map(|rule| &rule.value).filter(move |rule| {
            !rule.is_whole() && rule.names(host) && rule.port.is_none_or(|own| own == port)
        })
    }

    fn judge(&self, asked: &Asked<'_>, body: Option<u64>) -> Said {
        if let Some(refusal) = self.outright(asked.host) {
            return said(refusal);
        }
        let answers = self.tiers.iter().enumerate().map(|(index, tier)| {
            let role = if index == 0 {
                TierRole::Grants
            } else {
                TierRole::Narrows
            };
            self.tier_request(tier, asked, body, role)
        });
        strictest(answers)
    }

    /// What no rule can change: no network, this machine itself, addresses, the canary.
    pub(super) fn outright(&self, host: &Host) -> Option<Decision> {
        match self.mode {
            NetMode::None | NetMode::Offline => return Some(none()),
            NetMode::Allowlist | NetMode::Open => {}
        }
        if host.is_forbidden() || host.as_str() == CANARY_NAME || host.as_str() == LOCAL_NAME {
            let reason = "it names this machine or a metadata service, which no policy opens";
            return Some(no(Outcome::Deny, Code::NetDenied, reason));
        }
        if let Some(within) = &self.within
            && !within.iter().any(|pattern| pattern.matches(host))
        {
            let reason = "the authority ceiling of the caller that requested the run does not name this host";
            return Some(no(Outcome::Deny, Code::NetDenied, reason));
        }
        let literal = host.as_str().parse::<Ipv4Addr>().ok()?;
        if !self.ip_literals {
            let reason = "IP addresses are refused unless net.ipLiterals allows them";
            return Some(no(Outcome::Deny, Code::NetLiteral, reason).help("use the host's name"));
        }
        let why = self.address(IpAddr::V4(literal)).err()?;
        Some(no(Outcome::Deny, Code::NetAddress, why).help(format!(
            "add \"{literal}/32\" to net.addresses of a trusted policy layer"
        )))
    }

    fn tier_request(&self, tier: &NetRules, asked: &Asked<'_>, body: Option<u64>, role: TierRole) -> Said {
        let grants = role == TierRole::Grants;
        if let Some(rule) = tier.deny.iter().find(|rule| rule.value.meets(asked)) {
            let code = refused_code(&rule.value);
            return said(no(Outcome::Deny, code, "a deny rule names it").rule("net.deny", rule));
        }
        let ask = tier.ask.iter().find(|rule| rule.value.meets(asked));
        if let (Some(rule), true) = (ask, grants) {
            return said(asking(rule));
        }
        let open = grants && self.mode == NetMode::Open;
        let allow = tier
            .allow
            .iter()
            .flatten()
            .filter(|rule| rule.value.allows(asked) && self.port_fits(tier, &rule.value, asked.port, role))
            .filter(|rule| {
                rule.value
                    .terms
                    .max_body
                    .is_none_or(|most| body.is_none_or(|n| n <= most))
            })
            .max_by_key(|rule| rule.value.terms.max_body.unwrap_or(u64::MAX));
        let silent = open || (tier.allow.is_none() && !grants && self.usual(tier, asked.port, role));
        match (allow, ask) {
            // In a tier that narrows, an ask rule lowers what would be allowed and lifts nothing.
            (_, Some(rule)) if allow.is_some() || silent => said(asking(rule)),
            (Some(rule), _) => {
                let mut decision = yes(operation(asked), NAMED).rule("net.allow", rule);
                decision.max_body = rule.value.terms.max_body;
                said(decision)
            }
            (None, _) if silent => Said::silent(yes(operation(asked), if open { OPEN } else { SILENT })),
            (None, _) => Said {
                decision: self.unnamed(tier, asked, role),
                // Named in an ask rule it is not unknown, and so not learned.
                by_rule: ask.is_some(),
            },
        }
    }

    /// The answer where no rule of a tier allows: the default, and what was missing.
    fn unnamed(&self, tier: &NetRules, asked: &Asked<'_>, role: TierRole) -> Decision {
        let outcome = match self.default.value {
            NetDefault::Ask => Outcome::Ask,
            NetDefault::Deny => Outcome::Deny,
        };
        let rules = || tier.allow.iter().flatten().map(|rule| &rule.value);
        let fits = |rule: &NetRule| self.port_fits(tier, rule, asked.port, role);
        let any_port = Asked { port: 0, ..*asked };
        if !rules().any(|rule| rule.names(asked.host)) {
            let reason = "no rule matched, so the default holds";
            let rule = rule_for(asked.host, asked.port);
            return self.unresolved_groups(advise(no(outcome, Code::NetDenied, reason), &rule));
        }
        // The host is named; what is missing is told apart, the nearest first.
        if rules().any(|rule| rule.allows(asked) && fits(rule)) {
            let reason = "the body is larger than the rule allows";
            return no(Outcome::Deny, Code::NetLimit, reason);
        }
        if rules().any(|rule| rule.allows(&any_port)) {
            let reason = format!("the host is allowed, port {} is not", asked.port);
            return advise(
                no(outcome, Code::NetPort, reason),
                &rule_for(asked.host, asked.port),
            );
        }
        if asked.websocket
            && rules().any(|rule| {
                fits(rule)
                    && rule.allows(&Asked {
                        websocket: false,
                        ..*asked
                    })
            })
        {
            let reason = "no rule for it says \"websocket\": true";
            return no(Outcome::Deny, Code::NetProtocol, reason);
        }
        if rules().any(|rule| fits(rule) && rule.allows_but_operations(asked)) {
            let reason =
                "the rule names the operations that may be used; this is none of them or cannot be read";
            return no(Outcome::Deny, Code::NetOperation, reason);
        }
        let reason = "the rules for this host allow other methods, paths or ports";
        advise(no(outcome, Code::NetDenied, reason), &narrow_rule(asked))
    }

    fn unresolved_groups(&self, decision: Decision) -> Decision {
        let mut groups: Vec<&str> = self.tiers.first().map(NetRules::groups).unwrap_or_default();
        groups.dedup();
        if groups.is_empty() {
            return decision;
        }
        decision.help(format!(
            "note     the hosts of group {} are resolved when a run starts: bastle run --dry-run-policy",
            groups.join(", ")
        ))
    }

    /// Whether a port may be dialled though the rule names none.
    pub(super) fn usual(&self, tier: &NetRules, port: u16, role: TierRole) -> bool {
        let grants = role == TierRole::Grants;
        port == 0
            || tier
                .ports
                .as_ref()
                .map_or(!grants || USUAL_PORTS.contains(&port), |ports| {
                    ports.iter().any(|own| own.value == port)
                })
    }

    pub(super) fn port_fits(&self, tier: &NetRules, rule: &NetRule, port: u16, role: TierRole) -> bool {
        rule.port
            .map_or_else(|| self.usual(tier, port, role), |own| own == port || port == 0)
    }

    /// In a run that learns, what no rule speaks about goes out for reading.
    pub(super) fn learned(&self, judged: Said, asked: &Asked<'_>, purpose: Purpose) -> Decision {
        let Said { decision, by_rule } = judged;
        let usual = asked.port == 0 || USUAL_PORTS.contains(&asked.port);
        if !self.learn || by_rule || decision.outcome == Outcome::Allow || !usual || asked.host.is_literal() {
            return decision;
        }
        if purpose == Purpose::Other {
            return decision.help("a run that learns lets unknown hosts be read only (GET, HEAD)");
        }
        let mut learned = yes(
            "unknown host",
            "no rule names it; this run learns, so it may be read",
        );
        learned.learned = true;
        learned.max_body = decision.max_body;
        learned
    }
}

/// The strictest answer.
pub(super) fn strictest(answers: impl Iterator<Item = Said>) -> Said {
    let mut by_rule = false;
    let mut best: Option<Decision> = None;
    let mut most: Option<u64> = None;
    for said in answers {
        by_rule |= said.by_rule && said.decision.outcome != Outcome::Allow;
        most = match (most, said.decision.max_body) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        best = match best {
            Some(kept) if kept.outcome <= said.decision.outcome => Some(kept),
            Some(_) | None => Some(said.decision),
        };
    }
    let mut decision = best.unwrap_or_else(|| no(Outcome::Deny, Code::NetDenied, "no rule grants it"));
    decision.max_body = most;
    Said { decision, by_rule }
}

impl Said {
    /// An answer that no rule stands behind.
    pub(super) fn silent(decision: Decision) -> Self {
        Self {
            decision,
            by_rule: false,
        }
    }
}

/// An answer of a rule.
pub(super) fn said(decision: Decision) -> Said {
    Said {
        decision,
        by_rule: true,
    }
}

pub(super) fn asking(rule: &Sourced<NetRule>) -> Decision {
    no(Outcome::Ask, refused_code(&rule.value), "an ask rule names it").rule("net.ask", rule)
}

fn refused_code(rule: &NetRule) -> Code {
    match rule.terms.operations {
        Operations::Any => Code::NetDenied,
        Operations::Rpc(_) | Operations::GraphQl(_) => Code::NetOperation,
    }
}

fn operation(asked: &Asked<'_>) -> &'static str {
    match asked.method {
        Some("GET" | "HEAD") => "read",
        Some(_) | None => "request",
    }
}

/// The narrowest rule that would allow a request.
fn narrow_rule(asked: &Asked<'_>) -> String {
    let method = asked.method.map(|m| format!("{m} ")).unwrap_or_default();
    let path = asked.path.unwrap_or_default();
    let text = format!("{method}{}{path}", rule_for(asked.host, asked.port));
    // A path that is no rule (escapes, odd characters) leaves the host's rule.
    if NetRule::new(&text).is_ok() {
        text
    } else {
        format!("{method}{}", rule_for(asked.host, asked.port))
    }
}
