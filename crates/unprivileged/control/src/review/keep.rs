//! Keeping: snapshots, rollback, forks, archives.
//!
//! **Trust:** nothing is lost without being named. A rollback keeps the tree as it was, an archive appears whole or not
//! at all; a run that lives is never rolled back.
use super::alive::{is_alive, settle_state};
use super::apply::{Outcome, Taken, patch_is_kept, patch_of};
use super::look::read_which;
use bastle_contract::{Code, Fault, RunId};
use bastle_workspace::audit_delta::{Scope, delta};
use bastle_workspace::durable::Durable;
use bastle_workspace::export::{Beside, Exported, export_with};
use bastle_workspace::finding::{About, Finding};
use bastle_workspace::git::is_git_name;
use bastle_workspace::manifest::{Content, Manifest};
use bastle_workspace::meta::{Reason, Snapshot, SnapshotName, Which};
use bastle_workspace::path::{TreePath, visible};
use bastle_workspace::rollback::{Quiet, RolledBack};
use bastle_workspace::snapshot;
use bastle_workspace::workspace::Workspace;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Bytes that one call writes to an archive.
const WRITES: usize = 1 << 20;
/// Bytes after which the disk is told to begin.
const BEGIN: usize = 8 << 20;

/// Records the tree as it is.
///
/// # Errors
/// When the tree cannot be read or the store cannot be written.
pub fn snapshot(space: &Workspace, name: Option<SnapshotName>) -> Result<snapshot::Taken, Fault> {
    space.snapshot(name, Reason::Asked)
}

/// Makes the tree what it was. What it is now becomes a snapshot first.
///
/// # Errors
/// While the run lives; when the snapshot is missing.
pub fn rollback(space: &Workspace, which: &Which) -> Result<RolledBack, Fault> {
    refuse_living(space)?;
    space.rollback(which, Quiet::Unknown)
}

pub(super) fn refuse_living(space: &Workspace) -> Result<(), Fault> {
    settle_state(space)?;
    if !is_alive(space)? {
        return Ok(());
    }
    Err(Fault::new(
        Code::WorkspaceBusy,
        format!("run {} is alive", space.run()),
        "the agent would write into the tree meanwhile",
    )
    .help("wait for its end"))
}

/// A new run's copy.
pub struct Forked {
    /// The copy.
    pub space: Workspace,
    /// What it was made from.
    pub snapshot: Snapshot,
    /// Files that were changed in the project below an overlay: the copy has the project's content of now.
    pub from_project: Vec<TreePath>,
}

/// Makes the copy of a new run from a snapshot of this one; without a snapshot, from the tree as it is.
///
/// # Errors
/// When the snapshot is missing or the new name is taken.
pub fn fork(space: &Workspace, from: Option<&Which>, run: RunId) -> Result<Forked, Fault> {
    let snapshot = match from {
        Some(which) => space.find(which)?,
        None => space.snapshot(None, Reason::Asked)?.snapshot,
    };
    let (space, from_project) = space.fork_telling(&Which::Number(snapshot.number), run)?;
    Ok(Forked {
        space,
        snapshot,
        from_project,
    })
}

/// Splits `RUN@SNAPSHOT`; `@last` is a run.
///
/// # Errors
/// When what follows the `@` names no snapshot.
pub fn read_origin(text: &str) -> Result<(&str, Option<Which>), Fault> {
    match text.rsplit_once('@') {
        Some((run, which)) if !run.is_empty() => Ok((run, Some(read_which(which)?))),
        Some(_) | None => Ok((text, None)),
    }
}

/// What became of an archive.
pub struct Archived {
    /// What is in it.
    pub exported: Exported,
    /// Files that were changed in the project below an overlay: the archive has the project's content of now.
    pub from_project: Vec<TreePath>,
    /// One patch for each reference that the agent left, against the commit that the copy began with.
    pub patches: Vec<TreePath>,
    /// What is not in these patches, by reference.
    pub lacking: Vec<String>,
    /// Whether all of the work is.
    pub whole: bool,
}

/// Where an archive has what the agent left on references.
const REFS: &str = "bastle-refs";

/// Patches of references, as they go into an archive.
#[derive(Default)]
struct LeftPatches {
    files: Vec<Beside>,
    /// References that are in their patch as a whole, and what they name.
    whole: Vec<(String, String)>,
    lacking: Vec<String>,
}

