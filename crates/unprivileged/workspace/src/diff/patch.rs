//! A patch in git's format, exact to the byte, for `git apply` and mail.
//!
//! **Trust:** names are quoted the way git quotes them, so a newline in a name cannot begin a header of its own.
use super::binary::binary;
use super::file::{Body, FileDiff, Sides, Sign, diff as compare, exact_sides};
use crate::audit_delta::Change;
use crate::blobs::Blobs;
use crate::git::ObjectFormat;
use crate::manifest::{Content, Kind};
use crate::path::TreePath;
use bastle_contract::{Code, Fault};
use std::collections::BTreeSet;
use std::fmt;

/// A patch and what it cannot carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What text and blobs cannot express.
    pub left_out: Vec<Lacking>,
}

/// A change that is not in a patch or commit, or not as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// The path of the change, relative to the root of the tree.
    pub path: TreePath,
    /// What a patch cannot say about it.
    pub why: WhyLacking,
}

/// Why a patch does not have a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyLacking {
    /// A directory with nothing in it; git knows only files.
    EmptyDirectory,
    /// Its extended attributes are not in the patch; its content is.
    Attributes,
    /// One side is larger than a patch may hold.
    TooLarge,
    /// The old content is not kept any more.
    Lost,
    /// A nested repository or something that is neither file nor link.
    Special,
    /// A change that is not text, in a form of the patch that only has text.
    NoText,
    /// The import gate never lets it pass.
    Refused,
}

impl fmt::Display for WhyLacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EmptyDirectory => "an empty directory",
            Self::Attributes => "its extended attributes",
            Self::TooLarge => "larger than 64 MiB",
            Self::Lost => "its earlier content is not kept any more",
            Self::Special => "a nested repository or a special file",
            Self::NoText => "not text",
            Self::Refused => "never applied",
        })
    }
}

/// Writes the differences as one patch of text.
#[must_use]
pub fn patch(diffs: &[FileDiff]) -> Patch {
    let mut out = Patch {
        bytes: Vec::new(),
        left_out: Vec::new(),
    };
    for diff in diffs {
        let sides = (mode(diff.before.as_ref()), mode(diff.after.as_ref()));
        let why = match (sides, &diff.body) {
            // Directories come with their files.
            ((Mode::None, Mode::None), _) => continue,
            ((Mode::Other, _) | (_, Mode::Other), _) => WhyLacking::Special,
            (_, Body::Binary | Body::TooLarge) => WhyLacking::NoText,
            (_, Body::Unknown) => WhyLacking::Lost,
            // A file that becomes a link is removed and made anew; git takes no other spelling.
            ((Mode::Git(old), Mode::Git(new)), _) if old.starts_with("12") != new.starts_with("12") => {
                WhyLacking::NoText
            }
            ((Mode::Git(old), Mode::Git(new)), Body::Nothing) if old == new => WhyLacking::Attributes,
            ((old, new), Body::Text(_) | Body::Nothing) => {
                one(&mut out.bytes, diff, old, new);
                continue;
            }
        };
        out.lacks(diff, why);
    }
    out
}

/// Writes the differences as one patch with every byte that git can carry: files that are not text as binary patches, and a
/// file that becomes a link as its removal and a new link. Names of blobs are SHA-1.
///
/// # Errors
/// When a new content cannot be read.
pub fn exact_patch(diffs: &[FileDiff], blobs: &dyn Blobs) -> Result<Patch, Fault> {
    exact_patch_for(diffs, blobs, ObjectFormat::Sha1)
}

