//! Group rules become host rules.
use super::{GroupHost, HostGroup, rules_for};
use crate::effective::{Effective, Origin, Sourced};
use crate::netrule::{NetRule, NetTarget};

/// What a list's rules are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// They grant: a group means reading.
    Grant,
    /// They restrict: a group means everything.
    Restrict,
}

impl Effective {
    /// Replaces rules about groups by rules about their hosts, in every tier. A group that is not among `resolved`
    /// stays and matches nothing.
    pub fn resolve_groups(&mut self, resolved: &[(HostGroup, Vec<GroupHost>)]) {
        for tier in &mut self.net.tiers {
            if let Some(allow) = &mut tier.allow {
                expand(allow, resolved, Purpose::Grant);
            }
            expand(&mut tier.ask, resolved, Purpose::Restrict);
            expand(&mut tier.deny, resolved, Purpose::Restrict);
        }
        let known = |name: &str| resolved.iter().any(|(group, _)| group.name() == name);
        self.groups.retain(|group| !known(&group.value.name));
    }

    /// Groups that rules name and whose hosts are still to be resolved.
    #[must_use]
    pub fn unresolved_groups(&self) -> Vec<HostGroup> {
        let mut groups: Vec<HostGroup> = self
            .groups
            .iter()
            .filter_map(|group| HostGroup::parse(&group.value.name))
            .collect();
        groups.sort();
        groups.dedup();
        groups
    }
}

fn expand(list: &mut Vec<Sourced<NetRule>>, resolved: &[(HostGroup, Vec<GroupHost>)], purpose: Purpose) {
    let rules = std::mem::take(list);
    for rule in rules {
        let NetTarget::Group(name) = &rule.value.target else {
            list.push(rule);
            continue;
        };
        let Some((group, places)) = resolved.iter().find(|(group, _)| group.name() == name) else {
            list.push(rule);
            continue;
        };
        let origin = Origin {
            file: format!("group:{name} at {}", rule.origin.file),
            ..rule.origin.clone()
        };
        for place in places {
            list.extend(
                of_place(&rule.value, *group, place, purpose)
                    .into_iter()
                    .map(|value| Sourced {
                        value,
                        origin: origin.clone(),
                    }),
            );
        }
    }
    list.sort();
    list.dedup_by(|later, first| later.value == first.value);
}

/// A rule about a group, for one of its hosts: what it says itself holds; what it leaves open is the group's.
fn of_place(rule: &NetRule, group: HostGroup, place: &GroupHost, purpose: Purpose) -> Vec<NetRule> {
    let target = NetTarget::Host(crate::host::HostPattern::Exact(place.host.clone()));
    let open = rule.methods.is_empty() && rule.path.is_none();
    let rules = if open && purpose == Purpose::Grant {
        rules_for(group, place)
    } else {
        vec![NetRule {
            target: target.clone(),
            port: place.port,
            ..rule.clone()
        }]
    };
    rules
        .into_iter()
        .map(|own| NetRule {
            port: rule.port.or(own.port),
            terms: rule.terms.clone(),
            ..own
        })
        .collect()
}
