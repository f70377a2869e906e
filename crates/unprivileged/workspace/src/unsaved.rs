//! What would be lost with a copy: every place where work exists only there.
//!
//! **Trust:** the tree is judged by the digests of its files as they are now, and nothing is written for it: a removal
//! must be possible on a full disk. Names from the tree are shown escaped.
use crate::apply::{is_interrupted, kept_originals};
use crate::audit_delta::{Change, Scope, delta};
use crate::blobs::read_blob;
use crate::discard::Discard;
use crate::finding::About;
use crate::manifest::{Content, Kind, Manifest};
use crate::meta::{Meta, Reason, Snapshot, SnapshotName, State};
use crate::path::{TreePath, visible};
use crate::refs::LeftRef;
use crate::stash::{self, Entries};
use crate::workspace::{JOURNALS, Workspace};
use bastle_contract::{Code, Fault};
use std::collections::BTreeSet;
use std::io;

/// Names that one place shows.
const MOST_SHOWN: usize = 3;
/// Digits of the digest that a refusal prints for pasting.
const SHOWN_DIGITS: usize = 8;
/// Largest file of a repository's references that is read from a snapshot.
const MOST_REFERENCES: u64 = 4 << 20;

/// A place where work exists only once. What else can hold work becomes a further variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsaved {
    /// The tree as it is.
    Tree {
        /// Its state.
        state: Content,
        /// Paths that differ from the base.
        paths: Vec<TreePath>,
        /// Names whose content could not be read.
        unread: usize,
    },
    /// A snapshot that a person asked for, or that a rollback took away.
    Snapshot {
        /// Its number.
        number: u32,
        /// The name of the snapshot, where it was given one.
        name: Option<SnapshotName>,
        /// Its state.
        state: Content,
        /// Paths that differ from the base.
        paths: Vec<TreePath>,
    },
    /// Entries of the stash of the copy's repository.
    Stash {
        /// The snapshot that has them; `None` is the tree.
        snapshot: Option<u32>,
        /// Their commits with git's message.
        entries: Vec<(String, String)>,
    },
    /// References with commits that neither the tree nor the project shows.
    Refs(Vec<LeftRef>),
    /// What a rollback moved out of the tree because no snapshot could hold it.
    Aside {
        /// The snapshot that the rollback took.
        snapshot: u32,
        /// How many names.
        names: usize,
    },
    /// Files of the project that an apply replaced, and that only its journal has.
    Originals {
        /// Whether the apply was interrupted and not ended yet.
        interrupted: bool,
        /// The files.
        paths: Vec<TreePath>,
    },
}

/// The digest of exactly what would be lost. Of a tree alone it is the digest of its state.
#[must_use]
pub fn digest(lost: &[Unsaved]) -> Content {
    if let [Unsaved::Tree { state, .. }] = lost {
        return *state;
    }
    let mut hasher = blake3::Hasher::new();
    for one in lost {
        hasher.update(one.identity().as_bytes());
        hasher.update(b"\n");
    }
    Content::from_bytes(*hasher.finalize().as_bytes())
}

