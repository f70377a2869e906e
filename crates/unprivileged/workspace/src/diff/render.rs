//! Differences for terminals and programs.
//!
//! **Trust:** every name and line passes `visible`, so nothing the agent wrote can act on the reader's terminal.
use super::file::{Body, FileDiff, Sign};
use super::patch::{not_shown, patch};
use crate::gate::Assessed;
use crate::manifest::Kind;
use crate::path::{TreePath, visible};
use serde::Serialize;
use serde_json::{Value, json};

/// One name per line.
#[must_use]
pub fn name_only(diffs: &[FileDiff]) -> String {
    diffs.iter().map(|diff| format!("{}\n", diff.path)).collect()
}

/// Lines added and removed per file, and a summary.
#[must_use]
pub fn stat(diffs: &[FileDiff]) -> String {
    let width = diffs
        .iter()
        .map(|diff| diff.path.to_string().chars().count())
        .max()
        .unwrap_or(0)
        .min(60);
    let mut out = String::new();
    for diff in diffs {
        let detail = match &diff.body {
            Body::Text(_) => format!("+{} -{}", diff.added, diff.removed),
            Body::Binary => format!(
                "binary, {} -> {} bytes",
                size(diff.before.as_ref()),
                size(diff.after.as_ref())
            ),
            Body::TooLarge => format!(
                "large, {} -> {} bytes",
                size(diff.before.as_ref()),
                size(diff.after.as_ref())
            ),
            Body::Unknown => "changed; the old content is not kept".to_owned(),
            Body::Nothing => describe(diff).to_owned(),
        };
        out.push_str(&format!(" {:width$} | {detail}\n", diff.path.to_string()));
    }
    let (added, removed) = diffs
        .iter()
        .fold((0, 0), |(a, r), diff| (a + diff.added, r + diff.removed));
    out.push_str(&format!(
        " {} changed, {added} lines added, {removed} removed\n",
        count(diffs.len())
    ));
    out
}

fn count(files: usize) -> String {
    if files == 1 {
        "1 file".to_owned()
    } else {
        format!("{files} files")
    }
}

