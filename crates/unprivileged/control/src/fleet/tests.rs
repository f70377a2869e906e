//! The fleet with a keeper that is played by this very program: it takes the lock, tells states, and ends when the gate
//! is opened. The holder is a whole process with a fleet in it, so that it can be killed at every point.
mod conversations;
mod crash;
mod holding;
mod inherited;
mod judging;

use super::*;
use crate::runs::RunDir;
use bastle_contract::runs::RunState;
use rustix::fs::FlockOperation;
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// How long anything may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A state directory, a project, and the program that plays the keeper.
struct Stage {
    home: tempfile::TempDir,
    gate: Option<File>,
}

impl Stage {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path();
        std::fs::create_dir_all(path.join("project/.git")).unwrap();
        let script = format!(
            "#!/bin/sh\nBASTLE_TEST_STATE=\"$2\" BASTLE_TEST_NAME=\"$3\" exec {} --exact {} --nocapture\n",
            std::env::current_exe().unwrap().display(),
            "fleet::tests::keeper_double",
        );
        let program = path.join("keeper");
        // Written by another process: a descriptor that is open for writing here could be inherited by a fork of a
        // test beside this one, and the kernel would refuse to execute the file.
        let made = std::process::Command::new("sh")
            .args([
                "-c",
                "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"",
                "sh",
                &script,
            ])
            .arg(&program)
            .status();
        assert!(made.unwrap().success());
        assert_eq!(program.metadata().unwrap().permissions().mode() & 0o111, 0o111);
        File::create(path.join("gate")).unwrap();
        Self { home, gate: None }
    }

    fn state(&self) -> std::path::PathBuf {
        self.home.path().join("state")
    }

    fn project(&self) -> String {
        let path = self.home.path().join("project").canonicalize().unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// From now on keepers wait until the gate is opened.
    fn shut(&mut self) {
        let gate = File::options()
            .write(true)
            .open(self.home.path().join("gate"))
            .unwrap();
        rustix::fs::flock(&gate, FlockOperation::LockExclusive).unwrap();
        self.gate = Some(gate);
    }

    fn options(&self) -> FleetOptions {
        let roots = json!({ "roots": [self.home.path()] });
        FleetOptions {
            ceiling: serde_json::from_value(roots).unwrap(),
            program: Some(self.home.path().join("keeper")),
            ..FleetOptions::new(self.state())
        }
    }

    fn fleet(&self) -> Fleet {
        Fleet::open(self.options()).unwrap()
    }

    fn request(&self, count: usize) -> SpawnRequest {
        let one = RunRequest {
            argv: vec!["true".to_owned()],
            workspace: self.project(),
            ..RunRequest::default()
        };
        SpawnRequest {
            runs: vec![one; count],
            ..SpawnRequest::default()
        }
    }

    /// Names whose keepers began, one for each beginning.
    fn begun(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.state().join("begun")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn owner() -> Caller {
    Caller::owner(0)
}

fn names(report: &BatchReport) -> Vec<RunId> {
    report.runs.iter().filter_map(|run| run.name.clone()).collect()
}

/// Waits until something is so.
fn until(fleet: &Fleet, what: &str, is_so: impl Fn(&Fleet) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = fleet.inner.changes();
        if is_so(fleet) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "waited too long: {what}; trouble: {:?}",
            fleet.inner.last_trouble()
        );
        fleet.inner.wait_for_change(seen, Duration::from_millis(500));
    }
}

fn state_of(fleet: &Fleet, name: &RunId) -> RunState {
    fleet.run(name).unwrap().state
}

fn all_ended(fleet: &Fleet, names: &[RunId]) -> bool {
    names.iter().all(|name| state_of(fleet, name).is_final()) && fleet.health().living == 0
}

/// Whether nothing lives and nothing waits, at one moment.
fn idle(fleet: &Fleet) -> bool {
    let health = fleet.health();
    health.store && health.living + health.queued == 0
}

/// Plays the keeper when it is started as one; else there is nothing to test.
#[test]
fn keeper_double() {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(state), Some(name)) = (variable("BASTLE_TEST_STATE"), variable("BASTLE_TEST_NAME")) else {
        return;
    };
    let state = std::path::PathBuf::from(state);
    let dir = RunDir::open(&state, &RunId::try_from(name.clone()).unwrap()).unwrap();
    let Some(_lock) = dir.lock().unwrap() else {
        return;
    };
    let mut file = dir.file().unwrap();
    if file.state != RunState::Queued {
        return;
    }
    let mut begun = File::options()
        .create(true)
        .append(true)
        .open(state.join("begun"))
        .unwrap();
    begun.write_all(format!("{name}\n").as_bytes()).unwrap();
    let mut events = dir.events().unwrap();
    let mut tell = |state: RunState| {
        events
            .append("state", json!({"state": state, "reason": null}))
            .unwrap();
        events.sync().unwrap();
        file.state = state;
        file.keeper = Some(std::process::id());
        if state.is_final() {
            file.code = Some(0);
            file.ended_ms = Some(words::now_ms());
        }
        dir.put(&file).unwrap();
    };
    tell(RunState::Building);
    tell(RunState::Running);
    let gate = File::open(state.parent().unwrap().join("gate")).unwrap();
    rustix::fs::flock(&gate, FlockOperation::LockShared).unwrap();
    tell(RunState::Completed);
}
