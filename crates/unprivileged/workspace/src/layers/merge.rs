//! What an overlay shows, from its upper directory and the record of its lower one.
//!
//! **Trust:** the upper directory is the agent's and is read as any tree of its. Below it counts what was recorded when
//! the run began: an edit of the host's tree during the run is told, and is never taken for the agent's work.
use super::marks::{is_opaque, is_whiteout};
use crate::beneath::Dir;
use crate::crew;
use crate::faults::damaged;
use crate::finding::{About, Finding};
use crate::manifest::{Content, Entry, Kind, Manifest, Opaque};
use crate::path::TreePath;
use crate::scan::{Scan, assemble, length};
use crate::seen::{Alive, Seen, SeenList};
use crate::store::copy_hashing;
use bastle_contract::Fault;
use std::collections::{BTreeSet, HashSet};
use std::io::Read;
use std::path::Path;

/// Files per piece of work.
const PIECE: usize = 512;

/// The lower tree and what it was.
pub(crate) struct Below<'a> {
    pub(crate) root: &'a Dir,
    /// The overlay as it was when the run began; its `.git` is in the upper directory.
    pub(crate) base: &'a Manifest,
    /// What the lower files looked like then, in the order of `base`; absent when that was lost.
    pub(crate) seen: Option<&'a SeenList>,
}

/// Whether what lies below is looked at for what was changed since the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drift {
    /// The run begins now.
    None,
    /// Changes are told.
    Told,
}

/// Lays what was found in the upper directory over the record of the lower one.
///
/// # Errors
/// When the result is larger than a manifest may be.
pub(crate) fn merge(
    upper_root: &Dir,
    upper: Scan,
    below: &Below<'_>,
    drift: Drift,
    shown: &Path,
) -> Result<Scan, Fault> {
    let Scan {
        manifest,
        seen,
        below: _,
        mut findings,
    } = upper;
    let mut pairs: Vec<(Entry, Looks)> = Vec::with_capacity(below.base.entries().len());
    // Names of which nothing from below is seen: gone, or covered by something that is no directory to look through.
    let mut closed: BTreeSet<&TreePath> = BTreeSet::new();
    for (entry, seen) in manifest.entries().iter().zip(&seen.seen) {
        let lower = below.base.get(&entry.path);
        match &entry.kind {
            Kind::Opaque { why: Opaque::Device } if is_gone(upper_root, &entry.path) => {
                closed.insert(&entry.path);
                continue;
            }
            Kind::Dir if lower == Some(&Kind::Dir) && !entry.path.in_git() => {
                let opaque = upper_root
                    .beneath(Some(&entry.path))
                    .and_then(|dir| is_opaque(&dir));
                if opaque.unwrap_or(true) {
                    closed.insert(&entry.path);
                }
            }
            _ if lower.is_some() => drop(closed.insert(&entry.path)),
            _ => {}
        }
        pairs.push((entry.clone(), (*seen, None)));
    }
    let open = visible(below.base, &manifest, &closed);
    if drift == Drift::Told {
        findings.extend(drifted(below, &open)?);
        findings.sort();
    }
    let modified = |at: usize| {
        below
            .seen
            .and_then(|list| *list.seen.get(at)?)
            .map(|seen| seen.modified())
    };
    pairs.extend(
        open.into_iter()
            .map(|(at, entry)| (entry.clone(), (None, modified(at)))),
    );
    let (manifest, looks) = assemble(pairs).map_err(|error| damaged(shown, error))?;
    let (seen, times) = looks.into_iter().unzip();
    Ok(Scan {
        below: times,
        seen: SeenList {
            manifest: manifest.id(),
            seen,
        },
        manifest,
        findings,
    })
}

/// How a file of the upper directory looks, or when one that is seen through it was changed.
type Looks = (Option<Seen>, Option<i64>);

fn is_gone(upper: &Dir, path: &TreePath) -> bool {
    let look = || upper.beneath(path.parent().as_ref())?.stat(path.name());
    // One that vanished since was a mark or a device: neither is content.
    look().is_ok_and(|stat| is_whiteout(&stat))
}

/// Entries of the base that nothing above covers.
fn visible<'a>(
    base: &'a Manifest,
    upper: &Manifest,
    closed: &BTreeSet<&TreePath>,
) -> Vec<(usize, &'a Entry)> {
    let mut open = Vec::with_capacity(base.entries().len());
    // A directory comes before what is in it, though not right before.
    let mut shut: HashSet<TreePath> = HashSet::new();
    for (at, entry) in base.entries().iter().enumerate() {
        let parent = entry.path.parent();
        let covered = !shut.is_empty() && parent.is_some_and(|parent| shut.contains(&parent));
        if covered || closed.contains(&entry.path) {
            shut.insert(entry.path.clone());
        } else if !entry.path.in_git() && upper.get(&entry.path).is_none() {
            open.push((at, entry));
        }
    }
    open
}

/// Which of them are not any more what they were.
pub(super) fn drifted(below: &Below<'_>, open: &[(usize, &Entry)]) -> Result<Vec<Finding>, Fault> {
    let pieces: Vec<&[(usize, &Entry)]> = open.chunks(PIECE).collect();
    let shares: Vec<(Vec<Finding>, Vec<u8>)> = crew::work(
        pieces,
        |piece, (found, buffer): &mut (Vec<Finding>, Vec<u8>), _| {
            let mut dir: Option<(Option<TreePath>, std::io::Result<Dir>)> = None;
            for (at, entry) in piece {
                let parent = entry.path.parent();
                let same = dir.take().filter(|(path, _)| *path == parent);
                let (_, opened) = dir.insert(same.unwrap_or_else(|| {
                    let opened = below.root.beneath(parent.as_ref());
                    (parent, opened)
                }));
                let still = opened
                    .as_ref()
                    .is_ok_and(|opened| is_still(opened, below, (*at, entry), buffer));
                if !still {
                    found.push(Finding {
                        path: entry.path.clone(),
                        about: About::SourceChanged,
                    });
                }
            }
            Ok(())
        },
        || {},
    )?;
    Ok(shares.into_iter().flat_map(|(found, _)| found).collect())
}

fn is_still(dir: &Dir, below: &Below<'_>, (at, entry): (usize, &Entry), buffer: &mut Vec<u8>) -> bool {
    match &entry.kind {
        Kind::File { digest, .. } => {
            let Ok(stat) = dir.stat(entry.path.name()) else {
                return false;
            };
            let known = below.seen.and_then(|list| *list.seen.get(at)?);
            known.is_some_and(|seen| seen.still(&stat, Alive::No)) || same_bytes(dir, entry, digest, buffer)
        }
        Kind::Symlink { target } => dir
            .read_link(entry.path.name())
            .is_ok_and(|found| found == target.0),
        // A directory that is gone is told by what was in it, and an empty one by nobody.
        Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. } => true,
    }
}

fn same_bytes(dir: &Dir, entry: &Entry, digest: &Content, buffer: &mut Vec<u8>) -> bool {
    let Kind::File { size, .. } = &entry.kind else {
        return false;
    };
    dir.open_regular(entry.path.name()).is_ok_and(|(file, stat)| {
        length(&stat) == *size
            && copy_hashing((&file).take(*size), None, buffer).is_ok_and(|(found, _)| found == *digest)
    })
}
