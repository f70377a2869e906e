//! What a task left behind: what it printed, what it changed, its test report, and the signed statement about it.
//!
//! **Trust:** contents are the agent's: bounded, told by digest, never opened by a path that it could have bent. Only the
//! statement is ours.
use super::modes::SEALED;
use crate::routes::files::{beneath, root};
use crate::routes::review::copy_of;
use crate::transcript;
use aws_lc_rs::digest;
use bastle_contract::stream::StreamKind;
use bastle_contract::{Fault, RunId};
use bastle_control::fleet::Fleet;
use bastle_control::provenance;
use bastle_control::review::library::base64;
use bastle_control::review::library::diff::{json as diff_json, patch};
use bastle_control::review::library::gate::Assessed;
use bastle_control::review::library::workspace::Workspace;
use bastle_control::review::{End, Ignored, look};
use rustix::fs::{FileType, OFlags};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// Bytes of one artifact.
const MOST: usize = 1024 * 1024;
/// Bytes of what it printed, from its end.
pub(super) const MOST_OUTPUT: usize = 64 * 1024;
/// Changed files that are listed.
const MOST_FILES: usize = 2000;
/// Where test reports are looked for.
const REPORTS: [&str; 5] = [
    "test-report.xml",
    "junit.xml",
    "test-results.xml",
    "reports/junit.xml",
    "target/nextest/default/junit.xml",
];
pub(super) const ABOUT: &str = "https://bastle.dev/a2a/artifact/v1";

/// All that a run which ended left behind. What cannot be read is not there.
pub(crate) fn all(fleet: &Fleet, state: &Path, name: &RunId) -> Vec<Value> {
    let mut all = Vec::new();
    all.extend(output(fleet, name));
    let space = copy_of(state, name).ok().map(|(_, space)| space);
    if let Some(space) = &space {
        all.extend(changes(space).unwrap_or_default());
        all.extend(report(state, name));
    }
    if let Ok(sealed) = provenance::seal(state, name, space.as_ref()) {
        all.push(text(
            ("provenance", "The signed statement about this run"),
            ("provenance.json", SEALED),
            sealed.envelope,
        ));
    }
    all
}

fn sha256(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text as an artifact, cut where it is too long; the digest is that of the whole.
fn text((id, about): (&str, &str), (file, media): (&str, &str), text: String) -> Value {
    let cut = text.floor_char_boundary(MOST);
    json!({
        "artifactId": id, "name": id, "description": about,
        "parts": [{ "text": text[..cut], "filename": file, "mediaType": media }],
        "metadata": { ABOUT: { "sha256": sha256(text.as_bytes()), "bytes": text.len(), "truncated": cut < text.len() } },
    })
}

/// The end of what it said, or printed where it speaks no protocol of its own.
fn output(fleet: &Fleet, name: &RunId) -> Option<Value> {
    if transcript::speaks_a_protocol(fleet, name).ok()? {
        let (said, all) = transcript::tail(fleet, name, MOST_OUTPUT).ok()?;
        if said.is_empty() {
            return None;
        }
        let truncated = all > said.len();
        let mut artifact = text(("output", "What it said"), ("output.txt", "text/plain"), said);
        artifact["metadata"][ABOUT]["truncated"] = json!(truncated);
        return Some(artifact);
    }
    let mut reader = fleet.output(name).ok()?;
    let mut bytes = Vec::new();
    let mut all = 0;
    while let Ok(Some(record)) = reader.next_record() {
        if record.kind != StreamKind::Output {
            continue;
        }
        all += record.bytes.len();
        bytes.extend_from_slice(&record.bytes);
        if bytes.len() > 4 * MOST_OUTPUT {
            bytes.drain(..bytes.len() - MOST_OUTPUT);
        }
    }
    if bytes.is_empty() {
        return None;
    }
    bytes.drain(..bytes.len().saturating_sub(MOST_OUTPUT));
    let shown = String::from_utf8_lossy(&bytes).into_owned();
    let mut artifact = text(("output", "What it printed"), ("output.txt", "text/plain"), shown);
    artifact["metadata"][ABOUT]["truncated"] = json!(all > bytes.len());
    Some(artifact)
}

/// What it changed: as one difference, and file by file with digests.
fn changes(space: &Workspace) -> Result<Vec<Value>, Fault> {
    let seen = look(space, &End::Base, &End::Now)?;
    let shown = seen.shown(&[], Ignored::Counted);
    if shown.is_empty() {
        return Ok(Vec::new());
    }
    let diffs = seen.diffs(space, &shown)?;
    let shown: Vec<Assessed> = shown.into_iter().cloned().collect();
    let whole = patch(&diffs);
    let words = String::from_utf8_lossy(&whole.bytes).into_owned();
    let mut diff = text(
        ("diff", "What it changed, as git applies it"),
        ("changes.diff", "text/x-diff"),
        words,
    );
    let left_out: Vec<String> = whole.left_out.iter().map(|one| one.path.to_string()).collect();
    diff["metadata"][ABOUT]["left_out"] = json!(left_out);
    let mut value = diff_json(&diffs, &shown, space.run().as_str());
    let mut files = value["changes"].take();
    let mut truncated = false;
    if let Some(files) = files.as_array_mut() {
        truncated = files.len() > MOST_FILES;
        files.truncate(MOST_FILES);
        for file in files.iter_mut().filter_map(Value::as_object_mut) {
            file.remove("hunks");
            file.remove("findings");
        }
    }
    let list = json!({
        "artifactId": "files", "name": "files", "description": "The files that it changed, with digests",
        "parts": [{ "data": { "files": files, "approval": value["approval"] }, "mediaType": "application/json" }],
        "metadata": { ABOUT: { "state": seen.digest, "truncated": truncated } },
    });
    Ok(vec![diff, list])
}

/// A test report, where the tree holds one.
fn report(state: &Path, name: &RunId) -> Option<Value> {
    let root = root(state, name).ok()?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let open = |path: &&'static str| beneath(&root, path, flags).ok().map(|file| (*path, file));
    let (path, file) = REPORTS.iter().find_map(open)?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(MOST).unwrap_or(u64::MAX);
    std::fs::File::from(file)
        .take(most + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    if bytes.len() > MOST {
        return None;
    }
    Some(json!({
        "artifactId": "test-report", "name": "test-report", "description": "The test report in its tree, as the agent left it",
        "parts": [{ "raw": base64::encode(&bytes), "filename": path, "mediaType": "application/xml" }],
        "metadata": { ABOUT: { "sha256": sha256(&bytes), "bytes": bytes.len(), "truncated": false } },
    }))
}
