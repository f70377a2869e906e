//! What comes in is checked before anything is done: names, workspaces, and the frames of the spawner's socket.
//!
//! The spawner is the part that may be root: it is fed here as a hijacked control would feed it. Whatever it gets,
//! it refuses or ends; it never hangs and never makes anything.
#![allow(clippy::expect_used, clippy::panic)] // Helpers of tests fail by panicking.

#[path = "support/mod.rs"]
mod support;

use bastle_contract::{FromSpawner, MAX_FRAME, MAX_PLAN, ToSpawner, WIRE_VERSION, socket};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{MemfdFlags, SealFlags};
use serde_json::{Value, json};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;
use support::{Ended, Lab, Limit, bastle, for_each_identity, run};

/// A spawner and the socket to it, past its greeting.
struct Spawner {
    child: Child,
    line: OwnedFd,
}

/// Which descriptors come with a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handed {
    Everything,
    PlanOnly,
    Nothing,
    StreamMissing,
}

/// Whether the plan can still be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seal {
    Sealed,
    Open,
}

impl Spawner {
    fn start(lab: &Lab) -> Self {
        let (ours, theirs) = socket::pair().expect("a socket pair");
        let mut command = lab.command(bastle());
        command
            .arg("__spawner")
            .env_clear()
            .current_dir("/")
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("the spawner can be started");
        drop(command);
        let spawner = Self { child, line: ours };
        match spawner.receive() {
            Some(FromSpawner::Hello {
                version: WIRE_VERSION,
                ..
            }) => spawner,
            other => panic!("no greeting: {other:?}"),
        }
    }

    /// Its next word; `None` when it has gone. Never waits for ever.
    fn receive(&self) -> Option<FromSpawner> {
        let mut waiting = [PollFd::new(&self.line, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: 30,
            tv_nsec: 0,
        };
        let ready = rustix::event::poll(&mut waiting, Some(&patience)).expect("can wait");
        assert_eq!(ready, 1, "the spawner hangs");
        match socket::receive::<FromSpawner>(&self.line) {
            Ok(received) => received.map(|(frame, _)| frame),
            // It went away with bytes of ours unread.
            Err(_) => None,
        }
    }

    fn send(&self, bytes: &[u8]) {
        // Larger than the socket's buffer is refused here already: the spawner never sees it.
        let sent = rustix::net::send(&self.line, bytes, rustix::net::SendFlags::NOSIGNAL);
        assert!(
            sent.is_ok() || sent == Err(rustix::io::Errno::MSGSIZE),
            "{sent:?}"
        );
    }

    fn launch(&self, frame: &ToSpawner, plan: &[u8], handed: Handed, seal: Seal) -> Option<OwnedFd> {
        let document = memory(plan, seal);
        let (events, theirs) = socket::pair().expect("a socket pair");
        let null = std::fs::File::open("/dev/null").expect("is there");
        let streams = [null.as_fd(), null.as_fd(), null.as_fd()];
        let all: Vec<BorrowedFd<'_>> = [document.as_fd(), theirs.as_fd()]
            .into_iter()
            .chain(streams)
            .collect();
        let count = match handed {
            Handed::Everything => 5,
            Handed::StreamMissing => 4,
            Handed::PlanOnly => 1,
            Handed::Nothing => 0,
        };
        socket::send(&self.line, frame, &all[..count]).expect("can be sent");
        Some(events)
    }

    /// Its end, after the line was closed.
    fn end(self) -> ExitStatus {
        let Self { mut child, line } = self;
        drop(line);
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        for _ in 0..3000 {
            if let Some(status) = child.try_wait().expect("own child") {
                return status;
            }
            rustix::event::poll(&mut [], Some(&pause)).expect("can wait");
        }
        child.kill().expect("own child");
        panic!("the spawner hangs");
    }
}

fn memory(bytes: &[u8], seal: Seal) -> OwnedFd {
    let fd = rustix::fs::memfd_create("plan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .expect("can be made");
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes).expect("can be written");
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).expect("can be rewound");
    if seal == Seal::Sealed {
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).expect("can be sealed");
    }
    file.into()
}

const LAUNCH: ToSpawner = ToSpawner::Launch {
    version: WIRE_VERSION,
};