/// One difference as `git apply` takes it, where every character of it shows as it is; otherwise with escapes and
/// without the header of a patch, so that git refuses the whole rather than writing escapes into a file.
#[must_use]
pub fn reviewed(diff: &FileDiff) -> String {
    let made = patch(std::slice::from_ref(diff));
    let text = String::from_utf8(made.bytes).unwrap_or_default();
    if !text.is_empty()
        && text.lines().all(|line| shown_line(line.as_bytes()) == line)
        && !text.contains('\r')
    {
        return text;
    }
    let unified = unified(std::slice::from_ref(diff));
    let mut out = String::new();
    match &diff.body {
        Body::Text(_) => out.push_str("!! shown with escapes; bastle diff --patch writes it as it is\n"),
        Body::Binary | Body::TooLarge | Body::Unknown => {
            out.push_str(&not_shown(diff));
        }
        Body::Nothing => {}
    }
    let headers = |line: &&str| !line.starts_with("--- ") && !line.starts_with("+++ ");
    for (at, line) in unified.lines().enumerate() {
        if at > 1 || headers(&line) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// The whole difference for a terminal.
#[must_use]
pub fn unified(diffs: &[FileDiff]) -> String {
    let mut out = String::new();
    for diff in diffs {
        out.push_str(&format!(
            "--- {}\n",
            if diff.before.is_some() {
                diff.path.to_string()
            } else {
                "(nothing)".to_owned()
            }
        ));
        out.push_str(&format!(
            "+++ {}\n",
            if diff.after.is_some() {
                diff.path.to_string()
            } else {
                "(nothing)".to_owned()
            }
        ));
        if let (Some(Kind::File { mode: old, .. }), Some(Kind::File { mode: new, .. })) =
            (&diff.before, &diff.after)
            && old.executable != new.executable
        {
            out.push_str(if new.executable {
                "mode: becomes executable\n"
            } else {
                "mode: no longer executable\n"
            });
        }
        if changes_attributes(diff) {
            out.push_str("extended attributes change\n");
        }
        match &diff.body {
            Body::Binary => out.push_str(&format!(
                "binary, {} -> {} bytes\n",
                size(diff.before.as_ref()),
                size(diff.after.as_ref())
            )),
            Body::TooLarge => out.push_str(&format!(
                "large, {} -> {} bytes\n",
                size(diff.before.as_ref()),
                size(diff.after.as_ref())
            )),
            Body::Unknown => out.push_str("changed; the old content is not kept\n"),
            Body::Nothing => out.push_str(&format!("{}\n", describe(diff))),
            Body::Text(hunks) => {
                for hunk in hunks {
                    out.push_str(&format!(
                        "@@ -{},{} +{},{} @@\n",
                        hunk.old.0, hunk.old.1, hunk.new.0, hunk.new.1
                    ));
                    for line in &hunk.lines {
                        push_line(&mut out, line.sign, &line.bytes);
                    }
                }
            }
        }
    }
    out
}

fn push_line(out: &mut String, sign: Sign, bytes: &[u8]) {
    out.push(match sign {
        Sign::Same => ' ',
        Sign::Added => '+',
        Sign::Removed => '-',
    });
    let (line, ended) = match bytes.strip_suffix(b"\n") {
        Some(line) => (line, true),
        None => (bytes, false),
    };
    out.push_str(&shown_line(line));
    out.push('\n');
    if !ended {
        out.push_str("\\ no newline at the end\n");
    }
}

/// A line with its tabs; everything else that acts on a terminal is escaped.
fn shown_line(line: &[u8]) -> String {
    let parts: Vec<String> = line.split(|byte| *byte == b'\t').map(visible).collect();
    parts.join("\t")
}

fn changes_attributes(diff: &FileDiff) -> bool {
    let set = |kind: &Option<Kind>| match kind {
        Some(Kind::File { attributes, .. }) => *attributes,
        None | Some(Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => None,
    };
    diff.after.is_some() && set(&diff.before) != set(&diff.after)
}

fn describe(diff: &FileDiff) -> &'static str {
    match (&diff.before, &diff.after) {
        (None, Some(Kind::Dir)) => "new directory",
        (Some(Kind::Dir), None) => "directory removed",
        (None, Some(Kind::Submodule { .. })) => "new nested repository",
        (None, Some(_)) => "new, empty",
        (Some(_), None) => "removed",
        (Some(Kind::File { mode: old, .. }), Some(Kind::File { mode: new, .. })) if old == new => {
            "attributes changed"
        }
        (Some(Kind::File { .. }), Some(Kind::File { .. })) => "mode changed",
        (Some(_), Some(_)) => "kind changed",
        (None, None) => "unchanged",
    }
}

fn size(kind: Option<&Kind>) -> u64 {
    match kind {
        Some(Kind::File { size, .. }) => *size,
        None | Some(Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => 0,
    }
}

#[derive(Serialize)]
struct JsonLine {
    sign: char,
    text: String,
    newline: bool,
}

/// The difference as `bastle.diff/v1`; `assessed` are the gate's answers for the same paths, and `run` the run whose changes they are. Text is escaped as
/// for a terminal; names are exact: a string where it shows as it is, otherwise `{"b64": …}`.
#[must_use]
pub fn json(diffs: &[FileDiff], assessed: &[Assessed], run: &str) -> Value {
    let by_path: std::collections::HashMap<&TreePath, &Assessed> =
        assessed.iter().map(|one| (&one.change.path, one)).collect();
    let changes: Vec<Value> = diffs
        .iter()
        .map(|diff| json_file(diff, by_path.get(&diff.path).copied(), run))
        .collect();
    json!({ "schema": "bastle.diff/v1", "approval": crate::gate::set_hash(assessed), "changes": changes })
}

fn json_file(diff: &FileDiff, assessed: Option<&Assessed>, run: &str) -> Value {
    let (body, hunks) = match &diff.body {
        Body::Text(hunks) => ("text", hunks.as_slice()),
        Body::Binary => ("binary", [].as_slice()),
        Body::TooLarge => ("large", [].as_slice()),
        Body::Unknown => ("unknown", [].as_slice()),
        Body::Nothing => ("nothing", [].as_slice()),
    };
    let hunks: Vec<Value> = hunks
        .iter()
        .map(|hunk| {
            let lines: Vec<JsonLine> = hunk.lines.iter().map(json_line).collect();
            json!({ "old": hunk.old, "new": hunk.new, "lines": lines })
        })
        .collect();
    json!({
        "path": exact(diff.path.as_bytes()), "shown": diff.path.to_string(),
        "before": diff.before.as_ref().map(json_kind), "after": diff.after.as_ref().map(json_kind),
        "body": body, "added": diff.added, "removed": diff.removed, "hunks": hunks,
        "tier": assessed.map(Assessed::tier), "findings": assessed.map_or(&[][..], |one| &one.findings),
        "ignored": assessed.is_some_and(|one| one.ignored), "approval": assessed.map(|one| one.approval),
        "approve": assessed.and_then(|one| one.approve_command(run)),
    })
}

fn exact(bytes: &[u8]) -> Value {
    let shown = visible(bytes);
    if shown.as_bytes() == bytes {
        Value::String(shown)
    } else {
        json!({ "b64": crate::base64::encode(bytes) })
    }
}

fn json_kind(kind: &Kind) -> Value {
    match kind {
        Kind::Symlink { target } => json!({ "kind": "symlink", "target": exact(&target.0) }),
        Kind::File { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. } => json!(kind),
    }
}

fn json_line(line: &super::file::Line) -> JsonLine {
    JsonLine {
        sign: match line.sign {
            Sign::Same => ' ',
            Sign::Added => '+',
            Sign::Removed => '-',
        },
        text: shown_line(line.bytes.strip_suffix(b"\n").unwrap_or(&line.bytes)),
        newline: line.bytes.ends_with(b"\n"),
    }
}
