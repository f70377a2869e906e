//! Merging single values: the strictest wins. What a preset says is a starting point that the operator's own layers replace.
use super::rules::is_default;
use super::{Merger, Role, sourced, tidy};
use crate::document::{At, Decided, Document, Section};
use crate::effective::{Budgets, GitRules, Origin, Sourced};
use crate::layers::Layer;
use bastle_contract::LimitKind;

/// Orders two values: the lesser is the stricter.
type Stricter<T> = fn(&T, &T) -> std::cmp::Ordering;

impl Merger<'_> {
    /// The strictest stated value. The presets' count only where no other granting layer speaks.
    fn strictest<T: Clone>(
        &self,
        section: Option<Section>,
        get: impl Fn(&Document) -> Option<At<T>>,
        order: Stricter<T>,
    ) -> Option<Sourced<T>> {
        let stated: Vec<(&Layer, Sourced<T>)> = self
            .layers
            .iter()
            .filter_map(|layer| Some((layer, sourced(layer, &get(&layer.document)?))))
            .collect();
        let of = |wanted: fn(&Layer) -> bool, role: Role| {
            let values = stated
                .iter()
                .filter(|(layer, _)| wanted(layer) && self.role(layer, section) == role);
            values
                .map(|(_, value)| value.clone())
                .min_by(|a, b| order(&a.value, &b.value).then(a.origin.cmp(&b.origin)))
        };
        let granted = of(|layer| !is_default(layer.kind), Role::Grants)
            .or_else(|| of(|layer| is_default(layer.kind), Role::Grants));
        let narrowed = of(|_| true, Role::Narrows);
        match (granted, narrowed) {
            (Some(granted), Some(narrowed)) if order(&narrowed.value, &granted.value).is_lt() => {
                Some(narrowed)
            }
            (Some(granted), _) => Some(granted),
            (None, narrowed) => narrowed,
        }
    }

    pub(super) fn limits(&self) -> Vec<(LimitKind, Sourced<u64>)> {
        let find = |kind: LimitKind| {
            let get = move |document: &Document| {
                document
                    .limits
                    .0
                    .iter()
                    .find(|(k, _)| *k == kind)
                    .map(|(_, at)| at.clone())
            };
            match kind {
                LimitKind::DiskReserve => self.strictest(Some(Section::Limits), get, |one, other| {
                    LimitKind::DiskReserve.stricter_first(one, other)
                }),
                _ => self.strictest(Some(Section::Limits), get, u64::cmp),
            }
        };
        LimitKind::ALL
            .into_iter()
            .filter_map(|kind| Some((kind, find(kind)?)))
            .collect()
    }

    /// The highest that anybody states: a project can ask for more than its host has, and harms itself alone.
    pub(super) fn min_landlock_abi(&self) -> Option<Sourced<u64>> {
        self.strictest(None, |d| d.min_landlock_abi.clone(), |a, b| b.cmp(a))
    }

    pub(super) fn budgets(&self) -> Budgets {
        let texts = |list: fn(&Document) -> &Vec<At<String>>, trusted: bool| -> Vec<Sourced<String>> {
            let layers = self
                .layers
                .iter()
                .filter(|layer| !trusted || layer.kind.is_trusted());
            tidy(
                layers
                    .flat_map(|layer| list(&layer.document).iter().map(|at| sourced(layer, at)))
                    .collect(),
            )
        };
        Budgets {
            usd: self.strictest(None, |d| d.budget.usd.clone(), f64::total_cmp),
            tokens: self.strictest(None, |d| d.budget.tokens.clone(), u64::cmp),
            turns: self.strictest(None, |d| d.budget.turns.clone(), u64::cmp),
            bytes_out: self.strictest(None, |d| d.budget.bytes_out.clone(), u64::cmp),
            bytes_in: self.strictest(None, |d| d.budget.bytes_in.clone(), u64::cmp),
            requests: self.strictest(None, |d| d.budget.requests.clone(), u64::cmp),
            connections: self.strictest(None, |d| d.budget.connections.clone(), u64::cmp),
            on_exceed: self.strictest(None, |d| d.budget.on_exceed.clone(), Ord::cmp),
            approval_timeout: self.strictest(None, |d| d.approvals.timeout.clone(), u64::cmp),
            on_timeout: self.strictest(None, |d| d.approvals.on_timeout.clone(), Ord::cmp),
            // A project that named its own reviewers would approve itself.
            reviewers: texts(|d| &d.approvals.reviewers, true),
            audit_level: self.strictest(None, |d| d.audit.level.clone(), |a, b| b.cmp(a)),
            redact: texts(|d| &d.audit.redact, false),
            // A project that could switch it off would be the first to have a reason.
            canary: self
                .strictest(None, |d| d.audit.canary.clone(), |a, b| b.cmp(a))
                .filter(|canary| canary.value || canary.origin.layer.is_trusted()),
        }
    }

    pub(super) fn git(&mut self) -> GitRules {
        let section = Some(Section::Git);
        let push = self.strictest(section, |d| d.git.push.clone(), Decided::cmp);
        let force_push = self.strictest(section, |d| d.git.force_push.clone(), Decided::cmp);
        let rules = GitRules {
            branches: self.git_list(|d| &d.git.branches, "branches"),
            remotes: self.git_list(|d| &d.git.remotes, "remotes"),
            push_options: self.push_options(),
            push,
            force_push,
        };
        for layer in &self.layers_with(section, Role::Narrows) {
            let asked = [
                ("push", &layer.document.git.push, &rules.push),
                ("forcePush", &layer.document.git.force_push, &rules.force_push),
            ];
            for (name, asked, got) in asked {
                let (Some(asked), Some(got)) = (asked, got) else {
                    continue;
                };
                if asked.value > got.value {
                    self.refuse(
                        layer,
                        section,
                        format!("git.{name} {:?}", asked.value).to_lowercase(),
                        asked.line,
                    );
                }
            }
        }
        rules
    }

    /// Push options that may be sent: none unless a layer that grants names some; others only cut them down.
    fn push_options(&mut self) -> Vec<Sourced<String>> {
        let section = Some(Section::Git);
        let mut options = Vec::new();
        for layer in &self.layers_with(section, Role::Grants) {
            let own = layer.document.git.push_options.iter().flatten();
            options.extend(own.map(|at| sourced(layer, at)));
        }
        let mut options = tidy(options);
        for layer in &self.layers_with(section, Role::Narrows) {
            let Some(narrow) = &layer.document.git.push_options else {
                continue;
            };
            let narrow: Vec<Sourced<String>> = narrow.iter().map(|at| sourced(layer, at)).collect();
            options = narrower_of_both(&options, &narrow);
        }
        options
    }

    /// Names that may be pushed: united, then cut down to what each narrowing layer names too.
    fn git_list(
        &mut self,
        list: fn(&Document) -> &Option<Vec<At<String>>>,
        name: &str,
    ) -> Option<Vec<Sourced<String>>> {
        let section = Some(Section::Git);
        let stated = |layer: &Layer| -> Option<Vec<Sourced<String>>> {
            Some(
                list(&layer.document)
                    .as_ref()?
                    .iter()
                    .map(|at| sourced(layer, at))
                    .collect(),
            )
        };
        let mut names: Option<Vec<Sourced<String>>> = None;
        for layer in &self.layers_with(section, Role::Grants) {
            if let Some(more) = stated(layer) {
                names.get_or_insert_default().extend(more);
            }
        }
        let mut names = names.map(tidy);
        for layer in &self.layers_with(section, Role::Narrows) {
            let Some(narrow) = stated(layer) else { continue };
            let Some(own) = &names else {
                names = Some(tidy(narrow));
                continue;
            };
            let both = narrower_of_both(own, &narrow);
            for more in narrow
                .iter()
                .filter(|more| !both.iter().any(|b| b.value == more.value))
            {
                let Origin { line, .. } = more.origin;
                self.refuse(layer, section, format!("git.{name} {}", more.value), line);
            }
            names = Some(both);
        }
        names
    }
}

/// Of every pair where one pattern covers the other, the narrower.
fn narrower_of_both(a: &[Sourced<String>], b: &[Sourced<String>]) -> Vec<Sourced<String>> {
    let covers = |wide: &str, narrow: &str| crate::names::glob(wide.as_bytes(), narrow.as_bytes());
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    let narrower = pairs.filter_map(|(x, y)| {
        if covers(&x.value, &y.value) {
            Some(y.clone())
        } else if covers(&y.value, &x.value) {
            Some(x.clone())
        } else {
            None
        }
    });
    tidy(narrower.collect())
}