/// A plan that this host can carry out: the one a dry run shows.
fn plan(lab: &Lab) -> Value {
    let output = lab.fence().flags(["--dry-run-policy", "--json"]).run(["true"]);
    let shown: Value =
        serde_json::from_str(&output.ended.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    shown["plan"].clone()
}

/// Group directories whose name carries the run's.
fn groups(run: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for path in entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
        {
            if path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().ends_with(&format!("-{run}")))
            {
                found.push(path.clone());
            }
            open.push(path);
        }
    }
    found
}

#[test]
fn bytes_that_are_no_frame_are_refused() {
    for_each_identity(|lab| {
        let mut noise: Vec<Vec<u8>> = vec![
            b"{".to_vec(),
            b"null".to_vec(),
            b"[]".to_vec(),
            b"\xff\xfe\x00".to_vec(),
            b"{\"type\":\"launch\"}".to_vec(),
            b"{\"type\":\"launch\",\"version\":1,\"version\":1}".to_vec(),
            b"{\"type\":\"launch\",\"version\":1,\"extra\":1}".to_vec(),
            b"{\"type\":\"launch\",\"version\":\"1\"}".to_vec(),
            b"{\"type\":\"launch\",\"version\":99999999999999999999}".to_vec(),
            b"{\"type\":\"exec\",\"argv\":[\"id\"]}".to_vec(),
            b"{\"type\":\"kill\"}".to_vec(),
            b"{\"type\":\"freeze\"}".to_vec(),
            vec![b' '; MAX_FRAME + 1],
            vec![b'['; MAX_FRAME],
        ];
        let mut state = 0x5eed_u32;
        for length in [1, 7, 64, 1000, 60_000] {
            noise.push(
                (0..length)
                    .map(|_| {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (state >> 24) as u8
                    })
                    .collect(),
            );
        }
        for bytes in noise {
            let spawner = Spawner::start(lab);
            spawner.send(&bytes);
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
            match spawner.receive() {
                Some(FromSpawner::Refused(_)) => {}
                None => assert!(!spawner.end().success(), "{shown}: went away as if all was well"),
                other => panic!("{shown}: {other:?}"),
            }
        }
    });
}

#[test]
fn a_spawner_that_is_asked_for_nothing_ends_by_itself() {
    for_each_identity(|lab| {
        assert!(Spawner::start(lab).end().success());
    });
}

#[test]
fn a_launch_with_the_wrong_version_descriptors_or_seals_is_refused() {
    for_each_identity(|lab| {
        let plan = plan(lab);
        let run = plan["run"].as_str().expect("has a name").to_owned();
        let bytes = serde_json::to_vec(&plan).expect("is JSON");
        let large = [bytes.clone(), vec![b' '; MAX_PLAN]].concat();
        let other = ToSpawner::Launch {
            version: WIRE_VERSION + 1,
        };
        let old = ToSpawner::Launch { version: 0 };
        let cases: [(&str, &ToSpawner, &[u8], Handed, Seal); 9] = [
            ("newer version", &other, &bytes, Handed::Everything, Seal::Sealed),
            ("older version", &old, &bytes, Handed::Everything, Seal::Sealed),
            ("no descriptors", &LAUNCH, &bytes, Handed::Nothing, Seal::Sealed),
            ("no event line", &LAUNCH, &bytes, Handed::PlanOnly, Seal::Sealed),
            (
                "a stream missing",
                &LAUNCH,
                &bytes,
                Handed::StreamMissing,
                Seal::Sealed,
            ),
            ("not sealed", &LAUNCH, &bytes, Handed::Everything, Seal::Open),
            ("empty plan", &LAUNCH, b"", Handed::Everything, Seal::Sealed),
            (
                "broken plan",
                &LAUNCH,
                &bytes[..bytes.len() / 2],
                Handed::Everything,
                Seal::Sealed,
            ),
            ("large plan", &LAUNCH, &large, Handed::Everything, Seal::Sealed),
        ];
        for (what, frame, plan, handed, seal) in cases {
            let spawner = Spawner::start(lab);
            let events = spawner.launch(frame, plan, handed, seal);
            let answer = spawner.receive();
            assert!(
                matches!(answer, Some(FromSpawner::Refused(_))),
                "{what}: {answer:?}"
            );
            assert!(groups(&run).is_empty(), "{what}");
            drop((events, spawner.end()));
        }
        let spawner = Spawner::start(lab);
        let events = spawner.launch(&LAUNCH, &bytes, Handed::Everything, Seal::Sealed);
        let answer = spawner.receive();
        assert!(
            matches!(answer, Some(FromSpawner::Launched { .. })),
            "control: the plan itself: {answer:?}"
        );
        drop((events, spawner.end()));
        assert!(groups(&run).is_empty(), "control: and it is cleaned up");
    });
}