/// One patch per reference whose commits the tree does not show.
fn left_patches(space: &Workspace, tree: &Manifest) -> Result<LeftPatches, Fault> {
    let mut found = LeftPatches::default();
    let taken = |name: &str| TreePath::new(name).is_ok_and(|path| tree.get(&path).is_some());
    let free = std::iter::successors(Some(REFS.to_owned()), |name| Some(format!("{name}-")));
    let directory = free.into_iter().find(|name| !taken(name)).unwrap_or_default();
    for (number, left) in space.left_refs_in(tree)?.into_iter().enumerate() {
        let refs = match space.ref_tree(&left.name) {
            Ok(refs) => refs,
            Err(fault) => {
                found.lacking.push(format!("{}: {}", left.name, fault.what));
                continue;
            }
        };
        // Nobody unpacks a git directory, whatever a tree object names.
        let (changes, odd): (Vec<_>, Vec<_>) = delta(&refs.before, &refs.after, Scope::Work)
            .into_iter()
            .partition(|change| !change.path.components().any(is_git_name));
        let patch = patch_of(space, &refs, &changes)?;
        let odd = odd.iter().map(|change| change.path.to_string());
        let lacking = patch
            .left_out
            .iter()
            .map(|one| format!("{}: {}", one.path, one.why));
        let staged = refs.index_only.iter();
        let staged = staged.map(|path| format!("{path}: only the index of the stash has it"));
        let lacking: Vec<String> = odd.chain(lacking).chain(staged).collect();
        if lacking.is_empty() {
            found.whole.push((refs.name.clone(), refs.tip.clone()));
        }
        found
            .lacking
            .extend(lacking.iter().map(|one| format!("{}: {one}", left.name)));
        let name = left.branch_name().replace('/', "-");
        let path = TreePath::new(format!("{directory}/{number}-{name}.patch"))
            .map_err(|error| Fault::new(Code::WorkspaceApply, "name a patch", error.to_string()))?;
        found.files.push((path, patch.bytes));
    }
    Ok(found)
}

/// Writes the tree as it is, or a snapshot, to a file.
///
/// # Errors
/// When the file exists and may not be replaced, or cannot be written; it appears whole or not at all.
pub fn export_to(
    space: &Workspace,
    which: Option<&Which>,
    file: &Path,
    replace: Replace,
) -> Result<Archived, Fault> {
    let ((state, complete), mut archived, left) = write_whole(file, replace, |out| {
        let (state, complete, manifest) = state_of(space, which)?;
        let (archived, left) = export_state(space, which, manifest, out)?;
        Ok(((state, complete), archived, left))
    })?;
    archived.whole = archived.exported.left_out.is_empty() && archived.lacking.is_empty() && complete;
    for (name, tip) in &left {
        space.mark_ref_saved(name, tip)?;
    }
    if archived.whole {
        match which {
            None => space.mark_saved(state)?,
            // A snapshot says nothing of the tree.
            Some(_) => space.mark_exported(state)?,
        }
    }
    Ok(archived)
}

/// Writes a state with patches of the references that the agent left, and gives those that are in them as a whole.
fn export_state(
    space: &Workspace,
    which: Option<&Which>,
    manifest: Manifest,
    out: &mut dyn Write,
) -> Result<(Archived, Vec<(String, String)>), Fault> {
    let current = space.with_project_of_now(manifest)?;
    let kept = match which {
        None => left_patches(space, &current.manifest)?,
        // References are those of the tree as it is.
        Some(_) => LeftPatches::default(),
    };
    let archived = Archived {
        exported: export_with(&current.manifest, &space.lending(), &kept.files, out)?,
        from_project: current.paths(),
        patches: kept.files.into_iter().map(|(path, _)| path).collect(),
        lacking: kept.lacking,
        whole: false,
    };
    Ok((archived, kept.whole))
}

/// An edit of the project below an overlay is no work of the agent's.
pub(super) fn is_no_work(finding: &Finding) -> bool {
    finding.about == About::SourceChanged
}

/// The tree as it is, or a snapshot, and whether all of it could be read.
fn state_of(space: &Workspace, which: Option<&Which>) -> Result<(Content, bool, Manifest), Fault> {
    if let Some(which) = which {
        let snapshot = space.find(which)?;
        let manifest = space.manifest(&snapshot)?;
        return Ok((snapshot.manifest, true, manifest));
    }
    let (taken, manifest) = space.current()?;
    let complete = taken.findings.iter().all(is_no_work);
    Ok((taken.snapshot.manifest, complete, manifest))
}

/// Writes a patch to a file, and records that the work is there when all of it is.
///
/// # Errors
/// As [`export_to`].
pub fn patch_to(space: &Workspace, outcome: &Outcome, file: &Path, replace: Replace) -> Result<(), Fault> {
    let Taken::Patch(bytes, _) = &outcome.taken else {
        return Ok(());
    };
    write_whole(file, replace, |out| {
        out.write_all(bytes).map_err(|error| unwritable(file, &error))
    })?;
    patch_is_kept(space, outcome)
}

