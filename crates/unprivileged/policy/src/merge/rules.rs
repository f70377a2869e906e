//! Merging lists of rules: network, commands, tools, environment.
use super::{Merger, Role, origin, push_tier, section_name, sourced, tidy};
use crate::caches::CacheMerge;
use crate::commands::CommandTier;
use crate::document::{At, CommandLists, Decided, Document, Secret, Section, TestCase};
use crate::effective::{GitRules, Sourced};
use crate::layers::{Layer, LayerKind};
use bastle_contract::EnvName;

/// Variables with their values.
type Variables = Vec<Sourced<(EnvName, String)>>;

/// Forms of `git push` that rewrite or remove what others have; options count wherever they stand in the line.
const FORCED: &[&str] = &[
    "git push --force *",
    "git push -f *",
    "git push --force-with-lease *",
    "git push --force-with-lease=*",
    "git push --mirror *",
    "git push --delete *",
    "git push -d *",
    "git push --prune *",
    "git push +*",
    "git push * +*",
];

impl Merger<'_> {
    /// Command or tool tiers: one that grants, and one per layer that narrows.
    pub(super) fn commands(
        &mut self,
        section: Section,
        git: &GitRules,
        lists: fn(&Document) -> &CommandLists,
    ) -> Vec<CommandTier> {
        let (mut allow, mut ask, mut deny) = (None::<Vec<Sourced<String>>>, Vec::new(), Vec::new());
        for layer in &self.layers_with(Some(section), Role::Grants) {
            let (stated_allow, stated_ask, stated_deny) = command_lists(layer, lists(&layer.document));
            if let Some(stated) = stated_allow {
                allow.get_or_insert_default().extend(stated);
            }
            ask.extend(stated_ask);
            deny.extend(stated_deny);
        }
        // A project's word on pushing stands in a tier of its own: beside the operator's rules it could turn a no into an ask.
        let (mut narrow_ask, mut narrow_deny) = (Vec::new(), Vec::new());
        for (rule, forms) in [(&git.push, &["git push *"][..]), (&git.force_push, FORCED)] {
            let Some(rule) = rule else { continue };
            let forms = forms.iter().map(|form| Sourced {
                value: (*form).to_owned(),
                origin: rule.origin.clone(),
            });
            match (rule.value, self.role_of(&rule.origin, Section::Git)) {
                (Decided::Deny, Role::Grants) => deny.extend(forms),
                (Decided::Deny, Role::Narrows) => narrow_deny.extend(forms),
                (Decided::Ask, Role::Grants) => ask.extend(forms),
                (Decided::Ask, Role::Narrows) => narrow_ask.extend(forms),
                (Decided::Allow, Role::Grants | Role::Narrows) => {}
            }
        }
        let mut tiers = Vec::new();
        push_tier(
            &mut tiers,
            CommandTier::new(allow.map(tidy), tidy(ask), tidy(deny)),
        );
        let mut narrow: Vec<CommandTier> = vec![CommandTier::new(None, tidy(narrow_ask), tidy(narrow_deny))];
        for layer in &self.layers_with(Some(section), Role::Narrows) {
            let (stated, ask, deny) = command_lists(layer, lists(&layer.document));
            for rule in stated.iter().flatten() {
                let beyond = tiers[0]
                    .allow
                    .as_ref()
                    .is_some_and(|own| !own.iter().any(|own| own.value == rule.value));
                if beyond {
                    let what = format!("{}.allow {}", section_name(section), rule.value);
                    self.refuse(layer, Some(section), what, rule.origin.line);
                }
            }
            narrow.push(CommandTier::new(stated.map(tidy), tidy(ask), tidy(deny)));
        }
        narrow.sort_by_cached_key(|tier| format!("{tier:?}"));
        narrow.into_iter().for_each(|tier| push_tier(&mut tiers, tier));
        tiers
    }

    /// Variables taken from the host: united, then cut down to what each narrowing layer names.
    pub(super) fn env_pass(&mut self) -> Vec<Sourced<EnvName>> {
        let list = |layer: &Layer| -> Option<Vec<Sourced<EnvName>>> {
            Some(
                layer
                    .document
                    .env
                    .pass
                    .as_ref()?
                    .iter()
                    .map(|at| sourced(layer, at))
                    .collect(),
            )
        };
        let grants = self.layers_with(None, Role::Grants);
        let mut names = tidy(grants.iter().filter_map(list).flatten().collect());
        for layer in &self.layers_with(None, Role::Narrows) {
            let Some(stated) = list(layer) else { continue };
            for name in stated
                .iter()
                .filter(|name| !names.iter().any(|own| own.value == name.value))
            {
                self.refuse(
                    layer,
                    None,
                    format!("env.pass {}", name.value.as_str()),
                    name.origin.line,
                );
            }
            names.retain(|own| stated.iter().any(|name| name.value == own.value));
        }
        names
    }

    /// `env.set` and `secrets` count only from the operator, whatever expansion was allowed.
    pub(super) fn trusted_only(&mut self) -> (Variables, Vec<Sourced<Secret>>) {
        let (mut set, mut secrets): (Variables, Vec<Sourced<Secret>>) = (Vec::new(), Vec::new());
        for layer in self.layers.clone() {
            for (name, value) in &layer.document.env.set {
                if layer.kind.is_trusted() {
                    // A later layer replaces: it stands nearer to the person.
                    set.retain(|own| own.value.0 != name.value);
                    set.push(Sourced {
                        value: (name.value.clone(), value.clone()),
                        origin: origin(&layer, name),
                    });
                } else {
                    self.refuse(
                        &layer,
                        None,
                        format!("env.set {}", name.value.as_str()),
                        name.line,
                    );
                }
            }
            for secret in &layer.document.secrets {
                if layer.kind.is_trusted() {
                    secrets.retain(|own| own.value.name != secret.value.name);
                    secrets.push(sourced(&layer, secret));
                } else {
                    self.refuse(
                        &layer,
                        None,
                        format!("secrets {}", secret.value.name.as_str()),
                        secret.line,
                    );
                }
            }
        }
        set.sort();
        secrets.sort_by(|a, b| a.value.name.cmp(&b.value.name));
        (set, secrets)
    }

    /// A cache holds what other projects left in it: a project cannot ask for one by itself.
    pub(super) fn caches(&mut self) -> (Vec<Sourced<String>>, Option<Sourced<CacheMerge>>) {
        let (mut caches, mut merge): (Vec<Sourced<String>>, Option<Sourced<CacheMerge>>) = (Vec::new(), None);
        for layer in self.layers.clone() {
            if layer.kind.is_trusted() {
                caches.extend(layer.document.cache.iter().map(|at| sourced(&layer, at)));
                let stated = layer.document.cache_merge.as_ref().map(|at| sourced(&layer, at));
                // The stricter: the results of a run become everybody's only when every layer that speaks says so.
                let known = merge.take();
                merge = match (known, stated) {
                    (Some(known), Some(stated)) if stated.value < known.value => Some(stated),
                    (Some(known), _) => Some(known),
                    (None, stated) => stated,
                };
                continue;
            }
            for at in &layer.document.cache {
                self.refuse(&layer, None, format!("cache {}", at.value), at.line);
            }
            if let Some(at) = layer.document.cache_merge.as_ref() {
                match at.value {
                    CacheMerge::Never => merge = Some(sourced(&layer, at)),
                    CacheMerge::NewFiles => {
                        self.refuse(&layer, None, "cacheMerge new-files".to_owned(), at.line)
                    }
                }
            }
        }
        (super::tidy(caches), merge)
    }

    pub(super) fn tests(&self) -> Vec<Sourced<TestCase>> {
        let all = self
            .layers
            .iter()
            .flat_map(|layer| layer.document.tests.iter().map(|at| sourced(layer, at)));
        all.collect()
    }
}

type Lists = (
    Option<Vec<Sourced<String>>>,
    Vec<Sourced<String>>,
    Vec<Sourced<String>>,
);

fn command_lists(layer: &Layer, lists: &CommandLists) -> Lists {
    let list = |rules: &[At<String>]| -> Vec<Sourced<String>> {
        rules.iter().map(|at| sourced(layer, at)).collect()
    };
    (
        lists.allow.as_deref().map(list),
        list(&lists.ask),
        list(&lists.deny),
    )
}

/// Whether a layer's numbers are only a starting point.
pub(super) fn is_default(kind: LayerKind) -> bool {
    matches!(kind, LayerKind::Floor | LayerKind::Preset)
}
