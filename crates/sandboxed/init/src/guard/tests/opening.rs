//! What a carried-out open gives the caller: the same descriptor the kernel would have given it.
use super::harness::{Scenario, Setup, Tree, errno, fenced, plan};
use crate::guard::caller::{Base, Caller, TextEnd};
use crate::guard::fifo::Waiting;
use crate::guard::{Call, Done, Guard, Stop};
use bastle_contract::LimitKind;
use bastle_sys::seccomp::CloseOnExec;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;

pub(super) const SCENARIOS: &[Scenario] = &[
    ("flags", flags),
    ("answers", answers),
    ("directories", directories),
    ("streams", streams),
    ("terminal", terminal),
    ("fifo", fifo),
    ("crowded-fifo", crowded_fifo),
    ("full-table", full_table),
    ("leased", leased),
];

const RW: Mode = Mode::from_raw_mode(0o644);
const NOTHING: Setup = Setup {
    hide: &[],
    protect: &[],
    limits: &[],
};
const COUNTING: Setup = Setup {
    hide: &[],
    protect: &[],
    limits: &[(LimitKind::BytesWritten, 1 << 30)],
};

fn flags(_: &Path) {
    let asked = [
        OFlags::WRONLY,
        OFlags::RDWR | OFlags::CLOEXEC,
        OFlags::RDWR | OFlags::APPEND,
        OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        OFlags::RDONLY | OFlags::APPEND,
        OFlags::WRONLY | OFlags::DSYNC,
    ];
    let shown = OFlags::RWMODE | OFlags::APPEND | OFlags::NONBLOCK | OFlags::DSYNC;
    for (index, wanted) in asked.into_iter().enumerate() {
        // Once new, once existing.
        for _ in 0..2 {
            let fd = rustix::fs::open(format!("f{index}"), wanted | OFlags::CREATE, RW).unwrap();
            assert_eq!(
                rustix::fs::fcntl_getfl(&fd).unwrap() & shown,
                wanted & shown,
                "{wanted:?}"
            );
            let closes = rustix::io::fcntl_getfd(&fd)
                .unwrap()
                .contains(rustix::io::FdFlags::CLOEXEC);
            assert_eq!(closes, wanted.contains(OFlags::CLOEXEC), "{wanted:?}");
        }
    }
}

#[test]
fn a_descriptor_has_the_flags_that_were_asked_for() {
    fenced("flags", &NOTHING, |_| {});
    fenced("flags", &COUNTING, |_| {});
}

fn answers(_: &Path) {
    fs::write("there", b"contents").unwrap();
    symlink("there", "link").unwrap();
    let open = |path: &str, flags: OFlags| errno(rustix::fs::open(path, flags | OFlags::CREATE, RW));
    assert_eq!(open("there", OFlags::EXCL | OFlags::WRONLY), libc::EEXIST);
    assert_eq!(open("link", OFlags::EXCL | OFlags::WRONLY), libc::EEXIST);
    assert_eq!(open("link", OFlags::NOFOLLOW | OFlags::WRONLY), libc::ELOOP);
    assert_eq!(open("link", OFlags::WRONLY), 0);
    assert_eq!(open("d", OFlags::DIRECTORY), libc::EINVAL);
    assert_eq!(open("no/such", OFlags::WRONLY), libc::ENOENT);
    assert_eq!(open("/proc/version", OFlags::RDONLY), 0);
    assert_eq!(open("/proc/nothing-here", OFlags::WRONLY), libc::ENOENT);
    assert_eq!(
        errno(rustix::fs::open("missing", OFlags::WRONLY, RW)),
        libc::ENOENT
    );
    let path_only = rustix::fs::open("there", OFlags::PATH | OFlags::CREATE, RW).unwrap();
    assert!(
        rustix::fs::fcntl_getfl(&path_only)
            .unwrap()
            .contains(OFlags::PATH)
    );
    assert_eq!(fs::read("there").unwrap(), b"contents");
    drop(
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open("link")
            .unwrap(),
    );
    assert_eq!(fs::read("there").unwrap(), b"");
    let creat = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open("new")
        .unwrap();
    assert_eq!(creat.metadata().unwrap().len(), 0);
}

