//! The difference of one path.
use super::lines::{matching, split};
use crate::audit_delta::Change;
use crate::blobs::{Blobs, read_blob};
use crate::gate::is_binary;
use crate::manifest::Kind;
use crate::path::TreePath;
use bastle_contract::Fault;
use std::ops::Range;

/// Larger files are named, not compared: nobody reads such a difference.
const MAX_TEXT: u64 = 8 << 20;
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// Whether a line is on both sides, only on the new or only on the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// On both.
    Same,
    /// New.
    Added,
    /// Gone.
    Removed,
}

/// One line with its bytes, newline included where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it is.
    pub sign: Sign,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Changed lines with some unchanged ones around them; starts count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// First line and number of lines of the old side.
    pub old: (usize, usize),
    /// First line and number of lines of the new side.
    pub new: (usize, usize),
    /// The lines.
    pub lines: Vec<Line>,
}

/// What differs in the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Lines of text.
    Text(Vec<Hunk>),
    /// Bytes that are not text.
    Binary,
    /// A file of more than 8 MiB.
    TooLarge,
    /// The old content is not kept any more.
    Unknown,
    /// Nothing but the name, the kind or the mode.
    Nothing,
}

/// The difference of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    /// The path that differs, relative to the root of the tree.
    pub path: TreePath,
    /// The old side.
    pub before: Option<Kind>,
    /// The new side.
    pub after: Option<Kind>,
    /// The content.
    pub body: Body,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
}

enum Side {
    Text(Vec<u8>),
    Binary,
    TooLarge,
}

/// Compares the two sides of a change.
///
/// # Errors
/// When a content cannot be read.
pub fn diff(change: &Change, blobs: &dyn Blobs) -> Result<FileDiff, Fault> {
    let mut result = FileDiff {
        path: change.path.clone(),
        before: change.before.clone(),
        after: change.after.clone(),
        body: Body::Nothing,
        added: 0,
        removed: 0,
    };
    if content_name(change.before.as_ref()) == content_name(change.after.as_ref()) {
        return Ok(result);
    }
    let after = side(change.after.as_ref(), blobs)?;
    let Ok(before) = side(change.before.as_ref(), blobs) else {
        result.body = Body::Unknown;
        return Ok(result);
    };
    match (before, after) {
        (Side::TooLarge, _) | (_, Side::TooLarge) => result.body = Body::TooLarge,
        (Side::Binary, _) | (_, Side::Binary) => result.body = Body::Binary,
        (Side::Text(old), Side::Text(new)) => {
            let hunks = hunks(&old, &new);
            let count = |sign| {
                hunks
                    .iter()
                    .flat_map(|hunk| &hunk.lines)
                    .filter(|line| line.sign == sign)
                    .count()
            };
            result.added = count(Sign::Added);
            result.removed = count(Sign::Removed);
            result.body = if hunks.is_empty() {
                Body::Nothing
            } else {
                Body::Text(hunks)
            };
        }
    }
    Ok(result)
}

/// Files up to this size are in an exact patch; both sides are held in memory.
const MAX_EXACT: u64 = 64 << 20;

/// Both sides of a file that is not compared as text.
pub(super) enum Sides {
    /// Old and new bytes; none of a side that is not there.
    These(Vec<u8>, Vec<u8>),
    /// One of them is too large.
    TooLarge,
    /// The old one is not kept any more.
    Lost,
}

