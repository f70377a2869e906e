//! Reach over the file tree as a map from path to grade; the longest matching path decides.
//!
//! Combining two maps point by point needs only the paths that either names, because between two named paths
//! the grade does not change. That is what makes "a project only restricts" true by construction.
use crate::effective::{Origin, Sourced};
use bastle_contract::AbsPath;
use std::collections::BTreeMap;

/// What may be done at and below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    /// Not visible.
    None,
    /// Read and execute.
    Read,
    /// Read, write and execute.
    Write,
}

/// One named path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// What may be done.
    pub grade: Grade,
    /// Whether it belongs to the system (programs and libraries), not to the person.
    pub system: bool,
    /// Where the rule stands.
    pub origin: Origin,
}

/// A grade for every path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FsMap {
    paths: BTreeMap<AbsPath, Reach>,
}

impl FsMap {
    /// Adds a grant; at the same path the higher grade wins, and a person's grant over the system's.
    pub(crate) fn grant(&mut self, path: AbsPath, reach: Reach) {
        match self.paths.get(&path) {
            Some(old) if (old.grade, !old.system) >= (reach.grade, !reach.system) => {}
            Some(_) | None => {
                self.paths.insert(path, reach);
            }
        }
    }

    /// The named path that decides about `path`.
    pub(crate) fn find(&self, path: &AbsPath) -> Option<(&AbsPath, &Reach)> {
        // Every prefix of the path is looked up, longest first: a handful of map lookups.
        let mut at = Some(path.clone());
        while let Some(place) = at {
            if let Some(hit) = self.paths.get_key_value(&place) {
                return Some(hit);
            }
            at = place.parent();
        }
        None
    }

    /// Whether `path` itself is named.
    pub(crate) fn names(&self, path: &AbsPath) -> bool {
        self.paths.contains_key(path)
    }

    /// The grade at `path`.
    pub(crate) fn grade(&self, path: &AbsPath) -> Grade {
        self.find(path).map_or(Grade::None, |(_, reach)| reach.grade)
    }

    /// The lower grade of both at every path.
    pub(crate) fn narrowed_by(&self, other: &Self) -> Self {
        let mut paths = BTreeMap::new();
        for path in self.paths.keys().chain(other.paths.keys()) {
            let (mine, theirs) = (self.find(path), other.find(path));
            let grade = self.grade(path).min(other.grade(path));
            let system = mine.is_some_and(|(_, reach)| reach.system);
            let lowered = theirs.is_some_and(|(_, r)| r.grade == grade && self.grade(path) != grade);
            let origin = match (mine, theirs) {
                (Some((_, mine)), Some((_, theirs))) => {
                    if lowered {
                        &theirs.origin
                    } else {
                        &mine.origin
                    }
                }
                (Some((_, one)), None) | (None, Some((_, one))) => &one.origin,
                (None, None) => continue,
            };
            paths.insert(
                path.clone(),
                Reach {
                    grade,
                    system,
                    origin: origin.clone(),
                },
            );
        }
        let mut map = Self { paths };
        map.simplify();
        map
    }

    /// Drops named paths that say what the path above already says.
    fn simplify(&mut self) {
        let redundant: Vec<AbsPath> = self
            .paths
            .iter()
            .filter(|(path, reach)| {
                let above = path
                    .parent()
                    .and_then(|parent| self.find(&parent).map(|(_, r)| (r.grade, r.system)));
                above == Some((reach.grade, reach.system)) || (above.is_none() && reach.grade == Grade::None)
            })
            .map(|(path, _)| path.clone())
            .collect();
        for path in redundant {
            self.paths.remove(&path);
        }
    }

    /// Every named path, parents first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&AbsPath, &Reach)> {
        self.paths.iter()
    }

    /// The outermost paths granted by rules, not by the system.
    pub(crate) fn trees(&self) -> Vec<AbsPath> {
        let mut trees: Vec<AbsPath> = Vec::new();
        for (path, reach) in self.iter() {
            if !reach.system && reach.grade > Grade::None && !trees.iter().any(|tree| path.is_within(tree)) {
                trees.push(path.clone());
            }
        }
        trees
    }

    /// Every path with exactly `grade`, as sourced values.
    pub(crate) fn listed(&self, grade: Grade) -> Vec<Sourced<AbsPath>> {
        self.iter()
            .filter(|(_, reach)| reach.grade == grade && !reach.system)
            .map(|(path, reach)| Sourced {
                value: path.clone(),
                origin: reach.origin.clone(),
            })
            .collect()
    }
}