/// The same for a repository whose objects are named so: git checks the names in binary patches.
///
/// # Errors
/// When a new content cannot be read.
pub fn exact_patch_for(diffs: &[FileDiff], blobs: &dyn Blobs, format: ObjectFormat) -> Result<Patch, Fault> {
    let mut out = Patch {
        bytes: Vec::new(),
        left_out: Vec::new(),
    };
    for diff in diffs {
        let sides = (mode(diff.before.as_ref()), mode(diff.after.as_ref()));
        let parts = match sides {
            (Mode::Git(old), Mode::Git(new)) if old.starts_with("12") != new.starts_with("12") => {
                let half = |before: &Option<Kind>, after: &Option<Kind>| Change {
                    path: diff.path.clone(),
                    before: before.clone(),
                    after: after.clone(),
                };
                vec![
                    compare(&half(&diff.before, &None), blobs)?,
                    compare(&half(&None, &diff.after), blobs)?,
                ]
            }
            _ => vec![diff.clone()],
        };
        let mut bytes = Vec::new();
        let mut lacking = Vec::new();
        for part in parts {
            if matches!(part.body, Body::Binary | Body::TooLarge) {
                if let Some(why) = exact(&mut bytes, &part, blobs, format)? {
                    lacking.push(why);
                }
                continue;
            }
            let text = patch(std::slice::from_ref(&part));
            bytes.extend_from_slice(&text.bytes);
            lacking.extend(text.left_out.iter().map(|one| one.why));
        }
        match lacking.first() {
            Some(why) => out.lacks(diff, *why),
            None => {
                if attributes(diff.before.as_ref()) != attributes(diff.after.as_ref()) && diff.after.is_some()
                {
                    out.lacks(diff, WhyLacking::Attributes);
                }
                out.bytes.extend_from_slice(&bytes);
            }
        }
    }
    let sides = diffs
        .iter()
        .map(|diff| (&diff.path, [diff.before.as_ref(), diff.after.as_ref()]));
    out.left_out.extend(empty_directories(sides));
    Ok(out)
}

/// What of these changes a commit does not have: empty directories and extended attributes.
#[must_use]
pub fn not_in_a_commit(changes: &[Change]) -> Vec<Lacking> {
    let without_attributes = changes.iter().filter(|change| {
        change.after.is_some() && attributes(change.before.as_ref()) != attributes(change.after.as_ref())
    });
    let mut lacking: Vec<Lacking> = without_attributes
        .map(|change| Lacking {
            path: change.path.clone(),
            why: WhyLacking::Attributes,
        })
        .collect();
    let sides = changes
        .iter()
        .map(|change| (&change.path, [change.before.as_ref(), change.after.as_ref()]));
    lacking.extend(empty_directories(sides));
    lacking
}

impl Patch {
    fn lacks(&mut self, diff: &FileDiff, why: WhyLacking) {
        self.left_out.push(Lacking {
            path: diff.path.clone(),
            why,
        });
    }
}

/// Directories that come or go without a file in them that does the same: git applies none of these.
fn empty_directories<'a>(
    changes: impl Iterator<Item = (&'a TreePath, [Option<&'a Kind>; 2])> + Clone,
) -> impl Iterator<Item = Lacking> {
    let above = |path: &TreePath| std::iter::successors(path.parent(), TreePath::parent);
    let mut carried: [BTreeSet<TreePath>; 2] = [BTreeSet::new(), BTreeSet::new()];
    for (path, sides) in changes.clone() {
        for (side, kind) in sides.into_iter().enumerate() {
            if matches!(kind, Some(Kind::File { .. } | Kind::Symlink { .. })) {
                carried[side].extend(above(path));
            }
        }
    }
    changes.filter_map(move |(path, sides)| {
        let empty = match sides {
            [Some(Kind::Dir), None] => !carried[0].contains(path),
            [None, Some(Kind::Dir)] => !carried[1].contains(path),
            // A file that becomes an empty directory: its removal is in the patch.
            [Some(before), Some(Kind::Dir)] if *before != Kind::Dir => !carried[1].contains(path),
            _ => false,
        };
        empty.then(|| Lacking {
            path: path.clone(),
            why: WhyLacking::EmptyDirectory,
        })
    })
}