impl Unsaved {
    /// What it is, so that anything added or changed there gives another digest.
    fn identity(&self) -> String {
        match self {
            Self::Tree { state, unread, .. } => format!("tree {state} {unread}"),
            Self::Snapshot { number, state, .. } => format!("snapshot {number} {state}"),
            Self::Stash { snapshot, entries } => {
                let ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_str()).collect();
                format!("stash {snapshot:?} {}", ids.join(" "))
            }
            Self::Refs(refs) => {
                let one = |one: &LeftRef| format!("{} {}", one.name, one.commit.as_deref().unwrap_or("-"));
                let refs: Vec<String> = refs.iter().map(one).collect();
                format!("refs {}", refs.join("\0"))
            }
            Self::Aside { snapshot, names } => format!("aside {snapshot} {names}"),
            Self::Originals { interrupted, paths } => {
                let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
                format!("originals {interrupted} {}", paths.join("\0"))
            }
        }
    }

    /// What would be lost, in one line.
    #[must_use]
    pub fn told(&self) -> String {
        match self {
            Self::Tree { paths, unread: 0, .. } => {
                format!("the tree has {}", changed(paths))
            }
            Self::Tree { paths, unread, .. } => {
                format!("the tree has {}, {unread} names cannot be read", changed(paths))
            }
            Self::Snapshot {
                number,
                name: Some(name),
                paths,
                ..
            } => {
                format!("snapshot {number} ({name}) has {}", changed(paths))
            }
            Self::Snapshot { number, paths, .. } => {
                format!("snapshot {number} has {}", changed(paths))
            }
            Self::Stash { snapshot, entries } => {
                let messages = entries.iter().map(|(id, message)| match message.as_str() {
                    "" => id.chars().take(12).collect(),
                    message => visible(message.chars().take(80).collect::<String>().as_bytes()),
                });
                let place = match snapshot {
                    Some(number) => format!("the git stash in snapshot {number}"),
                    None => "the git stash".to_owned(),
                };
                let entry = if entries.len() == 1 { "entry" } else { "entries" };
                format!("{place} has {} {entry} ({})", entries.len(), some(messages))
            }
            Self::Refs(refs) => {
                let reference = if refs.len() == 1 {
                    "reference has"
                } else {
                    "references have"
                };
                let shown = some(refs.iter().map(LeftRef::shown));
                format!(
                    "{} {reference} commits that the files do not show: {shown}",
                    refs.len()
                )
            }
            Self::Aside { snapshot, names } => {
                let name = if *names == 1 { "name" } else { "names" };
                format!("the rollback of snapshot {snapshot} set {names} {name} aside that no snapshot holds")
            }
            Self::Originals {
                interrupted: true,
                paths,
            } => {
                format!(
                    "an apply was interrupted; its journal has {} of the project",
                    files(paths)
                )
            }
            Self::Originals { paths, .. } => {
                format!(
                    "the journal of an apply has {} of the project as before",
                    files(paths)
                )
            }
        }
    }

    /// Commands that save it, ready to paste.
    fn saving(&self, space: &Workspace) -> Vec<String> {
        let run = &space.run;
        match self {
            Self::Tree { .. } => vec![format!(
                "bastle diff {run}; bastle apply {run}; bastle export {run} {run}.tar"
            )],
            Self::Snapshot { number, .. } => vec![format!("bastle export {run}@{number} {run}-{number}.tar")],
            Self::Stash { snapshot, entries } => {
                let from = snapshot.map_or(run.to_string(), |number| format!("{run}@{number}"));
                let ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_str()).collect();
                let inside = format!(
                    "bastle run --from {from} -- sh -c 'for id in {}; do git stash show -p -u $id > stash-$id.patch; done'",
                    ids.join(" ")
                );
                match snapshot {
                    // An archive has a patch for each entry of the tree's own stash.
                    None => vec![format!("bastle export {run} {run}.tar"), inside],
                    Some(_) => vec![inside],
                }
            }
            Self::Refs(refs) => {
                let one = |one: &LeftRef| {
                    let branch = one.branch_name();
                    format!(
                        "bastle apply {run} --branch {branch} --from-branch {}",
                        one.word()
                    )
                };
                let first = refs.first().map(one);
                first
                    .into_iter()
                    .chain([format!("bastle export {run} {run}.tar")])
                    .collect()
            }
            Self::Aside { snapshot, .. } => {
                let path = space.path(ASIDE).join(snapshot.to_string());
                vec![format!("cp -a '{}' {run}-{snapshot}", path.display())]
            }
            Self::Originals { .. } => vec![format!("bastle recover {run} --extract {run}-originals")],
        }
    }
}

/// The directory of what rollbacks set aside.
const ASIDE: &str = "kept";

fn changed(paths: &[TreePath]) -> String {
    let path = if paths.len() == 1 { "path" } else { "paths" };
    let shown = some(paths.iter().map(ToString::to_string));
    match paths {
        [] => "no changed path".to_owned(),
        paths => format!("{} changed {path} ({shown})", paths.len()),
    }
}

fn files(paths: &[TreePath]) -> String {
    let file = if paths.len() == 1 { "file" } else { "files" };
    match paths {
        [] => "no file".to_owned(),
        paths => format!(
            "{} {file} ({})",
            paths.len(),
            some(paths.iter().map(ToString::to_string))
        ),
    }
}

