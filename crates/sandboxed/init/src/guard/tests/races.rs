//! Threads that change what the guard looks at, and callers that go away while it looks.
use super::harness::{Scenario, Setup, errno, fenced};
use bastle_contract::LimitKind;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("swapped-path", swapped_path),
    ("swapped-link", swapped_link),
    ("swapped-source", swapped_source),
    ("swapped-by-host", swapped_by_host),
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

/// Links `source` again and again. Every link made must hold the harmless content; counts those made and those refused.
fn link_repeatedly(source: &str) -> (usize, usize) {
    let (mut made, mut refused) = (0, 0);
    for round in 0..SWAPS / 4 {
        let name = format!("link-{round}");
        match rustix::fs::linkat(CWD, source, CWD, &name, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => {
                assert_eq!(fs::read(&name).unwrap(), b"harmless", "round {round} of {source}");
                fs::remove_file(&name).unwrap();
                made += 1;
            }
            Err(errno) => {
                assert_eq!(errno, rustix::io::Errno::ACCESS, "round {round} of {source}");
                refused += 1;
            }
        }
    }
    (made, refused)
}

/// Ends the other thread also when an assertion fails: a scope waits for its threads before it passes a panic on.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A descriptor is exchanged without any call that the guard serves, so the kernel does it while the guard looks.
fn swapped_source(_: &Path) {
    for (harmless, secret, below) in [
        ("free/file", "locked/file", ""),
        ("free/file", ".env", ""),
        ("free", "locked", "/file"),
    ] {
        let open = |path: &str| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).unwrap()
        };
        let (harmless, secret) = (open(harmless), open(secret));
        let mut slot = rustix::io::dup(&harmless).unwrap();
        let source = format!("/proc/self/fd/{}{below}", slot.as_raw_fd());
        let done = AtomicBool::new(false);
        let (made, refused) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    rustix::io::dup2(&secret, &mut slot).unwrap();
                    rustix::io::dup2(&harmless, &mut slot).unwrap();
                }
            });
            let _finish = Finish(&done);
            link_repeatedly(&source)
        });
        println!("{source}: made {made} refused {refused}");
        assert!(made > 0 && refused > 0, "control: both were met");
    }
}

fn plant_sources(tree: &Path) {
    for (name, content) in [
        ("free/file", "harmless"),
        ("locked/file", "secret"),
        (".env", "secret"),
    ] {
        fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
        fs::write(tree.join(name), content).unwrap();
    }
}

const SOURCES: Setup = Setup {
    hide: &[".env"],
    protect: &["locked/file"],
    limits: &[],
};

#[test]
fn a_link_names_the_file_that_was_judged_when_its_source_is_exchanged_meanwhile() {
    let outcome = fenced("swapped-source", &SOURCES, plant_sources);
    for name in ["locked/file", ".env"] {
        assert_eq!(
            fs::metadata(outcome.tree.join(name)).unwrap().nlink(),
            1,
            "{name}"
        );
    }
}

fn swapped_by_host(_: &Path) {
    let (made, refused) = link_repeatedly("way");
    println!("made {made} refused {refused}");
    assert!(made > 0 && refused > 0, "control: both were met");
    fs::write("over", "").unwrap();
}

#[test]
fn a_link_names_the_file_that_was_judged_when_another_process_exchanges_its_name() {
    let host = std::cell::RefCell::new(None);
    let outcome = fenced("swapped-by-host", &SOURCES, |tree| {
        plant_sources(tree);
        symlink("free/file", tree.join("way")).unwrap();
        let tree = tree.to_path_buf();
        // Not behind this guard: another run in the same directory, or the host.
        *host.borrow_mut() = Some(std::thread::spawn(move || {
            let over = || tree.join("over").exists() || !tree.exists();
            while !over() {
                for target in ["locked/file", "free/file", ".env", "free/file"] {
                    if symlink(target, tree.join("next")).is_ok() {
                        drop(fs::rename(tree.join("next"), tree.join("way")));
                    }
                }
            }
        }));
    });
    host.take().unwrap().join().unwrap();
    for name in ["locked/file", ".env"] {
        assert_eq!(
            fs::metadata(outcome.tree.join(name)).unwrap().nlink(),
            1,
            "{name}"
        );
    }
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
    // A safe handler runs between two steps of the interpreter; any other may run in the middle of its allocator.
    let script = "use POSIX; use Time::HiRes qw(setitimer ITIMER_REAL); \
        my $act = POSIX::SigAction->new(sub { $n++ }, POSIX::SigSet->new, SA_RESTART); $act->safe(1); \
        sigaction(SIGALRM, $act); \
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
