//! On a file system that shares extents a copy costs no data, and what is shared is never written through.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what a test cannot prepare must fail it"
)]

mod support;

use bastle_workspace::copy::shares_extents;
use bastle_workspace::meta::{Reason, Which};
use bastle_workspace::place::Place;
use bastle_workspace::rollback::Quiet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{create, run_id};

const LARGE: usize = 48 << 20;

/// A btrfs in a file, mounted; taken down when dropped.
struct Mounted {
    root: tempfile::TempDir,
}

impl Mounted {
    fn new() -> Option<Self> {
        let root = tempfile::TempDir::new().unwrap();
        let (image, at) = (root.path().join("image"), root.path().join("at"));
        fs::create_dir(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).output();
        let made = made.is_ok_and(|output| output.status.success());
        let mounted = made
            && Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &at])
                .status()
                .is_ok_and(|status| status.success());
        // Made only where it is mounted: dropping it takes the mount down.
        mounted.then(|| Self { root })
    }

    fn at(&self) -> PathBuf {
        self.root.path().join("at")
    }

    /// Bytes in use, after everything is written.
    fn used(&self) -> u64 {
        assert!(
            Command::new("sync")
                .arg("-f")
                .arg(self.at())
                .status()
                .unwrap()
                .success()
        );
        let stat = rustix::fs::statvfs(self.at()).unwrap();
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let down = Command::new("umount").arg("-l").arg(self.at()).status();
        assert!(down.is_ok_and(|status| status.success()));
    }
}

/// Says in the list of skipped tests, where there is one, that a test could not run.
fn skip(test: &str, reason: &str) {
    let Some(list) = std::env::var_os("BASTLE_SKIPS") else {
        eprintln!("skipped {test}: {reason}");
        return;
    };
    let mut list = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(list)
        .unwrap();
    writeln!(list, "{test}: {reason}").unwrap();
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn overwrite(path: &Path) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(b"the agent was here").unwrap();
}

#[test]
fn a_copy_on_a_file_system_that_shares_costs_no_data_and_never_writes_the_source() {
    let Some(disk) = Mounted::new() else {
        skip(
            "a_copy_on_a_file_system_that_shares_costs_no_data_and_never_writes_the_source",
            "needs root, loop devices and mkfs.btrfs",
        );
        return;
    };
    assert_eq!(shares_extents(&disk.at()), Some(true));
    let source = disk.at().join("source");
    fs::create_dir(&source).unwrap();
    let bytes = noise(LARGE);
    fs::write(source.join("large"), &bytes).unwrap();
    fs::write(source.join("small"), b"small\n").unwrap();
    let place = Place::new(disk.at().join("state"));
    let before = disk.used();
    let space = create(&place, &source, "one").unwrap();
    space.settle().unwrap();
    space.snapshot(None, Reason::Turn).unwrap();
    let fork = space.fork(&Which::Number(0), run_id("two")).unwrap();
    let grown = disk.used().saturating_sub(before);
    assert!(
        grown < LARGE as u64 / 4,
        "three copies of {LARGE} bytes took {grown}"
    );
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_ne!(inode(&source.join("large")), inode(&space.tree().join("large")));

    overwrite(&space.tree().join("large"));
    overwrite(&fork.tree().join("large"));
    assert!(
        fs::read(source.join("large")).unwrap() == bytes,
        "the source was written"
    );
    space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert!(
        fs::read(space.tree().join("large")).unwrap() == bytes,
        "the store was written"
    );
}

#[test]
fn what_is_said_of_sharing_is_what_the_file_system_does() {
    let root = tempfile::TempDir::new().unwrap();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    fs::write(&from, [1; 4096]).unwrap();
    let mut cp = Command::new("cp");
    let shares = cp.arg("--reflink=always").args([&from, &to]).output().unwrap();
    if let Some(said) = shares_extents(root.path()) {
        assert_eq!(said, shares.status.success());
    }
    let left = fs::read_dir(root.path()).unwrap().count();
    assert_eq!(left, 1 + usize::from(to.exists()), "trying leaves no name");
    assert_eq!(shares_extents(&root.path().join("none")), None);
}
