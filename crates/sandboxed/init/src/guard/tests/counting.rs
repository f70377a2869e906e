//! Limits are held to the byte and to the file.
use super::harness::{Scenario, Setup, Tree, errno, fenced, plan};
use crate::guard::caller::Caller;
use crate::guard::{Call, Done, Guard, GuardUsage, Stop};
use bastle_contract::{DenialKind, LimitKind};
use bastle_sys::seccomp::Answer;
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;

pub(super) const SCENARIOS: &[Scenario] = &[
    ("files", files),
    ("same-inode", same_inode),
    ("inodes", inodes),
    ("bytes", bytes),
    ("disk", disk),
    ("holes", holes),
    ("big", big),
    ("direct", direct),
    ("elsewhere", elsewhere),
];

const DISK: u64 = 100_000;
const QUOTA: i32 = libc::EDQUOT;

fn files(_: &Path) {
    fs::write("one", b"1").unwrap();
    fs::create_dir("two").unwrap();
    drop(OpenOptions::new().append(true).open("old-1").unwrap());
    // Three are touched: they stay free, others do not.
    fs::write("one", b"again").unwrap();
    fs::rename("one", "uno").unwrap();
    assert_eq!(errno(File::create("four")), QUOTA);
    assert_eq!(errno(fs::create_dir("four")), QUOTA);
    assert_eq!(errno(symlink("x", "four")), QUOTA);
    assert_eq!(errno(OpenOptions::new().write(true).open("old-2")), QUOTA);
    assert_eq!(errno(fs::remove_file("old-2")), QUOTA);
    assert_eq!(errno(fs::rename("old-2", "x")), QUOTA);
    assert_eq!(errno(fs::rename("uno", "old-2")), QUOTA);
    assert_eq!(errno(fs::hard_link("old-2", "x")), QUOTA);
    assert_eq!(truncate("old-2", 0), QUOTA);
    assert_eq!(fs::read("old-2").unwrap(), b"contents");
    drop(File::open("old-2").unwrap());
    fs::remove_file("uno").unwrap();
    assert_eq!(errno(fs::create_dir("two")), libc::EEXIST);
    assert_eq!(errno(File::create("four")), QUOTA);
}

/// Truncates by path: the call that no crate at hand makes, and Perl does.
fn truncate(path: &str, length: u64) -> i32 {
    let script = format!("exit(truncate({path:?}, {length}) ? 0 : $!)");
    Command::new("perl")
        .args(["-e", &script])
        .status()
        .unwrap()
        .code()
        .unwrap()
}

#[test]
fn as_many_files_change_as_the_limit_says() {
    let setup = Setup {
        limits: &[(LimitKind::Files, 3)],
        ..Setup::default()
    };
    let outcome = fenced("files", &setup, |tree| {
        for name in ["old-1", "old-2"] {
            fs::write(tree.join(name), b"contents").unwrap();
        }
    });
    assert_eq!(outcome.usage.files, 3);
    assert_eq!(outcome.limits(), [(LimitKind::Files, 3)]);
    assert!(
        outcome
            .denied(DenialKind::Limit)
            .iter()
            .all(|(_, _, rule)| rule == "limits.files = 3")
    );
    assert!(
        outcome
            .denied(DenialKind::Limit)
            .iter()
            .any(|(_, target, _)| target == "four")
    );
}

fn same_inode(_: &Path) {
    for _ in 0..5 {
        fs::write("again", b"x").unwrap();
        fs::remove_file("again").unwrap();
    }
    assert_eq!(errno(File::create("again")), QUOTA);
}

#[test]
fn a_file_made_anew_is_another_file_even_under_the_same_inode_number() {
    let setup = Setup {
        limits: &[(LimitKind::Files, 5)],
        ..Setup::default()
    };
    let outcome = fenced("same-inode", &setup, |_| {});
    assert_eq!((outcome.usage.files, outcome.usage.created), (5, 5));
}

