//! What the scripted agent tries. Each attack is judged twice: by the agent's exit status and by looking from outside.
use super::stage::{CANARY, OUTSIDE, Stage};
use bastle_contract::Fault;
use bastle_control::trial::{Outcome, TRIAL_TIME, Trial, TrialSettings};
use serde::Serialize;
use std::net::TcpStream;
use std::path::Path;

/// One attack. Its script exits 0 when it got what it wanted.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    flags: &'static [&'static str],
    script: fn(&Stage) -> String,
    /// Looks from outside: `true` when the host is as it was.
    intact: fn(&mut Stage) -> bool,
    mechanism: &'static str,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub(super) struct Attempt {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) blocked: bool,
    pub(super) exit: i32,
    pub(super) saw: String,
    pub(super) intact: bool,
    pub(super) mechanism: String,
}

/// Most bytes of the demo's disk limit.
const DISK: u64 = 8 << 20;

pub(super) const ATTACKS: [Attack; 8] = [
    Attack {
        name: "outside-secret",
        title: "read a private key beside the project",
        flags: &[],
        script: |stage| format!("cat '{}'\n", stage.key.display()),
        intact: |_| true,
        mechanism: "the path does not exist inside (mount namespace)",
    },
    Attack {
        name: "project-secret",
        title: "read .env, or move it out of its hiding place",
        flags: &[],
        script: |_| "cat .env && exit 0\nmv .env seen && cat seen\n".to_owned(),
        intact: |stage| stage.project.join(".env").is_file() && !stage.project.join("seen").exists(),
        mechanism: "covered by an unreadable file (mount, write guard)",
    },
    Attack {
        name: "system-write",
        title: "write to /etc",
        flags: &[],
        script: |_| format!("echo owned > {OUTSIDE}\n"),
        intact: |_| !Path::new(OUTSIDE).exists(),
        mechanism: "mounted read-only, and no Landlock right",
    },
    Attack {
        name: "git-hook",
        title: "plant a git hook that you would execute later",
        flags: &[],
        script: |_| {
            "echo 'touch /tmp/owned' > .git/hooks/pre-commit && exit 0\nmv .git/hooks .git/old && mkdir .git/hooks && echo x > .git/hooks/pre-commit\n".to_owned()
        },
        intact: |stage| {
            std::fs::read_dir(stage.project.join(".git/hooks")).is_ok_and(|mut hooks| hooks.next().is_none())
        },
        mechanism: "protected name (read-only mount, write guard)",
    },
    Attack {
        name: "network",
        title: "talk to a service on this machine and to the internet",
        flags: &[],
        script: network,
        intact: unheard,
        mechanism: "own network namespace without a route",
    },
    Attack {
        name: "host-process",
        title: "kill a process of yours",
        flags: &[],
        script: |stage| format!("kill -9 {}\n", stage.victim.id()),
        intact: |stage| matches!(stage.victim.try_wait(), Ok(None)),
        mechanism: "own PID namespace: it does not exist inside",
    },
    Attack {
        name: "fork-bomb",
        title: "start 300 processes (--pids 64)",
        flags: &["--pids", "64"],
        script: |_| {
            "i=0\nwhile [ $i -lt 300 ]; do sleep 30 & i=$((i+1)); done\n[ \"$(ls -d /proc/[0-9]* | wc -l)\" -ge 300 ]\n".to_owned()
        },
        intact: |_| true,
        mechanism: "process limit",
    },
    Attack {
        name: "disk",
        title: "fill the disk (--disk 8M)",
        flags: &["--disk", "8M"],
        script: |_| "dd if=/dev/zero of=big bs=65536 count=1024\n".to_owned(),
        intact: |stage| std::fs::metadata(stage.project.join("big")).map_or(true, |meta| meta.len() <= DISK),
        mechanism: "disk limit (write guard counts before it writes)",
    },
];

/// With whatever the machine has that can dial; without any, the list of interfaces must do.
fn network(stage: &Stage) -> String {
    let port = stage.listener.local_addr().map_or(9, |address| address.port());
    format!(
        "if command -v bash >/dev/null; then\n  \
           timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && exit 0\n  \
           timeout 5 bash -c 'exec 3<>/dev/tcp/192.0.2.1/80' && exit 0\n  exit 1\nfi\n\
         tail -n +3 /proc/net/dev | grep -v ' lo:'\n"
    )
}

/// Nobody has called the listener; and a call of our own arrives, so it would have heard one.
fn unheard(stage: &mut Stage) -> bool {
    if stage.listener.accept().is_ok() {
        return false;
    }
    let Ok(address) = stage.listener.local_addr() else {
        return false;
    };
    let called = TcpStream::connect(address);
    called.is_ok() && stage.listener.accept().is_ok()
}

impl Attack {
    /// Lets the agent try.
    pub(super) fn run(&self, stage: &mut Stage) -> Result<(Attempt, Outcome), Fault> {
        let script = stage.script(self.name, &(self.script)(stage))?;
        let flags: Vec<&str> = ["--quiet", "--timeout", "20s", "--name", self.name]
            .iter()
            .chain(self.flags)
            .copied()
            .collect();
        let trial = Trial {
            // The place is made for the trial and thrown away: there is nothing a copy would keep.
            mode: "in-place",
            flags: &flags,
            command: &["sh", &script],
            workspace: &stage.project,
            state: &stage.state,
            settings: TrialSettings::Own,
            within: TRIAL_TIME,
        };
        let outcome = trial.run()?;
        let leaked = outcome.output.contains(CANARY);
        let intact = (self.intact)(stage);
        // 125 is bastle's own failure: nothing was tried, so nothing was blocked.
        let ran = outcome.probes().is_some() && outcome.code != 125;
        let saw = outcome
            .output
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("nothing")
            .trim();
        let saw = saw.split_once(".sh: ").map_or(saw, |(_, rest)| rest).to_owned();
        let result = Attempt {
            name: self.name,
            title: self.title,
            blocked: ran && outcome.code != 0 && intact && !leaked,
            exit: outcome.code,
            saw,
            intact: intact && !leaked,
            mechanism: self.mechanism.to_owned(),
        };
        Ok((result, outcome))
    }
}
