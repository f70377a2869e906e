//! The daemon under measurement in a place of its own: started, weighed, ended, and nothing of it left.
use super::api::{Api, Event, Events};
use crate::sh::{self, Failed};
use crate::test::stage::Stage;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Starting with a large store on a busy machine, with room.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long a state may be waited for, or nothing may change while runs end.
const STATE_LIMIT: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// The word by which the mother of keepers is known.
const MOTHER_VERB: &[u8] = b"__bear";

/// Ends what is left when whoever measures is gone, however it went: ^C, a closed terminal, a kill. Runs outlive the daemon by
/// design, so nobody else would. First in order, so that control groups go too; then by force, and only our copy of the binary.
const SWEEP: &str = r#"
cat >/dev/null
ours() { find /proc -maxdepth 2 -name exe -lname "$1/bastle" 2>/dev/null | cut -d/ -f3; }
for p in $(ours "$1"); do
    case $(cat "/proc/$p/comm" 2>/dev/null) in bastle-init|bastle-spawner) ;; *) kill -TERM "$p" 2>/dev/null ;; esac
done
for again in $(seq 60); do
    [ -n "$(ours "$1")" ] || break
    [ "$again" -lt 40 ] || kill -KILL $(ours "$1") 2>/dev/null
    sleep 0.5
done
rm -rf "$1"
"#;

/// Everything the measurement needs.
pub(super) struct Ground {
    stage: Stage,
    sweeper: Child,
    bastle: PathBuf,
    next: Cell<u32>,
}

/// A living daemon; killed when dropped.
pub(super) struct Daemon<'a> {
    ground: &'a Ground,
    child: Child,
    /// From the start of the process to its first answer.
    pub(super) ready: Duration,
}

