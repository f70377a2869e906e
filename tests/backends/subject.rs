//! A backend under test, with a throw-away project, home and state directory.
use crate::support::{Identity, Lab, bastle};
use bastle_contract::runs::LaunchSpec;
use bastle_contract::{Argv, Code, Fault, RunId};
use bastle_control::backend::{ExecRequest, HostBackend, IsolationBackend, NativeBackend, Sandbox};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// One backend, and what it has.
pub(crate) struct Subject {
    pub(crate) backend: Box<dyn IsolationBackend>,
    /// Whether it builds sandboxes at all.
    pub(crate) builds: bool,
    /// Whether they have a tree of their own; then how it is asked for.
    pub(crate) mode: Option<&'static str>,
    pub(crate) lab: Lab,
}

/// Every backend, in every way that it works with a project.
pub(crate) fn all() -> Vec<Subject> {
    let mut subjects: Vec<Subject> = [Some("copy"), Some("overlay"), None]
        .into_iter()
        .map(native)
        .collect();
    subjects.push(Subject {
        backend: Box::new(HostBackend),
        builds: false,
        mode: None,
        lab: lab(),
    });
    subjects
}

/// Those that build sandboxes.
pub(crate) fn building() -> Vec<Subject> {
    all().into_iter().filter(|subject| subject.builds).collect()
}

fn lab() -> Lab {
    let identity = if rustix::process::geteuid().is_root() {
        Identity::Root
    } else {
        Identity::Current
    };
    let lab = Lab::new(identity);
    lab.project("a.txt", "as it was\n");
    lab
}

fn native(mode: Option<&'static str>) -> Subject {
    let lab = lab();
    // The keeper of these runs is bastle with the home directory of the test.
    let keeper = lab.tools().join("keeper");
    let line = format!(
        "#!/bin/sh\nexec env -u XDG_STATE_HOME -u XDG_CONFIG_HOME -u XDG_RUNTIME_DIR HOME={} {} \"$@\"\n",
        lab.home().display(),
        bastle().display()
    );
    std::fs::write(&keeper, line).expect("can be written");
    std::fs::set_permissions(&keeper, std::fs::Permissions::from_mode(0o755)).expect("own file");
    let state = lab.home().join(".local/state/bastle");
    Subject {
        backend: Box::new(NativeBackend::new(&state).with_program(&keeper)),
        builds: true,
        mode,
        lab,
    }
}

impl Subject {
    /// A request for a shell script.
    pub(crate) fn request(&self, name: &str, script: &str) -> LaunchSpec {
        let file = self.lab.tools().join(format!("{name}.sh"));
        std::fs::write(&file, script).expect("can be written");
        serde_json::from_value(json!({
            "name": name,
            "argv": ["sh", file],
            "workspace": self.lab.workspace(),
            "mode": self.mode.unwrap_or("in-place"),
            "share_workspace": true,
            "net": "none",
            "policy": {"version": 1, "fs": {"read": [self.lab.tools()]}},
        }))
        .expect("is a request")
    }

    /// A sandbox that lives until it is destroyed.
    pub(crate) fn lives(&self) -> Box<dyn Sandbox> {
        self.runs("exec sleep 100000\n")
    }

    /// A sandbox that runs a script.
    pub(crate) fn runs(&self, script: &str) -> Box<dyn Sandbox> {
        let request = self.request(fresh().as_str(), script);
        self.backend
            .create(&request)
            .unwrap_or_else(|faults| panic!("{}: {faults:#?}", self.shown()))
    }

    pub(crate) fn shown(&self) -> String {
        format!(
            "{:?} in {}",
            self.backend.name(),
            self.mode.unwrap_or("the project itself")
        )
    }

    /// Where the project's files lie.
    pub(crate) fn project(&self) -> PathBuf {
        self.lab.workspace()
    }
}

impl Drop for Subject {
    /// Nothing lives longer than its test.
    fn drop(&mut self) {
        for one in self.backend.destroy_all().unwrap_or_default() {
            if let Err(faults) = one.outcome
                && faults.iter().any(|fault| fault.code == Code::FenceLost)
            {
                eprintln!("{} stays behind: {faults:?}", one.id);
            }
        }
    }
}

/// A name that no other sandbox has.
pub(crate) fn fresh() -> RunId {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    RunId::try_from(format!("b{pid}-{count}")).expect("is a name")
}

/// A further command.
pub(crate) fn command(words: &[&str]) -> ExecRequest {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    ExecRequest {
        argv: Argv::try_from(words).expect("is a command"),
        env: Vec::new(),
        cwd: None,
        tty: None,
        timeout: None,
    }
}

/// What a shell line inside prints.
pub(crate) fn sh(sandbox: &dyn Sandbox, line: &str) -> String {
    let printed = sandbox
        .exec(&command(&["sh", "-c", line]))
        .unwrap_or_else(|faults| panic!("{line}: {faults:#?}"));
    assert_eq!(printed.finished.code, 0, "{line}: {printed:?}");
    String::from_utf8(printed.output).expect("is text")
}

/// The codes of a refusal.
pub(crate) fn codes(faults: &[Fault]) -> Vec<Code> {
    faults.iter().map(|fault| fault.code).collect()
}
