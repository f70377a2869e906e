//! Names in other spellings, the modes of what is made, and kinds that are never made.
use super::harness::{Scenario, Setup, errno, fenced};
use bastle_contract::DenialKind;
use rustix::fs::{CWD, FileType, Mode};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

pub(super) const SCENARIOS: &[Scenario] = &[
    ("case", case),
    ("umask", umask),
    ("odd-spellings", odd_spellings),
    ("nodes", nodes),
];

const HIDE: Setup = Setup {
    hide: &["**/.env*"],
    protect: &[],
    limits: &[],
};
const ALL: Mode = Mode::from_raw_mode(0o777);
const FREE: i32 = 0;

fn case(_: &Path) {
    for name in [".ENV", ".Env", ".eNv.Local"] {
        assert_eq!(errno(File::create(name)), libc::EACCES, "{name}");
    }
    drop(File::create("env").unwrap());
}

#[test]
fn a_name_in_another_case_is_the_same_name() {
    assert_eq!(fenced("case", &HIDE, |_| {}).denied(DenialKind::Hidden).len(), 3);
}

fn umask(_: &Path) {
    let mode = |path: &str| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    for (mask, file, dir) in [
        (0o022, 0o644, 0o755),
        (0o077, 0o600, 0o700),
        (0o000, 0o666, 0o777),
    ] {
        rustix::process::umask(Mode::from_raw_mode(mask));
        let name = format!("m{mask:o}");
        drop(File::create(&name).unwrap());
        fs::create_dir(format!("{name}.d")).unwrap();
        rustix::fs::mknodat(
            CWD,
            format!("{name}.p"),
            FileType::Fifo,
            Mode::from_raw_mode(0o666),
            0,
        )
        .unwrap();
        assert_eq!(
            (
                mode(&name),
                mode(&format!("{name}.d")),
                mode(&format!("{name}.p"))
            ),
            (file, dir, file),
            "{mask:o}"
        );
    }
}

#[test]
fn modes_follow_the_callers_umask() {
    fenced("umask", &HIDE, |_| {});
}

fn odd_spellings(_: &Path) {
    fs::create_dir("d").unwrap();
    for name in [
        "./.env",
        "d/../.env",
        "d//..//.env",
        ".env/",
        ".env//",
        "d/.env/.",
    ] {
        let made = errno(rustix::fs::mkdirat(CWD, name, ALL));
        assert!(matches!(made, libc::EACCES | libc::ENOENT), "{name}: {made}");
    }
    assert_eq!(errno(rustix::fs::mkdirat(CWD, "new/", ALL)), FREE);
    assert_eq!(errno(rustix::fs::mkdirat(CWD, ".", ALL)), libc::EEXIST);
    assert_eq!(errno(rustix::fs::mkdirat(CWD, "d/..", ALL)), libc::EEXIST);
    assert_eq!(errno(rustix::fs::mkdirat(CWD, "/", ALL)), libc::EEXIST);
    assert_eq!(errno(rustix::fs::mkdirat(CWD, "", ALL)), libc::ENOENT);
    assert_eq!(errno(File::create("new/")), libc::EISDIR);
    assert_eq!(errno(File::create("missing/")), libc::EISDIR);
    assert_eq!(errno(File::create(".")), libc::EISDIR);
    assert_eq!(errno(File::create("d")), libc::EISDIR);
    assert_eq!(errno(symlink("x", "s/")), libc::ENOENT);
    assert_eq!(errno(fs::rename(".", "y")), libc::EBUSY);
    assert_eq!(errno(fs::rename("new/", "newer/")), FREE);
    assert_eq!(
        errno(File::create("d/x").and_then(|_| File::create("d/x/y"))),
        libc::ENOTDIR
    );
    assert_eq!(errno(File::create("n".repeat(256))), libc::ENAMETOOLONG);
    assert_eq!(errno(File::create("n/".repeat(2100))), libc::ENAMETOOLONG);
    // A name that is no text, and one that looks like a deleted directory.
    let raw = std::ffi::OsStr::new("gone (deleted)");
    fs::create_dir(raw).unwrap();
    assert_eq!(errno(File::create(Path::new(raw).join(".env"))), libc::EACCES);
    let bytes: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe.env");
    drop(File::create(bytes).unwrap());
}

#[test]
fn odd_spellings_answer_as_the_kernel_answers_and_free_nothing() {
    let outcome = fenced("odd-spellings", &HIDE, |_| {});
    assert!(!outcome.tree.join(".env").exists());
}

fn nodes(_: &Path) {
    let make = |kind| {
        errno(rustix::fs::mknodat(
            CWD,
            "node",
            kind,
            ALL,
            rustix::fs::makedev(1, 3),
        ))
    };
    assert_eq!(make(FileType::CharacterDevice), libc::EPERM);
    assert_eq!(make(FileType::BlockDevice), libc::EPERM);
    assert_eq!(make(FileType::Directory), libc::EPERM);
}

#[test]
fn a_device_is_never_made() {
    fenced("nodes", &HIDE, |_| {});
}
