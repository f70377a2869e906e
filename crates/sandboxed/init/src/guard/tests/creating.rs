//! Names that must not come into being, by every call that makes one, each beside one that may.
use super::harness::{Outcome, Scenario, Setup, errno, fenced};
use bastle_contract::{DenialKind, Event};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

pub(super) const SCENARIOS: &[Scenario] = &[
    ("every-way", every_way),
    ("protected", protected),
    ("shuffle", shuffle),
    ("onto-ancestor", onto_ancestor),
    ("exchange", exchange),
    ("symlinked-parent", symlinked_parent),
    ("through-proc", through_proc),
    ("unnamed", unnamed),
    ("repeats", repeats),
    ("told", told),
];

const HIDE: Setup = Setup {
    hide: &["**/.env*"],
    protect: &["**/.git/hooks", ".github/workflows"],
    limits: &[],
};
const ALL: Mode = Mode::from_raw_mode(0o777);
const FREE: i32 = 0;

fn hidden(outcome: &Outcome) -> Vec<(String, String, String)> {
    outcome.denied(DenialKind::Hidden)
}

/// Makes `name` in every way there is; what each answered.
fn make_all(name: &str) -> Vec<i32> {
    let gone = || {
        drop(fs::remove_file(name));
        drop(fs::remove_dir(name));
    };
    let mut answers = Vec::new();
    let mut note = |answer: i32| {
        answers.push(answer);
        gone();
    };
    fs::write("plain", b"x").unwrap();
    note(errno(File::create(name)));
    note(errno(File::create_new(name)));
    note(errno(rustix::fs::mkdirat(CWD, name, ALL)));
    note(errno(rustix::fs::mknodat(CWD, name, FileType::Fifo, ALL, 0)));
    note(errno(rustix::fs::mknodat(CWD, name, FileType::Socket, ALL, 0)));
    note(errno(rustix::fs::mknodat(
        CWD,
        name,
        FileType::RegularFile,
        ALL,
        0,
    )));
    note(errno(symlink("plain", name)));
    note(errno(fs::hard_link("plain", name)));
    note(errno(fs::rename("plain", name)));
    fs::write("plain", b"x").unwrap();
    note(errno(rustix::fs::renameat_with(
        CWD,
        "plain",
        CWD,
        name,
        RenameFlags::NOREPLACE,
    )));
    answers
}

fn every_way(_: &Path) {
    assert_eq!(make_all(".env"), vec![libc::EACCES; 10]);
    assert_eq!(make_all("fine"), vec![FREE; 10]);
    fs::create_dir_all("a/b").unwrap();
    assert_eq!(make_all("a/b/.env.local"), vec![libc::EACCES; 10]);
    assert_eq!(errno(File::create("a/.envdir/inner")), libc::ENOENT);
}

#[test]
fn a_hidden_name_comes_into_being_by_no_call() {
    let outcome = fenced("every-way", &HIDE, |_| {});
    let operations: Vec<String> = hidden(&outcome)
        .into_iter()
        .map(|(operation, _, _)| operation)
        .collect();
    // The same refusal is told once: one for each of the two names.
    assert_eq!(operations.len(), 2, "{:?}", outcome.events);
    assert!(hidden(&outcome).contains(&("openat".into(), ".env".into(), "**/.env*".into())));
    assert!(!outcome.tree.join(".env").exists() && !outcome.tree.join("a/b/.env.local").exists());
}

/// `truncate` by path: the standard library opens the file first.
fn truncate(path: &str) -> std::io::Result<()> {
    std::process::Command::new("perl")
        .args(["-e", "truncate($ARGV[0], 1) or exit $!", path])
        .status()
        .and_then(|status| match status.code() {
            Some(0) => Ok(()),
            Some(code) => Err(std::io::Error::from_raw_os_error(code)),
            None => Err(std::io::Error::other("killed")),
        })
}

