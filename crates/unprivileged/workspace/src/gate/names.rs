//! Every name by which a path can be reached: through links that the project has or that the same change makes.
//!
//! **Trust:** targets are the agent's bytes and are resolved by text inside the tree; nothing is opened. Absolute targets
//! below the project lead into it. Links that leave the tree are judged by themselves and lead to no further name here.
use super::fold::fold;
use super::judge::Shape;
use crate::manifest::{Kind, Manifest};
use crate::path::TreePath;
use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most names of one path. A project has a handful; more is a maze that nobody reviews.
const MAX_NAMES: usize = 64;
/// Most entries below the target of one link that are looked at.
const MAX_BELOW: usize = 10_000;

/// The two states that a change lies between, and the links of both.
#[derive(Clone, Debug, Default)]
pub struct Tree<'a> {
    before: Option<&'a Manifest>,
    after: Option<&'a Manifest>,
    /// Folded names of links by the folded path they lead to.
    links: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Absolute paths of the project on the host.
    roots: Vec<Vec<u8>>,
}

/// The names of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// All of them, the path's own first, each folded.
    All(Vec<Vec<u8>>),
    /// More than are looked at.
    TooMany,
}

impl<'a> Tree<'a> {
    /// Reads the links of both states.
    #[must_use]
    pub fn new(before: &'a Manifest, after: &'a Manifest) -> Self {
        Self::rooted(before, after, &[])
    }

    /// Reads the links of both states; those that lead below one of these absolute paths lead into the project.
    #[must_use]
    pub fn rooted(before: &'a Manifest, after: &'a Manifest, roots: &[&Path]) -> Self {
        let mut tree = Self {
            before: Some(before),
            after: Some(after),
            links: HashMap::new(),
            roots: roots
                .iter()
                .map(|root| root.as_os_str().as_bytes().to_vec())
                .collect(),
        };
        for entry in before.entries().iter().chain(after.entries()) {
            let Kind::Symlink { target } = &entry.kind else {
                continue;
            };
            let Some(to) = tree.resolve(&entry.path, &target.0) else {
                continue;
            };
            let names = tree.links.entry(fold(&to)).or_default();
            let from = fold(entry.path.as_bytes());
            if !names.contains(&from) {
                names.push(from);
            }
        }
        tree
    }

    /// The names by which a path can be reached.
    pub(super) fn names(&self, path: &TreePath) -> Names {
        let mut names = vec![fold(path.as_bytes())];
        let mut known: BTreeSet<Vec<u8>> = names.iter().cloned().collect();
        let mut at = 0;
        while at < names.len() {
            for alias in self.aliases(&names[at]) {
                if known.insert(alias.clone()) {
                    names.push(alias);
                }
            }
            if names.len() > MAX_NAMES {
                return Names::TooMany;
            }
            at += 1;
        }
        Names::All(names)
    }

    fn aliases(&self, name: &[u8]) -> Vec<Vec<u8>> {
        let cuts = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let cuts = cuts.map(|(at, _)| at).chain([0, name.len()]);
        let mut found = Vec::new();
        for cut in cuts {
            for from in self.links.get(&name[..cut]).into_iter().flatten() {
                // A link to a directory above itself leads to ever longer spellings of the same name.
                let own = name.strip_prefix(from.as_slice());
                if own.is_some_and(|rest| rest.is_empty() || rest[0] == b'/') {
                    continue;
                }
                let rest = name[cut..].strip_prefix(b"/").unwrap_or(&name[cut..]);
                let alias = if rest.is_empty() {
                    from.clone()
                } else {
                    [from.as_slice(), b"/", rest].concat()
                };
                found.push(alias);
            }
        }
        found
    }

    /// What becomes reachable below a link, as folded names; `None` when there is too much to look at.
    pub(super) fn below_link(&self, link: &TreePath, target: &[u8]) -> Option<Vec<Vec<u8>>> {
        let Some(to) = self.resolve(link, target) else {
            return Some(Vec::new());
        };
        let to = fold(&to);
        let from = fold(link.as_bytes());
        let mut found = Vec::new();
        for manifest in [self.before, self.after].into_iter().flatten() {
            for entry in manifest.entries() {
                let folded = fold(entry.path.as_bytes());
                let rest = if to.is_empty() {
                    Some(folded.as_slice())
                } else {
                    folded
                        .strip_prefix(to.as_slice())
                        .and_then(|rest| rest.strip_prefix(b"/"))
                };
                let Some(rest) = rest else { continue };
                if matches!(entry.kind, Kind::Dir) {
                    continue;
                }
                found.push([from.as_slice(), b"/", rest].concat());
                if found.len() > MAX_BELOW {
                    return None;
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    /// What a link leads to; a name that only the old state has counts, since another run may bring it back.
    pub(super) fn behind(&self, link: &TreePath, target: &[u8]) -> Shape {
        let Some(to) = self.resolve(link, target) else {
            return Shape::Unknown;
        };
        if to.is_empty() {
            return Shape::Directory;
        }
        let Ok(to) = TreePath::new(to) else {
            return Shape::Unknown;
        };
        let mut found = [self.after, self.before]
            .into_iter()
            .flatten()
            .filter_map(|manifest| manifest.get(&to));
        match found.next() {
            Some(Kind::Dir | Kind::Submodule { .. }) => Shape::Directory,
            Some(Kind::File { .. }) => Shape::File,
            Some(Kind::Symlink { .. } | Kind::Opaque { .. }) | None => Shape::Unknown,
        }
    }

    /// Whether the directory of a path holds one of these names.
    pub(super) fn has_beside(&self, path: &TreePath, names: &[String]) -> bool {
        let directory = path.parent();
        names.iter().any(|name| {
            let Ok(beside) = TreePath::join(directory.as_ref(), name.as_bytes()) else {
                return false;
            };
            [self.before, self.after]
                .into_iter()
                .flatten()
                .any(|manifest| manifest.get(&beside).is_some())
        })
    }

    /// Where a link leads inside the tree, by its text; `None` when it leaves it.
    fn resolve(&self, link: &TreePath, target: &[u8]) -> Option<Vec<u8>> {
        let mut parts: Vec<&[u8]> = link.components().collect();
        parts.pop();
        let target = if target.starts_with(b"/") {
            parts.clear();
            self.roots.iter().find_map(|root| below(target, root))?
        } else if target.is_empty() {
            return None;
        } else {
            target
        };
        for part in target.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    parts.pop()?;
                }
                name => parts.push(name),
            }
        }
        Some(parts.join(&b'/'))
    }
}

/// The rest of an absolute path below a root, by whole components; slashes that repeat and `.` count for nothing.
fn below<'t>(path: &'t [u8], root: &[u8]) -> Option<&'t [u8]> {
    let mut rest = path;
    for wanted in root.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        loop {
            rest = rest.strip_prefix(b"/")?;
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (part, tail) = rest.split_at(end);
            rest = tail;
            match part {
                b"" | b"." => {}
                part if part == wanted => break,
                _ => return None,
            }
        }
    }
    Some(rest)
}