fn inodes(_: &Path) {
    fs::write("file", b"x").unwrap();
    fs::create_dir("dir").unwrap();
    symlink("file", "link").unwrap();
    fs::hard_link("file", "hard").unwrap();
    rustix::fs::mknodat(CWD, "pipe", FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    drop(rustix::fs::open(".", OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o600)).unwrap());
    assert_eq!(errno(File::create("seven")), QUOTA);
    assert_eq!(errno(fs::create_dir("seven")), QUOTA);
    assert_eq!(errno(symlink("file", "seven")), QUOTA);
    assert_eq!(errno(fs::hard_link("file", "seven")), QUOTA);
    assert_eq!(
        errno(rustix::fs::open(
            ".",
            OFlags::TMPFILE | OFlags::RDWR,
            Mode::empty()
        )),
        QUOTA
    );
    assert_eq!(errno(fs::create_dir("dir")), libc::EEXIST);
    // Changing and renaming makes no new name.
    fs::write("file", b"y").unwrap();
    fs::rename("file", "dir/file").unwrap();
    fs::remove_file("hard").unwrap();
    assert_eq!(errno(File::create("hard")), QUOTA);
}

#[test]
fn as_many_names_come_into_being_as_the_limit_says() {
    let setup = Setup {
        limits: &[(LimitKind::Inodes, 6)],
        ..Setup::default()
    };
    let outcome = fenced("inodes", &setup, |_| {});
    assert_eq!(outcome.usage.created, 6);
    assert_eq!(outcome.limits(), [(LimitKind::Inodes, 6)]);
}

fn bytes(_: &Path) {
    let mut file = File::create("f").unwrap();
    assert_eq!(file.write(&[1; 1000]).unwrap(), 1000);
    assert_eq!(file.write_at(&[2; 1000], 0).unwrap(), 1000);
    let parts = [
        IoSlice::new(&[3; 300]),
        IoSlice::new(&[]),
        IoSlice::new(&[4; 700]),
    ];
    assert_eq!(file.write_vectored(&parts).unwrap(), 1000);
    assert_eq!(rustix::io::pwritev(&file, &parts, 5000).unwrap(), 1000);
    let none = rustix::io::ReadWriteFlags::empty();
    assert_eq!(rustix::io::pwritev2(&file, &parts, u64::MAX, none).unwrap(), 1000);
    let append = rustix::io::ReadWriteFlags::APPEND;
    assert_eq!(rustix::io::pwritev2(&file, &parts, 0, append).unwrap(), 1000);
    let mut end = OpenOptions::new().append(true).open("f").unwrap();
    assert_eq!(end.write(&[5; 1000]).unwrap(), 1000);
    assert_eq!(file.metadata().unwrap().len(), 8000);
    assert_eq!(file.stream_position().unwrap(), 3000);
    assert_eq!(file.write(&[]).unwrap(), 0);
    // Up to the limit, then no further; the first byte beyond it is refused.
    assert_eq!(file.write(&[6; 4000]).unwrap(), 3000);
    assert_eq!(errno(file.write(&[7; 1])), QUOTA);
    assert_eq!(errno(file.write_at(&[7; 1], 0)), QUOTA);
    assert_eq!(errno(end.write(&[7; 1])), QUOTA);
    assert_eq!(errno(file.write_vectored(&parts)), QUOTA);
    assert_eq!(file.stream_position().unwrap(), 6000);
    assert_eq!(errno(File::open("f").unwrap().write(&[0])), libc::EBADF);
    println!("streams are free");
}

