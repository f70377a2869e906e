//! The authority that a run has: as a ceiling for what it starts itself, and compared with the ceiling of somebody else.
use super::reserved::in_force;
use super::{AuthorityCeiling, Excess, Wanted, WorkspaceMode, outermost, widest};
use crate::document::NetDefault;
use crate::effective::Effective;
use crate::fsmap::Grade;
use crate::host::HostPattern;
use crate::net::NetMode;
use crate::netrule::NetTarget;
use std::collections::{BTreeMap, BTreeSet};

/// Most hosts that a ceiling names; a policy with more is not repeated in it.
const MOST_HOSTS: usize = 256;

impl AuthorityCeiling {
    /// What a run of this policy has. Its children inherit the policy itself; this holds them where they ask for more.
    #[must_use]
    pub fn of_run(effective: &Effective, wanted: &Wanted<'_>) -> Self {
        let written = effective.granted(Grade::Write).into_iter().map(|path| path.value);
        let roots = written.chain([wanted.workspace.clone()]).collect();
        let preset = wanted.preset.split('@').next().unwrap_or(wanted.preset);
        let modes = WorkspaceMode::ALL
            .into_iter()
            .filter(|mode| wanted.mode == WorkspaceMode::InPlace || *mode != WorkspaceMode::InPlace);
        Self {
            roots: Some(outermost(roots)),
            // A child has its parent's policy whatever its profile says, so a profile gives it nothing.
            profiles: None,
            presets: Some(BTreeSet::from([preset.to_owned()])),
            hosts: hosts(effective),
            secrets: Some(
                effective
                    .secrets
                    .iter()
                    .map(|one| one.value.name.clone())
                    .collect(),
            ),
            net: Some(effective.net.mode),
            modes: Some(modes.collect()),
            backends: Some(BTreeSet::from([wanted.backend.into()])),
            // A child's numbers are compared with its parent's and refused; here they would be lowered in silence.
            limits: BTreeMap::new(),
            max_runs: None,
        }
    }

    /// What a run of this policy reaches and this ceiling does not name: secrets, hosts, numbers. What nobody has answered a
    /// question about yet is not reached.
    #[must_use]
    pub fn surplus(&self, effective: &Effective) -> Vec<Excess> {
        let names = effective.secrets.iter().map(|one| &one.value.name);
        let mut found: Vec<Excess> = names
            .filter(|name| !self.allows_secret(name))
            .map(|name| Excess::Secret(name.as_str().to_owned()))
            .collect();
        if self.states_hosts() {
            found.extend(self.hosts_beyond(effective));
        }
        for (kind, most) in &self.limits {
            match in_force(effective, *kind) {
                Some(value) if !kind.exceeds(value, *most) => {}
                Some(value) => found.push(Excess::Number(*kind, value, *most)),
                None => found.push(Excess::Unlimited(*kind, *most)),
            }
        }
        found
    }

    fn hosts_beyond(&self, effective: &Effective) -> Vec<Excess> {
        let net = &effective.net;
        let all = || vec![Excess::Host("**".to_owned())];
        // Egress holds the run to these whatever its rules say.
        if let Some(within) = &net.within
            && within.iter().all(|pattern| self.allows_hosts(pattern))
        {
            return Vec::new();
        }
        match net.mode {
            NetMode::None | NetMode::Offline => Vec::new(),
            NetMode::Open => all(),
            NetMode::Allowlist if net.learn => all(),
            NetMode::Allowlist => {
                let rules = net.tiers.first().and_then(|tier| tier.allow.as_ref());
                let rules = rules.into_iter().flatten();
                let beyond = rules.filter_map(|rule| match &rule.value.target {
                    NetTarget::Host(pattern) if self.allows_hosts(pattern) => None,
                    NetTarget::Host(pattern) => Some(Excess::Host(pattern.to_string())),
                    // Its hosts are known when a run starts; a run without these bounds was held to none of ours.
                    NetTarget::Group(_) => Some(Excess::Host(rule.value.to_string())),
                });
                beyond.collect()
            }
        }
    }
}

/// The hosts that the policy can let through; `None` where that is not known before the run, or is everything.
fn hosts(effective: &Effective) -> Option<BTreeSet<HostPattern>> {
    let net = &effective.net;
    let listed = match net.mode {
        NetMode::None | NetMode::Offline => return Some(BTreeSet::new()),
        NetMode::Open => None,
        // What is asked about or learned has no list, and the hosts of a group are known when the run starts.
        NetMode::Allowlist if net.learn || net.default.value == NetDefault::Ask => None,
        NetMode::Allowlist => {
            let first = net.tiers.first();
            let rules = first.map(|tier| tier.allow.iter().flatten().chain(&tier.ask));
            let patterns = rules.into_iter().flatten().map(|rule| match &rule.value.target {
                NetTarget::Host(pattern) => Some(pattern.clone()),
                NetTarget::Group(_) => None,
            });
            patterns.collect::<Option<BTreeSet<_>>>().map(widest)
        }
    };
    let within = net.within.as_ref().map(|all| all.iter().cloned().collect());
    let known = match (listed, within) {
        (Some(listed), Some(within)) => Some(super::nested_hosts(&listed, &within)),
        (one, other) => one.or(other),
    };
    known.filter(|all| all.len() <= MOST_HOSTS)
}
