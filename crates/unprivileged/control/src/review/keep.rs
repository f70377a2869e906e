//! Keeping and letting go: snapshots, rollback, forks, archives, removal.
//!
//! **Trust:** nothing is lost without being named. A rollback keeps the tree as it was, an archive appears whole or not
//! at all, a removal refuses while work is nowhere else; a run that lives is never rolled back or removed.
use super::alive::{is_alive, settle_state};
use super::apply::{Outcome, Taken, patch_is_kept};
use super::choose::{Whereabouts, metas, repair};
use super::look::read_which;
use crate::afterwards::Change;
use bastle_contract::{Code, Digest, Fault, RunId};
use bastle_workspace::export::{Exported, export};
use bastle_workspace::meta::{Reason, Snapshot, SnapshotName, Which};
use bastle_workspace::path::visible;
use bastle_workspace::retention::{self, Prune, Pruned};
use bastle_workspace::rollback::{Quiet, RolledBack};
use bastle_workspace::snapshot;
use bastle_workspace::workspace::Workspace;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

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

fn refuse_living(space: &Workspace) -> Result<(), Fault> {
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

/// Makes the copy of a new run from a snapshot of this one; without a snapshot, from the tree as it is.
///
/// # Errors
/// When the snapshot is missing or the new name is taken.
pub fn fork(space: &Workspace, from: Option<&Which>, run: RunId) -> Result<(Workspace, Snapshot), Fault> {
    let snapshot = match from {
        Some(which) => space.find(which)?,
        None => space.snapshot(None, Reason::Asked)?.snapshot,
    };
    let child = space.fork(&Which::Number(snapshot.number), run)?;
    Ok((child, snapshot))
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
    /// Whether all of the work is.
    pub whole: bool,
}

/// Writes the tree as it is to a file.
///
/// # Errors
/// When the file exists and may not be replaced, or cannot be written; it appears whole or not at all.
pub fn export_to(space: &Workspace, file: &Path, replace: Replace) -> Result<Archived, Fault> {
    let (taken, exported) = write_whole(file, replace, |out| {
        let (taken, manifest) = space.current()?;
        Ok((taken, export(&manifest, space, out)?))
    })?;
    let whole = exported.left_out.is_empty() && taken.findings.is_empty();
    if whole {
        space.mark_applied(taken.snapshot.manifest)?;
    }
    Ok(Archived { exported, whole })
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

/// Fills a file under another name, syncs it, and only then gives it its own.
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
    let part = File::create_new(&beside).map_err(fail)?;
    let filled = (|| {
        let mut out = BufWriter::new(&part);
        let value = fill(&mut out)?;
        out.flush().and_then(|()| part.sync_all()).map_err(fail)?;
        match replace {
            // A name that appeared meanwhile is not replaced either.
            Replace::Never => std::fs::hard_link(&beside, file).map_err(fail)?,
            Replace::Allowed => std::fs::rename(&beside, file).map_err(fail)?,
        }
        sync_parent(file).map_err(fail)?;
        Ok(value)
    })();
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => filled.and(Err(fail(error))),
        Ok(()) | Err(_) => filled,
    }
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

/// Writes the tree as it is to a stream; whether anybody keeps it is not known, so nothing is marked.
///
/// # Errors
/// When a content cannot be read or the stream ends.
pub fn export_stream(space: &Workspace, out: &mut dyn Write) -> Result<Exported, Fault> {
    let (_, manifest) = space.current()?;
    export(&manifest, space, out)
}

/// Whether a file that exists may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// No.
    Never,
    /// Yes.
    Allowed,
}

fn sync_parent(file: &Path) -> io::Result<()> {
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

/// Removes a run's copy; gives every path that went.
///
/// # Errors
/// While the run lives, or its work is nowhere else and `discard` does not name it.
pub fn remove(
    state: &Path,
    space: Workspace,
    discard: Option<&Digest>,
    principal: &str,
) -> Result<Vec<PathBuf>, Fault> {
    refuse_living(&space)?;
    let run = space.run().clone();
    let change = Change {
        run: &run,
        by: "rm",
        at: shown(&space.tree()),
        names: Vec::new(),
        approvals: discard.iter().map(ToString::to_string).collect(),
        principal,
    };
    change.make(state, || space.remove(discard))
}

/// Removes, or lists, every copy that has ended, is older than `age` and holds nothing that is not elsewhere.
///
/// # Errors
/// The kernel's, on the directory of copies.
pub fn prune(at: &Whereabouts, age: Duration, what: Prune) -> Result<(Pruned, Vec<String>), Fault> {
    let place = at.place();
    let notes = repair(&place)?;
    for meta in metas(&place)? {
        if let Ok(space) = Workspace::open(&place, &meta.run) {
            settle_state(&space)?;
        }
    }
    Ok((retention::prune(&place, age, what)?, notes))
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
