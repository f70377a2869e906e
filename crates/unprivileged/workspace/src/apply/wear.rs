//! Which extended attributes a file of the host's gets with the agent's content.
//!
//! **Trust:** reads the host's file beneath the root; the agent's set comes out of the store and is checked there. The
//! host's own attributes stay unless the agent changed exactly those and the host did not.
use crate::attributes::{self, Attributes, Has, Held, merge};
use crate::audit_delta::Change;
use crate::blobs::Blobs;
use crate::manifest::{Content, Kind};
use crate::path::TreePath;
use crate::rooted::Root;
use bastle_contract::{Code, Fault};
use rustix::fs::{Mode, OFlags};
use std::fs::File;

/// What a file gets.
pub(super) struct Worn {
    pub(super) attributes: Option<Attributes>,
    /// The agent's changes to them are not among it: the file system cannot hold them.
    pub(super) dropped: bool,
}

/// Decides for one file.
pub(super) fn attributes(
    root: &Root,
    change: &Change,
    host: Option<&Kind>,
    blobs: &dyn Blobs,
) -> Result<Worn, Fault> {
    let kept = |kind: Option<&Kind>| match set_of(kind) {
        Some(id) => Attributes::open(blobs, id, change.path.as_path()).map(Some),
        None => Ok(None),
    };
    let ours = match set_of(host) {
        Some(_) => of_host(root, &change.path)?,
        None => None,
    };
    let (base, theirs) = (kept(change.before.as_ref())?, kept(change.after.as_ref())?);
    let merged = merge(base.as_ref(), ours.as_ref(), theirs.as_ref());
    if merged == ours || merged.as_ref().is_none_or(|set| fits(root, set)) {
        return Ok(Worn {
            attributes: merged,
            dropped: false,
        });
    }
    Ok(Worn {
        attributes: ours,
        dropped: true,
    })
}

/// The set that a file has on record.
fn set_of(kind: Option<&Kind>) -> Option<&Content> {
    match kind? {
        Kind::File { attributes, .. } => attributes.as_ref(),
        Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. } => None,
    }
}

fn of_host(root: &Root, path: &TreePath) -> Result<Option<Attributes>, Fault> {
    let read = || {
        let Some(place) = root.place(path)? else {
            return Ok(Has::Nothing);
        };
        attributes::of(&place.open_file()?)
    };
    match read() {
        Ok(Has::These(set)) => Ok(Some(set)),
        Ok(Has::Nothing | Has::TooMuch) => Ok(None),
        Err(error) => Err(Fault::new(
            Code::WorkspaceApply,
            format!("read the attributes of {path} of the project"),
            error.to_string(),
        )),
    }
}

/// Tried on a file without a name, which leaves no trace. Where there is none of that kind, writing will tell.
fn fits(root: &Root, set: &Attributes) -> bool {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(root.handle(), ".", flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => matches!(set.set(&File::from(file)), Ok(Held::All)),
        Err(_) => true,
    }
}
