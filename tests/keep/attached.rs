//! Whoever sits at a run: sees the same bytes, never slows it down, and leaves it running.
use crate::kept::{Kept, SOON, verb};
use crate::support::{Lab, bastle, eventually, for_each_identity};
use rustix::pty::OpenptFlags;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

/// A viewer with pipes.
fn viewer(kept: &Kept<'_>, flags: &[&str]) -> Child {
    let mut command = kept.lab.command(bastle());
    command.arg("attach").args(flags).arg(&kept.name);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("can be started")
}

#[test]
fn everybody_attached_sees_the_same_bytes_and_one_who_does_not_read_slows_nobody() {
    for_each_identity(|lab| {
        let kept = Kept::start(
            lab,
            &["--net", "none"],
            "echo ready; until [ -e go ]; do sleep 0.02; done\nhead -c 8000000 /dev/zero | tr '\\0' 'x'; echo; echo end\n",
        );
        // It never reads a byte.
        let lazy = kept.connect(r#"{"op":"attach","since":0,"input":false}"#);
        let viewers = [
            viewer(&kept, &["--replay", "--no-input"]),
            viewer(&kept, &["--replay", "--no-input"]),
        ];
        // Both see it before it goes on: one that comes when the run is over has nobody to ask.
        let shown: Vec<_> = viewers
            .into_iter()
            .map(|mut viewer| {
                let mut stdout = viewer.stdout.take().expect("a pipe");
                let mut first = [0; 6];
                stdout.read_exact(&mut first).expect("it is shown something");
                assert_eq!(&first, b"ready\n");
                std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    stdout.read_to_end(&mut bytes).expect("a pipe");
                    (bytes, viewer.wait().expect("ends"))
                })
            })
            .collect();
        lab.project("go", "");
        assert_eq!(kept.wait(), 0);
        let mut expected = vec![b'x'; 8_000_000];
        expected.extend_from_slice(b"\nend\n");
        for viewer in shown {
            let (bytes, status) = viewer.join().expect("no panic");
            assert!(bytes == expected, "{} bytes came", bytes.len());
            assert_eq!(status.code(), Some(0), "the code of the run");
        }
        drop(lazy);
    });
}

#[test]
fn what_is_typed_reaches_the_agent_and_a_killed_viewer_leaves_it_running() {
    for_each_identity(|lab| {
        let kept = Kept::start(
            lab,
            &["--net", "none", "-i"],
            "while read line; do echo \"heard $line\"; done; echo over\n",
        );
        let mut first = viewer(&kept, &[]);
        let mut typed = first.stdin.take().expect("a pipe");
        typed.write_all(b"one\n").expect("it reads");
        kept.printed("heard one");
        first.kill().expect("own child");
        first.wait().expect("own child");
        drop(typed);
        assert_eq!(kept.file()["state"], "running");
        // The next one goes on, and its end of input is the agent's.
        let mut second = viewer(&kept, &["--replay"]);
        second
            .stdin
            .take()
            .expect("a pipe")
            .write_all(b"two\n")
            .expect("it reads");
        let output = second.wait_with_output().expect("ends");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "heard one\nheard two\nover\n"
        );
        assert_eq!(kept.wait(), 0);
    });
}

#[test]
fn a_run_without_open_input_and_one_who_only_looks_cannot_type() {
    for_each_identity(|lab| {
        let kept = Kept::start(lab, &["--net", "none"], "cat; echo end of input\n");
        assert_eq!(kept.wait(), 0);
        assert_eq!(kept.say(&["logs"]).stdout, "end of input\n");
        let open = Kept::start(lab, &["--net", "none", "-i"], "read line; echo \"got $line\"\n");
        let mut looks = open.connect(r#"{"op":"attach","since":0,"input":false}"#);
        looks
            .write_all(&bastle_contract::stream::frames(
                bastle_contract::stream::StreamKind::Input,
                b"sneaked in\n",
            ))
            .expect("it listens");
        let mut types = viewer(&open, &[]);
        types
            .stdin
            .take()
            .expect("a pipe")
            .write_all(b"typed\n")
            .expect("it reads");
        assert_eq!(open.wait(), 0);
        assert_eq!(open.say(&["logs"]).stdout, "got typed\n");
        types.wait().expect("own child");
    });
}

/// A terminal: its master, and its other end for a child.
fn terminal() -> (OwnedFd, OwnedFd) {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .expect("a terminal");
    rustix::pty::grantpt(&master).expect("is ours");
    rustix::pty::unlockpt(&master).expect("is ours");
    let name = rustix::pty::ptsname(&master, Vec::new()).expect("has a name");
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).expect("can be opened");
    (master, slave)
}

#[test]
fn the_keys_that_leave_leave_a_terminal_as_it_was_and_the_run_running() {
    for_each_identity(|lab: &Lab| {
        let kept = Kept::start(
            lab,
            &["--net", "none", "-t"],
            "stty -echo; echo up; while read line; do echo \"heard $line $(stty size)\"; done\n",
        );
        kept.printed("up");
        let (master, slave) = terminal();
        let size = rustix::termios::Winsize {
            ws_row: 33,
            ws_col: 111,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&slave, size).expect("is a terminal");
        let before = rustix::termios::tcgetattr(&slave).expect("is a terminal");
        let mut command = lab.command(bastle());
        command.args(["attach", &kept.name]);
        let mut child = command
            .stdin(slave.try_clone().expect("can be copied"))
            .stdout(slave.try_clone().expect("can be copied"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("can be started");
        let raw = || {
            let now = rustix::termios::tcgetattr(&slave).expect("is a terminal");
            !now.local_modes.contains(rustix::termios::LocalModes::ICANON)
        };
        assert!(eventually(SOON, raw), "control: the terminal is raw meanwhile");
        let mut keys = std::fs::File::from(master);
        keys.write_all(b"hello\r").expect("it reads");
        kept.printed("heard hello 33 111");
        keys.write_all(b"\x1dd").expect("it reads");
        let mut said = String::new();
        child
            .stderr
            .take()
            .expect("a pipe")
            .read_to_string(&mut said)
            .expect("text");
        assert_eq!(child.wait().expect("own child").code(), Some(0), "{said}");
        assert!(said.contains("left"), "{said}");
        let after = rustix::termios::tcgetattr(&slave).expect("is a terminal");
        assert_eq!(after.local_modes, before.local_modes, "the terminal is as it was");
        assert_eq!(kept.file()["state"], "running");
        assert!(verb(lab, &["ps"]).stdout.contains(&kept.name));
    });
}