fn protected(_: &Path) {
    fs::create_dir_all("repo/.git").unwrap();
    assert_eq!(errno(fs::create_dir("repo/.git/hooks")), libc::EACCES);
    fs::create_dir("elsewhere").unwrap();
    fs::write("elsewhere/pre-commit", b"x").unwrap();
    assert_eq!(errno(fs::rename("elsewhere", "repo/.git/hooks")), libc::EACCES);
    assert_eq!(errno(symlink("elsewhere", "repo/.git/hooks")), libc::EACCES);
    // What is there already answers as ever, so that `mkdir -p` goes on.
    assert_eq!(errno(fs::create_dir("there/.git/hooks")), libc::EEXIST);
    // An existing one is held by its name, also where no read-only mount is on it any more.
    assert_eq!(errno(fs::write("there/.git/hooks/known", b"y")), libc::EACCES);
    for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::RDONLY | OFlags::TRUNC] {
        let opened = rustix::fs::open("there/.git/hooks/known", flags, Mode::empty());
        assert_eq!(errno(opened), libc::EACCES, "{flags:?}");
    }
    assert_eq!(errno(truncate("there/.git/hooks/known")), libc::EACCES);
    assert_eq!(errno(fs::remove_file("there/.git/hooks/known")), libc::EACCES);
    assert_eq!(fs::read("there/.git/hooks/known").unwrap(), b"x");
    fs::write("plain", b"long").unwrap();
    drop(rustix::fs::open("plain", OFlags::WRONLY, Mode::empty()).unwrap());
    truncate("plain").unwrap();
    fs::remove_file("plain").unwrap();
    assert_eq!(errno(File::create("there/.git/hooks/new")), libc::EACCES);
    assert_eq!(errno(fs::rename("there/.git/hooks/known", "out")), libc::EACCES);
    assert_eq!(
        errno(fs::hard_link("there/.git/hooks/known", "out")),
        libc::EACCES
    );
    assert_eq!(errno(fs::rename("there/.git/hooks", "out")), libc::EACCES);
    // The directory above it carries it away.
    assert_eq!(errno(fs::rename("there/.git", "out")), libc::EACCES);
    fs::rename("there", "moved").unwrap();
    assert_eq!(errno(File::create("moved/.git/hooks/new")), libc::EACCES);
}

#[test]
fn a_protected_name_is_neither_made_nor_moved() {
    let outcome = fenced("protected", &HIDE, |tree| {
        fs::create_dir_all(tree.join("there/.git/hooks")).unwrap();
        fs::write(tree.join("there/.git/hooks/known"), b"x").unwrap();
    });
    assert_eq!(
        fs::read(outcome.tree.join("moved/.git/hooks/known")).unwrap(),
        b"x"
    );
    assert!(
        outcome
            .denied(DenialKind::Protected)
            .iter()
            .any(|(_, target, rule)| target == "repo/.git/hooks" && rule == "**/.git/hooks")
    );
}

fn shuffle(_: &Path) {
    fs::create_dir_all("a/sub").unwrap();
    let held = rustix::fs::open("a", OFlags::DIRECTORY, Mode::empty()).unwrap();
    fs::rename("a", "a2").unwrap();
    fs::create_dir("a").unwrap();
    assert_eq!(errno(File::create("a/denied")), libc::EACCES);
    // The directory that was `a` is free under its new name, and guarded again when it is back.
    let create = || rustix::fs::openat(&held, "denied", OFlags::CREATE | OFlags::WRONLY, ALL);
    drop(create().unwrap());
    fs::remove_dir("a").unwrap();
    assert_eq!(errno(fs::rename("a2", "a")), libc::EACCES);
    fs::remove_file("a2/denied").unwrap();
    // Even empty: what would be below cannot be known from its name.
    assert_eq!(errno(fs::rename("a2", "a")), libc::EACCES);
    std::env::set_current_dir("a2").unwrap();
    drop(File::create("denied").unwrap());
}

#[test]
fn moving_the_parent_away_and_back_does_not_free_the_name() {
    let outcome = fenced(
        "shuffle",
        &Setup {
            hide: &["a/denied"],
            ..Setup::default()
        },
        |_| {},
    );
    assert!(!outcome.tree.join("a/denied").exists());
    assert!(outcome.tree.join("a2/denied").exists());
}

fn onto_ancestor(_: &Path) {
    fs::create_dir_all("tmp/workflows").unwrap();
    fs::write("tmp/workflows/evil.yml", b"x").unwrap();
    assert_eq!(errno(fs::rename("tmp", ".github")), libc::EACCES);
    assert_eq!(errno(fs::rename("tmp", ".GitHub")), libc::EACCES);
    assert_eq!(errno(symlink("tmp", ".github")), libc::EACCES);
    symlink("tmp", "innocent").unwrap();
    assert_eq!(errno(fs::rename("innocent", ".github")), libc::EACCES);
    assert_eq!(
        errno(rustix::fs::linkat(
            CWD,
            "innocent",
            CWD,
            ".github",
            AtFlags::empty()
        )),
        libc::EACCES
    );
    fs::create_dir_all("git/hooks").unwrap();
    assert_eq!(errno(fs::rename("git", "x.git")), FREE);
    assert_eq!(errno(fs::rename("x.git", ".git")), libc::EACCES);
    // A plain file and a fresh directory of that name are nobody's hooks.
    fs::create_dir(".github").unwrap();
    fs::write(".github/dependabot.yml", b"x").unwrap();
    assert_eq!(errno(fs::create_dir(".github/workflows")), libc::EACCES);
}

