//! Judging a connection by its name, before anything is looked up or read from it.
//!
//! The answer is the best that any request inside could get; what a request gets is decided with the request.
use super::answer::{advise, no, rule_for, yes};
use super::request::{NAMED, OPEN, Purpose, SILENT, Said, TierRole, asking, said, strictest};
use super::{ConnectVerdict, NetMode, NetPolicy, USUAL_PORTS};
use crate::decide::{Decision, Outcome};
use crate::document::{Decided, NetDefault};
use crate::effective::{NetRules, Sourced};
use crate::host::Host;
use crate::netrule::{Asked, NetRule, NetTarget};
use bastle_contract::Code;
use bastle_contract::egress::MAX_TRANSPARENT;

/// What one tier says about a whole connection.
struct Bound {
    said: Said,
    /// Nothing inside the connection makes a difference.
    whole: bool,
    /// The bytes need not be TLS.
    opaque: bool,
}

impl NetPolicy {
    /// Judges a connection; port 0 stands for a name that is looked up, for whatever port.
    pub fn connect(&self, host: &Host, port: u16) -> ConnectVerdict {
        if let Some(refusal) = self.outright(host) {
            return ConnectVerdict::Deny(refusal);
        }
        let asked = about(host, port);
        let bounds: Vec<Bound> = self
            .tiers
            .iter()
            .enumerate()
            .map(|(index, tier)| {
                let role = if index == 0 {
                    TierRole::Grants
                } else {
                    TierRole::Narrows
                };
                self.tier_connect(tier, &asked, role)
            })
            .collect();
        let whole = bounds.iter().all(|bound| bound.whole);
        let opaque = whole && !bounds.is_empty() && bounds.iter().all(|bound| bound.opaque);
        let judged = strictest(bounds.into_iter().map(|bound| bound.said));
        let mut decision = self.learned(judged, &asked, Purpose::Reading);
        match decision.outcome {
            Outcome::Deny => ConnectVerdict::Deny(decision),
            Outcome::Ask => ConnectVerdict::Ask(decision),
            Outcome::Allow if decision.learned || !whole || self.has_secret(host, port) => {
                ConnectVerdict::Inspect(decision)
            }
            // Nothing inside could be judged, and no rule of a person says that it need not be.
            Outcome::Allow if opaque && self.judges_pushes(host) && !self.names_opaque(&asked) => {
                let reason =
                    "pushes to this host are judged, and this port carries what cannot be (ssh, git)";
                ConnectVerdict::Deny(no(Outcome::Deny, Code::NetGit, reason).help(format!(
                    "always   add {{\"rule\": \"{}\", \"opaque\": true}} to net.allow of your user policy",
                    rule_for(host, port)
                )))
            }
            Outcome::Allow if opaque => {
                decision.opaque = true;
                ConnectVerdict::Pass(decision)
            }
            // Plain HTTP is parsed always.
            Outcome::Allow
                if port == 80 || self.judges_inside(host) || self.counts_inside(host, port, &decision) =>
            {
                ConnectVerdict::Inspect(decision)
            }
            Outcome::Allow => ConnectVerdict::Pass(decision),
        }
    }

    /// Ports on which tools ignorant of proxies are served: 443, 80 and every port that a rule names.
    #[must_use]
    pub fn transparent_ports(&self) -> Vec<u16> {
        let mut named: Vec<u16> = Vec::new();
        if let Some(tier) = self.tiers.first() {
            let rules = tier.allow.iter().flatten().chain(&tier.ask);
            named.extend(rules.filter_map(|rule| rule.value.port));
            named.extend(tier.ports.iter().flatten().map(|port| port.value));
        }
        named.retain(|port| !USUAL_PORTS.contains(port));
        named.sort_unstable();
        named.dedup();
        let mut ports = USUAL_PORTS.to_vec();
        ports.extend(named);
        ports.truncate(MAX_TRANSPARENT);
        ports
    }

    /// Whether some host needs TLS to be terminated, and so the run a certificate authority of its own.
    #[must_use]
    pub fn needs_authority(&self) -> bool {
        match self.mode {
            NetMode::None | NetMode::Offline => return false,
            NetMode::Allowlist | NetMode::Open => {}
        }
        let inside = self
            .tiers
            .iter()
            .flat_map(NetRules::all)
            .any(|rule| !rule.value.is_whole());
        // A pattern stands for names nobody has listed: where one reaches a rule, it may be met.
        let met = |host: &Host| {
            self.mode == NetMode::Open
                || self
                    .tiers
                    .iter()
                    .flat_map(NetRules::all)
                    .any(|rule| match &rule.value.target {
                        NetTarget::Host(pattern) => pattern.matches(host) || pattern.host() == host,
                        NetTarget::Group(_) => false,
                    })
        };
        let mut judged = self.git_hosts.iter().filter(|_| self.judges_git());
        inside
            || self.learn
            || !self.secrets.is_empty()
            || self.may_count_inside()
            || judged.any(|pattern| met(pattern.host()))
    }

