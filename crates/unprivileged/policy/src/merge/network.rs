//! Merging what goes out: tiers of rules, and what only the operator says.
use super::{Merger, Role, sourced, tidy};
use crate::authority::AuthorityCeiling;
use crate::document::{At, Mode, NetDefault, Reference, Secret, Section};
use crate::effective::{Budgets, GitRules, NetRules, Origin, Sourced};
use crate::host::HostPattern;
use crate::layers::{Layer, LayerKind};
use crate::net::{
    Cidr, Declared, GIT_HOSTS, ModelEndpoint, NetBudget, NetMode, NetPolicy, SecretUse, UpstreamProxy,
};
use crate::netrule::{NetRule, NetTarget};
use crate::terms::Terms;
use bastle_contract::{Code, Fault};
use std::net::SocketAddr;

impl Merger<'_> {
    /// The evaluator of everything that goes out.
    pub(super) fn net_policy(
        &mut self,
        tiers: Vec<NetRules>,
        git: &GitRules,
        secrets: &[Sourced<Secret>],
        budgets: &Budgets,
        ceiling: Option<&AuthorityCeiling>,
    ) -> Result<NetPolicy, Vec<Fault>> {
        let (resolvers, upstream) = self.way_out();
        let mode = self.net_mode();
        Ok(NetPolicy {
            mode: ceiling
                .and_then(AuthorityCeiling::net)
                .map_or(mode, |most| mode.min(most)),
            within: ceiling.and_then(AuthorityCeiling::hosts),
            learn: self.mode().value != Mode::Enforce,
            default: self.net_default(),
            tiers,
            ip_literals: self.ip_literals(),
            addresses: self.addresses(),
            resolvers,
            hosts: Vec::new(),
            upstream,
            secrets: secrets.iter().map(secret_use).collect(),
            git: git.clone(),
            git_hosts: self.git_hosts().map_err(|fault| vec![fault])?,
            remotes: Vec::new(),
            models: self.models(),
            budget: budget(budgets),
        })
    }

    /// Hosts whose pushes are judged. Whoever names one narrows, so every layer may.
    fn git_hosts(&self) -> Result<Vec<HostPattern>, Fault> {
        let named = self
            .layers
            .iter()
            .flat_map(|layer| layer.document.git.hosts.iter().flatten());
        let names: Vec<&str> = named.map(|at| at.value.as_str()).collect();
        let mut hosts = patterns(GIT_HOSTS)?;
        hosts.extend(patterns(&names)?);
        hosts.dedup();
        Ok(hosts)
    }

    /// The strictest word of the command line; a lock above it keeps the network from being opened.
    fn net_mode(&mut self) -> NetMode {
        let layers = self.layers.clone();
        let trusted = layers.iter().filter(|layer| layer.kind.is_trusted());
        let mut mode: Option<NetMode> = None;
        for layer in trusted {
            let Some(at) = &layer.document.net.mode else {
                continue;
            };
            if at.value == NetMode::Open && self.lock_above(layer, Section::Net).is_some() {
                self.refuse(layer, Some(Section::Net), "--net open".to_owned(), at.line);
                continue;
            }
            mode = Some(mode.map_or(at.value, |stricter| stricter.min(at.value)));
        }
        mode.unwrap_or_default()
    }

    /// Ranges that names may resolve to: united, then cut down to what each narrowing layer names too.
    fn addresses(&mut self) -> Vec<Sourced<Cidr>> {
        let section = Some(Section::Net);
        let stated = |layer: &Layer| -> Option<Vec<Sourced<Cidr>>> {
            let list = layer.document.net.addresses.as_ref()?;
            Some(list.iter().map(|at| sourced(layer, at)).collect())
        };
        let granting = self.layers_with(section, Role::Grants);
        let trusted = granting.iter().filter(|layer| layer.kind.is_trusted());
        let mut ranges = tidy(trusted.filter_map(stated).flatten().collect());
        // Whatever expansion was allowed, a project does not choose which of the host's networks it sees.
        let projects = granting.iter().filter(|layer| !layer.kind.is_trusted());
        let narrowing = self.layers_with(section, Role::Narrows);
        for layer in narrowing.iter().chain(projects) {
            let Some(own) = stated(layer) else { continue };
            for more in &own {
                if !ranges.iter().any(|range| range.value.covers(&more.value)) {
                    self.refuse(
                        layer,
                        section,
                        format!("net.addresses {}", more.value),
                        more.origin.line,
                    );
                }
            }
            let both = ranges.iter().flat_map(|a| own.iter().map(move |b| (a, b)));
            let narrower = both.filter_map(|(a, b)| {
                if a.value.covers(&b.value) {
                    Some(b.clone())
                } else if b.value.covers(&a.value) {
                    Some(a.clone())
                } else {
                    None
                }
            });
            ranges = tidy(narrower.collect());
        }
        ranges
    }

    /// Resolvers and the proxy beyond: the operator's, the layer nearest to the person first.
    fn way_out(&mut self) -> (Vec<SocketAddr>, Option<UpstreamProxy>) {
        let (mut resolvers, mut upstream) = (Vec::new(), None);
        for layer in self.layers.clone() {
            let net = &layer.document.net;
            let speaks = layer.kind.is_trusted() && self.role(&layer, Some(Section::Net)) == Role::Grants;
            if speaks {
                if let Some(list) = &net.resolvers {
                    resolvers = list.iter().map(|at| at.value).collect();
                }
                if let Some(at) = &net.upstream {
                    upstream = Some(at.value.clone());
                }
                continue;
            }
            for at in net.resolvers.iter().flatten() {
                self.refuse(
                    &layer,
                    Some(Section::Net),
                    format!("net.resolvers {}", at.value),
                    at.line,
                );
            }
            if let Some(at) = &net.upstream {
                self.refuse(
                    &layer,
                    Some(Section::Net),
                    format!("net.upstream {}", at.value),
                    at.line,
                );
            }
        }
        (resolvers, upstream)
    }

    /// Every layer adds endpoints, because more of them narrows; that a host is none, and what tokens cost, is the
    /// operator's to say.
    fn models(&mut self) -> Vec<ModelEndpoint> {
        let mut models = Vec::new();
        for layer in self.layers.clone() {
            let grants = layer.kind.is_trusted() && self.role(&layer, Some(Section::Net)) == Role::Grants;
            for at in &layer.document.net.models {
                let endpoint = &at.value;
                let loosens = endpoint.api == Declared::None || endpoint.price.is_some();
                if loosens && !grants {
                    self.refuse(
                        &layer,
                        Some(Section::Net),
                        format!("net.models {endpoint}"),
                        at.line,
                    );
                } else if !models.contains(endpoint) {
                    models.push(endpoint.clone());
                }
            }
        }
        models
    }

    fn net_default(&self) -> Sourced<NetDefault> {
        let built_in = Origin {
            layer: LayerKind::Floor,
            file: "built-in".to_owned(),
            line: 0,
        };
        let stated = |layer: &Layer| layer.document.net.default.as_ref().map(|at| sourced(layer, at));
        let grants = self
            .layers
            .iter()
            .filter(|layer| self.role(layer, Some(Section::Net)) == Role::Grants);
        let narrows = self
            .layers
            .iter()
            .filter(|layer| self.role(layer, Some(Section::Net)) == Role::Narrows);
        let granted = grants.filter_map(stated).min();
        let denied = narrows
            .filter_map(stated)
            .filter(|s| s.value == NetDefault::Deny)
            .min();
        match (granted, denied) {
            (Some(granted), None) => granted,
            (_, Some(denied)) => denied,
            (None, None) => Sourced {
                value: NetDefault::Deny,
                origin: built_in,
            },
        }
    }

    /// Network tiers: one that grants, and one per layer that narrows.
    pub(super) fn net(&mut self) -> Vec<NetRules> {
        let mut base = NetRules {
            allow: Some(Vec::new()),
            ..NetRules::default()
        };
        for layer in &self.layers_with(Some(Section::Net), Role::Grants) {
            let stated = net_rules(layer);
            base.allow
                .get_or_insert_default()
                .extend(stated.allow.unwrap_or_default());
            base.ask.extend(stated.ask);
            base.deny.extend(stated.deny);
            if let Some(ports) = stated.ports {
                base.ports.get_or_insert_default().extend(ports);
            }
        }
        base.allow = base.allow.map(tidy);
        base.ports = base.ports.map(tidy);
        (base.ask, base.deny) = (tidy(base.ask), tidy(base.deny));
        let mut tiers = vec![base];
        for layer in &self.layers_with(Some(Section::Net), Role::Narrows) {
            let stated = net_rules(layer);
            for rule in stated.allow.iter().flatten().chain(&group_requests(layer)) {
                let granted = tiers[0]
                    .allow
                    .iter()
                    .flatten()
                    .any(|own| own.value.covers(&rule.value));
                if !granted {
                    self.refuse(
                        layer,
                        Some(Section::Net),
                        format!("net.allow {}", rule.value),
                        rule.origin.line,
                    );
                }
            }
            if stated != NetRules::default() {
                tiers.push(stated);
            }
        }
        tiers[1..].sort_by_cached_key(|tier| format!("{tier:?}"));
        tiers
    }

    /// Safer value: true needs an operator who says so and nobody who says no.
    pub(super) fn ip_literals(&self) -> bool {
        let mut stated = self.layers.iter().filter_map(|layer| {
            let at = layer.document.net.ip_literals.as_ref()?;
            Some((self.role(layer, Some(Section::Net)), at.value))
        });
        let all: Vec<(Role, bool)> = stated.by_ref().collect();
        all.iter().any(|(role, value)| *role == Role::Grants && *value) && all.iter().all(|(_, value)| *value)
    }

    /// Ports that are forwarded into the sandbox.
    pub(super) fn listen(&mut self) -> Vec<Sourced<u16>> {
        let list = |layer: &Layer| -> Option<Vec<Sourced<u16>>> {
            Some(
                layer
                    .document
                    .net
                    .listen
                    .as_ref()?
                    .iter()
                    .map(|at| sourced(layer, at))
                    .collect(),
            )
        };
        let grants = self.layers_with(Some(Section::Net), Role::Grants);
        let mut ports = tidy(grants.iter().filter_map(list).flatten().collect());
        for layer in &self.layers_with(Some(Section::Net), Role::Narrows) {
            let Some(stated) = list(layer) else { continue };
            for port in stated
                .iter()
                .filter(|port| !ports.iter().any(|own| own.value == port.value))
            {
                self.refuse(
                    layer,
                    Some(Section::Net),
                    format!("net.listen {}", port.value),
                    port.origin.line,
                );
            }
            ports.retain(|own| stated.iter().any(|port| port.value == own.value));
        }
        ports
    }
}

