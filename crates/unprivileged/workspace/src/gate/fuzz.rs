//! The whole judgement of any path and any two contents.
use super::names::Tree;
use super::rules::{Rules, Tier};
use super::{Assessed, assess};
use crate::audit_delta::Change;
use crate::blobs::Blobs;
use crate::manifest::{Content, Kind, Mode};
use crate::path::TreePath;
use bastle_contract::{Code, Fault};
use std::fs::File;
use std::io::Write;

/// Two contents in memory files, by digest.
struct Pair([(Content, Vec<u8>); 2]);

impl Blobs for Pair {
    fn open(&self, digest: &Content) -> Result<File, Fault> {
        let fail = |why: String| Fault::new(Code::WorkspaceIo, "open", why);
        let (_, bytes) = self
            .0
            .iter()
            .find(|(known, _)| known == digest)
            .ok_or_else(|| fail("no such content".to_owned()))?;
        let file = rustix::fs::memfd_create("content", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|error| fail(error.to_string()))?;
        let mut file = File::from(file);
        file.write_all(bytes)
            .and_then(|()| std::io::Seek::rewind(&mut file))
            .map_err(|error| fail(error.to_string()))?;
        Ok(file)
    }
}

/// Judges `PATH NUL OLD NUL NEW`: nothing panics, the answer is never empty, and an upper-case twin of the path gets an
/// answer that is not weaker.
pub fn fuzz_gate(rules: &Rules, data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let (Some(path), Some(old), Some(new)) = (parts.next(), parts.next(), parts.next()) else {
        return;
    };
    let Ok(path) = TreePath::new(path) else { return };
    let blobs = Pair([(Content::of(old), old.to_vec()), (Content::of(new), new.to_vec())]);
    let file = |bytes: &[u8]| Kind::File {
        digest: Content::of(bytes),
        size: bytes.len() as u64,
        mode: Mode::default(),
        attributes: None,
    };
    let judge = |path: TreePath, before: Option<Kind>, after: Option<Kind>| -> Option<Assessed> {
        assess(rules, &Tree::default(), &Change { path, before, after }, &blobs).ok()
    };
    let strictest = |one: Option<Assessed>| one.map_or(Tier::Refuse, |one| one.tier());
    let changed = judge(path.clone(), Some(file(old)), Some(file(new)));
    assert!(changed.as_ref().is_none_or(|one| !one.findings.is_empty()));
    let changed = strictest(changed);
    let twin = TreePath::new(path.as_bytes().to_ascii_uppercase());
    if let Ok(twin) = twin {
        assert!(strictest(judge(twin, Some(file(old)), Some(file(new)))) >= changed);
    }
    let _new = judge(path.clone(), None, Some(file(new)));
    let _gone = judge(path, Some(file(old)), None);
}