    fn tier_connect(&self, tier: &NetRules, asked: &Asked<'_>, role: TierRole) -> Bound {
        let grants = role == TierRole::Grants;
        let whole_hit = |rule: &&Sourced<NetRule>| {
            rule.value.is_whole()
                && rule.value.meets_host(asked)
                && (asked.port != 0 || rule.value.port.is_none())
        };
        if let Some(rule) = tier.deny.iter().find(whole_hit) {
            let decision = no(Outcome::Deny, Code::NetDenied, "a deny rule names it").rule("net.deny", rule);
            return Bound::new(said(decision));
        }
        let open = grants && self.mode == NetMode::Open;
        let fitting = |rule: &&Sourced<NetRule>| {
            rule.value.meets_host(asked) && self.port_fits(tier, &rule.value, asked.port, role)
        };
        let allow: Vec<_> = tier.allow.iter().flatten().filter(fitting).collect();
        let silent = open || (tier.allow.is_none() && !grants && self.usual(tier, asked.port, role));
        let asks = tier.ask.iter().find(|rule| rule.value.meets_host(asked));
        let whole_ask = tier.ask.iter().find(whole_hit);
        if let Some(rule) = whole_ask.filter(|_| grants || !allow.is_empty() || silent) {
            return Bound::new(said(asking(rule)));
        }
        let doubted = asks.is_some() || tier.deny.iter().any(|rule| rule.value.meets_host(asked));
        if let Some(rule) = allow.iter().find(|rule| rule.value.is_whole()).or(allow.first()) {
            return Bound {
                whole: !doubted && rule.value.is_whole(),
                opaque: allow.iter().any(|rule| rule.value.terms.opaque),
                ..Bound::new(said(yes("tunnel", NAMED).rule("net.allow", rule)))
            };
        }
        if silent {
            // Under a budget of models what is no HTTP is refused instead: it could not be counted.
            let plain = open && !USUAL_PORTS.contains(&asked.port) && !self.holds_models();
            return Bound {
                whole: !doubted,
                opaque: plain || !open,
                ..Bound::new(Said::silent(yes("tunnel", if open { OPEN } else { SILENT })))
            };
        }
        // Some requests inside are asked about, one by one; the connection itself is no question.
        if let (Some(rule), true) = (asks, grants) {
            let decision = yes("tunnel", "requests inside are asked about").rule("net.ask", rule);
            return Bound {
                whole: false,
                ..Bound::new(said(decision))
            };
        }
        Bound::new(Said {
            decision: self.no_connection(tier, asked),
            by_rule: whole_ask.is_some(),
        })
    }

    fn no_connection(&self, tier: &NetRules, asked: &Asked<'_>) -> Decision {
        let outcome = match self.default.value {
            NetDefault::Ask => Outcome::Ask,
            NetDefault::Deny => Outcome::Deny,
        };
        let named = tier
            .allow
            .iter()
            .flatten()
            .any(|rule| rule.value.names(asked.host));
        let (code, reason) = if named {
            let reason = format!("the host is allowed, port {} is not", asked.port);
            (Code::NetPort, reason)
        } else {
            (
                Code::NetDenied,
                "no rule matched, so the default holds".to_owned(),
            )
        };
        advise(no(outcome, code, reason), &rule_for(asked.host, asked.port))
    }

    fn has_secret(&self, host: &Host, port: u16) -> bool {
        self.secrets_for(host, port).next().is_some()
    }

    /// Whether what is inside matters though no rule asks, because it may be a push.
    fn judges_inside(&self, host: &Host) -> bool {
        self.judges_pushes(host)
    }

    /// Whether an allow rule of the operator passes this port on unread.
    fn names_opaque(&self, asked: &Asked<'_>) -> bool {
        let rules = self.tiers.first().map(|tier| tier.allow.iter().flatten());
        rules
            .into_iter()
            .flatten()
            .any(|rule| rule.value.terms.opaque && rule.value.meets_host(asked))
    }

    /// Whether pushes to this host are judged.
    #[must_use]
    pub fn judges_pushes(&self, host: &Host) -> bool {
        self.judges_git() && self.git_hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether pushes are judged anywhere: some rule of `git` does not simply allow them.
    #[must_use]
    pub fn judges_git(&self) -> bool {
        let open =
            |rule: &Option<Sourced<Decided>>| rule.as_ref().is_some_and(|rule| rule.value == Decided::Allow);
        !open(&self.git.push)
            || !open(&self.git.force_push)
            || self.git.branches.is_some()
            || self.git.remotes.is_some()
    }
}

fn about(host: &Host, port: u16) -> Asked<'_> {
    Asked {
        method: None,
        host,
        port,
        path: None,
        operation: None,
        websocket: false,
    }
}

impl Bound {
    fn new(said: Said) -> Self {
        Self {
            said,
            whole: true,
            opaque: false,
        }
    }
}
