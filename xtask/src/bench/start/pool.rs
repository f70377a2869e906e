//! A spawner daemon with workers that wait, and clients that launch one plan by it again and again.
use super::{Launch, Place, timings};
use crate::sh::{self, Failed};
use crate::test::stage::Stage;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// How long the daemon may take to serve, and a client to plan.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than the daemon waits before it makes up for workers that were used: nobody else's time is taken by that.
const REFILLED: Duration = Duration::from_millis(40);
/// Longer than it takes to build as many sandboxes as one round of launches at once takes.
const STAND_AGAIN: Duration = Duration::from_millis(600);

/// Whose daemon it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// The system's, as it is installed: root's, for callers that its ceiling names.
    BySystem,
    /// The caller's own.
    ByThemselves,
}

impl Served {
    /// How many sandboxes wait: some, and for many launches at once as many as there can be.
    fn warm(self) -> &'static str {
        match self {
            Self::BySystem => "8",
            Self::ByThemselves => "64",
        }
    }
}

/// The daemon; ends with this value.
pub(super) struct Pool<'a> {
    place: &'a Place,
    bastle: PathBuf,
    socket: PathBuf,
    daemon: Child,
    /// Where the socket is: in memory, as `/run` is where a daemon is installed.
    _memory: Stage,
}

/// A client that has its plan and waits for the word.
pub(super) struct Client {
    child: Child,
    word: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl<'a> Pool<'a> {
    /// Starts the daemon for whoever calls, and waits until it serves. Who is not root has no other than their own.
    pub(super) fn start(place: &'a Place, bastle: &Path, served: Served) -> Result<Self, Failed> {
        let (root, uid) = (place.stage.path(), place.who.uid());
        let memory = Stage::in_memory("bench-run")?;
        let state = match served {
            Served::BySystem => root.join("system-state"),
            Served::ByThemselves => {
                place.who.owns(memory.path())?;
                root.join("spawner-state")
            }
        };
        let ceiling = json!({ "version": 1, "max_workers": 256, "callers": [{
            "uid": uid, "roots": ["/"], "max_workers": 256, "rate": { "per_second": 10_000, "burst": 10_000 },
        }] });
        let ceiling = place.write("ceiling.json", &ceiling.to_string())?;
        let (socket, told) = (
            memory.path().join("spawner.sock"),
            memory.path().join("notify.sock"),
        );
        let notify = UnixDatagram::bind(&told).map_err(Failed::io(told.display()))?;
        place.who.owns(&told)?;
        notify
            .set_read_timeout(Some(PATIENCE))
            .map_err(Failed::io(told.display()))?;
        let mut daemon = Command::new(bastle);
        daemon
            .args(["spawner", "--warm", served.warm(), "--socket"])
            .arg(&socket)
            .arg("--ceiling")
            .arg(&ceiling)
            .arg("--state")
            .arg(&state)
            .env("NOTIFY_SOCKET", &told)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let daemon = match served {
            Served::BySystem => &mut daemon,
            Served::ByThemselves => &mut place.who.start(daemon),
        };
        let daemon = daemon.spawn().map_err(Failed::io("bastle spawner"))?;
        let pool = Self {
            place,
            _memory: memory,
            bastle: bastle.to_path_buf(),
            socket,
            daemon,
        };
        let mut word = [0; 64];
        notify
            .recv(&mut word)
            .map_err(Failed::io("the spawner daemon is not ready"))?;
        if served == Served::BySystem {
            // In place of a group: the ceiling says who may ask.
            let open = std::fs::Permissions::from_mode(0o666);
            std::fs::set_permissions(&pool.socket, open).map_err(Failed::io(pool.socket.display()))?;
        }
        // Once before anything is measured: a pool that cannot launch has a reason, and no time.
        pool.launch_once().map(|_| pool)
    }

    /// A client with a plan.
    pub(super) fn client(&self, count: usize) -> Result<Client, Failed> {
        let count = count.to_string();
        let arguments = [
            "__bench-spawner",
            "--same-plan",
            "--count",
            &count,
            "--",
            "./true",
        ];
        let mut command = self.place.bastle(&self.bastle, &arguments)();
        let mut child = command
            .env("BASTLE_SPAWNER", &self.socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(Failed::io("bastle __bench-spawner"))?;
        let lost = || Failed::new("bastle __bench-spawner", "it has no streams");
        let word = child.stdin.take().ok_or_else(lost)?;
        let said = child.stdout.take().ok_or_else(lost)?;
        let mut client = Client {
            child,
            word,
            said: BufReader::new(said),
        };
        let mut ready = String::new();
        client
            .said
            .read_line(&mut ready)
            .map_err(Failed::io("bastle __bench-spawner"))?;
        if ready.contains("ready") {
            Ok(client)
        } else {
            Err(Failed::new(
                "bastle __bench-spawner",
                "it did not come to its plan",
            ))
        }
    }

    /// Waits until those who were used are made up for.
    pub(super) fn settle(&self) {
        std::thread::park_timeout(REFILLED);
    }

    /// Waits until as many stand as before, after many were used.
    pub(super) fn stand_again(&self) {
        std::thread::park_timeout(STAND_AGAIN);
    }

    /// One launch, from the first word to the daemon to the end of everything, in milliseconds.
    pub(super) fn launch_once(&self) -> Result<f64, Failed> {
        let mut client = self.client(1)?;
        // Planning asked the daemon for what the host has: that worker is made up for before the clock runs.
        self.settle();
        client.go()?;
        let launch = client.finish()?;
        self.settle();
        Ok(launch.total_us / 1000.0)
    }
}

impl Client {
    /// The word.
    pub(super) fn go(&mut self) -> Result<(), Failed> {
        self.word
            .write_all(b"!")
            .map_err(Failed::io("bastle __bench-spawner"))
    }

    /// Its end, and the first of its launches.
    pub(super) fn finish(mut self) -> Result<Launch, Failed> {
        let mut printed = String::new();
        self.said
            .read_to_string(&mut printed)
            .map_err(Failed::io("bastle __bench-spawner"))?;
        let status = self.child.wait().map_err(Failed::io("bastle __bench-spawner"))?;
        if status.success() {
            timings(&printed).map_err(|why| Failed::new("bastle __bench-spawner", why))
        } else {
            Err(Failed::new("bastle __bench-spawner", status.to_string()))
        }
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        // Told, it ends in order, and those of its workers that wait end with it.
        let told = sh::stdout_of(Command::new("kill").args(["-TERM", &self.daemon.id().to_string()]));
        if let Err(failed) = told {
            eprintln!("xtask: the spawner daemon: {failed}");
        } else if let Err(error) = self.daemon.wait() {
            eprintln!("xtask: the spawner daemon: {error}");
        }
    }
}
