//! What an apply must come to, as `docs/workspace.md` promises it: three-way by name, by line where both sides changed
//! a text, all or nothing.
use super::random::Resolve;
use super::session::Applied;
use super::tree::{Name, State, Thing, Tree, above, differing, is_at_or_below, is_git};
use std::collections::{BTreeMap, BTreeSet};

/// What a person should see.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Names that keep everything from being written.
    pub(crate) conflicts: BTreeSet<Name>,
    /// The project afterwards.
    pub(crate) host: Tree,
    /// Names that are written, made or removed; directories above them that were missing, too.
    pub(crate) written: BTreeSet<Name>,
    /// Names of which the project's version was kept.
    pub(crate) ours: BTreeSet<Name>,
    /// Names whose text is a merge.
    pub(crate) merged: BTreeSet<Name>,
}

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Already,
    Take(Option<Thing>),
    Merge(Thing),
    Conflict,
}

/// Names that the agent changed, those of git not among them.
pub(crate) fn changes(base: &State, agent: &State) -> BTreeSet<Name> {
    let mut changed = differing(base, agent);
    changed.retain(|name| !is_git(name));
    changed
}

/// Carries the changes of these names from base to agent over to the host.
pub(crate) fn apply(
    host: &Tree,
    base: &State,
    agent: &State,
    taken: &BTreeSet<Name>,
    resolve: Resolve,
) -> Expected {
    let mut expected = Expected {
        conflicts: BTreeSet::new(),
        host: host.clone(),
        written: BTreeSet::new(),
        ours: BTreeSet::new(),
        merged: BTreeSet::new(),
    };
    let mut takes: BTreeMap<Name, Option<Thing>> = BTreeMap::new();
    // Above before below: what a directory becomes decides about what is in it.
    for name in taken {
        let decision = decide(host, &takes, base.get(name), agent.get(name), name, resolve);
        match decision {
            Decision::Already => {}
            Decision::Take(thing) => {
                takes.insert(name.clone(), thing);
            }
            Decision::Merge(thing) => {
                expected.merged.insert(name.clone());
                takes.insert(name.clone(), Some(thing));
            }
            Decision::Conflict => refuse(&mut expected, name, resolve),
        }
    }
    // A directory cannot become something else while it holds what nobody takes away.
    let replaced: Vec<Name> = takes
        .iter()
        .filter(|(name, thing)| {
            host.at(name) == Some(Thing::Dir) && !matches!(thing, None | Some(Thing::Dir))
        })
        .map(|(name, _)| name.clone())
        .collect();
    for directory in replaced {
        let stays = |name: &Name| {
            name != &directory && is_at_or_below(name, &directory) && !matches!(takes.get(name), Some(None))
        };
        if host.state().keys().any(stays) {
            let inside: Vec<Name> = takes
                .keys()
                .filter(|name| is_at_or_below(name, &directory))
                .cloned()
                .collect();
            for name in inside {
                takes.remove(&name);
                if name == directory || resolve == Resolve::Ours {
                    refuse(&mut expected, &name, resolve);
                }
            }
        }
    }
    carry_out(&mut expected, &takes);
    expected
}

/// What an undo that succeeds must come to where the user worked near the names that the apply wrote: these are as before it, and
/// everything else is as it is; a directory that holds more by now stays. The error: names whose edit would be lost, so that it
/// has to be refused.
pub(crate) fn undo(now: &State, last: &Applied) -> Result<State, BTreeSet<Name>> {
    let mut expected = now.clone();
    let mut lost = BTreeSet::new();
    for name in last.written.iter().rev() {
        let (was, made, is) = (last.before.get(name), last.after.get(name), now.get(name));
        let holds = |state: &State| {
            let below = |one: &Name| one != name && is_at_or_below(one, name);
            state.keys().any(below)
        };
        match was {
            _ if is == was => {}
            _ if is != made => drop(lost.insert(name.clone())),
            Some(Thing::Dir) => drop(expected.insert(name.clone(), Thing::Dir)),
            None if holds(&expected) => {}
            Some(_) if holds(&expected) => drop(lost.insert(name.clone())),
            Some(thing) => drop(expected.insert(name.clone(), thing.clone())),
            None => drop(expected.remove(name)),
        }
    }
    match lost.is_empty() {
        true => Ok(expected),
        false => Err(lost),
    }
}