#[test]
fn a_directory_or_symlink_does_not_become_the_parent_of_a_guarded_name() {
    let outcome = fenced("onto-ancestor", &HIDE, |_| {});
    assert!(!outcome.tree.join(".github/workflows").exists());
    assert!(
        outcome
            .denied(DenialKind::Protected)
            .iter()
            .any(|(operation, target, _)| operation.starts_with("rename") && target == ".github")
    );
}

fn exchange(_: &Path) {
    let swap = |a: &str, b: &str| errno(rustix::fs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE));
    fs::create_dir_all("tmp/workflows").unwrap();
    fs::create_dir(".github").unwrap();
    assert_eq!(swap("tmp", ".github"), libc::EACCES);
    assert_eq!(swap(".github", "tmp"), libc::EACCES);
    fs::write("one", b"1").unwrap();
    fs::write("two", b"2").unwrap();
    assert_eq!(swap("one", ".env"), libc::EACCES);
    assert_eq!(swap("one", "two"), FREE);
    assert_eq!(fs::read("one").unwrap(), b"2");
    assert_eq!(swap("one", "missing"), libc::ENOENT);
    let whiteout = RenameFlags::from_bits_retain(4);
    assert_eq!(
        errno(rustix::fs::renameat_with(CWD, "one", CWD, "three", whiteout)),
        libc::EINVAL
    );
    // Only what comes the other way is refused here.
    fs::create_dir_all("full/key").unwrap();
    fs::create_dir("vault").unwrap();
    assert_eq!(swap("vault", "full"), libc::EACCES);
}

#[test]
fn an_exchange_is_judged_in_both_directions() {
    let setup = Setup {
        hide: &["**/.env*", "vault/key"],
        ..HIDE
    };
    fenced("exchange", &setup, |_| {});
}

fn symlinked_parent(tree: &Path) {
    fs::create_dir("real").unwrap();
    symlink("real", "alias").unwrap();
    symlink(tree, "again").unwrap();
    assert_eq!(errno(File::create("alias/.env")), libc::EACCES);
    assert_eq!(errno(File::create("again/again/real/.env")), libc::EACCES);
    drop(File::create("again/again/alias/also-fine").unwrap());
    // A symlink whose target does not exist yet: creating through it creates the target.
    symlink("real/.env", "dangling").unwrap();
    assert_eq!(errno(File::create("dangling")), libc::EACCES);
    symlink("real/fine", "dangling-fine").unwrap();
    drop(File::create("dangling-fine").unwrap());
    assert!(Path::new("real/fine").exists());
    symlink("loop-b", "loop-a").unwrap();
    symlink("loop-a", "loop-b").unwrap();
    assert_eq!(errno(File::create("loop-a")), libc::ELOOP);
    assert_eq!(errno(File::create("loop-a/x")), libc::ELOOP);
    assert_eq!(errno(File::create("alias/../real/./deep/../.env")), libc::ENOENT);
    fs::create_dir("real/deep").unwrap();
    assert_eq!(errno(File::create("alias/../real/./deep/../.env")), libc::EACCES);
}

#[test]
fn a_symlink_on_the_way_or_at_the_end_does_not_free_the_name() {
    let outcome = fenced("symlinked-parent", &HIDE, |_| {});
    assert!(!outcome.tree.join("real/.env").exists());
}