/// The first ones, and how many follow.
fn some(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MOST_SHOWN);
    let shown: Vec<String> = names.take(MOST_SHOWN).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl Workspace {
    /// Every place where work exists only in this copy.
    ///
    /// # Errors
    /// `WorkspaceBusy` while the run is alive; when something cannot be read.
    pub fn unsaved(&self) -> Result<Vec<Unsaved>, Fault> {
        let _held = self.hold()?;
        self.unsaved_held()
    }

    /// Refuses unless nothing would be lost, or exactly that is named.
    ///
    /// # Errors
    /// `WorkspaceBusy` while the run is alive, `WorkspaceUnexported` with every place.
    pub fn check_removable(&self, discard: Option<&Discard>) -> Result<(), Fault> {
        let _held = self.hold()?;
        self.check_held(discard)
    }

    pub(crate) fn check_held(&self, discard: Option<&Discard>) -> Result<(), Fault> {
        let lost = self.unsaved_held()?;
        if lost.is_empty() || discard.is_some_and(|discard| discard.names(&lost)) {
            return Ok(());
        }
        Err(self.refusal(&lost, discard))
    }

    fn refusal(&self, lost: &[Unsaved], discard: Option<&Discard>) -> Fault {
        let run = &self.run;
        let told: Vec<String> = lost.iter().map(Unsaved::told).collect();
        let all = digest(lost).to_string();
        let what = format!("run {run} has work that is nowhere else: {}", told.join("; "));
        let why = match discard {
            None => format!("the digest of what would be lost is {all}"),
            Some(_) => format!("the digest of what would be lost is {all}, not the one that was named"),
        };
        let mut saving: Vec<String> = Vec::new();
        for command in lost.iter().flat_map(|one| one.saving(self)) {
            // One archive saves several places.
            let named = saving
                .iter()
                .any(|line| line.split("; ").any(|one| one == command));
            if !named {
                saving.push(command);
            }
        }
        saving
            .into_iter()
            .fold(
                Fault::new(Code::WorkspaceUnexported, what, why),
                |fault, command| fault.help(command),
            )
            .help(format!(
                "to throw all of it away: bastle rm {run} --discard {}",
                all.get(..SHOWN_DIGITS).unwrap_or(&all)
            ))
    }

    fn unsaved_held(&self) -> Result<Vec<Unsaved>, Fault> {
        let meta = self.meta()?;
        if meta.state == State::Running {
            let what = format!("run {} is alive", self.run);
            return Err(Fault::new(Code::WorkspaceBusy, what, "").help("wait for its end: bastle ps"));
        }
        let (now, findings) = self.judge_held()?;
        let saved = self.saved(&meta)?;
        let Some(base) = saved.first() else {
            return Err(crate::place::missing(&self.run));
        };
        // An edit of the source is no work of the agent's.
        let read = |about: &About| *about == About::SourceChanged;
        let unread = findings.iter().filter(|finding| !read(&finding.about)).count();
        let mut lost = Vec::new();
        // What cannot be read is in no saved state but one that says the same of it.
        let in_base = is_same(base, &now) && unread == 0;
        if !in_base && !saved.iter().skip(1).any(|one| is_same(one, &now)) {
            let paths = work_since(base, &now);
            let state = now.id();
            lost.push(Unsaved::Tree { state, paths, unread });
        }
        let mut first = self.stash_at(base)?;
        first.extend(self.saved_commits()?.into_iter().map(|id| (id, String::new())));
        let stash = self.stash_now()?;
        lost.extend(stash_of(None, &stash, &[&first]));
        self.unsaved_snapshots(&saved, &now, (&first, &stash), &mut lost)?;
        // The stash is a place of its own.
        let mut refs = self.left_refs_in(&now)?;
        refs.retain(|one| !one.name.starts_with("stash@"));
        if !refs.is_empty() {
            lost.push(Unsaved::Refs(refs));
        }
        lost.extend(self.set_aside()?);
        let journals = self.path(JOURNALS);
        let paths = kept_originals(&journals)?;
        let interrupted = is_interrupted(&journals)?;
        if interrupted || !paths.is_empty() {
            lost.push(Unsaved::Originals { interrupted, paths });
        }
        Ok(lost)
    }

    /// States whose work is elsewhere, the base first.
    fn saved(&self, meta: &Meta) -> Result<Vec<Manifest>, Fault> {
        let mut saved = vec![self.base()?];
        if let Some(applied) = &meta.applied {
            saved.push(self.store.manifest(applied)?);
        }
        // What an old state was is only known while its manifest is; without it that state counts as unsaved.
        saved.extend(meta.exported.iter().filter_map(|id| self.store.manifest(id).ok()));
        Ok(saved)
    }

    fn unsaved_snapshots(
        &self,
        saved: &[Manifest],
        now: &Manifest,
        (first, stash): (&Entries, &Entries),
        lost: &mut Vec<Unsaved>,
    ) -> Result<(), Fault> {
        let mut known: BTreeSet<Content> = saved.iter().map(Manifest::id).collect();
        known.insert(now.id());
        let mut stashed = stash.clone();
        for snapshot in self.snapshots()?.into_iter().filter(is_asked_for) {
            if !known.insert(snapshot.manifest) {
                continue;
            }
            let state = self.manifest(&snapshot)?;
            let there = self.stash_at(&state)?;
            lost.extend(stash_of(Some(snapshot.number), &there, &[first, &stashed]));
            stashed.extend(there);
            let mut paths = saved.first().map_or(Vec::new(), |base| work_since(base, &state));
            let elsewhere = |path: &TreePath| {
                saved
                    .iter()
                    .chain([now])
                    .any(|one| one.get(path) == state.get(path))
            };
            paths.retain(|path| !elsewhere(path));
            if paths.is_empty() {
                continue;
            }
            lost.push(Unsaved::Snapshot {
                number: snapshot.number,
                name: snapshot.name,
                state: snapshot.manifest,
                paths,
            });
        }
        Ok(())
    }

    /// The stash in the tree as it is.
    fn stash_now(&self) -> Result<Entries, Fault> {
        let tree = self.open_tree()?;
        stash::entries(&mut |path| stash::read_in(&tree, path))
            .map_err(|e| crate::faults::io_fault("read the stash in", &self.tree(), e))
    }

    /// The stash in a recorded state.
    fn stash_at(&self, state: &Manifest) -> Result<Entries, Fault> {
        let mut read = |path: &str| {
            let kind = TreePath::new(path)
                .ok()
                .and_then(|path| state.get(&path).cloned());
            let Some(Kind::File { digest, .. }) = kind else {
                return Ok(None);
            };
            if !self.store.has(&digest) {
                return Ok(None);
            }
            read_blob(self, &digest, MOST_REFERENCES).map_err(|fault| io::Error::other(fault.to_string()))
        };
        stash::entries(&mut read).map_err(|e| crate::faults::io_fault("read the stash of", &self.tree(), e))
    }

    fn set_aside(&self) -> Result<Vec<Unsaved>, Fault> {
        let dir = self.path(ASIDE);
        let failed = |e| crate::faults::io_fault("list", &dir, e);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(snapshot) = number else { continue };
            let names = std::fs::read_dir(entry.path()).map_err(failed)?.count();
            if names > 0 {
                found.push(Unsaved::Aside { snapshot, names });
            }
        }
        found.sort_by_key(|one| match one {
            Unsaved::Aside { snapshot, .. } => *snapshot,
            _ => 0,
        });
        Ok(found)
    }
}