fn refuse(expected: &mut Expected, name: &Name, resolve: Resolve) {
    match resolve {
        Resolve::Ours => expected.ours.insert(name.clone()),
        Resolve::Refuse | Resolve::Theirs => expected.conflicts.insert(name.clone()),
    };
}

fn carry_out(expected: &mut Expected, takes: &BTreeMap<Name, Option<Thing>>) {
    // What goes, goes from below, so that a directory is empty when its turn comes; one that is not stays.
    for (name, thing) in takes.iter().rev() {
        let becomes_dir = matches!(thing, Some(Thing::Dir));
        if matches!(expected.host.at(name), Some(Thing::Dir))
            && (becomes_dir || expected.host.has_below(name))
        {
            continue;
        }
        if expected.host.at(name).is_some() {
            expected.host.set(name, None);
            expected.written.insert(name.clone());
        }
    }
    for (name, thing) in takes {
        let Some(thing) = thing else { continue };
        for directory in above(name) {
            if expected.host.at(&directory).is_none() {
                expected.host.set(&directory, Some(&Thing::Dir));
                expected.written.insert(directory);
            }
        }
        if expected.host.at(name).as_ref() != Some(thing) {
            expected.host.set(name, Some(thing));
            expected.written.insert(name.clone());
        }
    }
}

fn decide(
    host: &Tree,
    takes: &BTreeMap<Name, Option<Thing>>,
    base: Option<&Thing>,
    agent: Option<&Thing>,
    name: &Name,
    resolve: Resolve,
) -> Decision {
    let mut now = host.at(name);
    for directory in above(name) {
        let is_way = |thing: Option<&Thing>| matches!(thing, None | Some(Thing::Dir));
        if is_way(host.at(&directory).as_ref()) {
            continue;
        }
        if takes.get(&directory) == Some(&Some(Thing::Dir)) {
            now = None;
        } else if agent.is_some() {
            return Decision::Conflict;
        }
    }
    if now.as_ref() == agent {
        return Decision::Already;
    }
    if now.as_ref() == base {
        return Decision::Take(agent.cloned());
    }
    if let (Some(Thing::File(ours, our_bit)), Some(Thing::File(theirs, their_bit))) = (&now, agent) {
        let (old, old_bit) = match base {
            Some(Thing::File(bytes, bit)) => (Some(bytes.as_slice()), *bit),
            _ => (None, false),
        };
        let executable = if *our_bit == old_bit { *their_bit } else { *our_bit };
        if let Some(bytes) = merge(old, ours, theirs) {
            let merged = Thing::File(bytes, executable);
            if now.as_ref() == Some(&merged) {
                return Decision::Already;
            }
            return Decision::Merge(merged);
        }
    }
    let is_directory = matches!(now, Some(Thing::Dir | Thing::Git));
    if resolve == Resolve::Theirs && !is_directory {
        return Decision::Take(agent.cloned());
    }
    Decision::Conflict
}

/// Three contents into one, where both sides changed different lines. The lines of a content of these tests are all
/// different, so a line stayed where it is in both.
pub(crate) fn merge(base: Option<&[u8]>, ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    if base == Some(ours) || ours == theirs {
        return Some(theirs.to_vec());
    }
    if base == Some(theirs) {
        return Some(ours.to_vec());
    }
    let base = base.unwrap_or_default();
    if [base, ours, theirs].iter().any(|bytes| bytes.contains(&0)) {
        return None;
    }
    let split = |bytes: &[u8]| -> Vec<Vec<u8>> {
        bytes
            .split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    };
    let (base, ours, theirs) = (split(base), split(ours), split(theirs));
    let (mut b, mut o, mut t) = (0, 0, 0);
    let mut out = Vec::new();
    loop {
        let kept = (b..base.len()).find_map(|at| {
            let find = |side: &[Vec<u8>], from: usize| (from..side.len()).find(|n| side[*n] == base[at]);
            Some((at, find(&ours, o)?, find(&theirs, t)?))
        });
        let (to_b, to_o, to_t) = kept.unwrap_or((base.len(), ours.len(), theirs.len()));
        let (was, our, their) = (&base[b..to_b], &ours[o..to_o], &theirs[t..to_t]);
        if our == their || their == was {
            out.extend(our.concat());
        } else if our == was {
            out.extend(their.concat());
        } else {
            return None;
        }
        if kept.is_none() {
            return Some(out);
        }
        out.extend(&base[to_b]);
        (b, o, t) = (to_b + 1, to_o + 1, to_t + 1);
    }
}
