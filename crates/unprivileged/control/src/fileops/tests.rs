//! What is told, and what is not, of trees that resist being looked at.
use super::*;
use std::os::unix::ffi::OsStrExt;

fn used() -> FileUse {
    FileUse {
        read: true,
        written: false,
        executed: false,
        count: 1,
        process: "cat".to_owned(),
        pid: 7,
    }
}

fn change(sort: ChangeSort) -> FileChange {
    FileChange {
        sort,
        before: None,
        after: None,
    }
}

#[test]
fn no_amount_of_reading_pushes_a_change_out_of_the_record() {
    let seen = Seen {
        sight: ReadSight::Fanotify,
        files: (0..MOST_USED + 5)
            .map(|n| (format!("/w/{n:06}").into_bytes(), used()))
            .collect(),
        left_out: 3,
        gaps: 1,
    };
    let changes = Changes {
        sight: ChangeSight::Listing,
        list: vec![(b"/w/zz".to_vec(), change(ChangeSort::Created))],
        more: 0,
    };
    let (events, told) = events(changes, seen, Teller::Run);
    assert_eq!(events[0].path, "/w/zz");
    assert_eq!(events.len(), MOST_USED + 1);
    assert_eq!((told.left_out, told.gaps, told.created), (8, 1, 1));
    assert_eq!(told.read, (MOST_USED + 5) as u64);
}

#[test]
fn a_change_and_the_program_that_made_it_are_one_record() {
    let seen = Seen {
        sight: ReadSight::Fanotify,
        files: [(b"/w/a".to_vec(), used())].into(),
        left_out: 0,
        gaps: 0,
    };
    let changes = Changes {
        sight: ChangeSight::Listing,
        list: vec![(b"/w/a".to_vec(), change(ChangeSort::Changed))],
        more: 0,
    };
    let (events, _) = events(changes, seen, Teller::Later);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].used.as_ref().unwrap().process, "cat");
}

#[test]
fn a_name_that_is_no_text_keeps_its_bytes() {
    let told = event(b"/w/\xff\x1b[2J", None, None);
    assert!(!told.path.contains('\u{1b}'), "{told:?}");
    assert_eq!(told.raw.as_deref(), Some("2f772fff1b5b324a"));
}

#[test]
fn a_listing_sees_what_came_went_and_changed_and_follows_no_link() {
    let tree = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "s").unwrap();
    let at = |name: &str| tree.path().join(name);
    for name in ["keep", "edit", "gone", "touched-back"] {
        std::fs::write(at(name), "old").unwrap();
    }
    let before = Listing::take(tree.path());
    let modified = std::fs::metadata(at("touched-back")).unwrap().modified().unwrap();
    std::fs::write(at("edit"), "newer").unwrap();
    std::fs::write(at("touched-back"), "neu").unwrap();
    let file = std::fs::File::options()
        .write(true)
        .open(at("touched-back"))
        .unwrap();
    file.set_modified(modified).unwrap();
    std::fs::remove_file(at("gone")).unwrap();
    std::fs::create_dir(at("dir")).unwrap();
    let odd = tree.path().join(std::ffi::OsStr::from_bytes(b"dir/\xfe\n"));
    std::fs::write(odd, "x").unwrap();
    std::os::unix::fs::symlink(outside.path(), at("dir/out")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let changes = before.compare("/w");
    let told: Vec<(String, ChangeSort, Option<String>)> = changes
        .list
        .iter()
        .map(|(path, change)| {
            let kind = change.after.as_ref().map(|state| state.kind.clone());
            (visible(path), change.sort, kind)
        })
        .collect();
    use ChangeSort::{Changed, Created, Deleted};
    let line = |path: &str, sort, kind: Option<&str>| (path.to_owned(), sort, kind.map(str::to_owned));
    assert_eq!(
        told,
        vec![
            line("/w/dir", Created, Some("dir")),
            line("/w/dir/out", Created, Some("symlink")),
            line("/w/dir/\\xfe\\u{a}", Created, Some("file")),
            line("/w/edit", Changed, Some("file")),
            line("/w/fifo", Created, Some("fifo")),
            line("/w/gone", Deleted, None),
            // Its time was set back; the kernel's own was not.
            line("/w/touched-back", Changed, Some("file")),
        ]
    );
    let edited = changes.list.iter().find(|(path, _)| path == b"/w/edit").unwrap();
    let after = edited.1.after.as_ref().unwrap();
    assert_eq!(
        after.digest.as_deref(),
        Some(blake3::hash(b"newer").to_hex().as_str())
    );
    assert_eq!(edited.1.before.as_ref().unwrap().size, Some(3));
}

