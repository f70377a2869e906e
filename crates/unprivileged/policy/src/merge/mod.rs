//! Merging layers: the operator's layers unite, everything else only narrows.
//!
//! **Trust:** project documents are untrusted. Wherever one could grant, it is kept in a tier of its own that is
//! combined by taking the stricter answer, so that no content of it can widen anything.
mod files;
mod network;
mod rules;
mod scalars;
mod summary;

use crate::authority::AuthorityCeiling;
use crate::commands::CommandTier;
use crate::decide::{PRIVATE, within};
use crate::document::{At, Group, Mode, Reference, Secret, Section};
use crate::effective::{Effective, ExpansionSummary, Inactive, Origin, Request, Sourced};
use crate::layers::{Layer, LayerKind, Surroundings};
use crate::presets::{self, GROUPS};
use crate::text::nearest;
use bastle_contract::{AbsPath, Code, Fault};

/// What a project's file may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expansion {
    /// Restrict only.
    RestrictOnly,
    /// Expand: the operator said so for this run.
    Allowed,
    /// Expand: the operator pinned the hash of these very files.
    Pinned,
}

/// How to merge.
#[derive(Clone, Debug, PartialEq)]
pub struct MergeOptions {
    /// What a project's file may do.
    pub expansion: Expansion,
    /// Paths of the floor re-opened on the command line.
    pub unprotect: Vec<AbsPath>,
    /// Presets that the operator keeps beside the built-in ones.
    pub kept: Vec<Layer>,
    /// The most that the result may reach; `None`: whatever the layers come to.
    pub ceiling: Option<AuthorityCeiling>,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self {
            expansion: Expansion::RestrictOnly,
            unprotect: Vec::new(),
            kept: Vec::new(),
            ceiling: None,
        }
    }
}

/// What a layer's grants in one section count for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// They grant.
    Grants,
    /// They narrow what others grant.
    Narrows,
}

/// Everything a section's merge needs.
struct Merger<'m> {
    layers: Vec<Layer>,
    surroundings: &'m Surroundings,
    expansion: Expansion,
    locks: Vec<Sourced<Section>>,
    not_granted: Vec<Request>,
    inactive: Vec<Inactive>,
}