#[test]
fn an_open_answers_as_the_kernel_answers() {
    fenced("answers", &NOTHING, |_| {});
    fenced("answers", &COUNTING, |_| {});
}

fn directories(tree: &Path) {
    fs::create_dir_all("a/b").unwrap();
    let dir = rustix::fs::open("a", OFlags::DIRECTORY, Mode::empty()).unwrap();
    let at = |name: &str| rustix::fs::openat(&dir, name, OFlags::CREATE | OFlags::WRONLY, RW);
    drop(at("b/x").unwrap());
    drop(at("../y").unwrap());
    // An absolute path ignores where it would start.
    drop(rustix::fs::openat(&dir, tree.join("z"), OFlags::CREATE | OFlags::WRONLY, RW).unwrap());
    assert!(Path::new("a/b/x").exists() && Path::new("y").exists() && Path::new("z").exists());
    assert_eq!(errno(at("")), libc::ENOENT);
    let file = File::open("y").unwrap();
    assert_eq!(
        errno(rustix::fs::openat(
            &file,
            "x",
            OFlags::CREATE | OFlags::WRONLY,
            RW
        )),
        libc::ENOTDIR
    );
    rustix::fs::renameat(&dir, "b/x", CWD, "moved").unwrap();
    rustix::fs::mkdirat(&dir, "made", Mode::from_raw_mode(0o755)).unwrap();
    assert!(Path::new("moved").exists() && Path::new("a/made").exists());
    fs::create_dir("going").unwrap();
    std::env::set_current_dir("going").unwrap();
    fs::remove_dir("../going").unwrap();
    assert_eq!(errno(File::create("x")), libc::ENOENT);
    assert_eq!(errno(fs::create_dir("x")), libc::ENOENT);
    drop(File::create(tree.join("still")).unwrap());
}

#[test]
fn relative_paths_start_where_the_caller_is() {
    fenced("directories", &NOTHING, |_| {});
    fenced("directories", &COUNTING, |_| {});
}

fn shell(script: &str) {
    let status = Command::new("/bin/sh").args(["-c", script]).status().unwrap();
    assert!(status.success(), "{script}: {status}");
}

fn streams(_: &Path) {
    shell("echo to-stdout > /dev/stdout; echo to-stderr > /dev/stderr; echo to-fd > /proc/self/fd/1");
    shell(
        "echo lost > /dev/null; echo also > /dev/fd/2; exec 3> kept; echo deep > /dev/fd/3; echo more >> /dev/fd/3",
    );
    assert_eq!(fs::read("kept").unwrap(), b"deep\nmore\n");
    shell(
        "cat < /dev/null > empty; printf 'a\\nb\\n' | sort > sorted; cp sorted copy; mv copy copy2; ln -s copy2 l; rm copy2",
    );
    assert_eq!(fs::read("sorted").unwrap(), b"a\nb\n");
}

#[test]
fn a_shell_redirects_to_its_own_streams() {
    for setup in [&NOTHING, &COUNTING] {
        let output = fenced("streams", setup, |_| {}).output;
        for word in ["to-stdout", "to-stderr", "to-fd", "also"] {
            assert_eq!(output.matches(word).count(), 1, "{word} in {output}");
        }
        assert!(!output.contains("lost"));
    }
}

fn terminal(_: &Path) {
    // `setsid` leaves the terminal behind, whether the test has one or not.
    shell("setsid -w /bin/sh -c 'if echo x > /dev/tty; then exit 9; else exit 0; fi' 2>/dev/null");
    shell("script -qec 'echo through-tty > /dev/tty; test -t 0 < /dev/tty' /dev/null < /dev/null");
}

