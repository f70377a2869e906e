//! What an undo brings back beside contents: hard links and times; and what a failed apply leaves as it was.
use super::tests::world;
use super::*;
use crate::testing::write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

type Look = (u64, u64, i64, i64);

/// Inode, number of names, modification time.
fn look(file: &Path) -> Look {
    let meta = file.symlink_metadata().unwrap();
    (meta.ino(), meta.nlink(), meta.mtime(), meta.mtime_nsec())
}

/// Everything that a change of names touches, with times that no clock of now gives.
fn host_with_links(host: &Path) {
    std::fs::hard_link(host.join("d/a"), host.join("twin")).unwrap();
    std::os::unix::fs::symlink("twin", host.join("link")).unwrap();
    for (number, name) in ["d/a", "e/gone", "d/into", "d", "e", "."].iter().enumerate() {
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000 + number as u64, 123_456_789);
        let file = std::fs::File::open(host.join(name)).unwrap();
        file.set_modified(time).unwrap();
    }
}

fn base(root: &Path) {
    write(root, "d/a", b"old\n");
    write(root, "e/gone", b"gone\n");
    write(root, "d/into", b"a file\n");
}

fn agent(root: &Path) {
    write(root, "d/a", b"new\n");
    std::fs::remove_file(root.join("e/gone")).unwrap();
    std::fs::remove_file(root.join("d/into")).unwrap();
    write(root, "d/into/deep/x", b"a directory\n");
}

#[test]
fn an_undo_brings_back_the_very_files_with_their_links_and_times() {
    let world = world(base, agent);
    let host = world.host();
    host_with_links(&host);
    let names = ["d/a", "twin", "link", "e/gone", "d/into", "d", "."];
    let all = || names.map(|name| look(&host.join(name)));
    let before = all();
    let applied = world.apply(Resolve::Refuse).unwrap();
    assert_eq!(std::fs::read(host.join("twin")).unwrap(), b"old\n");
    assert_eq!(applied.linked, [crate::testing::path("d/a")]);
    assert_ne!(look(&host.join("d/a")), before[0]);
    world.undo().unwrap();
    assert_eq!(all(), before);
    assert_eq!(std::fs::read(host.join("d/a")).unwrap(), b"old\n");
}

#[test]
fn an_apply_that_fails_changes_no_time_and_no_inode() {
    let world = world(base, agent);
    let host = world.host();
    host_with_links(&host);
    let names = ["d/a", "twin", "e/gone", "d/into", "d", "."];
    let all = || names.map(|name| look(&host.join(name)));
    let plan = world.plan(&crate::gate::Approvals::default(), &[], Resolve::Refuse);
    // Somebody saves a file between the look and the change. The time of its directory is theirs.
    std::fs::write(host.join("e/gone"), "mine\n").unwrap();
    let before = all();
    let failed = world.with(&crate::durable::Durable::default(), |target| {
        apply(target, &plan, &world.blobs)
    });
    assert_eq!(failed.unwrap_err().code, bastle_contract::Code::WorkspaceConflict);
    assert_eq!(all(), before);
}

#[test]
fn a_directory_that_became_a_file_or_link_is_applied_once_and_comes_back() {
    let base = |root: &Path| {
        write(root, "to-file/deep/x", b"x\n");
        write(root, "to-link/deep/x", b"x\n");
    };
    let agent = |root: &Path| {
        for name in ["to-file", "to-link"] {
            std::fs::remove_dir_all(root.join(name)).unwrap();
        }
        write(root, "to-file", b"a file\n");
        std::os::unix::fs::symlink("to-file", root.join("to-link")).unwrap();
    };
    let world = world(base, agent);
    let before = crate::testing::fingerprint(&world.host());
    world.apply(Resolve::Refuse).unwrap();
    let after = crate::testing::fingerprint(&world.host());
    // What lay in the directories is gone on both sides: no conflict.
    let again = world.plan(&crate::gate::Approvals::default(), &[], Resolve::Refuse);
    assert!(again.operations().is_empty() && again.conflicts().is_empty());
    assert_eq!(crate::testing::fingerprint(&world.host()), after);
    world.undo().unwrap();
    assert_eq!(crate::testing::fingerprint(&world.host()), before);
}

#[test]
fn an_undo_brings_a_directory_back_that_became_a_link() {
    let world = world(
        |root| write(root, "d/deep/x", b"x\n"),
        |root| {
            std::fs::remove_dir_all(root.join("d")).unwrap();
            std::os::unix::fs::symlink("elsewhere.txt", root.join("d")).unwrap();
        },
    );
    let host = world.host();
    let before = look(&host.join("d/deep/x"));
    world.apply(Resolve::Refuse).unwrap();
    assert!(host.join("d").is_symlink(), "control: it became a link");
    world.undo().unwrap();
    assert_eq!(look(&host.join("d/deep/x")), before);
}
