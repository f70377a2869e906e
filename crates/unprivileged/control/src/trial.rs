//! A real run in a throw-away directory: this binary, started again, as `bastle doctor`, `bastle demo` and the daemon's
//! containment probe do it.
//!
//! **Trust:** what the trial prints is parsed as data of bounded size; it runs with the rights of the caller.
use bastle_contract::spawner::SOCKET_VARIABLE;
use bastle_contract::{Code, Fault};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags};
use serde_json::Value;
use std::fs::{DirBuilder, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Most that is read of what a trial prints.
const MOST_OUTPUT: u64 = 4 << 20;
/// Variables of ours that a trial keeps: they say which spawner builds the fence.
const KEPT: &[&str] = &[
    SOCKET_VARIABLE,
    #[cfg(feature = "test-hooks")]
    "BASTLE_TEST_WITHOUT",
    #[cfg(feature = "test-hooks")]
    "BASTLE_TEST_LANDLOCK",
];

/// A directory of our own, gone with this value.
pub struct Scratch(PathBuf);

/// A run in it.
pub struct Trial<'a> {
    /// The mode of its workspace.
    pub mode: &'a str,
    /// Flags of `run`.
    pub flags: &'a [&'a str],
    /// What is run.
    pub command: &'a [&'a str],
    /// The workspace.
    pub workspace: &'a Path,
    /// Where the audit log goes.
    pub state: &'a Path,
    /// Whose settings it reads.
    pub settings: TrialSettings<'a>,
    /// After this it is killed.
    pub within: Duration,
}

/// Whose settings a trial reads.
#[derive(Clone, Copy, Debug)]
pub enum TrialSettings<'a> {
    /// The person's own.
    Own,
    /// Those in this directory, instead of the person's.
    In(&'a Path),
}

/// Long enough for a trial that somebody waits for.
pub const TRIAL_TIME: Duration = Duration::from_secs(120);

/// What came of it.
pub struct Outcome {
    /// Exit code; 128+n for a signal.
    pub code: i32,
    /// The object of `--json`, or the error in its place.
    pub json: Value,
    /// What the command printed, and bastle's own words.
    pub output: String,
}

impl Scratch {
    /// Makes it below the temporary directory.
    pub fn make() -> Result<Self, Fault> {
        Self::make_in(&std::env::temp_dir())
    }

    /// Makes it below another directory.
    pub fn make_in(base: &Path) -> Result<Self, Fault> {
        let fault = |error: std::io::Error| {
            Fault::new(
                Code::StateDir,
                "cannot make a throw-away directory",
                error.to_string(),
            )
        };
        let name = crate::new_run_id()?;
        let base = std::fs::canonicalize(base).map_err(fault)?;
        let path = base.join(format!("bastle-{name}"));
        // Not recursive: a directory that is there already belongs to somebody else.
        DirBuilder::new().mode(0o700).create(&path).map_err(fault)?;
        Ok(Self(path))
    }

    /// The directory of the trial.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a directory in it.
    pub fn dir(&self, name: &str) -> Result<PathBuf, Fault> {
        let path = self.0.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| {
            Fault::new(
                Code::StateDir,
                format!("cannot make {}", path.display()),
                error.to_string(),
            )
        })?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary directory.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl Trial<'_> {
    /// Runs it to its end.
    pub fn run(&self) -> Result<Outcome, Fault> {
        let fault =
            |error: std::io::Error| Fault::new(Code::FenceLost, "cannot start bastle", error.to_string());
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["run", "--json", "--workspace", self.mode])
            .args(self.flags)
            .arg("--workspace-dir")
            .arg(self.workspace)
            .arg("--")
            .args(self.command);
        // What the person set for their own runs must not decide this one; which spawner builds the fence must.
        for (name, _) in std::env::vars_os() {
            let ours = name.as_encoded_bytes().starts_with(b"BASTLE_");
            if ours && !KEPT.iter().any(|kept| name == *kept) {
                command.env_remove(name);
            }
        }
        if let TrialSettings::In(directory) = self.settings {
            command.env("XDG_CONFIG_HOME", directory);
        }
        let memory = |name: &str| {
            let made = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC);
            made.map(File::from).map_err(|error| fault(error.into()))
        };
        let (output, errors) = (memory("trial-out")?, memory("trial-err")?);
        let mut child = command
            .env("XDG_STATE_HOME", self.state)
            .env("NO_COLOR", "1")
            .current_dir(self.workspace)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(fault)?)
            .stderr(errors.try_clone().map_err(fault)?)
            .spawn()
            .map_err(fault)?;
        let in_time = ended_within(&child, self.within);
        if !in_time {
            // Killing control ends the spawner, init and every process of the run.
            child.kill().map_err(fault)?;
        }
        let status = child.wait().map_err(fault)?;
        if !in_time {
            return Err(Fault::new(
                Code::FenceLost,
                "the trial run did not end",
                format!("it was killed after {} s", self.within.as_secs()),
            ));
        }
        Ok(Outcome::read(status, &read(output)?, &read(errors)?))
    }
}

/// Waits for its end through a descriptor of the process; one that cannot be had is waited for without a limit.
fn ended_within(child: &std::process::Child, within: Duration) -> bool {
    let Ok(process) = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return true;
    };
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let mut polled = [PollFd::new(&process, PollFlags::IN)];
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(0) => return false,
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return true,
        }
    }
}

fn read(mut file: File) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.take(MOST_OUTPUT).read_to_end(&mut bytes))
        .map_err(|error| Fault::new(Code::FenceLost, "cannot read the trial run", error.to_string()))?;
    Ok(bytes)
}

impl Outcome {
    fn read(status: ExitStatus, output: &[u8], errors: &[u8]) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        let errors = String::from_utf8_lossy(errors).into_owned();
        // A run that did not start prints its fault as one line of JSON among the errors.
        let json = serde_json::from_slice(output).unwrap_or_else(|_| {
            errors
                .lines()
                .find_map(|line| serde_json::from_str::<Value>(line).ok().filter(Value::is_object))
                .unwrap_or(Value::Null)
        });
        Self {
            code,
            json,
            output: errors,
        }
    }

    /// The statement's number of probes, when the run started.
    pub fn probes(&self) -> Option<usize> {
        self.json["statement"]["probes"].as_array().map(Vec::len)
    }

    /// Code, what and why of the failure, when it did not.
    pub fn fault(&self) -> Option<(String, String, String)> {
        let fault = if self.json["schema"] == "bastle.error/v1" {
            &self.json
        } else {
            &self.json["fault"]
        };
        let text = |key: &str| fault[key].as_str().unwrap_or_default().to_owned();
        fault
            .is_object()
            .then(|| (text("code"), text("what"), text("why")))
    }
}
