//! Everything is killed at random moments while runs come and go: the daemon, the spawner, keepers, workers and the way
//! out. What was told stays told, once; every run ends, began at most once, and leaves nothing.
use crate::daemon::Daemon;
use crate::http::{Socket, Word, unix};
use crate::killed::{place, printed};
use crate::processes::{Known, Part, began, descends, described, grow, part, run_of};
use crate::support::{Limit, bastle, eventually};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often somebody is killed, when `BASTLE_KILLS` does not say.
const KILLS: u32 = 60;
/// Runs that live at once.
const CROWD: usize = 8;
/// Sandboxes that the spawner makes ahead.
const AHEAD: usize = 1;

/// Numbers that cannot be foreseen, and can be had again with the same beginning.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// What a client was told, by its number.
type Told = Arc<Mutex<BTreeMap<u64, Value>>>;

struct Storm {
    root: PathBuf,
    dice: Dice,
    daemon: Option<Daemon>,
    spawner: Option<Child>,
    told: Told,
    listener: Option<JoinHandle<()>>,
    asked: BTreeSet<String>,
    /// Those that had not ended when somebody looked last.
    open: BTreeSet<String>,
    /// Runs that lost a process of their own, or could find no spawner.
    hit: BTreeSet<String>,
    known: Known,
    kills: BTreeMap<&'static str, u32>,
}

impl Storm {
    fn socket(&self) -> PathBuf {
        self.root.join("spawner/run.sock")
    }

    /// Everything that is to live does.
    fn raise(&mut self) {
        if rustix::process::geteuid().is_root() && self.spawner.is_none() {
            self.spawner = Some(start_spawner(&self.root, &self.socket()));
        }
        if self.daemon.is_none() {
            let socket = self.spawner.as_ref().map(|_| self.socket());
            let variables: Vec<(&str, &str)> = socket
                .iter()
                .map(|path| ("BASTLE_SPAWNER", path.to_str().unwrap()))
                .collect();
            let words = ["--max-parallel", "64"];
            let daemon = Daemon::start_with(self.root.clone(), None, &words, &variables);
            self.listener = Some(listen(&daemon, &self.told));
            self.daemon = Some(daemon);
        }
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    fn state(&self, run: &str) -> String {
        let file = self.root.join("state/bastle/runs").join(run).join("run.json");
        let text = std::fs::read(file).unwrap_or_default();
        let file: Value = serde_json::from_slice(&text).unwrap_or_default();
        file["state"].as_str().unwrap_or("queued").to_owned()
    }

    fn living(&mut self) -> Vec<String> {
        let ended = ["completed", "failed", "refused", "cancelled"];
        let mut open = std::mem::take(&mut self.open);
        open.retain(|run| !ended.contains(&self.state(run).as_str()));
        self.open = open;
        self.open.iter().cloned().collect()
    }

    /// Asks for more runs where there are few; every third has a way out.
    fn ask(&mut self) {
        if self.living().len() >= CROWD {
            return;
        }
        let wishes: Vec<Value> = (0..3)
            .map(|at| {
                let steps = self.dice.below(20);
                let script = format!("echo begun; for i in $(seq {steps}); do sleep 0.02; done; echo over");
                let net = if at == 0 { "allowlist" } else { "none" };
                json!({"argv": ["sh", "-c", script], "workspace": self.daemon().workspace(), "mode": "copy", "net": net})
            })
            .collect();
        let key = format!("storm-{}", self.asked.len());
        let wish = json!({"key": key, "prefix": "storm", "runs": wishes});
        let made = self.daemon().own("POST", "/api/v1/runs", Some(&wish));
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        for run in made.json()["runs"].as_array().unwrap() {
            let name = run["name"].as_str().unwrap().to_owned();
            self.open.insert(name.clone());
            self.asked.insert(name);
        }
    }

    /// Sees who lives.
    fn look(&mut self) {
        let mut roots = vec![self.daemon().pid()];
        roots.extend(self.spawner.as_ref().map(Child::id));
        grow(&mut self.known, &roots);
    }

    /// Kills somebody of this kind, if there is one.
    fn strike(&mut self) {
        match self.dice.below(10) {
            0..=3 => {
                let daemon = self.daemon.take().unwrap();
                daemon.signal(Signal::KILL);
                drop(daemon);
                self.listener.take().unwrap().join().unwrap();
                *self.kills.entry("daemon").or_default() += 1;
            }
            4 if self.spawner.is_some() => {
                // Whoever is not built yet may find nobody.
                let living = self.living();
                self.hit.extend(living);
                let mut spawner = self.spawner.take().unwrap();
                spawner.kill().unwrap();
                spawner.wait().unwrap();
                *self.kills.entry("spawner").or_default() += 1;
            }
            4..=5 => self.strike_part(Part::Keeper, "keeper"),
            6..=7 => self.strike_part(Part::Egress, "egress"),
            8 => self.strike_part(Part::Worker, "worker"),
            _ => self.strike_part(Part::Init, "init"),
        }
    }

    fn strike_part(&mut self, wanted: Part, name: &'static str) {
        self.look();
        let workers = self.root.join("spawner/run.d");
        let fronts: Vec<u32> = self.spawner.iter().map(Child::id).collect();
        let there: Vec<(u32, String)> = self
            .known
            .keys()
            .filter(|pid| part(**pid) == Some(wanted) && !fronts.contains(pid))
            .filter_map(|pid| Some((*pid, run_of(*pid, &workers)?)))
            .filter(|(_, run)| self.asked.contains(run))
            .collect();
        if there.is_empty() {
            return;
        }
        let (pid, run) = there[usize::try_from(self.dice.below(there.len() as u64)).unwrap()].clone();
        self.hit.insert(run);
        // It may have ended by itself since.
        if kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).is_ok() {
            *self.kills.entry(name).or_default() += 1;
        }
    }