fn net_rules(layer: &Layer) -> NetRules {
    let net = &layer.document.net;
    let list = |rules: &[At<NetRule>]| -> Vec<Sourced<NetRule>> {
        rules.iter().map(|at| sourced(layer, at)).collect()
    };
    let mut allow = net.allow.as_deref().map(list);
    // `extends: group:x` grants the group; in a layer that narrows it counts only beside its own list.
    if layer.kind.is_trusted() || allow.is_some() {
        let groups = group_requests(layer);
        if !groups.is_empty() {
            allow.get_or_insert_default().extend(groups);
        }
    }
    NetRules {
        allow,
        ask: tidy(list(&net.ask)),
        deny: tidy(list(&net.deny)),
        ports: net
            .ports
            .as_ref()
            .map(|ports| ports.iter().map(|at| sourced(layer, at)).collect()),
    }
}

fn group_requests(layer: &Layer) -> Vec<Sourced<NetRule>> {
    let groups = layer.document.extends.iter().filter_map(|at| match &at.value {
        Reference::Group(group) => {
            let target = NetTarget::Group(group.name.clone());
            let value = NetRule {
                methods: Vec::new(),
                target,
                port: None,
                path: None,
                terms: Terms::default(),
            };
            Some(Sourced {
                value,
                origin: Origin {
                    layer: layer.kind,
                    file: layer.name.clone(),
                    line: at.line,
                },
            })
        }
        Reference::Preset(..) => None,
    });
    groups.collect()
}

