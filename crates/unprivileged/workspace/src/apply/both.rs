//! A file that both sides changed: its content and its right to execute are decided each on its own, three-way.
//!
//! **Trust:** reads the host's file beneath its root without following links; writes nothing.
use super::plan::unreadable;
use crate::audit_delta::Change;
use crate::blobs::{Blobs, read_blob};
use crate::diff::{Merged, merge};
use crate::manifest::{Content, Kind, Mode};
use crate::rooted::Root;
use bastle_contract::Fault;
use std::io::Read;

/// Texts merged; larger ones conflict.
const MAX_MERGED: u64 = 8 << 20;

/// What becomes of it.
pub(super) enum Both {
    /// The file, and its content where neither side has it.
    Fit(Kind, Option<(Content, Vec<u8>)>),
    /// A person has to choose.
    Conflict {
        why: &'static str,
        marked: Option<Vec<u8>>,
    },
}

/// Decides for the host's file and the agent's.
pub(super) fn both_changed(
    root: &Root,
    change: &Change,
    (ours, theirs): (&Kind, &Kind),
    blobs: &dyn Blobs,
) -> Result<Both, Fault> {
    let conflict = |why| Ok(Both::Conflict { why, marked: None });
    let (Some((our, our_bit)), Some((their, their_bit))) = (file(Some(ours)), file(Some(theirs))) else {
        return conflict("changed into something else on both sides");
    };
    let base = file(change.before.as_ref());
    // One side changed the bit: that side decides. Both changed it: they agree, a bit has two values.
    let executable = match our_bit == base.is_some_and(|(_, bit)| bit) {
        true => their_bit,
        false => our_bit,
    };
    let fit = |(digest, size): (Content, u64), made| {
        let special = false;
        let mode = Mode { executable, special };
        let attributes = None;
        Ok(Both::Fit(
            Kind::File {
                digest,
                size,
                mode,
                attributes,
            },
            made,
        ))
    };
    // What only one side changed needs no reading, and no text.
    let base = base.map(|(content, _)| content);
    if base == Some(our) || our == their {
        return fit(their, None);
    }
    if base == Some(their) {
        return match host_text(root, change)? {
            Some(bytes) if Content::of(&bytes) == our.0 => fit(our, Some((our.0, bytes))),
            Some(_) | None => conflict("changed on both sides and too large to merge"),
        };
    }
    let Some([base, ours, theirs]) = three_texts(root, change, blobs)? else {
        return conflict("changed on both sides and too large to merge, or its old content is not kept");
    };
    match merge(&base, &ours, &theirs) {
        Merged::Clean(bytes) => {
            let digest = Content::of(&bytes);
            fit((digest, bytes.len() as u64), Some((digest, bytes)))
        }
        Merged::Conflict { marked, .. } => Ok(Both::Conflict {
            why: "the same lines changed on both sides",
            marked: Some(marked),
        }),
        Merged::NotText => conflict("changed on both sides and not text"),
    }
}

/// Content and right to execute.
fn file(kind: Option<&Kind>) -> Option<((Content, u64), bool)> {
    match kind? {
        Kind::File {
            digest, size, mode, ..
        } => Some(((*digest, *size), mode.executable)),
        Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. } => None,
    }
}

/// Base, host and agent texts; `None` when one is too large or the base is not kept.
fn three_texts(root: &Root, change: &Change, blobs: &dyn Blobs) -> Result<Option<[Vec<u8>; 3]>, Fault> {
    let base = match &change.before {
        Some(Kind::File { digest, .. }) => match read_blob(blobs, digest, MAX_MERGED) {
            Ok(Some(bytes)) => bytes,
            // A store that dropped the old content costs the merge, not the apply.
            Ok(None) | Err(_) => return Ok(None),
        },
        None | Some(Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => {
            Vec::new()
        }
    };
    let Some(Kind::File { digest, .. }) = &change.after else {
        return Ok(None);
    };
    let Some(theirs) = read_blob(blobs, digest, MAX_MERGED)? else {
        return Ok(None);
    };
    Ok(host_text(root, change)?.map(|ours| [base, ours, theirs]))
}

/// The host's file; `None` when it is too large or gone.
fn host_text(root: &Root, change: &Change) -> Result<Option<Vec<u8>>, Fault> {
    let fail = |error: std::io::Error| unreadable(&change.path, &error);
    let Some(place) = root.place(&change.path).map_err(fail)? else {
        return Ok(None);
    };
    let mut ours = Vec::new();
    place
        .open_file()
        .map_err(fail)?
        .take(MAX_MERGED + 1)
        .read_to_end(&mut ours)
        .map_err(fail)?;
    Ok((ours.len() as u64 <= MAX_MERGED).then_some(ours))
}
