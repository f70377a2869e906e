//! A throw-away project and user for tests of verbs that start no sandbox, and the real binary run in it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // A test that cannot go on fails.
#![allow(dead_code)] // Each test binary uses its own part.

use bastle_audit::{AuditEvent, AuditWriter, Exit};
use bastle_contract::{Argv, BackendKind, DenialKind, Denied, Digest, RunId, Usage};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Far more than any of these verbs takes on a loaded machine.
const HANG: Duration = Duration::from_secs(60);

/// A home that does not exist: a place below the temporary directory would be the sandbox's own, not the user's.
pub(crate) const HOME: &str = "/nonexistent/someone";

/// One throw-away place.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

/// What the binary said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        };
        std::fs::create_dir(place.workspace()).expect("a workspace");
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.path().join("project")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state/bastle")
    }

    /// Writes a file of the workspace.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.workspace().join(name);
        std::fs::create_dir_all(path.parent().expect("has a parent")).expect("can be made");
        std::fs::write(&path, bytes).expect("can be written");
        path
    }

    /// The binary with nothing of the caller's environment.
    pub(crate) fn command(&self) -> Command {
        let built = std::env::var_os("BASTLE_BIN");
        let mut command = Command::new(
            built
                .as_deref()
                .unwrap_or(OsStr::new(env!("CARGO_BIN_EXE_bastle"))),
        );
        command
            .env_clear()
            .env("HOME", HOME)
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.workspace());
        command
    }

    /// Runs the binary in the workspace.
    pub(crate) fn bastle<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Said {
        let mut command = self.command();
        command.args(arguments);
        run(&mut command)
    }

    /// Like [`Self::bastle`], for words without spaces.
    pub(crate) fn say(&self, line: &str) -> Said {
        self.bastle(line.split(' '))
    }

    /// Records a run with these denials, as `run` would.
    pub(crate) fn record(&self, run: &str, denials: &[Denied]) -> Vec<String> {
        let mut writer = self.open_log(run);
        let ids = denials
            .iter()
            .map(|denied| {
                writer
                    .append(&AuditEvent::Denied(denied.clone()))
                    .expect("can be written")
                    .uid
            })
            .collect();
        let ended = AuditEvent::Ended {
            exit: Exit::Code(0),
            usage: Usage::default(),
            reason: None,
        };
        writer.append(&ended).expect("can be written");
        writer.seal().expect("can be sealed");
        ids
    }

    /// Begins a log and records the plan.
    pub(crate) fn open_log(&self, run: &str) -> AuditWriter {
        std::fs::create_dir_all(self.state()).expect("can be made");
        let run = RunId::try_from(run.to_owned()).expect("a run id");
        let mut writer = AuditWriter::create(&self.state(), &run).expect("a log");
        let digest = Digest::try_from("0".repeat(64)).expect("a digest");
        let planned = AuditEvent::RunPlanned {
            policy: digest.clone(),
            plan: digest,
            argv: Argv::try_from(vec!["true".to_owned()]).expect("a command"),
            backend: BackendKind::Native,
            waivers: Vec::new(),
            effective: Value::Null,
        };
        writer.append(&planned).expect("can be written");
        writer
    }
}

/// A denial of writing `target`.
pub(crate) fn denied(target: &str) -> Denied {
    Denied {
        kind: DenialKind::Write,
        operation: "openat".to_owned(),
        target: target.to_owned(),
        rule: "read-only mount".to_owned(),
        errno: "EROFS".to_owned(),
        pid: 7,
        comm: "touch".to_owned(),
    }
}

/// Runs a command to its end; one that hangs is killed and fails the test.
pub(crate) fn run(command: &mut Command) -> Said {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(HANG) {
        Ok(output) => {
            let output = output.expect("it can be waited for");
            Said {
                code: output.status.code().expect("not killed"),
                out: String::from_utf8(output.stdout).expect("output is UTF-8"),
                err: String::from_utf8(output.stderr).expect("output is UTF-8"),
            }
        }
        Err(_) => {
            let killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            panic!("{command:?} hangs; killed: {killed:?}");
        }
    }
}

impl Said {
    /// The one JSON object on standard output.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the exit code and gives what was said.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

/// Validates the output of a verb against its checked-in schema.
#[track_caller]
pub(crate) fn follows_schema(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let name = value["schema"]
        .as_str()
        .and_then(|name| name.strip_prefix("bastle.")?.strip_suffix("/v1"))
        .expect("a schema name");
    let path = format!(
        "{}/crates/unprivileged/cli/schemas/{name}.schema.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}")))
            .unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|error| format!("{error} at {}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:?}\n{text}");
}
