//! Trying a real run in a throw-away place, the way a person would: this binary, started again.
use bastle_contract::{Code, Fault};
use serde_json::Value;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory of our own, gone with this value.
pub(crate) struct Scratch(PathBuf);

/// A run in it.
pub(crate) struct Trial<'a> {
    /// Flags of `run`.
    pub(crate) flags: &'a [&'a str],
    /// What is run.
    pub(crate) command: &'a [&'a str],
    /// The workspace.
    pub(crate) workspace: &'a Path,
    /// Where the audit log goes.
    pub(crate) state: &'a Path,
}

/// What came of it.
pub(crate) struct Outcome {
    /// Exit code; 128+n for a signal.
    pub(crate) code: i32,
    /// The object of `--json`, or the error in its place.
    pub(crate) json: Value,
    /// What the command printed, and bastle's own words.
    pub(crate) output: String,
}

impl Scratch {
    /// Makes it below the temporary directory.
    pub(crate) fn make() -> Result<Self, Fault> {
        let fault = |error: std::io::Error| {
            Fault::new(
                Code::StateDir,
                "cannot make a throw-away directory",
                error.to_string(),
            )
        };
        let name = bastle_control::new_run_id()?;
        let base = std::fs::canonicalize(std::env::temp_dir()).map_err(fault)?;
        let path = base.join(format!("bastle-{name}"));
        // Not recursive: a directory that is there already belongs to somebody else.
        DirBuilder::new().mode(0o700).create(&path).map_err(fault)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a directory in it.
    pub(crate) fn dir(&self, name: &str) -> Result<PathBuf, Fault> {
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
    pub(crate) fn run(&self) -> Result<Outcome, Fault> {
        let fault =
            |error: std::io::Error| Fault::new(Code::FenceLost, "cannot start bastle", error.to_string());
        let mut command = Command::new("/proc/self/exe");
        command
            // The place is made for the trial and thrown away: there is nothing a copy would keep.
            .args(["run", "--json", "--workspace", "in-place"])
            .args(self.flags)
            .arg("--workspace-dir")
            .arg(self.workspace)
            .arg("--")
            .args(self.command);
        // What the person set for their own runs must not decide this one.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"BASTLE_"))
        {
            command.env_remove(name);
        }
        command
            .env("XDG_STATE_HOME", self.state)
            .env("NO_COLOR", "1")
            .current_dir(self.workspace)
            .stdin(Stdio::null());
        Ok(Outcome::read(&command.output().map_err(fault)?))
    }
}

impl Outcome {
    fn read(output: &Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let code = output
            .status
            .code()
            .unwrap_or_else(|| 128 + output.status.signal().unwrap_or_default());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // A run that did not start prints its fault as one line of JSON among the errors.
        let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
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
    pub(crate) fn probes(&self) -> Option<usize> {
        self.json["statement"]["probes"].as_array().map(Vec::len)
    }

    /// Code, what and why of the failure, when it did not.
    pub(crate) fn fault(&self) -> Option<(String, String, String)> {
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
