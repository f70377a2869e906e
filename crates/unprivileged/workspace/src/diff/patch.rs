//! A patch in git's format, exact to the byte, for `git apply` and mail.
//!
//! **Trust:** names are quoted the way git quotes them, so a newline in a name cannot begin a header of its own.
use super::file::{Body, FileDiff, Sign, diff as compare, exact_body};
use crate::audit_delta::Change;
use crate::blobs::Blobs;
use crate::manifest::Kind;
use crate::path::TreePath;
use bastle_contract::Fault;

/// A patch and what it cannot carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Binary and large files, nested repositories and other things that text cannot express.
    pub left_out: Vec<TreePath>,
}

/// Writes the differences as one patch.
#[must_use]
pub fn patch(diffs: &[FileDiff]) -> Patch {
    let mut out = Patch {
        bytes: Vec::new(),
        left_out: Vec::new(),
    };
    for diff in diffs {
        let sides = (mode(diff.before.as_ref()), mode(diff.after.as_ref()));
        match (sides, &diff.body) {
            // Directories come with their files.
            ((Mode::None, Mode::None), _) => {}
            ((Mode::Other, _) | (_, Mode::Other), _) | (_, Body::Binary | Body::TooLarge | Body::Unknown) => {
                out.left_out.push(diff.path.clone())
            }
            ((Mode::Git(old), Mode::Git(new)), _) if old.starts_with("12") != new.starts_with("12") => {
                // A file that becomes a link is removed and made anew; git takes no other spelling.
                out.left_out.push(diff.path.clone());
            }
            // Only its attributes changed, which no patch can say.
            ((Mode::Git(old), Mode::Git(new)), Body::Nothing) if old == new => {
                out.left_out.push(diff.path.clone());
            }
            ((old, new), Body::Text(_) | Body::Nothing) => one(&mut out.bytes, diff, old, new),
        }
    }
    out
}

/// Writes the differences as one patch with every byte that git can carry: files that are not text as well, and a file
/// that becomes a link as its removal and a new link.
///
/// # Errors
/// When a new content cannot be read.
pub fn exact_patch(diffs: &[FileDiff], blobs: &dyn Blobs) -> Result<Patch, Fault> {
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
        let mut exact = Vec::new();
        for mut part in parts {
            if matches!(part.body, Body::Binary | Body::TooLarge) {
                match exact_body(&part, blobs)? {
                    Some(body) => part.body = body,
                    None => out.left_out.push(part.path.clone()),
                }
            }
            exact.push(part);
        }
        if out.left_out.last() == Some(&diff.path) {
            continue;
        }
        let one = patch(&exact);
        out.bytes.extend_from_slice(&one.bytes);
        out.left_out.extend(one.left_out);
    }
    Ok(out)
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