/// Fills a file that has no name or another one, syncs it, and only then gives it its own.
fn write_whole<T>(
    file: &Path,
    replace: Replace,
    fill: impl FnOnce(&mut dyn Write) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let fail = |error: io::Error| unwritable(file, &error);
    if replace == Replace::Never && file.symlink_metadata().is_ok() {
        let what = format!("{} is there already", shown(file));
        return Err(Fault::new(Code::UsageArgument, what, "nothing is replaced unasked").help("--force"));
    }
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    let (part, named) = part_of(file, &beside).map_err(fail)?;
    let filled = (|| {
        let mut out = BufWriter::with_capacity(
            WRITES,
            Begun {
                file: &part,
                written: 0,
            },
        );
        let value = fill(&mut out)?;
        out.flush().and_then(|()| part.sync_all()).map_err(fail)?;
        match (replace, named) {
            // A name that appeared meanwhile is not replaced either.
            (Replace::Never, Named::Beside) => std::fs::hard_link(&beside, file),
            (Replace::Never, Named::Not) => give_name(&part, file),
            (Replace::Allowed, Named::Beside) => std::fs::rename(&beside, file),
            (Replace::Allowed, Named::Not) => {
                give_name(&part, &beside).and_then(|()| std::fs::rename(&beside, file))
            }
        }
        .map_err(fail)?;
        sync_parent(file).map_err(fail)?;
        Ok(value)
    })();
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => filled.and(Err(fail(error))),
        Ok(()) | Err(_) => filled,
    }
}

/// A file that will be synced: the disk begins with it while it is written.
struct Begun<'a> {
    file: &'a File,
    written: usize,
}

impl Write for Begun<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.file;
        let written = file.write(bytes)?;
        self.written += written;
        if self.written >= BEGIN {
            self.written = 0;
            Durable::default().sync_soon(self.file);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a file that is being filled can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// It goes with the process.
    Not,
    /// It has a name beside the one it will get.
    Beside,
}

/// A file to fill: without a name where the file system can, so that a kill leaves nothing in a directory of the user's.
fn part_of(file: &Path, beside: &Path) -> io::Result<(File, Named)> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::open(parent_of(file), flags, Mode::from_raw_mode(0o666)) {
        Ok(part) => Ok((part.into(), Named::Not)),
        Err(_) => Ok((File::create_new(beside)?, Named::Beside)),
    }
}

/// Gives a nameless file a name that is free.
fn give_name(part: &File, name: &Path) -> io::Result<()> {
    let through = format!("/proc/self/fd/{}", part.as_raw_fd());
    Ok(rustix::fs::linkat(
        CWD,
        through,
        CWD,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )?)
}

fn unwritable(file: &Path, error: &io::Error) -> Fault {
    Fault::new(
        Code::WorkspaceApply,
        format!("write {}", shown(file)),
        error.to_string(),
    )
}

fn shown(file: &Path) -> String {
    visible(file.as_os_str().as_encoded_bytes())
}

/// Writes the tree as it is, or a snapshot, to a stream; whether anybody keeps it is not known, so nothing is marked.
///
/// # Errors
/// When a content cannot be read or the stream ends.
pub fn export_stream(
    space: &Workspace,
    which: Option<&Which>,
    out: &mut dyn Write,
) -> Result<Archived, Fault> {
    let (_, _, manifest) = state_of(space, which)?;
    export_state(space, which, manifest, out).map(|(archived, _)| archived)
}

/// Whether a file that exists may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// A file that exists stays, and the call fails.
    Never,
    /// Yes.
    Allowed,
}

fn sync_parent(file: &Path) -> io::Result<()> {
    File::open(parent_of(file))?.sync_all()
}

fn parent_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_is_no_snapshot_and_an_empty_snapshot_is_refused() {
        assert_eq!(read_origin("calm-otter").unwrap(), ("calm-otter", None));
        assert_eq!(read_origin("@last").unwrap(), ("@last", None));
        assert_eq!(read_origin("@last@3").unwrap(), ("@last", Some(Which::Number(3))));
        assert!(read_origin("calm-otter@").is_err());
        assert!(read_origin("calm-otter@../x").is_err());
    }

    #[test]
    fn a_file_that_cannot_be_filled_leaves_nothing_and_replaces_nothing() {
        let stage = tempfile::tempdir().unwrap();
        let file = stage.path().join("x.tar");
        let broken = |_: &mut dyn Write| Err::<(), Fault>(Fault::new(Code::WorkspaceApply, "x", ""));
        std::fs::write(&file, "mine").unwrap();
        assert!(write_whole(&file, Replace::Never, |_| Ok(())).is_err());
        assert!(write_whole(&file, Replace::Allowed, broken).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(stage.path()).unwrap().count(), 1);
        // A link is not written through.
        let link = stage.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_whole(&link, Replace::Allowed, |out| {
            out.write_all(b"new").map_err(|error| unwritable(&link, &error))
        })
        .unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        assert!(!link.is_symlink());
    }
}