fn through_proc(_: &Path) {
    let me = std::process::id();
    let fd = rustix::fs::open(".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&fd);
    let ways = [
        "/proc/self/cwd/".to_owned(),
        "/proc/thread-self/cwd/".to_owned(),
        format!("/proc/{me}/cwd/"),
        format!("/proc/self/fd/{number}/"),
        format!("/dev/fd/{number}/"),
        format!("/proc/self/root{}/", std::env::current_dir().unwrap().display()),
    ];
    for (index, way) in ways.iter().enumerate() {
        assert_eq!(errno(File::create(format!("{way}.env"))), libc::EACCES, "{way}");
        drop(File::create(format!("{way}fine-{index}")).unwrap_or_else(|error| panic!("{way}: {error}")));
        assert!(Path::new(&format!("fine-{index}")).exists(), "{way}");
    }
    // What the guard's own process has open is not the caller's to reach through it.
    let guard = rustix::process::getppid().unwrap().as_raw_nonzero();
    for file in ["mem", "fd/0", "fd/3", "cwd/x", "root/tmp/bastle-x", "environ"] {
        let path = format!("/proc/{guard}/{file}");
        let opened = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        assert_eq!(errno(opened), libc::EACCES, "{path}");
    }
    let own = rustix::fs::open(
        format!("/proc/{guard}"),
        OFlags::PATH | OFlags::DIRECTORY,
        Mode::empty(),
    )
    .unwrap();
    assert_eq!(
        errno(rustix::fs::openat(
            &own,
            "mem",
            OFlags::RDWR | OFlags::CREATE,
            ALL
        )),
        libc::EACCES
    );
    assert_eq!(
        errno(rustix::fs::linkat(
            &own,
            "fd/0",
            CWD,
            "stolen",
            AtFlags::SYMLINK_FOLLOW
        )),
        libc::EACCES
    );
}

#[test]
fn a_path_through_proc_is_the_callers_and_never_the_guards() {
    fenced("through-proc", &HIDE, |_| {});
}

fn unnamed(_: &Path) {
    let open =
        || rustix::fs::open(".", OFlags::TMPFILE | OFlags::WRONLY, Mode::from_raw_mode(0o600)).unwrap();
    let publish = |fd: &std::os::fd::OwnedFd, name: &str| {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
        errno(rustix::fs::linkat(CWD, path, CWD, name, AtFlags::SYMLINK_FOLLOW))
    };
    let fd = open();
    rustix::io::write(&fd, b"contents").unwrap();
    assert_eq!(publish(&fd, ".env"), libc::EACCES);
    assert_eq!(publish(&fd, "fine"), FREE);
    assert_eq!(
        errno(rustix::fs::linkat(&fd, "", CWD, ".env", AtFlags::EMPTY_PATH)),
        libc::EACCES
    );
    assert_eq!(
        errno(rustix::fs::linkat(&fd, "", CWD, "fine-too", AtFlags::EMPTY_PATH)),
        FREE
    );
    assert_eq!(
        errno(rustix::fs::linkat(&fd, "", CWD, "x", AtFlags::empty())),
        libc::ENOENT
    );
    assert_eq!(fs::read("fine-too").unwrap(), b"contents");
}

#[test]
fn a_file_without_a_name_does_not_get_a_hidden_one() {
    let outcome = fenced("unnamed", &HIDE, |_| {});
    assert!(!outcome.tree.join(".env").exists());
}

fn repeats(_: &Path) {
    for _ in 0..2500 {
        assert_eq!(errno(File::create(".env")), libc::EACCES);
    }
}

#[test]
fn a_refusal_that_repeats_is_told_first_and_then_by_the_thousand() {
    let outcome = fenced("repeats", &HIDE, |_| {});
    let rules: Vec<String> = hidden(&outcome).into_iter().map(|(_, _, rule)| rule).collect();
    assert_eq!(
        rules,
        ["**/.env*", "**/.env* (1000 times)", "**/.env* (2000 times)"]
    );
}

fn told(_: &Path) {
    assert_eq!(errno(rustix::process::chroot("/")), libc::EPERM);
    assert_eq!(
        errno(rustix::mount::unmount("/x", rustix::mount::UnmountFlags::empty())),
        libc::EPERM
    );
    let status = std::process::Command::new("/bin/echo")
        .args(["one", "two"])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn a_refused_call_and_a_started_program_are_told() {
    let outcome = fenced("told", &HIDE, |_| {});
    let calls: Vec<String> = outcome
        .denied(DenialKind::Syscall)
        .into_iter()
        .map(|(operation, _, _)| operation)
        .collect();
    assert_eq!(calls, ["chroot", "umount2"]);
    let programs = outcome.events.iter().filter_map(|event| match event {
        Event::Exec(seen) => Some((seen.path.as_str(), seen.argv.clone())),
        _ => None,
    });
    let programs: Vec<_> = programs.collect();
    assert_eq!(
        programs,
        [(
            "/bin/echo",
            vec!["/bin/echo".to_owned(), "one".to_owned(), "two".to_owned()]
        )]
    );
    assert!(outcome.output.contains("one two"));
}