    fn count(&self) -> u32 {
        self.kills.values().sum()
    }

    /// What the daemon answers when it does not find that too much is asked of it: there are many runs to ask about.
    fn asked_again(&self, path: &str) -> Value {
        loop {
            let answer = self.daemon().own("GET", path, None);
            if answer.status != 429 {
                assert_eq!(answer.status, 200, "{path}");
                return answer.json();
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// Every run has ended, and what is on record is what was told and what the files say.
    fn check(&mut self) {
        for run in &self.asked {
            let end = self
                .daemon()
                .until(run, &["completed", "failed", "refused", "cancelled"]);
            let begun = printed(&self.root, run).matches("begun").count();
            assert!(begun <= 1, "{run} began {begun} times");
            if !self.hit.contains(run) {
                assert_eq!((&end["state"], begun), (&json!("completed"), 1), "{run}: {end}");
            }
        }
        let listed = self.daemon().own("GET", "/api/v1/runs?limit=1000", None).json();
        if self.asked.len() < 1000 {
            assert_eq!(
                listed["items"].as_array().unwrap().len(),
                self.asked.len(),
                "a ghost"
            );
        }
        let told = self.told.lock().unwrap().clone();
        let mut stored = BTreeMap::new();
        for run in &self.asked {
            let path = format!("/api/v1/runs/{run}/events?limit=1000");
            let events = self.asked_again(&path)["items"].clone();
            let events = events.as_array().unwrap().clone();
            let own: Vec<u64> = events
                .iter()
                .filter_map(|event| event["runsequence"].as_u64())
                .collect();
            let file = self.root.join("state/bastle/runs").join(run).join("events.jsonl");
            let lines = std::fs::read_to_string(file).unwrap().lines().count() as u64;
            assert_eq!(
                own,
                (1..=lines).collect::<Vec<u64>>(),
                "{run}: one is missing or doubled"
            );
            for event in events {
                stored.insert(event["sequence"].as_str().unwrap().parse::<u64>().unwrap(), event);
            }
        }
        for (seq, event) in told.iter().filter(|(_, event)| event["subject"].is_string()) {
            assert_eq!(
                stored.get(seq),
                Some(event),
                "what was told as {seq} is not on record"
            );
        }
        assert!(!told.is_empty());
    }

    /// Nothing of any run lives, and nothing is mounted.
    fn check_nothing_is_left(&mut self) {
        let known = std::mem::take(&mut self.known);
        let spawner = self.spawner.as_ref().map(Child::id);
        let workers = self.root.join("spawner/run.d");
        // A sandbox that was made ahead waits below the spawner, in nobody's name.
        let waits = |pid: u32| spawner.is_some_and(|it| descends(pid, it)) && run_of(pid, &workers).is_none();
        let left = || -> Vec<u32> {
            let alive = known
                .iter()
                .filter(|(pid, since)| began(**pid).as_ref() == Some(since));
            alive
                .map(|(pid, _)| *pid)
                .filter(|pid| {
                    run_of(*pid, &workers).is_some()
                        || matches!(part(*pid), Some(Part::Init | Part::Egress)) && !waits(*pid)
                })
                .collect()
        };
        let ahead = || {
            let inits = known.keys().filter(|pid| part(**pid) == Some(Part::Init));
            inits.filter(|pid| waits(**pid)).count()
        };
        assert!(
            eventually(Limit::HANG, || left().is_empty() && ahead() <= AHEAD),
            "{} wait, and {:?} live on",
            ahead(),
            left().into_iter().map(described).collect::<Vec<String>>()
        );
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(self.root.to_str().unwrap()), "{mounts}");
    }
}

/// Reads events until the daemon is gone.
fn listen(daemon: &Daemon, told: &Told) -> JoinHandle<()> {
    let since = told.lock().unwrap().last_key_value().map_or(0, |(seq, _)| *seq);
    let path = format!("/api/v1/ws?since={since}");
    // Connected before anybody can be killed: the answer is not waited for here.
    let stream = unix(&daemon.socket);
    let told = Arc::clone(told);
    std::thread::spawn(move || {
        let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Socket::open(Box::new(stream), &path, &[("host", "localhost")])
        }));
        // Killed before it answered.
        let Ok(Ok(mut socket)) = opened else { return };
        while let Word::Text(text) = socket.next() {
            let event: Value = serde_json::from_str(&text).unwrap();
            let seq = event["sequence"].as_str().unwrap().parse().unwrap();
            let before = told.lock().unwrap().insert(seq, event);
            assert_eq!(before, None, "{seq} was told twice");
        }
    })
}

