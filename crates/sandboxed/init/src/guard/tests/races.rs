//! Threads that change what the guard looks at, and callers that go away while it looks.
use super::harness::{Scenario, Setup, errno, fenced};
use bastle_contract::LimitKind;
use rustix::fs::{Mode, OFlags};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("swapped-path", swapped_path),
    ("swapped-link", swapped_link),
    ("killed", killed),
    ("parallel", parallel),
    ("bench", bench),
];

const SWAPS: usize = 20_000;

fn swapped_path(_: &Path) {
    let path = CString::new("fine").unwrap();
    let address = path.as_ptr() as u64;
    let done = AtomicBool::new(false);
    let (made, refused) = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Another process or thread of the agent's can do this at any moment.
            let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
            while !done.load(Ordering::Relaxed) {
                memory.write_all_at(b".env", address).unwrap();
                memory.write_all_at(b"fine", address).unwrap();
            }
        });
        let (mut made, mut refused) = (0, 0);
        for _ in 0..SWAPS {
            match rustix::fs::open(path.as_c_str(), OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o600)) {
                Ok(_) => made += 1,
                Err(errno) => {
                    assert_eq!(errno, rustix::io::Errno::ACCESS);
                    refused += 1;
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        (made, refused)
    });
    println!("made {made} refused {refused}");
    assert!(made > 0 && refused > 0);
    assert!(!Path::new(".env").exists() && Path::new("fine").exists());
}

#[test]
fn a_path_that_changes_under_the_guard_never_creates_a_hidden_name() {
    let outcome = fenced("swapped-path", &Setup { hide: &[".env"], ..Setup::default() }, |_| {});
    assert!(!outcome.tree.join(".env").exists());
}

fn swapped_link(_: &Path) {
    fs::create_dir("free").unwrap();
    fs::create_dir("locked").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for target in ["free", "locked"] {
                    drop(fs::remove_file("way"));
                    symlink(target, "way").unwrap();
                }
            }
        });
        for _ in 0..SWAPS / 4 {
            let made = errno(File::create("way/name"));
            assert!(matches!(made, 0 | libc::EACCES | libc::ENOENT | libc::EAGAIN), "{made}");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(Path::new("free/name").exists());
}

#[test]
fn a_symlink_that_changes_under_the_guard_never_creates_a_hidden_name() {
    let outcome = fenced("swapped-link", &Setup { hide: &["locked/name"], ..Setup::default() }, |_| {});
    assert!(!outcome.tree.join("locked/name").exists());
}

fn killed(_: &Path) {
    for _ in 0..30 {
        let script = "echo r; while :; do echo x > f; mkdir d; rmdir d; done 2>/dev/null";
        let mut child = Command::new("/bin/sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 2]).unwrap();
        for _ in 0..20 {
            drop(File::create("between").unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_caller_that_is_killed_in_its_call_is_no_error() {
    fenced("killed", &Setup::default(), |_| {});
    fenced("killed", &Setup { limits: &[(LimitKind::BytesWritten, 1 << 40)], ..Setup::default() }, |_| {});
}

fn parallel(_: &Path) {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for index in 0..200 {
                    let mut file = match File::create(format!("{thread}-{index}")) {
                        Ok(file) => file,
                        Err(error) => {
                            assert_eq!(error.raw_os_error(), Some(libc::EDQUOT));
                            continue;
                        }
                    };
                    let written = file.write(&[1; 100]);
                    assert!(matches!(written, Ok(0..=100)) || errno(written) == libc::EDQUOT);
                }
            });
        }
    });
}

#[test]
fn limits_hold_against_many_threads_at_once() {
    let limits = &[(LimitKind::Files, 1000), (LimitKind::BytesWritten, 50_050)];
    let outcome = fenced("parallel", &Setup { limits, ..Setup::default() }, |_| {});
    assert_eq!((outcome.usage.files, outcome.usage.bytes_written), (1000, 50_050));
    let entries: Vec<_> = fs::read_dir(outcome.tree.path()).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(entries.len(), 1000);
    assert_eq!(entries.iter().map(|entry| entry.metadata().unwrap().len()).sum::<u64>(), 50_050);
}

