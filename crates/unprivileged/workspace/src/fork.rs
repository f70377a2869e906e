//! Fork: a new run's copy from a snapshot of another.
//!
//! **Trust:** every content is hashed on its way into the new tree. The new copy keeps the old one's base, so that its
//! diff is against the host's tree as it was.
use crate::beneath::Dir;
use crate::contents::{Contents, Lender, not_kept};
use crate::crew;
use crate::faults::{damaged, io_fault};
use crate::finding::{About, Finding};
use crate::manifest::{Content, Entry, Kind, Manifest, Mode};
use crate::meta::{Meta, Origin, Reason, State, Which, WorkMode};
use crate::path::TreePath;
use crate::place::Place;
use crate::scan::assemble;
use crate::seen::{Alive, Seen, SeenList, now};
use crate::store::copy_hashing;
use crate::times::{self, Times};
use crate::workspace::Workspace;
use bastle_contract::{Fault, RunId};
use std::fs::File;
use std::path::Path;

/// What is told of a file whose first content is lost.
const PROJECT_OF_NOW: &str = "changed in the project after the first run began, and its content of then is kept nowhere: the fork has the project's of now";

/// What a fork is made of.
struct Trees<'a> {
    /// What the new copy is compared with.
    base: &'a Manifest,
    /// What it begins with.
    target: &'a Manifest,
    /// The snapshot as it was recorded.
    recorded: &'a Manifest,
}

/// Files per piece of work.
const PIECE: usize = 256;

type Made = (Entry, Option<Seen>);
/// When a file was changed, where it is known.
type Modified<'a> = &'a (dyn Fn(&TreePath) -> Option<i64> + Sync);

impl Workspace {
    /// Makes the copy of a new run from a snapshot of this one.
    ///
    /// # Errors
    /// When the snapshot is missing, a content of it is not kept any more, or the disk fails; what was made is removed.
    pub fn fork(&self, which: &Which, run: RunId) -> Result<Self, Fault> {
        self.fork_telling(which, run).map(|(space, _)| space)
    }

    /// The same, and the files that were changed in the project below an overlay while nobody kept their first content: the
    /// new copy begins with the project's content of now in them, in its base as well, so that they are no work of the agent.
    ///
    /// # Errors
    /// See [`Self::fork`].
    pub fn fork_telling(&self, which: &Which, run: RunId) -> Result<(Self, Vec<TreePath>), Fault> {
        let snapshot = self.find(which)?;
        let recorded = self.manifest(&snapshot)?;
        let current = self.with_project_of_now(recorded.clone())?;
        let base = current.carry_into(&self.base()?, &recorded)?;
        let replaced = current.paths();
        let mut meta = self.meta()?;
        meta.note(replaced.iter().map(|path| Finding {
            path: path.clone(),
            about: About::Note(PROJECT_OF_NOW.to_owned()),
        }));
        // Written out whole, whatever the parent is: its snapshot is nowhere else as a tree.
        let child = Meta {
            run,
            mode: WorkMode::Copy,
            created: now(),
            state: State::Making,
            applied: None,
            exported: Vec::new(),
            origin: Some(Origin {
                run: self.run.clone(),
                snapshot: snapshot.number,
            }),
            ..meta
        };
        let place: &Place = &self.place;
        let (space, held) = Self::begin(place, &child)?;
        let times = (
            self.find(&Which::Number(0))
                .ok()
                .and_then(|base| self.times(&base)),
            self.times(&snapshot),
        );
        let trees = Trees {
            base: &base,
            target: &current.manifest,
            recorded: &recorded,
        };
        let made = space.fill_from(self, &trees, child, times);
        drop(held);
        if made.is_err() {
            space.abandon()?;
        }
        made.map(|()| (space, replaced))
    }