#[test]
fn as_many_bytes_are_written_as_the_limit_says() {
    let setup = Setup {
        limits: &[(LimitKind::BytesWritten, 10_000)],
        ..Setup::default()
    };
    let outcome = fenced("bytes", &setup, |_| {});
    assert_eq!(
        outcome.usage,
        GuardUsage {
            bytes_written: 10_000,
            created: 1,
            files: 1
        }
    );
    assert!(outcome.output.contains("streams are free"));
    let mut expected = vec![0_u8; 8000];
    expected[..1000].fill(2);
    expected[1000..2000].copy_from_slice(&[[3; 300].as_slice(), &[4; 700]].concat());
    expected[2000..3000].copy_from_slice(&[[3; 300].as_slice(), &[4; 700]].concat());
    expected[3000..6000].fill(6);
    for at in [6000, 7000] {
        expected[at..at + 1000].copy_from_slice(&[[3; 300].as_slice(), &[4; 700]].concat());
    }
    expected[7000..].fill(5);
    let found = fs::read(outcome.tree.join("f")).unwrap();
    assert!(
        found == expected,
        "contents differ at {:?}",
        found.iter().zip(&expected).position(|(a, b)| a != b)
    );
}

fn disk(_: &Path) {
    let mut file = File::create("f").unwrap();
    file.write_all(&[1; 20_000]).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(&[2; 20_000]).unwrap();
    // Overwritten, not grown: 20 000 so far.
    file.set_len(50_000).unwrap();
    assert_eq!(errno(file.set_len(100_001)), QUOTA);
    // A gap is part of what is added: 30 000 more.
    assert_eq!(file.write_at(&[3; 10_000], 70_000).unwrap(), 10_000);
    assert_eq!(
        errno(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 100_001)),
        QUOTA
    );
    let mut end = OpenOptions::new().append(true).open("f").unwrap();
    assert_eq!(end.write(&[4; 30_000]).unwrap(), 20_000);
    assert_eq!(errno(end.write(&[4; 1])), QUOTA);
    assert_eq!(errno(file.write_at(&[4; 1], 100_000)), QUOTA);
    assert_eq!(errno(file.write_at(&[4; 1], 1 << 40)), QUOTA);
    // What is there can still be rewritten, and the hole was paid for.
    assert_eq!(file.write_at(&[5; 100_000], 0).unwrap(), 100_000);
    assert_eq!(
        errno(rustix::fs::fallocate(
            &file,
            FallocateFlags::KEEP_SIZE,
            100_000,
            4096
        )),
        QUOTA
    );
    symlink("f", "way").unwrap();
    assert_eq!(truncate("way", 100_001), QUOTA);
    assert_eq!(truncate("way", 99_999), 0);
    assert_eq!(file.metadata().unwrap().len(), 99_999);
    assert_eq!(
        (truncate("missing", 0), truncate(".", 0), truncate("/dev/null", 0)),
        (libc::ENOENT, libc::EISDIR, libc::EINVAL)
    );
    // Shrinking gives nothing back.
    file.set_len(0).unwrap();
    assert_eq!(errno(file.set_len(1)), QUOTA);
    assert_eq!(errno(File::create("g").unwrap().write(&[1])), QUOTA);
}

#[test]
fn as_many_bytes_are_added_as_the_limit_says() {
    let setup = Setup {
        limits: &[(LimitKind::Disk, DISK)],
        ..Setup::default()
    };
    let outcome = fenced("disk", &setup, |_| {});
    assert_eq!(outcome.limits(), [(LimitKind::Disk, DISK)]);
}

fn holes(_: &Path) {
    let file = OpenOptions::new().write(true).open("sparse").unwrap();
    let mut written = 0;
    let stopped = loop {
        match file.write_at(&[1; 4096], written) {
            Ok(count) => written += count as u64,
            Err(error) => break error,
        }
        assert!(written < 1 << 20, "a hole was filled for nothing");
    };
    assert_eq!(stopped.raw_os_error(), Some(QUOTA));
    println!("filled {written}");
}