/// Merges layers to the effective policy. The order of `layers` does not matter: their kinds have one.
pub fn merge(
    layers: &[Layer],
    surroundings: &Surroundings,
    options: &MergeOptions,
) -> Result<Effective, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut all = expand(layers, &options.kept, &mut faults);
    // Its numbers narrow as any other layer's do; hosts, secrets and the network mode are cut below.
    all.extend(options.ceiling.as_ref().map(|ceiling| Layer {
        kind: LayerKind::Ceiling,
        name: "authority ceiling".to_owned(),
        document: ceiling.document().into(),
    }));
    if !all.iter().any(|layer| layer.kind == LayerKind::Floor) {
        match presets::floor() {
            Ok(floor) => all.push(floor),
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    // Contents decide between layers of one kind and name, so that the order they are passed in never does.
    all.sort_by(|a, b| {
        let named = (a.kind, &a.name).cmp(&(b.kind, &b.name));
        named.then_with(|| a.document.to_json().cmp(&b.document.to_json()))
    });
    let locks = locks(&all);
    let mut merger = Merger {
        layers: all,
        surroundings,
        expansion: options.expansion,
        locks,
        not_granted: Vec::new(),
        inactive: Vec::new(),
    };
    let effective = merger.effective(options)?;
    Ok(effective)
}

/// Every layer and, before it, what it extends.
fn expand(layers: &[Layer], kept: &[Layer], faults: &mut Vec<Fault>) -> Vec<Layer> {
    let mut all: Vec<Layer> = Vec::new();
    for layer in layers {
        all.push(layer.clone());
        let mut seen = vec![layer.name.clone()];
        extend(layer, (layer.kind, kept), &mut seen, &mut all, faults);
    }
    all
}

fn extend(
    layer: &Layer,
    (kind, kept): (LayerKind, &[Layer]),
    seen: &mut Vec<String>,
    all: &mut Vec<Layer>,
    faults: &mut Vec<Fault>,
) {
    for at in &layer.document.extends {
        let (name, version) = match &at.value {
            Reference::Group(group) => {
                faults.extend(check_group(&group.name, &origin(layer, at)));
                continue;
            }
            Reference::Preset(name, version) => (name, version),
        };
        let wanted = version.map_or(name.clone(), |version| format!("{name}@{version}"));
        match presets::find(&wanted, kept) {
            Ok(base) if seen.contains(&base.name) => {}
            Ok(base) => {
                seen.push(base.name.clone());
                extend(&base, (kind, kept), seen, all, faults);
                // Extended by the operator a preset grants; extended by a project it narrows like the project itself.
                let kind = if kind.is_trusted() {
                    LayerKind::Preset
                } else {
                    kind
                };
                let fresh = Layer { kind, ..base };
                if !all.contains(&fresh) {
                    all.push(fresh);
                }
            }
            Err(mut fault) => {
                fault.why = format!("extended at {}", origin(layer, at));
                faults.push(fault);
            }
        }
    }
}

fn check_group(name: &str, origin: &Origin) -> Option<Fault> {
    if GROUPS.contains(&name) {
        return None;
    }
    let mut fault = Fault::new(
        Code::PolicyReference,
        format!("no group is called {name:?}"),
        format!("named at {origin}"),
    );
    if let Some(near) = nearest(name, GROUPS.iter().copied()) {
        fault = fault.help(format!("did you mean {near}?"));
    }
    Some(fault.help(format!("groups: {}", GROUPS.join(", "))))
}

fn locks(layers: &[Layer]) -> Vec<Sourced<Section>> {
    let trusted = layers.iter().filter(|layer| layer.kind.is_trusted());
    trusted
        .flat_map(|layer| {
            layer.document.lock.iter().map(|at| Sourced {
                value: at.value,
                origin: origin(layer, at),
            })
        })
        .collect()
}

/// Where a value of a layer stands.
fn origin<T>(layer: &Layer, at: &At<T>) -> Origin {
    Origin {
        layer: layer.kind,
        file: layer.name.clone(),
        line: at.line,
    }
}

fn sourced<T: Clone>(layer: &Layer, at: &At<T>) -> Sourced<T> {
    Sourced {
        value: at.value.clone(),
        origin: origin(layer, at),
    }
}

/// Sorted, each value once with its strongest origin: the result does not depend on the order of layers.
fn tidy<T: Ord>(mut list: Vec<Sourced<T>>) -> Vec<Sourced<T>> {
    list.sort();
    list.dedup_by(|later, first| later.value == first.value);
    list
}

impl Merger<'_> {
    /// Whether a layer grants in a section, or only narrows.
    fn role(&self, layer: &Layer, section: Option<Section>) -> Role {
        let locked = section.is_some_and(|section| self.lock_above(layer, section).is_some());
        let expanded = self.expansion != Expansion::RestrictOnly && layer.kind.is_expandable();
        let trusted = layer.kind.is_trusted() || expanded;
        if trusted && !locked {
            Role::Grants
        } else {
            Role::Narrows
        }
    }

    /// The role of the layer a value came from.
    fn role_of(&self, origin: &Origin, section: Section) -> Role {
        let from = |layer: &&Layer| layer.kind == origin.layer && layer.name == origin.file;
        self.layers
            .iter()
            .find(from)
            .map_or(Role::Narrows, |layer| self.role(layer, Some(section)))
    }

    fn lock_above(&self, layer: &Layer, section: Section) -> Option<&Sourced<Section>> {
        self.locks
            .iter()
            .find(|lock| lock.value == section && lock.origin.layer < layer.kind)
    }

    /// Notes a grant that has no effect: a request of a project, or an inactive rule of the operator's.
    fn refuse(&mut self, layer: &Layer, section: Option<Section>, what: String, line: u32) {
        let origin = Origin {
            layer: layer.kind,
            file: layer.name.clone(),
            line,
        };
        match section.and_then(|section| self.lock_above(layer, section)) {
            Some(lock) if layer.kind.is_trusted() => {
                let reason = format!("{} is locked by {}", section_name(lock.value), lock.origin);
                self.inactive.push(Inactive { what, origin, reason });
            }
            Some(_) | None => self.not_granted.push(Request { what, origin }),
        }
    }

    fn layers_with(&self, section: Option<Section>, role: Role) -> Vec<Layer> {
        self.layers
            .iter()
            .filter(|layer| self.role(layer, section) == role)
            .cloned()
            .collect()
    }

    fn effective(&mut self, options: &MergeOptions) -> Result<Effective, Vec<Fault>> {
        let (fs, base) = self.fs().map_err(|fault| vec![fault])?;
        let (hide, hidden) = self.names(|document| &document.fs.hide);
        let (protect, protected) = self.names(|document| &document.fs.protect);
        let net = self.net();
        let groups = self.groups(&net).map_err(|fault| vec![fault])?;
        let git = self.git();
        let exec = self.commands(Section::Exec, &git, |document| &document.exec);
        let tools = self.commands(
            Section::Tools,
            &crate::effective::GitRules::default(),
            |document| &document.tools,
        );
        let env_pass = self.env_pass();
        let (env_set, mut secrets) = self.trusted_only();
        self.within_ceiling(options.ceiling.as_ref(), &mut secrets);
        let budgets = self.budgets();
        let min_landlock_abi = self.min_landlock_abi();
        let (caches, cache_merge) = self.caches();
        let unprotect = self.openings(&options.unprotect)?;
        let mut effective = Effective {
            layers: self
                .layers
                .iter()
                .map(|layer| (layer.kind, layer.name.clone()))
                .collect(),
            surroundings: self.surroundings.clone(),
            mode: self.mode(),
            locks: self.locks.clone(),
            hide,
            protect,
            unprotect,
            listen: self.listen(),
            net: self.net_policy(net, &git, &secrets, &budgets, options.ceiling.as_ref())?,
            groups,
            exec,
            tools,
            env_pass,
            env_set,
            secrets,
            git,
            limits: self.limits(),
            caches,
            cache_merge,
            budgets,
            min_landlock_abi,
            tests: self.tests(),
            not_granted: Vec::new(),
            inactive: Vec::new(),
            summary: ExpansionSummary::Unchanged,
            trees: base.trees(),
            shared: base
                .iter()
                .map(|(path, _)| path.clone())
                .filter(|path| within(path, PRIVATE))
                .collect(),
            fs,
            base,
            hidden,
            protected,
        };
        self.not_granted.sort();
        self.not_granted.dedup();
        self.inactive.sort();
        self.inactive.dedup();
        effective.not_granted = std::mem::take(&mut self.not_granted);
        effective.inactive = std::mem::take(&mut self.inactive);
        effective.summary = summary::summarise(&effective, &self.layers, self.expansion);
        Ok(effective)
    }

    /// Secrets that the ceiling does not name are not used; it is told which.
    fn within_ceiling(&mut self, ceiling: Option<&AuthorityCeiling>, secrets: &mut Vec<Sourced<Secret>>) {
        let Some(ceiling) = ceiling else { return };
        let all = std::mem::take(secrets);
        for secret in all {
            if ceiling.allows_secret(&secret.value.name) {
                secrets.push(secret);
                continue;
            }
            self.inactive.push(Inactive {
                what: format!("secrets {}", secret.value.name.as_str()),
                origin: secret.origin,
                reason: "the authority ceiling of the caller that requested the run does not name it"
                    .to_owned(),
            });
        }
    }

    fn mode(&self) -> Sourced<Mode> {
        let stated = self
            .layers
            .iter()
            .filter_map(|layer| layer.document.mode.as_ref().map(|at| sourced(layer, at)));
        let built_in = Origin {
            layer: LayerKind::Floor,
            file: "built-in".to_owned(),
            line: 0,
        };
        // A weaker mode is a grant: only the operator gives one, and a stricter one anywhere wins.
        let weaker = stated.filter(|s| s.origin.layer.is_trusted() || s.value == Mode::Enforce);
        weaker
            .max_by(|a, b| a.value.cmp(&b.value).then(b.origin.cmp(&a.origin)))
            .unwrap_or(Sourced {
                value: Mode::Enforce,
                origin: built_in,
            })
    }

    fn groups(&self, net: &[crate::effective::NetRules]) -> Result<Vec<Sourced<Group>>, Fault> {
        let mut groups = Vec::new();
        for rules in net {
            for rule in rules.allow.iter().flatten().chain(&rules.ask).chain(&rules.deny) {
                if let crate::netrule::NetTarget::Group(name) = &rule.value.target {
                    if let Some(fault) = check_group(name, &rule.origin) {
                        return Err(fault);
                    }
                    groups.push(Sourced {
                        value: Group {
                            name: name.clone(),
                            version: None,
                        },
                        origin: rule.origin.clone(),
                    });
                }
            }
        }
        groups.sort_by(|a, b| (&a.value.name, &a.origin).cmp(&(&b.value.name, &b.origin)));
        groups.dedup_by(|later, first| later.value == first.value);
        Ok(groups)
    }
}

fn section_name(section: Section) -> &'static str {
    match section {
        Section::Fs => "fs",
        Section::Net => "net",
        Section::Exec => "exec",
        Section::Tools => "tools",
        Section::Git => "git",
        Section::Limits => "limits",
    }
}

/// An empty command tier is left out, except the first.
fn push_tier(tiers: &mut Vec<CommandTier>, tier: CommandTier) {
    if tiers.is_empty() || !tier.is_empty() {
        tiers.push(tier);
    }
}