#[test]
fn a_tree_too_large_to_be_listed_is_told_by_the_kernels_change_times() {
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    std::fs::create_dir(at("dir")).unwrap();
    for name in ["keep", "edit", "dir/keep", "dir/gone", "back"] {
        std::fs::write(at(name), "old").unwrap();
    }
    // Until the clock that stamps files has moved on: what is older than the run is not the run's.
    let stamp = || rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let last = stamp();
    while stamp() == last {
        std::thread::yield_now();
    }
    let before = Listing::take_up_to(tree.path(), 3);
    let modified = std::fs::metadata(at("back")).unwrap().modified().unwrap();
    std::fs::write(at("edit"), "newer").unwrap();
    std::fs::write(at("fresh"), "x").unwrap();
    std::fs::remove_file(at("dir/gone")).unwrap();
    std::fs::write(at("back"), "neu").unwrap();
    let file = std::fs::File::options().write(true).open(at("back")).unwrap();
    file.set_modified(modified).unwrap();
    let changes = before.compare("/w");
    assert_eq!(changes.sight, ChangeSight::Times);
    let told: Vec<String> = changes.list.iter().map(|(path, _)| visible(path)).collect();
    // The directory stands for the name that went from it.
    assert_eq!(told, ["/w/back", "/w/dir", "/w/edit", "/w/fresh"]);
    let edited = changes.list[2].1.after.as_ref().unwrap();
    assert_eq!(
        edited.digest.as_deref(),
        Some(blake3::hash(b"newer").to_hex().as_str())
    );
}

#[test]
fn no_number_of_new_names_pushes_a_changed_one_out_of_the_record() {
    let mut list: Vec<(Vec<u8>, FileChange)> = (0..MOST_CHANGES)
        .map(|n| (format!("/w/{n:06}").into_bytes(), change(ChangeSort::Created)))
        .collect();
    list.push((b"/w/zz".to_vec(), change(ChangeSort::Changed)));
    let changes = Changes {
        sight: ChangeSight::Listing,
        list,
        more: 7,
    };
    let (events, told) = events(changes, Seen::nothing("test"), Teller::Run);
    assert_eq!(events[0].path, "/w/zz");
    assert_eq!(events.len(), MOST_CHANGES);
    assert_eq!(told.left_out, 8);
}

#[test]
fn what_was_written_at_least_counts_neither_moves_nor_modes_and_no_content_twice() {
    let state = |size: u64, digest: Option<&str>| {
        Some(FileState {
            kind: "file".to_owned(),
            size: Some(size),
            digest: digest.map(str::to_owned),
        })
    };
    let written = |list: &[FileChange]| {
        let list = list.iter().enumerate();
        let changes = Changes {
            sight: ChangeSight::Listing,
            list: list
                .map(|(n, change)| (format!("/w/{n}").into_bytes(), change.clone()))
                .collect(),
            more: 0,
        };
        changes.written()
    };
    let told = |sort, before, after| FileChange { sort, before, after };
    let created = |size| told(ChangeSort::Created, None, state(size, Some("a")));
    let deleted = |size| told(ChangeSort::Deleted, state(size, Some("a")), None);
    let changed = |before, after| told(ChangeSort::Changed, before, after);
    assert_eq!(written(&[created(5), created(7)]), 12);
    assert_eq!(written(&[created(5), deleted(5)]), 0, "moved");
    assert_eq!(written(&[created(5), created(5), deleted(5)]), 5, "moved once");
    assert_eq!(
        written(&[changed(state(9, Some("a")), state(9, Some("b")))]),
        9,
        "rewritten"
    );
    assert_eq!(
        written(&[changed(state(9, Some("a")), state(9, Some("a")))]),
        0,
        "its mode alone"
    );
    assert_eq!(
        written(&[changed(state(9, None), state(11, Some("b")))]),
        2,
        "grown"
    );
    assert_eq!(written(&[created(u64::MAX), created(u64::MAX)]), u64::MAX);
}