/// Entries of a stash that none of the others has.
fn stash_of(snapshot: Option<u32>, entries: &Entries, others: &[&Entries]) -> Option<Unsaved> {
    let own = entries
        .iter()
        .filter(|(id, _)| !others.iter().any(|other| other.contains_key(*id)));
    let entries: Vec<(String, String)> = own
        .map(|(id, message)| (id.as_str().to_owned(), message.clone()))
        .collect();
    (!entries.is_empty()).then_some(Unsaved::Stash { snapshot, entries })
}

/// Whether a snapshot holds what somebody asked to keep, or what a rollback took away. What the agent itself replaced
/// while it worked is in the others, and is no loss.
fn is_asked_for(snapshot: &Snapshot) -> bool {
    let reason = match snapshot.reason {
        Reason::Asked | Reason::BeforeRollback => true,
        Reason::Base | Reason::Turn | Reason::Look | Reason::Fork => false,
    };
    reason || snapshot.name.is_some()
}

fn is_same(one: &Manifest, other: &Manifest) -> bool {
    !delta(one, other, Scope::Whole).iter().any(is_work)
}

fn work_since(before: &Manifest, now: &Manifest) -> Vec<TreePath> {
    let changes = delta(before, now, Scope::Whole);
    changes
        .into_iter()
        .filter(is_work)
        .map(|change| change.path)
        .collect()
}

/// Whether a change is something a person could miss. In the copy's own repository only references are: git rewrites
/// its index and logs on the mere asking for a status. The stash is a place of its own.
fn is_work(change: &Change) -> bool {
    let path = change.path.as_bytes();
    let reference = path == b".git/HEAD" || path == b".git/packed-refs" || path.starts_with(b".git/refs/");
    let directory =
        matches!(change.before, None | Some(Kind::Dir)) && matches!(change.after, None | Some(Kind::Dir));
    !change.path.in_git() || (reference && !directory && !stash::is_reference(path))
}
