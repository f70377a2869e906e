//! The agent swaps files, links, FIFOs and directories while the host reads: nothing outside is ever read, nothing
//! hangs. `BASTLE_TEST_SWAPS` sets the number of swaps; the default keeps the suite short.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what a test cannot prepare must fail it"
)]

mod support;

use bastle_workspace::manifest::{Content, Kind};
use bastle_workspace::meta::{Reason, State, Which};
use bastle_workspace::rollback::Quiet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::{Ground, write};

const SECRET: &[u8] = b"the secret outside";

fn swaps() -> usize {
    std::env::var("BASTLE_TEST_SWAPS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(5_000)
}

/// One turn of the wheel on a name: file, link to a secret, FIFO, link to a directory, directory with a file in it.
fn swap(tree: &Path, outside: &Path, turn: usize) {
    let at = tree.join("target");
    let made = tree.join("made");
    match turn % 5 {
        0 => fs::write(&made, format!("harmless {turn}")).unwrap(),
        1 => std::os::unix::fs::symlink(outside.join("secret"), &made).unwrap(),
        2 => rustix::fs::mknodat(
            rustix::fs::CWD,
            &made,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap(),
        3 => std::os::unix::fs::symlink(outside, &made).unwrap(),
        _ => {
            fs::create_dir(&made).unwrap();
            fs::write(made.join("secret"), b"harmless inside").unwrap();
        }
    }
    let old = tree.join("old");
    if fs::symlink_metadata(&at).is_ok() {
        fs::rename(&at, &old).unwrap();
    }
    fs::rename(&made, &at).unwrap();
    match fs::symlink_metadata(&old) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(&old).unwrap(),
        Ok(_) => fs::remove_file(&old).unwrap(),
        Err(_) => {}
    }
}

#[test]
fn swapping_files_links_and_fifos_under_the_reader_reads_nothing_outside_and_hangs_nowhere() {
    let ground = Ground::new();
    let outside = ground.root.path().join("outside");
    write(&outside, "secret", SECRET);
    let space = ground.create("one");
    space.set_state(State::Running).unwrap();
    let tree = space.tree();
    let (stop, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    let secret = Content::of(SECRET);
    let mut looks = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..swaps() {
                swap(&tree, &outside, turn);
                turns.store(turn, Ordering::Relaxed);
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            space.snapshot(None, Reason::Turn).unwrap();
            looks += 1;
        }
    });
    assert!(looks > 0);
    for snapshot in space.snapshots().unwrap() {
        for entry in space.manifest(&snapshot).unwrap().entries() {
            let read = matches!(&entry.kind, Kind::File { digest, .. } if *digest == secret);
            assert!(
                !read,
                "{} of snapshot {} is the file outside",
                entry.path, snapshot.number
            );
        }
    }
    // The bytes must not be in the store either, under whatever digest.
    assert!(!holds(&ground.root.path().join("state/store"), SECRET));
    assert_eq!(fs::read(outside.join("secret")).unwrap(), SECRET);
    space.set_state(State::Finished).unwrap();
    space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
}

#[test]
fn a_rollback_into_a_directory_that_became_a_link_writes_nothing_outside() {
    let ground = Ground::new();
    let outside = ground.root.path().join("outside");
    write(&outside, "main.rs", b"mine\n");
    let space = ground.create("one");
    let tree = space.tree();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let link = tree.join("made");
                if std::os::unix::fs::symlink(&outside, &link).is_ok() {
                    drop(fs::rename(tree.join("src"), tree.join("src.away")));
                    drop(fs::rename(&link, tree.join("src")));
                    drop(fs::write(tree.join("src.away/main.rs"), b"agent"));
                    drop(fs::remove_file(tree.join("src")));
                    drop(fs::rename(tree.join("src.away"), tree.join("src")));
                    drop(fs::remove_file(&link));
                }
            }
        });
        for _ in 0..30 {
            // May be refused because the tree moves; it must not write outside.
            drop(space.rollback(&Which::Number(0), Quiet::Paused));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let names: Vec<_> = fs::read_dir(&outside)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["main.rs"]);
    assert_eq!(fs::read(outside.join("main.rs")).unwrap(), b"mine\n");
}

fn holds(dir: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            holds(&path, bytes)
        } else {
            fs::read(&path).unwrap() == bytes
        }
    })
}
