//! What budgets of turns, tokens and cost can count in a table of rules, and what passes them by.
//!
//! **Trust:** the table comes from merging. Whatever is neither known nor declared is read when a person names it.
use super::models::{Declared, HostRole};
use super::{NetMode, NetPolicy};
use crate::decide::Decision;
use crate::effective::{NetRules, Origin, Sourced};
use crate::host::Host;
use crate::layers::LayerKind;
use crate::netrule::{NetRule, NetTarget};
use crate::presets;
use bastle_contract::egress::BudgetKind;

/// Why a budget of turns, tokens or cost cannot be counted in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uncounted {
    /// The rule or the mode.
    pub(crate) what: String,
    /// One sentence.
    pub(crate) why: &'static str,
    /// What can be done, beside a waiver.
    pub(crate) fix: String,
    /// Only a budget of cost is concerned.
    pub(crate) cost_only: bool,
}

impl NetPolicy {
    /// Whether the requests of a connection are read because a budget counts what models charge: hosts of models, and
    /// hosts that a person names without saying what they are. Those that a built-in preset or a group brings are known.
    pub(super) fn counts_inside(&self, host: &Host, port: u16, decision: &Decision) -> bool {
        self.counts_models()
            && match self.host_role(host, port) {
                HostRole::Model => true,
                HostRole::NotModel => false,
                HostRole::Unknown => match &decision.rule {
                    Some((_, origin)) => is_named_by_a_person(origin),
                    None => self.mode == NetMode::Open,
                },
            }
    }

    /// Whether some budget of models holds: then nothing passes unread only because every host may be reached.
    pub(crate) fn holds_models(&self) -> bool {
        let budget = &self.budget;
        let stated = [
            (BudgetKind::Turns, budget.turns.is_some()),
            (BudgetKind::Tokens, budget.tokens.is_some()),
            (BudgetKind::Cost, budget.cost_micro_usd.is_some()),
        ];
        stated
            .iter()
            .any(|(kind, stated)| *stated && !budget.waived.contains(kind))
    }

    /// Whether a connection may have to be looked into for counting, so that the run needs its own authority. Also where no
    /// host is named yet: one that is allowed while the run lives is counted too.
    pub(super) fn may_count_inside(&self) -> bool {
        self.counts_models()
    }

    /// What of this table lets a model's answers pass uncounted though a budget is set.
    pub(crate) fn uncounted(&self) -> Vec<Uncounted> {
        match self.mode {
            NetMode::None | NetMode::Offline => return Vec::new(),
            NetMode::Allowlist | NetMode::Open => {}
        }
        if !self.counts_models() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for rule in self.granted().filter(|rule| rule.value.terms.opaque) {
            let NetTarget::Host(pattern) = &rule.value.target else {
                continue;
            };
            let port = rule.value.port.unwrap_or(0);
            if self.host_role(pattern.host(), port) == HostRole::NotModel {
                continue;
            }
            found.push(Uncounted {
                what: format!("{} ({})", rule.value, rule.origin),
                why: "the rule is opaque: its bytes pass without being read",
                fix: format!(
                    "if no model answers there, say so: \"net\": {{\"models\": [{{\"host\": \"{pattern}\", \"api\": \"none\"}}]}}"
                ),
                cost_only: false,
            });
        }
        for entry in self.models.iter().filter(|entry| entry.price.is_none()) {
            let unpriced = match entry.api {
                Declared::Api(api) => api.is_unpriced(),
                Declared::Any | Declared::None => false,
            };
            if unpriced {
                found.push(Uncounted {
                    what: format!("net.models {entry}"),
                    why: "no price is known for models served there",
                    fix: "state one in its entry, in dollars for a million tokens: \"price\": {\"input\": 0, \"output\": 0}"
                        .to_owned(),
                    cost_only: true,
                });
            }
        }
        found
    }

    /// Hosts that rules allow and at which nothing is counted: patterns as written, for a listing.
    pub(crate) fn unread_hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = self
            .granted()
            .filter_map(|rule| match &rule.value.target {
                NetTarget::Group(name) => Some(format!("group:{name}")),
                NetTarget::Host(pattern) => {
                    let port = rule.value.port.unwrap_or(0);
                    let read = match self.host_role(pattern.host(), port) {
                        HostRole::Model => true,
                        HostRole::NotModel => false,
                        HostRole::Unknown => is_named_by_a_person(&rule.origin),
                    };
                    (!read || rule.value.terms.opaque).then(|| pattern.to_string())
                }
            })
            .collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }

    fn granted(&self) -> impl Iterator<Item = &Sourced<NetRule>> {
        let tier: Option<&NetRules> = self.tiers.first();
        tier.into_iter()
            .flat_map(|tier| tier.allow.iter().flatten().chain(&tier.ask))
    }
}

fn is_named_by_a_person(origin: &Origin) -> bool {
    let chosen = match origin.layer {
        LayerKind::Floor => false,
        // One that is kept on this host is somebody's own file: nobody else has looked at its hosts.
        LayerKind::Preset => !presets::is_built_in(&origin.file),
        LayerKind::Managed
        | LayerKind::User
        | LayerKind::Flags
        | LayerKind::Project
        | LayerKind::ProjectLocal
        | LayerKind::Request
        | LayerKind::Ceiling => true,
    };
    chosen && !origin.file.starts_with("group:")
}