    fn fill_from(
        &self,
        parent: &Self,
        trees: &Trees<'_>,
        mut meta: Meta,
        (base_times, times): (Option<Times>, Option<Times>),
    ) -> Result<(), Fault> {
        let Trees {
            base,
            target,
            recorded,
        } = *trees;
        let lenders = || {
            let source = Lender::new(Dir::open(&self.source), base);
            let tree = Lender::new(Dir::open_own(&parent.tree()), target);
            Ok(source.into_iter().chain(tree).collect())
        };
        let _shared = self.store.lock_shared()?;
        let contents = Contents::new(&self.store, Box::new(lenders), self.path("tmp"));
        let tree = self.open_tree()?;
        let modified = |path: &TreePath| {
            let same = recorded.get(path) == target.get(path);
            times.as_ref().filter(|_| same)?.find(recorded, path)
        };
        let seen = write_tree((&tree, &self.tree()), target, &contents, &modified)?;
        let batch = self.batch(crate::store::Keep::All);
        let base_id = batch.take_manifest(base)?;
        let id = batch.take_manifest(target)?;
        batch.commit()?;
        self.write_seen(&seen)?;
        // The times are in the order of the recorded trees: of others they would be those of other files.
        if recorded == target {
            for (number, times) in [(0, base_times), (1, times.clone())] {
                if let Some(times) = times {
                    self.write_times(number, &times)?;
                }
            }
        }
        self.record(0, None, Reason::Base, base, base_id)?;
        self.record(1, None, Reason::Fork, target, id)?;
        // What a fork begins with may be nowhere else as a tree: it is on disk before it counts.
        rustix::fs::syncfs(&tree).map_err(|e| io_fault("sync", &self.tree(), e))?;
        meta.base.manifest = Some(base_id);
        meta.state = State::Ready;
        self.place.write_meta(&meta)
    }
}

/// Writes a whole manifest into an empty tree.
fn write_tree(
    (tree, shown): (&Dir, &Path),
    target: &Manifest,
    contents: &Contents<'_>,
    modified: Modified<'_>,
) -> Result<SeenList, Fault> {
    let (dirs, others): (Vec<&Entry>, Vec<&Entry>) = target
        .entries()
        .iter()
        .partition(|entry| matches!(entry.kind, Kind::Dir | Kind::Submodule { .. }));
    for entry in &dirs {
        let failed = |e| io_fault("make directory", &shown.join(entry.path.as_path()), e);
        let parent = tree.beneath(entry.path.parent().as_ref()).map_err(failed)?;
        parent.make_dir(entry.path.name()).map_err(failed)?;
    }
    let pieces: Vec<&[&Entry]> = others.chunks(PIECE).collect();
    let shares: Vec<(Vec<Made>, Vec<u8>)> = crew::work(
        pieces,
        |piece, (made, buffer): &mut (Vec<Made>, Vec<u8>), _| {
            for entry in piece {
                let seen = write_one((tree, shown), entry, contents, modified, buffer)?;
                made.push(((*entry).clone(), seen));
            }
            Ok(())
        },
        || {},
    )?;
    let mut pairs: Vec<Made> = dirs.into_iter().map(|entry| (entry.clone(), None)).collect();
    pairs.extend(shares.into_iter().flat_map(|(made, _)| made));
    let (manifest, seen) = assemble(pairs).map_err(|error| damaged(shown, error))?;
    Ok(SeenList {
        manifest: manifest.id(),
        seen,
    })
}

fn write_one(
    (tree, shown): (&Dir, &Path),
    entry: &Entry,
    contents: &Contents<'_>,
    modified: Modified<'_>,
    buffer: &mut Vec<u8>,
) -> Result<Option<Seen>, Fault> {
    let failed = |e| io_fault("write", &shown.join(entry.path.as_path()), e);
    let dir = tree.beneath(entry.path.parent().as_ref()).map_err(failed)?;
    match &entry.kind {
        Kind::File {
            digest,
            mode,
            attributes,
            ..
        } => {
            let to = write_file(&dir, &entry.path, (digest, *mode), contents, buffer)?;
            if let Some(id) = attributes {
                contents.give_attributes(id, &to, &entry.path)?;
            }
            if let Some(modified) = modified(&entry.path) {
                times::set(&to, modified).map_err(failed)?;
            }
            let stat = rustix::fs::fstat(&to).map_err(|e| failed(e.into()))?;
            Ok(Some(Seen::exactly(&stat, Alive::No)))
        }
        Kind::Symlink { target } => dir
            .make_link(entry.path.name(), &target.0)
            .map_err(failed)
            .map(|()| None),
        // Without content there is nothing to bring over.
        Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. } => Ok(None),
    }
}

fn write_file(
    dir: &Dir,
    path: &TreePath,
    (digest, mode): (&Content, Mode),
    contents: &Contents<'_>,
    buffer: &mut Vec<u8>,
) -> Result<File, Fault> {
    let failed = |e: std::io::Error| io_fault("write", path.as_path(), e);
    let from = contents.open(digest, path)?;
    let mut to = dir.create_new(path.name(), mode.create_bits()).map_err(failed)?;
    let copied = if rustix::fs::ioctl_ficlone(&to, &from).is_ok() {
        copy_hashing(&mut to, None, buffer)
    } else {
        copy_hashing(&from, Some(&mut to), buffer)
    };
    if copied.map_err(failed)?.0 != *digest {
        return Err(not_kept(std::slice::from_ref(path)));
    }
    Ok(to)
}
