//! Reading a whole tree for an archive: right bytes or none, whoever has them, and nothing written on the way.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what a test cannot prepare must fail it"
)]

mod support;

use bastle_contract::Code;
use bastle_workspace::blobs::read_blob;
use bastle_workspace::export::export;
use bastle_workspace::manifest::Kind;
use bastle_workspace::workspace::Workspace;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::{Ground, write};

const MAIN: &[u8] = b"a text that only this test has\n";

fn objects(state: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut left = vec![state.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.components().any(|part| part.as_os_str() == "objects") {
                found.insert(path);
            }
        }
    }
    found
}

/// A copy whose base the store does not have yet, as that of a run that ended at once.
fn fresh(ground: &Ground) -> Workspace {
    write(&ground.source(), "main", MAIN);
    ground.create("one")
}

fn content_of_main(space: &Workspace) -> Result<Vec<u8>, bastle_contract::Fault> {
    let base = space.base().unwrap();
    let entry = base
        .entries()
        .iter()
        .find(|entry| entry.path.as_bytes() == b"main");
    let Some(Kind::File { digest, .. }) = entry.map(|entry| &entry.kind) else {
        panic!("a file");
    };
    read_blob(&space.lending(), digest, 1 << 20).map(|bytes| bytes.expect("is small"))
}

#[test]
fn an_archive_of_a_short_run_is_read_from_its_copy_and_writes_no_object() {
    let ground = Ground::new();
    let space = fresh(&ground);
    let (_, manifest) = space.current().unwrap();
    let before = objects(&ground.root.path().join("state"));
    let mut archive = Vec::new();
    let done = export(&manifest, &space.lending(), &mut archive).unwrap();
    assert_eq!(done.left_out, []);
    assert!(archive.windows(MAIN.len()).any(|bytes| bytes == MAIN));
    assert_eq!(objects(&ground.root.path().join("state")), before);
}

#[test]
fn bytes_come_from_whoever_still_has_them_and_others_never() {
    let other = MAIN.to_ascii_uppercase();
    // The project was edited: the copy has them.
    let ground = Ground::new();
    let space = fresh(&ground);
    write(&ground.source(), "main", &other);
    assert_eq!(content_of_main(&space).unwrap(), MAIN);
    // The copy was changed: the project has them.
    let ground = Ground::new();
    let space = fresh(&ground);
    write(&space.tree(), "main", &other);
    assert_eq!(content_of_main(&space).unwrap(), MAIN);
    // Both were.
    write(&ground.source(), "main", &other);
    assert_eq!(content_of_main(&space).unwrap_err().code, Code::WorkspaceDamaged);
}