/// Reads both sides whole.
pub(super) fn exact_sides(diff: &FileDiff, blobs: &dyn Blobs) -> Result<Sides, Fault> {
    let bytes = |kind: Option<&Kind>| -> Result<Option<Vec<u8>>, Fault> {
        match kind {
            Some(Kind::File { digest, .. }) => read_blob(blobs, digest, MAX_EXACT),
            Some(Kind::Symlink { target }) => Ok(Some(target.0.clone())),
            None | Some(Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => Ok(Some(Vec::new())),
        }
    };
    let Some(new) = bytes(diff.after.as_ref())? else {
        return Ok(Sides::TooLarge);
    };
    Ok(match bytes(diff.before.as_ref()) {
        Ok(Some(old)) => Sides::These(old, new),
        Ok(None) => Sides::TooLarge,
        Err(_) => Sides::Lost,
    })
}

/// The part of a kind that decides about its content.
fn content_name(kind: Option<&Kind>) -> Option<&[u8]> {
    match kind {
        Some(Kind::File { digest, .. }) => Some(digest.as_bytes()),
        Some(Kind::Symlink { target }) => Some(&target.0),
        None | Some(Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => None,
    }
}

fn side(kind: Option<&Kind>, blobs: &dyn Blobs) -> Result<Side, Fault> {
    Ok(match kind {
        Some(Kind::File { size, .. }) if *size > MAX_TEXT => Side::TooLarge,
        Some(Kind::File { digest, .. }) => match read_blob(blobs, digest, MAX_TEXT)? {
            None => Side::TooLarge,
            Some(bytes) if is_binary(&bytes) => Side::Binary,
            Some(bytes) => Side::Text(bytes),
        },
        Some(Kind::Symlink { target }) => Side::Text(target.0.clone()),
        None | Some(Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => Side::Text(Vec::new()),
    })
}

/// A stretch of the edit: lines of both sides, equal or replaced.
struct Stretch {
    old: Range<usize>,
    new: Range<usize>,
    same: bool,
}

fn hunks(old: &[u8], new: &[u8]) -> Vec<Hunk> {
    let (old, new) = (split(old), split(new));
    let stretches = stretches(&matching(&old, &new), old.len(), new.len());
    let mut hunks: Vec<Hunk> = Vec::new();
    for (at, stretch) in stretches.iter().enumerate() {
        if stretch.same {
            let first = at == 0;
            let last = at + 1 == stretches.len();
            let length = stretch.old.len();
            let (tail, head) = (
                if first { 0 } else { CONTEXT.min(length) },
                if last { 0 } else { CONTEXT.min(length) },
            );
            // Two changes with little between them are one hunk.
            if !first && !last && length <= 2 * CONTEXT {
                push(
                    &mut hunks,
                    &old,
                    &new,
                    stretch.old.clone(),
                    stretch.new.clone(),
                    Sign::Same,
                );
                continue;
            }
            push(
                &mut hunks,
                &old,
                &new,
                stretch.old.start..stretch.old.start + tail,
                stretch.new.start..stretch.new.start + tail,
                Sign::Same,
            );
            if !last {
                let (from_old, from_new) = (stretch.old.end - head, stretch.new.end - head);
                hunks.push(Hunk {
                    old: (from_old, 0),
                    new: (from_new, 0),
                    lines: Vec::new(),
                });
                push(
                    &mut hunks,
                    &old,
                    &new,
                    from_old..stretch.old.end,
                    from_new..stretch.new.end,
                    Sign::Same,
                );
            }
        } else {
            if hunks.is_empty() {
                hunks.push(Hunk {
                    old: (stretch.old.start, 0),
                    new: (stretch.new.start, 0),
                    lines: Vec::new(),
                });
            }
            let nothing = stretch.new.start..stretch.new.start;
            push(
                &mut hunks,
                &old,
                &new,
                stretch.old.clone(),
                nothing,
                Sign::Removed,
            );
            push(&mut hunks, &old, &new, 0..0, stretch.new.clone(), Sign::Added);
        }
    }
    hunks.retain(|hunk| hunk.lines.iter().any(|line| line.sign != Sign::Same));
    for hunk in &mut hunks {
        // By convention an empty side is numbered by the line before it.
        hunk.old.0 += usize::from(hunk.old.1 > 0);
        hunk.new.0 += usize::from(hunk.new.1 > 0);
    }
    hunks
}

fn push(
    hunks: &mut [Hunk],
    old: &[&[u8]],
    new: &[&[u8]],
    olds: Range<usize>,
    news: Range<usize>,
    sign: Sign,
) {
    let Some(hunk) = hunks.last_mut() else { return };
    let taken = match sign {
        Sign::Same | Sign::Removed => &old[olds.clone()],
        Sign::Added => &new[news.clone()],
    };
    hunk.lines.extend(taken.iter().map(|line| Line {
        sign,
        bytes: line.to_vec(),
    }));
    hunk.old.1 += olds.len();
    hunk.new.1 += news.len();
}

fn stretches(pairs: &[Option<usize>], old_len: usize, new_len: usize) -> Vec<Stretch> {
    let mut out: Vec<Stretch> = Vec::new();
    let (mut a, mut b) = (0, 0);
    while a < old_len || b < new_len {
        let (a0, b0) = (a, b);
        while a < old_len && pairs[a] == Some(b) {
            (a, b) = (a + 1, b + 1);
        }
        if a > a0 {
            out.push(Stretch {
                old: a0..a,
                new: b0..b,
                same: true,
            });
            continue;
        }
        while a < old_len && pairs[a].is_none() {
            a += 1;
        }
        b = if a < old_len {
            pairs[a].unwrap_or(new_len)
        } else {
            new_len
        };
        out.push(Stretch {
            old: a0..a,
            new: b0..b,
            same: false,
        });
    }
    out
}