#[test]
fn a_plan_that_reaches_for_the_host_is_refused() {
    for_each_identity(|lab| {
        let good = plan(lab);
        let run = good["run"].as_str().expect("has a name").to_owned();
        let bind = |source: &str, at: &str| json!({"at": at, "kind": {"type": "bind", "source": source, "access": "read-write", "owned": true}});
        let mut bad: Vec<(String, Value)> = Vec::new();
        let mut with = |what: &str, change: &dyn Fn(&mut Value)| {
            let mut plan = good.clone();
            change(&mut plan);
            bad.push((what.to_owned(), plan));
        };
        let push =
            |plan: &mut Value, mount: Value| plan["mounts"].as_array_mut().expect("is a list").push(mount);
        for source in [
            "/", "/proc", "/sys", "/dev", "/run", "/boot", "//", "/etc/..", "/.", "/usr/../", "relative", "",
            "/tmp/\0",
        ] {
            with(&format!("bind of {source:?}"), &|plan| {
                push(plan, bind(source, "/host"))
            });
        }
        with("mount at a climbing place", &|plan| {
            push(plan, bind("/usr", "/a/../../b"))
        });
        with("backend host", &|plan| plan["backend"] = json!("host"));
        with("backend unknown", &|plan| plan["backend"] = json!("none"));
        with("network", &|plan| plan["network"] = json!("host"));
        with("unknown field", &|plan| plan["privileged"] = json!(true));
        with("run name", &|plan| plan["run"] = json!("../../x"));
        with("run name with a line end", &|plan| plan["run"] = json!("a\n"));
        with("digest", &|plan| plan["policy"] = json!("x"));
        with("no arguments", &|plan| plan["argv"] = json!([]));
        with("variable", &|plan| plan["env"] = json!([["A=B", "c"]]));
        with("limit below what can be held", &|plan| {
            plan["limits"] = json!([{"limit": "pids", "value": 0, "mechanism": "rlimit"}]);
        });
        with("too many limits", &|plan| {
            let one = json!({"limit": "pids", "value": 50, "mechanism": "rlimit"});
            plan["limits"] = Value::Array(vec![one; 40]);
        });
        for (what, plan) in bad {
            let spawner = Spawner::start(lab);
            let bytes = serde_json::to_vec(&plan).expect("is JSON");
            let events = spawner.launch(&LAUNCH, &bytes, Handed::Everything, Seal::Sealed);
            let answer = spawner.receive();
            assert!(
                matches!(answer, Some(FromSpawner::Refused(_))),
                "{what}: {answer:?}"
            );
            drop((events, spawner.end()));
            assert!(groups(&run).is_empty(), "{what}");
        }
    });
}

#[test]
fn a_second_launch_on_the_same_line_is_refused_and_the_first_goes_on() {
    for_each_identity(|lab| {
        let bytes = serde_json::to_vec(&plan(lab)).expect("is JSON");
        let spawner = Spawner::start(lab);
        let first = spawner.launch(&LAUNCH, &bytes, Handed::Everything, Seal::Sealed);
        let answer = spawner.receive();
        assert!(matches!(answer, Some(FromSpawner::Launched { .. })), "{answer:?}");
        let second = spawner.launch(&LAUNCH, &bytes, Handed::Everything, Seal::Sealed);
        let answer = spawner.receive();
        assert!(matches!(answer, Some(FromSpawner::Refused(_))), "{answer:?}");
        spawner.send(b"{\"type\":\"kill\"}");
        let answer = spawner.receive();
        assert!(matches!(answer, Some(FromSpawner::Ended { .. })), "{answer:?}");
        drop((first, second, spawner.end()));
    });
}