#[test]
fn the_terminal_is_the_callers_or_none() {
    for setup in [&NOTHING, &COUNTING] {
        assert!(fenced("terminal", setup, |_| {}).output.contains("through-tty"));
    }
}

fn fifo(_: &Path) {
    let make = |name: &str| rustix::fs::mknodat(CWD, name, FileType::Fifo, RW, 0).unwrap();
    make("p");
    let writer = std::thread::spawn(|| {
        let mut end = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open("p")
            .unwrap();
        assert!(!rustix::fs::fcntl_getfl(&end).unwrap().contains(OFlags::NONBLOCK));
        end.write_all(b"met").unwrap();
    });
    // While it waits, others are served.
    for index in 0..100 {
        fs::write(format!("busy-{index}"), b"x").unwrap();
    }
    let mut text = String::new();
    OpenOptions::new()
        .read(true)
        .open("p")
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    writer.join().unwrap();
    assert_eq!(text, "met");
    // Both ends through the guard.
    make("q");
    let reader = std::thread::spawn(|| {
        let fd = rustix::fs::open("q", OFlags::RDONLY | OFlags::CREATE, RW).unwrap();
        let mut text = String::new();
        File::from(fd).read_to_string(&mut text).unwrap();
        text
    });
    fs::write("q", b"again").unwrap();
    assert_eq!(reader.join().unwrap(), "again");
    // Those who do not want to wait do not. The guard's own end of the last open closes a moment later.
    let at_once = || rustix::fs::open("q", OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK, RW);
    assert!((0..1000).any(|_| errno(at_once()) == libc::ENXIO));
    let at_once = rustix::fs::open("q", OFlags::RDONLY | OFlags::CREATE | OFlags::NONBLOCK, RW).unwrap();
    drop(rustix::fs::open("q", OFlags::RDWR | OFlags::CREATE, RW).unwrap());
    drop(at_once);
}

#[test]
fn both_ends_of_a_named_pipe_meet_and_the_guard_waits_for_neither() {
    fenced("fifo", &NOTHING, |_| {});
    fenced("fifo", &COUNTING, |_| {});
}

