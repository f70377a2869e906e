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
    ("signals", signals),
];

const SWAPS: usize = 20_000;

fn swapped_path(_: &Path) {
    let path = CString::new("fine").unwrap();
    let address = path.as_ptr() as u64;
    let done = AtomicBool::new(false);
    let (made, refused) = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Another process or thread of the agent's can do this at any moment.
            let memory = OpenOptions::new()
                .read(true)
                .write(true)
                .open("/proc/self/mem")
                .unwrap();
            while !done.load(Ordering::Relaxed) {
                memory.write_all_at(b".env", address).unwrap();
                memory.write_all_at(b"fine", address).unwrap();
            }
        });
        let (mut made, mut refused) = (0, 0);
        for _ in 0..SWAPS {
            match rustix::fs::open(
                path.as_c_str(),
                OFlags::CREATE | OFlags::WRONLY,
                Mode::from_raw_mode(0o600),
            ) {
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
    let outcome = fenced(
        "swapped-path",
        &Setup {
            hide: &[".env"],
            ..Setup::default()
        },
        |_| {},
    );
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
            assert!(
                matches!(made, 0 | libc::EACCES | libc::ENOENT | libc::EAGAIN),
                "{made}"
            );
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(Path::new("free/name").exists());
}

#[test]
fn a_symlink_that_changes_under_the_guard_never_creates_a_hidden_name() {
    let outcome = fenced(
        "swapped-link",
        &Setup {
            hide: &["locked/name"],
            ..Setup::default()
        },
        |_| {},
    );
    assert!(!outcome.tree.join("locked/name").exists());
}

fn killed(_: &Path) {
    for _ in 0..30 {
        let script = "echo r; while :; do echo x > f; mkdir d; rmdir d; done 2>/dev/null";
        let mut child = Command::new("/bin/sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
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
    fenced(
        "killed",
        &Setup {
            limits: &[(LimitKind::BytesWritten, 1 << 40)],
            ..Setup::default()
        },
        |_| {},
    );
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
    let outcome = fenced(
        "parallel",
        &Setup {
            limits,
            ..Setup::default()
        },
        |_| {},
    );
    assert_eq!((outcome.usage.files, outcome.usage.bytes_written), (1000, 50_050));
    let entries: Vec<_> = fs::read_dir(outcome.tree.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .collect();
    assert_eq!(entries.len(), 1000);
    assert_eq!(
        entries
            .iter()
            .map(|entry| entry.metadata().unwrap().len())
            .sum::<u64>(),
        50_050
    );
}

fn signals(_: &Path) {
    let script = "use POSIX; use Time::HiRes qw(setitimer ITIMER_REAL); \
        sigaction(SIGALRM, POSIX::SigAction->new(sub { $n++ }, POSIX::SigSet->new, SA_RESTART)); \
        setitimer(ITIMER_REAL, 0.0002, 0.0002); \
        for $i (1..5000) { mkdir(\"d$i\") or die \"mkdir $i: $!\"; rename(\"d$i\", \"e$i\") or die \"rename $i: $!\" } \
        die \"no signal came\" unless $n > 10";
    let status = Command::new("perl").args(["-e", script]).status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_signal_in_the_middle_of_a_call_does_not_make_it_happen_twice() {
    fenced("signals", &Setup::default(), |_| {});
}