fn in_workspace(lab: &Lab, directory: &Path) -> Ended {
    let mut command = lab.command(bastle());
    command
        .args(["run", "--workspace-dir"])
        .arg(directory)
        .args(["--", "sh", "-c", "pwd; echo x > written"]);
    run(&mut command, b"", Limit(Duration::from_secs(60)))
}

#[test]
fn a_workspace_is_judged_by_where_it_leads_and_not_by_how_it_is_written() {
    for_each_identity(|lab| {
        let agents = lab.outside().join("agents");
        let own = lab
            .plant(&agents.join("one/file"), "")
            .parent()
            .expect("has one")
            .to_path_buf();
        let sibling = lab
            .plant(&lab.outside().join("agents-evil/file"), "")
            .parent()
            .expect("has one")
            .to_path_buf();
        for written in [
            "../../../../../../../../etc",
            "../../../../../../../..",
            "../../../home",
        ] {
            let ended = in_workspace(lab, &agents.join(written));
            assert_eq!(ended.code, 125, "{written}: {ended:?}");
            assert!(ended.stderr.contains("BST-WS-001"), "{written}: {ended:?}");
        }
        for (name, target) in [
            ("to-etc", Path::new("/etc")),
            ("to-root", Path::new("/")),
            ("to-home", &lab.home()),
            ("nowhere", Path::new("/no/such")),
        ] {
            let link = agents.join(name);
            symlink(target, &link).expect("can be made");
            let ended = in_workspace(lab, &link);
            assert_eq!(ended.code, 125, "{name}: {ended:?}");
            assert!(ended.stderr.contains("BST-WS-001"), "{name}: {ended:?}");
        }
        let file = in_workspace(lab, &own.join("file"));
        assert_eq!(file.code, 125, "a file is no workspace: {file:?}");
        let prefix = lab.fence().cwd(&own).sh(&format!(
            "ls {}; echo x > {}/pwned",
            sibling.display(),
            sibling.display()
        ));
        assert!(!sibling.join("pwned").exists(), "{prefix:?}");
        assert!(
            !prefix.ended.stdout.contains("file"),
            "a sibling with the same beginning is not in view: {prefix:?}"
        );
        let control = in_workspace(lab, &agents.join("../agents/one"));
        assert_eq!(
            (control.code, control.stdout.trim()),
            (0, own.to_str().expect("is UTF-8")),
            "control: {control:?}"
        );
        let link = agents.join("link");
        symlink(&own, &link).expect("can be made");
        let through = in_workspace(lab, &link);
        assert_eq!(
            through.stdout.trim(),
            own.to_str().expect("is UTF-8"),
            "the real place is shown: {through:?}"
        );
    });
}

#[test]
fn a_task_name_is_one_word_of_a_known_alphabet_to_its_last_byte() {
    for_each_identity(|lab| {
        let long = "a".repeat(65);
        let bad = [
            "task\n",
            "task\r",
            "task\n\n",
            "\ttask",
            "task ",
            "task\u{0085}",
            "task\u{2028}",
            "TASK",
            "task/1",
            "../task",
            "task;id",
            "$(id)",
            "１",
            "-task",
            "",
            long.as_str(),
        ];
        for name in bad {
            let mut command = lab.command(bastle());
            command.args([
                "run",
                &format!("--name={name}"),
                "--",
                "sh",
                "-c",
                "echo x > started",
            ]);
            let ended = run(&mut command, b"", Limit::HANG);
            assert_eq!(ended.code, 125, "{name:?}: {ended:?}");
            assert!(!lab.workspace().join("started").exists(), "{name:?}");
            let mut by_variable = lab.command(bastle());
            by_variable
                .env("BASTLE_NAME", name)
                .args(["run", "--", "sh", "-c", "echo x > started"]);
            if !name.is_empty() {
                assert_eq!(
                    run(&mut by_variable, b"", Limit::HANG).code,
                    125,
                    "{name:?} by variable"
                );
            }
        }
        assert!(
            !lab.home()
                .join(".local/state/bastle/audit")
                .join("..")
                .join("task")
                .exists()
        );
        let output = lab.fence().sh("echo fine");
        assert_eq!(output.said(), "fine", "control");
    });
}