fn crowded_fifo(_: &Path) {
    rustix::fs::mknodat(CWD, "p", FileType::Fifo, RW, 0).unwrap();
    let wait = || {
        Command::new("/bin/sh")
            .args(["-c", "echo ready; : > p"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut waiting: Vec<_> = (0..80).map(|_| wait()).collect();
    for child in &mut waiting {
        let mut word = [0; 6];
        child.stdout.take().unwrap().read_exact(&mut word).unwrap();
    }
    // Most of them wait by now; the rest will be refused or wait, but nothing hangs.
    drop(File::create("free").unwrap());
    for child in &mut waiting {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    drop(File::create("still-free").unwrap());
}

#[test]
fn a_crowd_waiting_at_a_pipe_does_not_stop_the_guard() {
    fenced("crowded-fifo", &NOTHING, |_| {});
}

#[test]
fn killed_callers_do_not_use_up_the_places_to_wait() {
    let tree = Tree::new();
    rustix::fs::mknodat(CWD, tree.join("p"), FileType::Fifo, RW, 0).unwrap();
    // No call waits on this descriptor: every caller is gone.
    let listener = File::open("/dev/null").unwrap();
    let mut waiting = Waiting::default();
    let mut open = || {
        let fifo = rustix::fs::open(tree.join("p"), OFlags::PATH, Mode::empty()).unwrap();
        waiting.open(listener.as_fd(), 7, fifo, OFlags::WRONLY, CloseOnExec::Yes)
    };
    let most = (0..1000).take_while(|_| open().is_ok()).count();
    assert_eq!(most, 64);
    let again = (0..100_000).any(|_| {
        std::thread::yield_now();
        open().is_ok()
    });
    assert!(again, "the places never came free");
    drop(rustix::fs::open(tree.join("p"), OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).unwrap());
}

fn full_table(_: &Path) {
    let limit = rustix::process::Rlimit {
        current: Some(16),
        maximum: Some(16),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let mut held = Vec::new();
    let full = loop {
        match File::create(format!("f{}", held.len())) {
            Ok(file) => held.push(file),
            Err(error) => break error,
        }
        assert!(held.len() < 17);
    };
    assert_eq!(full.raw_os_error(), Some(libc::EMFILE));
    drop(held);
    drop(File::create("again").unwrap());
}

#[test]
fn the_callers_limit_on_descriptors_holds() {
    fenced("full-table", &NOTHING, |_| {});
}

fn leased(_: &Path) {
    // A lease makes others wait for its holder, who may be the one that asks: the guard does not wait.
    shell(
        "perl -e 'open(F, \"<\", \"there\"); $SIG{IO}=\"IGNORE\"; fcntl(F, 1024, 0) or exit 2; \
           open(G, \"+>>\", \"there\") and exit 3; exit($!{EAGAIN} ? 0 : 4)'",
    );
}

#[test]
fn a_lease_on_a_file_does_not_stop_the_guard() {
    fenced("leased", &NOTHING, |tree| {
        fs::write(tree.join("there"), b"x").unwrap()
    });
}

#[test]
fn memory_that_is_not_there_is_a_fault_and_a_path_without_end_too_long() {
    let own = Caller::new(std::process::id());
    assert_eq!(own.path(8), Err(Errno::FAULT));
    assert_eq!(own.path(0), Err(Errno::FAULT));
    assert_eq!(own.path(u64::MAX - 7), Err(Errno::FAULT));
    assert_eq!(own.path(1 << 63), Err(Errno::FAULT));
    let mut long = vec![b'a'; 8192];
    let at = |bytes: &[u8]| bytes.as_ptr() as u64;
    assert_eq!(own.path(at(&long)), Err(Errno::NAMETOOLONG));
    long[4096] = 0;
    assert_eq!(own.path(at(&long)), Err(Errno::NAMETOOLONG));
    long[4095] = 0;
    assert_eq!(own.path(at(&long)).map(|path| path.len()), Ok(4095));
    long[256] = 0;
    assert_eq!(own.path(at(&long)).map(|path| path.len()), Ok(256));
    long[0] = 0;
    assert_eq!(own.path(at(&long)), Ok(Vec::new()));
    assert_eq!(
        own.text(at(&long[1..]), 3).map(|(text, end)| (text.len(), end)),
        Ok((3, TextEnd::Limit))
    );
    assert_eq!(own.directory(Base::Descriptor(-1)).map(drop), Err(Errno::BADF));
    assert_eq!(own.directory(Base::Descriptor(9999)).map(drop), Err(Errno::BADF));
}

#[test]
fn a_caller_that_is_gone_gets_nothing_done() {
    let tree = Tree::new();
    let mut guard = Guard::new(&plan(&NOTHING, tree.path()));
    let path = std::ffi::CString::new(tree.join("ghost").to_str().unwrap()).unwrap();
    // No call waits on this descriptor, whatever its number is.
    let listener = File::open("/dev/null").unwrap();
    let call = Call {
        listener: listener.as_fd(),
        id: 7,
        args: [libc::AT_FDCWD as u64, path.as_ptr() as u64, 0, 0, 0, 0],
        operation: "openat",
        caller: Caller::new(std::process::id()),
    };
    let opened = guard.open(
        &call,
        Base::Cwd,
        call.args[1],
        OFlags::CREATE | OFlags::WRONLY,
        0o644,
    );
    assert!(matches!(opened, Err(Stop::Gone)), "{opened:?}");
    assert!(!tree.join("ghost").exists());
    let named = guard.open(
        &call,
        Base::Cwd,
        call.args[1],
        OFlags::CREATE | OFlags::PATH,
        0o644,
    );
    assert!(matches!(named, Ok(Done::Answer(_))), "{named:?}");
    assert!(listener.as_raw_fd() > 2);
}