fn start_spawner(root: &Path, socket: &Path) -> Child {
    let place = root.join("spawner");
    drop(std::fs::create_dir(&place));
    let ceiling = json!({
        "version": 1, "max_workers": 256,
        "callers": [{"uid": 0, "roots": ["/"], "max_workers": 256, "rate": {"per_second": 1000, "burst": 1000}}],
    });
    std::fs::write(place.join("ceiling.json"), ceiling.to_string()).unwrap();
    let mut child = Command::new(bastle())
        .env_clear()
        .args(["spawner", "--warm", &AHEAD.to_string(), "--socket"])
        .arg(socket)
        .arg("--ceiling")
        .arg(place.join("ceiling.json"))
        .arg("--state")
        .arg(place.join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let address = SocketAddrUnix::new(socket).unwrap();
    let id = child.id();
    let answers = || {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        // The front of one that was killed a moment ago may still answer: who listens is asked of the kernel.
        rustix::net::connect(&socket, &address).is_ok()
            && rustix::net::sockopt::socket_peercred(&socket)
                .is_ok_and(|peer| peer.pid.as_raw_nonzero().get().cast_unsigned() == id)
    };
    let up = eventually(Limit::HANG, answers);
    assert!(
        up,
        "the spawner does not come up: {:?}",
        child.try_wait().expect("own child")
    );
    child
}

impl Drop for Storm {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            drop(daemon);
        }
        if let Some(mut spawner) = self.spawner.take() {
            drop(spawner.kill());
            drop(spawner.wait());
        }
        // Only after a failure: a keeper takes everything of its run with it.
        grow(&mut self.known, &[]);
        for pid in self.known.keys().filter(|pid| part(**pid) == Some(Part::Keeper)) {
            // One that is gone by now is what was wished for.
            kill_process(Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap(), Signal::KILL)
                .unwrap_or_default();
        }
    }
}

#[test]
fn whoever_is_killed_at_random_moments_under_load_no_run_is_lost_doubled_or_left_behind() {
    let wanted: u32 = std::env::var("BASTLE_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let (root, _dir) = place();
    let seed = u64::from(std::process::id()) * 0x9e37_79b9 + 1;
    eprintln!("begins with {seed}");
    let mut storm = Storm {
        root,
        dice: Dice(seed),
        daemon: None,
        spawner: None,
        told: Told::default(),
        listener: None,
        asked: BTreeSet::new(),
        open: BTreeSet::new(),
        hit: BTreeSet::new(),
        known: Known::new(),
        kills: BTreeMap::new(),
    };
    while storm.count() < wanted {
        storm.raise();
        storm.ask();
        storm.look();
        // The moment is what is random here.
        std::thread::park_timeout(Duration::from_millis(storm.dice.below(80)));
        storm.strike();
    }
    storm.raise();
    storm.check();
    let spared = storm.asked.len() - storm.hit.len();
    eprintln!(
        "{:?}: {} runs, {spared} untouched, {} events told",
        storm.kills,
        storm.asked.len(),
        storm.told.lock().unwrap().len()
    );
    storm.check_nothing_is_left();
}