impl Ground {
    pub(super) fn new(bastle: &Path, runs: u32) -> Result<Self, Failed> {
        let stage = Stage::new("bench-daemon")?;
        let sweeper = Command::new("sh")
            .args(["-c", SWEEP, "sweep"])
            .arg(stage.path())
            // ^C at a terminal goes to the whole group, and this one is for afterwards.
            .process_group(0)
            .stdin(Stdio::piped())
            .spawn()
            .map_err(Failed::io("sh"))?;
        let ground = Self {
            bastle: stage.put(bastle, "bastle")?,
            stage,
            sweeper,
            next: Cell::new(0),
        };
        for name in ["state", "run", "projects"] {
            let path = ground.path(name);
            std::fs::create_dir(&path).map_err(Failed::io(path.display()))?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o700))
                .map_err(Failed::io(path.display()))?;
        }
        // The limits of a daemon that strangers reach would be what is measured.
        let settings = json!({ "max_parallel": (runs + 200).min(10_000), "requests_per_second": 1_000_000, "desktop": false });
        let path = ground.path("serve.json");
        std::fs::write(&path, settings.to_string()).map_err(Failed::io(path.display()))?;
        Ok(ground)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.stage.path().join(name)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path("api.sock")
    }

    /// Starts the daemon and waits for its first answer.
    pub(super) fn start(&self) -> Result<Daemon<'_>, Failed> {
        let log = self.path("serve.log");
        let file = std::fs::File::create(&log).map_err(Failed::io(log.display()))?;
        let started = Instant::now();
        let mut child = Command::new(&self.bastle)
            .args(["serve", "--no-listen", "--socket"])
            .arg(self.socket())
            .arg("--config")
            .arg(self.path("serve.json"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("BASTLE_SPAWNER", "")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(Failed::io("bastle serve"))?;
        while started.elapsed() < START_LIMIT {
            if let Some(status) = child.try_wait().map_err(Failed::io("bastle serve"))? {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(Failed::new("bastle serve", format!("{status}: {said}")));
            }
            let answer =
                Api::connect(&self.socket()).and_then(|mut api| api.ask("GET", "/api/v1/version", None));
            if answer.is_ok() {
                let ready = started.elapsed();
                return Ok(Daemon {
                    ground: self,
                    child,
                    ready,
                });
            }
            std::thread::park_timeout(LOOK_AGAIN);
        }
        let ended = child.kill().and_then(|()| child.wait());
        Err(Failed::new(
            "bastle serve",
            format!("no answer within {} s ({ended:?})", START_LIMIT.as_secs()),
        ))
    }

    /// A request for one run of `command` in a place of its own: two in one place would wait for each other.
    pub(super) fn wish(&self, command: &str) -> Result<Value, Failed> {
        self.next.set(self.next.get() + 1);
        let place = self.path("projects").join(self.next.get().to_string());
        std::fs::create_dir(&place).map_err(Failed::io(place.display()))?;
        Ok(json!({
            "argv": ["sh", "-c", command],
            "workspace": place,
            "mode": "in-place",
            "net": "none",
            "timeout": "2h",
        }))
    }

    /// PSS in KiB of our own processes by kind: the daemon, and everything else of the same binary.
    pub(super) fn weigh(&self, daemon: u32) -> Result<(f64, f64), Failed> {
        let (mut own, mut others) = (0.0, 0.0);
        for pid in self.processes()? {
            let kib = pss_kib(pid).unwrap_or(0.0);
            if pid == daemon {
                own += kib;
            } else {
                others += kib;
            }
        }
        Ok((own, others))
    }

    /// Descriptors of the daemon, and mounts and control groups of the machine.
    pub(super) fn count(&self, daemon: u32) -> Result<[(&'static str, f64); 3], Failed> {
        let entries = |path: String| {
            std::fs::read_dir(&path)
                .map(|entries| entries.count() as f64)
                .map_err(Failed::io(path))
        };
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(Failed::io("mountinfo"))?;
        let groups =
            sh::stdout_of(Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-name", "*bastle*"]))?;
        Ok([
            ("daemon_descriptors", entries(format!("/proc/{daemon}/fd"))?),
            ("mounts", mounts.lines().count() as f64),
            ("cgroups", groups.lines().count() as f64),
        ])
    }

    /// How many processes are of runs: neither the daemon nor the mother of keepers, which is there before and after them.
    fn kept(&self, daemon: u32) -> Result<usize, Failed> {
        let is_mother = |pid: &u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) == Some(MOTHER_VERB)
        };
        let all = self.processes()?;
        Ok(all
            .iter()
            .filter(|pid| **pid != daemon && !is_mother(pid))
            .count())
    }

    /// Processes that run our copy of the binary.
    fn processes(&self) -> Result<Vec<u32>, Failed> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").map_err(Failed::io("/proc"))? {
            let entry = entry.map_err(Failed::io("/proc"))?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A process may end between the two looks.
            if std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == self.bastle) {
                found.push(pid);
            }
        }
        Ok(found)
    }

    /// Fills the store with events of a run that never was, while no daemon has it open.
    pub(super) fn fill(&self, events: u64) -> Result<(), Failed> {
        let store = find_store(&self.path("state"))?;
        let script = format!(
            "import sqlite3, sys\n\
             c = sqlite3.connect(sys.argv[1])\n\
             d = '{{\"kind\":\"write\",\"operation\":\"openat\",\"target\":\"/etc/passwd\",\"rule\":\"read-only\",\"errno\":\"EROFS\"}}'\n\
             c.executemany(\"insert into events(run, run_seq, time_ms, kind, data) values ('bench-filler', ?, 1, 'denied', ?)\", \
             ((n, d) for n in range(1, {events} + 1)))\n\
             c.commit()\n"
        );
        sh::stdout_of(Command::new("python3").args(["-c", &script]).arg(store)).map(drop)
    }
}