fn secret_use(secret: &Sourced<Secret>) -> SecretUse {
    let value = &secret.value;
    SecretUse {
        name: value.name.clone(),
        hosts: value.hosts.clone(),
        ports: value.ports.clone(),
        methods: value.methods.clone(),
        paths: value.paths.clone(),
        header: value.header.clone(),
        origin: secret.origin.clone(),
    }
}

fn budget(budgets: &Budgets) -> NetBudget {
    let number = |value: &Option<Sourced<u64>>| value.as_ref().map(|value| value.value);
    NetBudget {
        cost_micro_usd: budgets.usd.as_ref().map(|usd| micro(usd.value)),
        tokens: number(&budgets.tokens),
        bytes_out: number(&budgets.bytes_out),
        bytes_in: number(&budgets.bytes_in),
        requests: number(&budgets.requests),
        connections: number(&budgets.connections),
        turns: number(&budgets.turns),
        on_exceed: budgets.on_exceed.as_ref().map(|value| value.value),
        waived: Vec::new(),
    }
}

/// Dollars in millionths; beyond what a number holds, the largest.
fn micro(usd: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to integer cast saturates, and a budget is 0 or more"
    )]
    let micro = (usd * 1e6).round() as u64;
    micro
}

/// Patterns that are part of bastle.
fn patterns(names: &[&str]) -> Result<Vec<HostPattern>, Fault> {
    let read = names.iter().map(|name| HostPattern::new(name));
    read.collect::<Result<_, _>>()
        .map_err(|why| Fault::new(Code::PolicySchema, "a built-in host is broken", why.to_string()))
}
