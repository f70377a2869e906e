//! What the project's files did to the policy, in numbers for the first line of output.
use super::Expansion;
use crate::effective::{Effective, ExpansionSummary};
use crate::layers::{Layer, LayerKind};

pub(super) fn summarise(effective: &Effective, layers: &[Layer], expansion: Expansion) -> ExpansionSummary {
    let projects: Vec<&Layer> = layers.iter().filter(|layer| !layer.kind.is_trusted()).collect();
    if projects.is_empty() {
        return ExpansionSummary::Unchanged;
    }
    let is_project = |kind: LayerKind| !kind.is_trusted();
    if expansion != Expansion::RestrictOnly {
        let paths = effective
            .fs
            .iter()
            .filter(|(_, reach)| is_project(reach.origin.layer))
            .count();
        let hosts = effective.net.tiers[0]
            .allow
            .iter()
            .flatten()
            .filter(|rule| is_project(rule.origin.layer))
            .count();
        let allows = effective.exec[0]
            .allow
            .iter()
            .chain(&effective.tools[0].allow)
            .flatten();
        let env = effective
            .env_pass
            .iter()
            .filter(|name| is_project(name.origin.layer))
            .count();
        let rules = allows.filter(|rule| is_project(rule.origin.layer)).count() + env;
        if paths + hosts + rules > 0 {
            return ExpansionSummary::Expanded { paths, hosts, rules };
        }
    }
    let lowered = effective
        .base
        .iter()
        .filter(|(path, reach)| effective.fs.grade(path) < reach.grade)
        .count();
    let names = effective
        .hide
        .iter()
        .chain(&effective.protect)
        .filter(|rule| is_project(rule.origin.layer))
        .count();
    let hosts: usize = effective.net.tiers[1..]
        .iter()
        .map(|tier| tier.ask.len() + tier.deny.len())
        .sum::<usize>()
        + effective.net.tiers[0]
            .allow
            .iter()
            .flatten()
            .filter(|rule| cut_off(effective, rule))
            .count();
    let commands: usize = [&effective.exec, &effective.tools]
        .into_iter()
        .flat_map(|tiers| &tiers[1..])
        .map(|tier| tier.ask.len() + tier.deny.len() + usize::from(tier.allow.is_some()))
        .sum();
    let limits = effective
        .limits
        .iter()
        .filter(|(_, value)| is_project(value.origin.layer))
        .count();
    let (paths, rules, requested) = (lowered + names, commands + limits, effective.not_granted.len());
    if paths + hosts + rules + requested == 0 {
        return ExpansionSummary::Unchanged;
    }
    ExpansionSummary::Restricted {
        paths,
        hosts,
        rules,
        requested,
    }
}

/// Whether a granted network rule is no longer granted in full.
fn cut_off(effective: &Effective, rule: &crate::effective::Sourced<crate::netrule::NetRule>) -> bool {
    effective.net.tiers[1..]
        .iter()
        .filter_map(|tier| tier.allow.as_ref())
        .any(|list| !list.iter().any(|own| own.value.covers(&rule.value)))
}
