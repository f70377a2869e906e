//! A throw-away place for one identity: home, workspace, a directory outside, and the attacker where the agent can run it.
use super::child::{Background, Ended, Limit, run};
use super::host::text;
use super::{Identity, attacker, bastle};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The place. Everything in it belongs to the identity, except `tools`.
pub(crate) struct Lab {
    /// Who works here.
    pub(crate) identity: Identity,
    root: PathBuf,
    shares: Cell<bool>,
}

/// One `bastle run` under construction.
pub(crate) struct Fence<'a> {
    lab: &'a Lab,
    binary: PathBuf,
    flags: Vec<String>,
    env: BTreeMap<String, String>,
    input: Vec<u8>,
    cwd: PathBuf,
    limit: Limit,
    name: String,
}

/// What became of it.
pub(crate) struct Output {
    /// Exit code, streams, time.
    pub(crate) ended: Ended,
    /// The events of the run's audit log, oldest first; empty when there is no log.
    pub(crate) audit: Vec<Value>,
}

impl Lab {
    /// Makes it.
    pub(crate) fn new(identity: Identity) -> Self {
        let place = std::env::temp_dir()
            .canonicalize()
            .expect("there is a place for temporary files");
        Self::below(&place, identity)
    }

    /// Makes it below a directory that is there.
    pub(crate) fn below(place: &Path, identity: Identity) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let root = loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let root = place.join(format!("bastle-lab-{}-{count}", std::process::id()));
            match std::fs::create_dir(&root) {
                Ok(()) => break root,
                // Of a killed process that had this one's number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("a fresh place: {error}"),
            }
        };
        let lab = Self {
            identity,
            root,
            shares: Cell::new(false),
        };
        lab.open_to_all(&lab.root);
        for place in [lab.home(), lab.workspace(), lab.outside()] {
            std::fs::create_dir(&place).expect("a fresh place");
            lab.hand_over(&place);
        }
        let tools = lab.root.join("tools");
        std::fs::create_dir(&tools).expect("a fresh place");
        std::fs::copy(attacker(), lab.attacker()).expect("the attacker can be copied");
        lab.open_to_all(&tools);
        lab.open_to_all(&lab.attacker());
        lab
    }

    /// The home directory.
    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// The workspace.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.root.join("ws")
    }

    /// A directory of the same owner that no policy grants.
    pub(crate) fn outside(&self) -> PathBuf {
        self.root.join("outside")
    }

    /// A directory that holds the attacker; granted for reading.
    pub(crate) fn tools(&self) -> PathBuf {
        self.root.join("tools")
    }

    /// The attacker's path, the same inside and outside.
    pub(crate) fn attacker(&self) -> PathBuf {
        self.tools().join("attacker")
    }

    /// Writes a file of the identity's own, with the directories above it.
    pub(crate) fn plant(&self, path: &Path, contents: &str) -> PathBuf {
        let path = self.root.join(path);
        let mut missing: Vec<&Path> = path.ancestors().skip(1).take_while(|dir| !dir.exists()).collect();
        while let Some(directory) = missing.pop() {
            std::fs::create_dir(directory).expect("can be made");
            self.hand_over(directory);
        }
        std::fs::write(&path, contents).expect("can be written");
        self.hand_over(&path);
        path
    }

    /// A file of the workspace.
    pub(crate) fn project(&self, relative: &str, contents: &str) -> PathBuf {
        self.plant(&self.workspace().join(relative), contents)
    }

    /// Gives a path to the identity.
    pub(crate) fn hand_over(&self, path: &Path) {
        let uid = self.identity.uid();
        if self.identity != Identity::Current {
            chown(path, Some(uid), Some(uid)).expect("root can give files away");
        }
    }

    fn open_to_all(&self, path: &Path) {
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("own file");
    }

    /// A command run as the identity, with a minimal environment, in the workspace.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.workspace());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", self.home());
        if self.shares.get() {
            command.env("BASTLE_SHARE_WORKSPACE", "1");
        }
        if let Identity::Ordinary(uid) = self.identity {
            // Also drops every supplementary group.
            command.uid(uid).gid(uid);
        }
        command
    }

    /// From here on runs start although another one writes the workspace.
    pub(crate) fn share(&self) {
        self.shares.set(true);
    }

    /// The attacker without a fence, as the same identity: what an attack comes to when nothing stops it.
    pub(crate) fn unfenced(&self, attacks: &[&[&str]]) -> Vec<String> {
        let mut command = self.command(&self.attacker());
        command.args(multi(attacks));
        results(&run(&mut command, b"", Limit::HANG), attacks)
    }

    /// A run with the tools granted.
    pub(crate) fn fence(&self) -> Fence<'_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Fence {
            lab: self,
            binary: bastle().to_path_buf(),
            flags: vec!["--ro".to_owned(), text(&self.tools()).to_owned()],
            env: BTreeMap::new(),
            input: Vec::new(),
            cwd: self.workspace(),
            limit: Limit::HANG,
            name: format!(
                "t{}-{}",
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            ),
        }
    }

    /// Attacks inside the default fence, one result each.
    pub(crate) fn fenced(&self, attacks: &[&[&str]]) -> Vec<String> {
        self.fence().attack(attacks).0
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.root) {
            eprintln!("{} stays behind: {error}", self.root.display());
        }
    }
}