impl Daemon<'_> {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it in order; runs live on.
    pub(super) fn stop(mut self) -> Result<(), Failed> {
        sh::stdout_of(Command::new("kill").args(["-TERM", &self.child.id().to_string()]))?;
        let started = Instant::now();
        while started.elapsed() < START_LIMIT {
            if self
                .child
                .try_wait()
                .map_err(Failed::io("bastle serve"))?
                .is_some()
            {
                return Ok(());
            }
            std::thread::park_timeout(LOOK_AGAIN);
        }
        Err(Failed::new("bastle serve", "it does not end"))
    }

    /// Ends every run and waits until nothing of them is left, for as long as they become fewer.
    pub(super) fn clear(&self) -> Result<(), Failed> {
        Api::connect(&self.ground.socket())?.ask(
            "POST",
            "/api/v1/stop",
            Some(&json!({ "all": true, "kill": true })),
        )?;
        let (mut fewest, mut since) = (usize::MAX, Instant::now());
        while since.elapsed() < STATE_LIMIT {
            let left = self.ground.kept(self.pid())?;
            if left == 0 {
                return Ok(());
            }
            if left < fewest {
                (fewest, since) = (left, Instant::now());
            }
            std::thread::park_timeout(LOOK_AGAIN * 50);
        }
        let why = format!("{fewest} processes of runs stay after they were killed");
        Err(Failed::new("bench daemon", why))
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // Ended in order already, or a measurement failed.
        if matches!(self.child.try_wait(), Ok(None))
            && let Err(error) = self.child.kill().and_then(|()| self.child.wait())
        {
            eprintln!("xtask: bastle serve stays behind: {error}");
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // After a failure keepers may live; each ends its sandbox with itself. By number, and only our copy of the binary.
        for pid in self.processes().unwrap_or_default() {
            if let Err(failed) = sh::stdout_of(Command::new("kill").args(["-KILL", &pid.to_string()])) {
                eprintln!("xtask: {failed}");
            }
        }
        // Its word to look, and to go: there is nothing left for it.
        drop(self.sweeper.stdin.take());
        if let Err(error) = self.sweeper.wait() {
            eprintln!("xtask: {error}");
        }
    }
}

/// What the stream of events says, by a thread that only reads.
pub(super) struct Heard {
    events: Receiver<Event>,
    states: BTreeMap<String, BTreeMap<String, Instant>>,
    closer: std::os::unix::net::UnixStream,
}

impl Heard {
    pub(super) fn listen(ground: &Ground, since: u64) -> Result<Self, Failed> {
        let mut stream = Events::open(&ground.socket(), since)?;
        let closer = stream.closer()?;
        let (sender, events) = mpsc::channel();
        std::thread::spawn(move || {
            while let Ok(Some(event)) = stream.next() {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            events,
            states: BTreeMap::new(),
            closer,
        })
    }

    /// The next event within the limit.
    pub(super) fn next(&mut self, limit: Duration) -> Option<Event> {
        self.events.recv_timeout(limit).ok()
    }

    /// When the run was said to be in the state; waits for it.
    pub(super) fn when(&mut self, run: &str, state: &str) -> Result<Instant, Failed> {
        let deadline = Instant::now() + STATE_LIMIT;
        loop {
            let states = self.states.get(run);
            if let Some(at) = states.and_then(|states| states.get(state)) {
                return Ok(*at);
            }
            if let Some(end) = states.and_then(|states| {
                ["failed", "refused", "cancelled", "completed"]
                    .iter()
                    .find(|end| states.contains_key(**end))
            }) {
                return Err(Failed::new(run, format!("it is {end} and was never {state}")));
            }
            match self
                .events
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(event) => {
                    if let Some((run, state)) = event.state() {
                        self.states
                            .entry(run.to_owned())
                            .or_default()
                            .entry(state.to_owned())
                            .or_insert(event.at);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let known: Vec<&String> = states.into_iter().flat_map(BTreeMap::keys).collect();
                    return Err(Failed::new(
                        run,
                        format!("it was not {state} in time, only {known:?}"),
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failed::new("events", "the stream is over"));
                }
            }
        }
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        // Ends the thread that reads; a stream that is over already is as good.
        drop(self.closer.shutdown(std::net::Shutdown::Both));
    }
}

fn find_store(state: &Path) -> Result<PathBuf, Failed> {
    let found =
        sh::stdout_of(
            Command::new("find")
                .arg(state)
                .args(["-name", "*.db", "-o", "-name", "*.sqlite*"]),
        )?;
    found
        .lines()
        .find(|line| !line.ends_with("-wal") && !line.ends_with("-shm"))
        .map(PathBuf::from)
        .ok_or_else(|| Failed::new(state.display().to_string(), "there is no store"))
}

fn pss_kib(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}