fn attributes(kind: Option<&Kind>) -> Option<&Content> {
    match kind {
        Some(Kind::File { attributes, .. }) => attributes.as_ref(),
        None | Some(Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => None,
    }
}

/// Writes one content that is not compared as text; tells why where it cannot.
fn exact(
    out: &mut Vec<u8>,
    diff: &FileDiff,
    blobs: &dyn Blobs,
    format: ObjectFormat,
) -> Result<Option<WhyLacking>, Fault> {
    let (old, new) = match exact_sides(diff, blobs)? {
        Sides::These(old, new) => (old, new),
        Sides::TooLarge => return Ok(Some(WhyLacking::TooLarge)),
        Sides::Lost => return Ok(Some(WhyLacking::Lost)),
    };
    let (before, after) = (mode(diff.before.as_ref()), mode(diff.after.as_ref()));
    let unchanged = match (before, after) {
        (Mode::Git(old), Mode::Git(new)) if old == new => Some(old),
        (Mode::Other, _) | (_, Mode::Other) => return Ok(Some(WhyLacking::Special)),
        (Mode::Git(_) | Mode::None, Mode::Git(_) | Mode::None) => None,
    };
    let there = |mode: Mode| matches!(mode, Mode::Git(_));
    let sides = (
        Some(old.as_slice()).filter(|_| there(before)),
        Some(new.as_slice()).filter(|_| there(after)),
    );
    out.extend_from_slice(header(diff, before, after).as_bytes());
    binary(out, sides, unchanged, format).map_err(|error| {
        Fault::new(
            Code::WorkspaceApply,
            format!("write the patch of {}", diff.path),
            error.to_string(),
        )
    })?;
    Ok(None)
}

#[derive(Clone, Copy)]
enum Mode {
    None,
    Git(&'static str),
    Other,
}

fn mode(kind: Option<&Kind>) -> Mode {
    match kind {
        None | Some(Kind::Dir) => Mode::None,
        Some(Kind::File { mode, .. }) => Mode::Git(if mode.executable { "100755" } else { "100644" }),
        Some(Kind::Symlink { .. }) => Mode::Git("120000"),
        Some(Kind::Submodule { .. } | Kind::Opaque { .. }) => Mode::Other,
    }
}

/// What git itself writes for a file that it does not show; `git apply` refuses a patch with it as a whole.
pub(super) fn not_shown(diff: &FileDiff) -> String {
    let (a, b) = (quoted(b"a/", &diff.path), quoted(b"b/", &diff.path));
    let head = header(diff, mode(diff.before.as_ref()), mode(diff.after.as_ref()));
    format!("{head}Binary files {a} and {b} differ\n")
}

fn header(diff: &FileDiff, old: Mode, new: Mode) -> String {
    let (a, b) = (quoted(b"a/", &diff.path), quoted(b"b/", &diff.path));
    let mut head = format!("diff --git {a} {b}\n");
    match (old, new) {
        (Mode::None, Mode::Git(mode)) => head.push_str(&format!("new file mode {mode}\n")),
        (Mode::Git(mode), Mode::None) => head.push_str(&format!("deleted file mode {mode}\n")),
        (Mode::Git(old), Mode::Git(new)) if old != new => {
            head.push_str(&format!("old mode {old}\nnew mode {new}\n"))
        }
        (Mode::Git(_), Mode::Git(_)) | (Mode::None, Mode::None) | (Mode::Other, _) | (_, Mode::Other) => {}
    }
    head
}

fn one(out: &mut Vec<u8>, diff: &FileDiff, old: Mode, new: Mode) {
    let (a, b) = (quoted(b"a/", &diff.path), quoted(b"b/", &diff.path));
    out.extend_from_slice(header(diff, old, new).as_bytes());
    let Body::Text(hunks) = &diff.body else { return };
    let from = if matches!(old, Mode::None) {
        "/dev/null"
    } else {
        &a
    };
    let to = if matches!(new, Mode::None) {
        "/dev/null"
    } else {
        &b
    };
    out.extend_from_slice(format!("--- {from}\n+++ {to}\n").as_bytes());
    for hunk in hunks {
        out.extend_from_slice(
            format!(
                "@@ -{},{} +{},{} @@\n",
                hunk.old.0, hunk.old.1, hunk.new.0, hunk.new.1
            )
            .as_bytes(),
        );
        for line in &hunk.lines {
            out.push(match line.sign {
                Sign::Same => b' ',
                Sign::Added => b'+',
                Sign::Removed => b'-',
            });
            out.extend_from_slice(&line.bytes);
            if !line.bytes.ends_with(b"\n") {
                out.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
    }
}

/// A name as git writes it in a header: plain, or in quotes with C escapes.
fn quoted(prefix: &[u8], path: &TreePath) -> String {
    let bytes = [prefix, path.as_bytes()].concat();
    // A blank is quoted too: without quotes git would have to guess where a name ends.
    let plain = |byte: &u8| matches!(byte, 0x21..=0x7e) && !matches!(byte, b'"' | b'\\');
    if bytes.iter().all(plain) {
        return String::from_utf8_lossy(&bytes).into_owned();
    }
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            0x20..=0x7e => out.push(char::from(byte)),
            other => out.push_str(&format!("\\{other:03o}")),
        }
    }
    out.push('"');
    out
}