impl Fence<'_> {
    /// Adds words before the command.
    pub(crate) fn flags<I: IntoIterator<Item = S>, S: AsRef<str>>(mut self, flags: I) -> Self {
        self.flags
            .extend(flags.into_iter().map(|flag| flag.as_ref().to_owned()));
        self
    }

    /// Adds a variable to the environment bastle is started with.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Standard input.
    pub(crate) fn input(mut self, bytes: &[u8]) -> Self {
        self.input = bytes.to_vec();
        self
    }

    /// Where bastle is started.
    pub(crate) fn cwd(mut self, directory: &Path) -> Self {
        self.cwd = directory.to_path_buf();
        self
    }

    /// Another binary than the shipped one.
    pub(crate) fn binary(mut self, binary: &Path) -> Self {
        self.binary = binary.to_path_buf();
        self
    }

    /// Another limit for the whole.
    pub(crate) fn within(mut self, limit: Limit) -> Self {
        self.limit = limit;
        self
    }

    /// The name of the run.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The whole command line, for those who start it in their own way.
    pub(crate) fn command<I: IntoIterator<Item = S>, S: AsRef<str>>(&self, command: I) -> Command {
        let mut line = self.lab.command(&self.binary);
        line.current_dir(&self.cwd).envs(&self.env).arg("run");
        line.args(["--name", &self.name]).args(&self.flags);
        if self.is_make_believe() {
            line.args(["--workspace", "in-place"]);
        }
        line.arg("--");
        line.args(command.into_iter().map(|word| word.as_ref().to_owned()));
        line
    }

    /// Whether the project has a `.git` that is no repository: tests of single names in it work in place, since
    /// nothing can be copied from it.
    fn is_make_believe(&self) -> bool {
        let git = self.cwd.join(".git");
        git.is_dir() && !git.join("objects").exists() && !self.flags.iter().any(|flag| flag == "--workspace")
    }

    /// Runs a command.
    pub(crate) fn run<I: IntoIterator<Item = S>, S: AsRef<str>>(self, command: I) -> Output {
        let ended = run(&mut self.command(command), &self.input, self.limit);
        Output {
            ended,
            audit: self.audit(),
        }
    }

    /// Runs a shell script, from a file: what the command rules think of its text is not the matter here.
    pub(crate) fn sh(self, script: &str) -> Output {
        let file = self.script(script);
        self.run(["sh", &file])
    }

    /// A shell script that goes on while the test does other things.
    pub(crate) fn sh_beside(&self, script: &str) -> Background {
        let file = self.script(script);
        Background::start(&mut self.command(["sh", &file]))
    }

    fn script(&self, script: &str) -> String {
        let file = self.lab.tools().join(format!("{}.sh", self.name));
        std::fs::write(&file, script).expect("can be written");
        self.lab.open_to_all(&file);
        text(&file).to_owned()
    }

    /// Runs attacks, one result each: `OK` when it succeeded, else the errno's name.
    pub(crate) fn attack(self, attacks: &[&[&str]]) -> (Vec<String>, Output) {
        let attacker = text(&self.lab.attacker()).to_owned();
        let mut line = vec![attacker];
        line.extend(multi(attacks));
        let output = self.run(line);
        (results(&output.ended, attacks), output)
    }

    /// The run's audit events so far.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let state = self
            .env
            .get("XDG_STATE_HOME")
            .map_or_else(|| self.lab.home().join(".local/state"), PathBuf::from);
        let log = state.join("bastle/audit").join(&self.name).join("log.jsonl");
        let lines = std::fs::read_to_string(log).unwrap_or_default();
        lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap_or(Value::Null))
            // A line that is no record shows as an event without a type.
            .map(|record| record["unmapped"]["bastle"].clone())
            .collect()
    }
}

impl Output {
    /// The audit events of one type.
    pub(crate) fn events(&self, kind: &str) -> Vec<&Value> {
        self.audit.iter().filter(|event| event["type"] == kind).collect()
    }

    /// Denials of an operation that name the target.
    pub(crate) fn denials(&self, target: &str) -> Vec<&Value> {
        let mut denials = self.events("denied");
        denials.retain(|event| event["target"] == target);
        denials
    }

    /// Standard output, trimmed.
    pub(crate) fn said(&self) -> &str {
        self.ended.stdout.trim()
    }
}

impl fmt::Debug for Output {
    /// Without the two long records every run begins with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let long = ["run-planned", "statement", "opened", "checkpoint", "sealed"];
        let short = |event: &&Value| !long.iter().any(|kind| event["type"] == **kind);
        write!(f, "{:#?}", self.ended)?;
        for event in self.audit.iter().filter(short) {
            write!(f, "\n  audit: {event}")?;
        }
        Ok(())
    }
}

fn multi(attacks: &[&[&str]]) -> Vec<String> {
    let mut words = vec!["multi".to_owned()];
    for attack in attacks {
        words.push(",".to_owned());
        words.extend(attack.iter().map(|word| (*word).to_owned()));
    }
    words
}

fn results(ended: &Ended, attacks: &[&[&str]]) -> Vec<String> {
    let lines: Vec<String> = ended.stdout.lines().map(str::to_owned).collect();
    assert_eq!(
        lines.len(),
        attacks.len(),
        "the attacker did not finish: {ended:?}"
    );
    lines
}