fn best(name: &str, mut f: impl FnMut(usize)) {
    let mut times: Vec<f64> = (0..400).map(|b| { let t = std::time::Instant::now(); for i in 0..20 { f(b*20+i); } t.elapsed().as_secs_f64()*1e6/20.0 }).collect();
    times.sort_by(f64::total_cmp);
    println!("{name}: min {:.1} p10 {:.1} median {:.1} us", times[0], times[40], times[200]);
}
fn bench(_: &Path) {
    fs::create_dir_all("a/b/c").unwrap();
    best("create", |i| drop(File::create(format!("a/b/c/f{i}")).unwrap()));
    best("open existing O_CREAT", |i| drop(OpenOptions::new().create(true).write(true).open(format!("a/b/c/f{i}")).unwrap()));
    best("rename", |i| fs::rename(format!("a/b/c/f{i}"), format!("a/b/c/g{i}")).unwrap());
    best("mkdir", |i| fs::create_dir(format!("a/b/d{i}")).unwrap());
    let mut f = File::create("w").unwrap();
    best("write100", |_| f.write_all(&[1;100]).unwrap());
    let mut f = OpenOptions::new().write(true).open("/dev/null").unwrap();
    best("write100 null", |_| f.write_all(&[1;100]).unwrap());
    let mut f = File::create("w2").unwrap();
    let b = vec![1; 1<<20];
    let mut times: Vec<f64> = (0..128).map(|_| { let t = std::time::Instant::now(); f.write_all(&b).unwrap(); t.elapsed().as_secs_f64() }).collect();
    times.sort_by(f64::total_cmp);
    println!("write 1M {:.0} MB/s us", 1.0 / times[12]);
}
#[test]
fn zz_bench() {
    let hide: &'static [&'static str] = &["**/.env*", "**/*.pem", "**/.ssh", "**/id_rsa*", "**/.aws", "secrets"];
    let protect: &'static [&'static str] = &["**/.git/hooks", "**/.git/config", ".github/workflows", "**/.vscode", "**/.claude/settings.json"];
    eprintln!("guard: {}", fenced("bench", &Setup { hide, protect, limits: &[] }, |_| {}).output);
    eprintln!("counting: {}", fenced("bench", &Setup { hide, protect, limits: &[(LimitKind::BytesWritten, 1 << 40), (LimitKind::Files, 1<<20)] }, |_| {}).output);
    let t = super::harness::Tree::new();
    std::env::set_current_dir(t.path()).unwrap();
    eprintln!("without:"); bench(t.path());
}

#[test]
fn zz_parts() {
    use crate::guard::caller::*;
    use crate::guard::walk::*;
    use std::os::fd::AsFd;
    let t = super::harness::Tree::new();
    fs::create_dir_all(t.join("a/b/c")).unwrap();
    std::env::set_current_dir(t.path()).unwrap();
    let child = Command::new("sleep").arg("20").spawn().unwrap();
    let id = child.id();
    let p = CString::new("a/b/c/f").unwrap();
    best("umask", |_| { Caller::new(id).umask().unwrap(); });
    best("read mem own", |_| { Caller::new(std::process::id()).path(p.as_ptr() as u64).unwrap(); });
    best("open mem", |_| { drop(File::open(format!("/proc/{id}/mem")).unwrap()); });
    best("cwd", |_| { drop(Caller::new(id).directory(Base::Cwd).unwrap()); });
    let cwd = Caller::new(id).directory(Base::Cwd).unwrap();
    best("openat2", |_| { drop(rustix::fs::openat2(&cwd, "a/b/c/", OFlags::PATH|OFlags::DIRECTORY|OFlags::CLOEXEC, Mode::empty(), rustix::fs::ResolveFlags::NO_SYMLINKS).unwrap()); });
    best("canonical", |_| { canonical(cwd.as_fd()).unwrap(); });
    best("stat", |_| { drop(rustix::fs::statat(&cwd, "nonex", rustix::fs::AtFlags::SYMLINK_NOFOLLOW)); });
    best("comm", |_| { Caller::new(id).command(); });
    best("dup", |_| { drop(Caller::new(id).duplicate(1)); });
    best("fdstat", |_| { drop(Caller::new(id).descriptor_stat(1)); });
    best("getppid", |_| { std::hint::black_box(rustix::process::getppid()); });
}