#[test]
fn filling_a_hole_that_was_there_counts_as_adding() {
    let setup = Setup {
        limits: &[(LimitKind::Disk, DISK)],
        ..Setup::default()
    };
    fenced("holes", &setup, |tree| {
        File::create(tree.join("sparse"))
            .unwrap()
            .set_len(1 << 20)
            .unwrap()
    });
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn big(_: &Path) {
    let bytes = pattern(64 << 20);
    let mut file = File::create("big").unwrap();
    assert_eq!(file.write(&bytes).unwrap(), bytes.len());
    let parts: Vec<IoSlice<'_>> = bytes[..1 << 20].chunks(1031).map(IoSlice::new).collect();
    let mut scattered = File::create("scattered").unwrap();
    assert_eq!(scattered.write_vectored(&parts[..1017]).unwrap(), 1017 * 1031);
}

#[test]
fn a_big_write_arrives_whole() {
    let setup = Setup {
        limits: &[(LimitKind::BytesWritten, 1 << 30)],
        ..Setup::default()
    };
    let outcome = fenced("big", &setup, |_| {});
    let bytes = pattern(64 << 20);
    assert!(fs::read(outcome.tree.join("big")).unwrap() == bytes);
    assert!(fs::read(outcome.tree.join("scattered")).unwrap() == bytes[..1017 * 1031]);
    assert_eq!(outcome.usage.bytes_written, (64 << 20) + 1017 * 1031);
}

fn direct(_: &Path) {
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT)
        .open("d");
    match opened {
        Ok(file) => assert_eq!(file.write_at(&[7; 8192], 4096).unwrap(), 8192),
        // Not every file system can.
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL)),
    }
}

#[test]
fn a_write_past_the_page_cache_works() {
    fenced(
        "direct",
        &Setup {
            limits: &[(LimitKind::BytesWritten, 1 << 30)],
            ..Setup::default()
        },
        |_| {},
    );
}

fn elsewhere(_: &Path) {
    let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::empty()).unwrap();
    let mut memory = File::from(memory);
    memory.write_all(&[1; 100_000]).unwrap();
    memory.set_len(1 << 20).unwrap();
    assert_eq!(errno(File::create("here").unwrap().write(&[1])), QUOTA);
}

#[test]
fn what_is_no_file_of_a_tree_does_not_count() {
    let setup = Setup {
        limits: &[(LimitKind::BytesWritten, 0), (LimitKind::Disk, 0)],
        ..Setup::default()
    };
    let outcome = fenced("elsewhere", &setup, |_| {});
    assert_eq!(outcome.usage.bytes_written, 0);
}

#[test]
fn a_shared_mapping_of_a_writable_file_counts_and_others_do_not() {
    let tree = Tree::new();
    fs::write(tree.join("f"), [0; 8192]).unwrap();
    let setup = Setup {
        limits: &[(LimitKind::BytesWritten, 20_000)],
        ..Setup::default()
    };
    let mut guard = Guard::new(&plan(&setup, tree.path()));
    let open = |write: bool| {
        OpenOptions::new()
            .read(true)
            .write(write)
            .open(tree.join("f"))
            .unwrap()
    };
    let (readable, writable) = (open(false), open(true));
    let mut map = |fd: i32, length: u64, flags: i32| {
        let args = [0, length, libc::PROT_READ as u64, flags as u64, fd as u64, 0];
        let caller = Caller::new(std::process::id());
        guard.map(&Call {
            listener: readable.as_fd(),
            id: 0,
            args,
            operation: "mmap",
            caller,
        })
    };
    let continued = |done: Result<Done, Stop>| matches!(done, Ok(Done::Answer(Answer::Continue)));
    for _ in 0..10 {
        assert!(continued(map(readable.as_raw_fd(), 8192, libc::MAP_SHARED)));
        assert!(continued(map(
            -1,
            1 << 40,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS
        )));
    }
    // No more than the file has, and even unwritable ones: they can be made writable later.
    assert!(continued(map(writable.as_raw_fd(), 1 << 40, libc::MAP_SHARED)));
    assert!(continued(map(writable.as_raw_fd(), 8192, libc::MAP_SHARED)));
    assert!(matches!(
        map(writable.as_raw_fd(), 8192, libc::MAP_SHARED),
        Err(Stop::Denied(_))
    ));
    assert_eq!(guard.usage().bytes_written, 16_384);
}
