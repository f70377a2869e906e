//! A run in the background for one test: ended and forgotten when dropped, also when the test fails.
use crate::support::{Ended, Lab, Limit, bastle, eventually, run};
use serde_json::Value;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// How soon something that needs no waiting must be seen on a loaded machine.
pub(crate) const SOON: Limit = Limit::HANG;

/// The run.
pub(crate) struct Kept<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) name: String,
}

/// A name that no other run has.
pub(crate) fn fresh() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(
        "k{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

/// A number of seconds that no other process has on its command line, nor a part of its own.
pub(crate) fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    format!("9{pid:07}{count:04}")
}

/// A verb of the binary.
pub(crate) fn verb(lab: &Lab, words: &[&str]) -> Ended {
    let mut command = lab.command(bastle());
    command.args(words);
    run(&mut command, b"", Limit::HANG)
}

/// A script as a file that every identity can read; the words that run it.
pub(crate) fn script(lab: &Lab, name: &str, text: &str) -> Vec<String> {
    let file = lab.tools().join(format!("{name}.sh"));
    std::fs::write(&file, text).expect("can be written");
    vec!["sh".to_owned(), file.display().to_string()]
}

impl<'a> Kept<'a> {
    /// Starts a shell script in the background.
    pub(crate) fn start(lab: &'a Lab, flags: &[&str], text: &str) -> Self {
        let (kept, ended) = Self::attempt(lab, flags, text);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(ended.stdout.trim(), kept.name, "the name is all that is printed");
        kept
    }

    /// The same, whatever comes of it.
    pub(crate) fn attempt(lab: &'a Lab, flags: &[&str], text: &str) -> (Self, Ended) {
        let name = fresh();
        let words = script(lab, &name, text);
        let tools = lab.tools().display().to_string();
        let mut line = vec!["run", "-d", "--name", &name, "--ro", &tools];
        line.extend(flags);
        line.push("--");
        line.extend(words.iter().map(String::as_str));
        let ended = verb(lab, &line);
        (Self { lab, name }, ended)
    }

    /// Says something about it.
    pub(crate) fn say(&self, words: &[&str]) -> Ended {
        let mut line = words.to_vec();
        line.push(&self.name);
        verb(self.lab, &line)
    }

    /// The state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.lab.home().join(".local/state/bastle")
    }

    /// Its directory.
    pub(crate) fn directory(&self) -> PathBuf {
        self.state().join("runs").join(&self.name)
    }

    /// Its `run.json`.
    pub(crate) fn file(&self) -> Value {
        let text = std::fs::read_to_string(self.directory().join("run.json")).expect("is there");
        serde_json::from_str(&text).expect("is JSON")
    }

    /// Its events.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.directory().join("events.jsonl")).unwrap_or_default();
        let events: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("is JSON"))
            .collect();
        for (at, event) in events.iter().enumerate() {
            assert_eq!(event["seq"], at + 1, "numbers have no gap: {text}");
        }
        events
    }

    /// The states it was in.
    pub(crate) fn states(&self) -> Vec<String> {
        self.events()
            .iter()
            .filter(|event| event["kind"] == "state")
            .map(|event| event["data"]["state"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Waits for its end; the exit code.
    pub(crate) fn wait(&self) -> i32 {
        self.say(&["wait"]).code
    }

    /// Waits until it printed this.
    pub(crate) fn printed(&self, text: &str) {
        let seen = eventually(SOON, || self.say(&["logs"]).stdout.contains(text));
        assert!(seen, "{text:?} was never printed: {:?}", self.say(&["logs"]));
    }

    /// The path of its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.state().join("live").join(format!("{}.sock", self.name))
    }

    /// A connection to its socket with one line said.
    pub(crate) fn connect(&self, line: &str) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).expect("it lives");
        stream
            .write_all(format!("{line}\n").as_bytes())
            .expect("it listens");
        stream.set_read_timeout(Some(SOON.0)).expect("can be set");
        stream
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        // One that has ended or was never started needs no end.
        let ended = self.say(&["kill"]);
        if ended.code != 0 && !ended.stderr.contains("no run in the background") {
            eprintln!("{} may still run: {ended:?}", self.name);
        }
    }
}

/// Processes of the host whose command line holds `mark`, this one and its kind aside.
pub(crate) fn alive(mark: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("there is a /proc");
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let line = std::fs::read(path.join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(mark).then(|| format!("{}: {line}", path.display()))
        })
        .collect()
}
