//! A daemon of a test's own: place, ceiling, process. It ends with the test, and so do its runs.
use crate::client::{connect_as, said};
use crate::support::{Lab, Limit, bastle, eventually};
use bastle_contract::WIRE_VERSION;
use bastle_contract::spawner::{FromDaemon, ToDaemon, WorkerSeen};
use rustix::process::{Pid, Signal};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A user that the ceilings here name, beside the lab's own.
pub(crate) const OTHER: u32 = 60_007;

/// The place of a daemon.
pub(crate) struct Place {
    root: PathBuf,
}

/// A daemon that serves.
pub(crate) struct Daemon<'a> {
    place: &'a Place,
    child: Child,
}

/// How a second daemon, or one with a bad ceiling, ended.
pub(crate) struct Refused {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
}

impl Place {
    /// A directory of root's that anybody may walk through.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("bastle-spawner-{}-{number}", std::process::id()));
        std::fs::create_dir(&root).expect("can be made");
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).expect("own directory");
        Self { root }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.root.join("run/spawner.sock")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes the ceiling.
    pub(crate) fn ceiling(&self, text: &str) {
        let file = self.root.join("ceiling.json");
        std::fs::write(&file, text).expect("can be written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("own file");
    }

    /// A ceiling for the lab's user, another one and root.
    pub(crate) fn usual_ceiling(&self, lab: &Lab) {
        self.ceiling(&usual(lab, ""));
    }

    pub(crate) fn command(&self, warm: usize) -> Command {
        let mut command = Command::new(bastle());
        command.env_clear().arg("spawner");
        command.arg("--socket").arg(self.socket());
        command.arg("--ceiling").arg(self.root.join("ceiling.json"));
        command.arg("--state").arg(self.state());
        command.arg("--warm").arg(warm.to_string());
        command
    }

    /// Starts a daemon and waits until it says that it is ready.
    pub(crate) fn start(&self, warm: usize) -> Daemon<'_> {
        self.start_by(self.command(warm))
    }

    pub(crate) fn start_by(&self, mut command: Command) -> Daemon<'_> {
        let told = self.root.join("notify.sock");
        if told.exists() {
            std::fs::remove_file(&told).expect("own file");
        }
        let notify = UnixDatagram::bind(&told).expect("can be bound");
        std::fs::set_permissions(&told, std::fs::Permissions::from_mode(0o666)).expect("own file");
        notify.set_read_timeout(Some(Limit::HANG.0)).expect("a time");
        let errors = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.root.join("said"))
            .expect("can be written");
        let child = command
            .env("NOTIFY_SOCKET", &told)
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .expect("the daemon can be started");
        let daemon = Daemon { place: self, child };
        let mut word = [0; 64];
        let length = notify.recv(&mut word).unwrap_or_else(|error| {
            panic!("the daemon is not ready: {error}: {}", self.said());
        });
        assert_eq!(&word[..length], b"READY=1", "{}", self.said());
        // Everybody may knock: whom it serves is the ceiling's matter here.
        std::fs::set_permissions(self.socket(), std::fs::Permissions::from_mode(0o666)).expect("root's");
        daemon
    }

    /// Starts one that must not serve.
    pub(crate) fn refuses(&self) -> Refused {
        let mut child = self
            .command(0)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the daemon can be started");
        let ended = eventually(Limit::HANG, || child.try_wait().expect("own child").is_some());
        if !ended {
            child.kill().expect("own child");
        }
        let status = child.wait().expect("own child");
        let mut said = String::new();
        let mut errors = child.stderr.take().expect("is piped");
        errors.read_to_string(&mut said).expect("can be read");
        Refused {
            code: ended.then(|| status.code()).flatten(),
            said,
        }
    }

    /// What the daemons here said.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.root.join("said")).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.root) {
            eprintln!("{} stays behind: {error}", self.root.display());
        }
    }
}

impl Daemon<'_> {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).expect("own child");
    }

    /// Whether it still serves.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("own child").is_none()
    }

    /// Ends it as an accident would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("own child");
        self.child.wait().expect("own child");
    }

    /// Ends it in order; its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        eventually(Limit::HANG, || !self.is_alive());
        self.child
            .try_wait()
            .expect("own child")
            .and_then(|status| status.code())
    }

    /// The runs it serves, as root sees them.
    pub(crate) fn list(&self) -> Vec<WorkerSeen> {
        list_as(&self.place.socket(), 0)
    }

    /// Waits until it serves so many.
    pub(crate) fn has(&self, count: usize) -> bool {
        eventually(Limit::HANG, || self.list().len() == count)
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if self.is_alive() {
            self.signal(Signal::TERM);
            if !eventually(Limit(Duration::from_secs(10)), || !self.is_alive()) {
                self.child.kill().expect("own child");
                self.child.wait().expect("own child");
            }
        }
    }
}

/// The runs that a user sees.
pub(crate) fn list_as(socket: &Path, uid: u32) -> Vec<WorkerSeen> {
    let connection = connect_as(socket, uid).expect("can be connected to");
    match said::<FromDaemon>(
        &connection,
        &ToDaemon::List {
            version: WIRE_VERSION,
        },
    ) {
        Ok(FromDaemon::Listed { workers, more: 0 }) => workers,
        other => panic!("no listing: {other:?}"),
    }
}

/// The usual ceiling, with more in the entry of the lab's user.
pub(crate) fn usual(lab: &Lab, more: &str) -> String {
    let (uid, home) = (lab.identity.uid(), lab.home());
    let roots = [lab.workspace(), home, lab.tools()].map(|root| format!("{:?}", root.to_str().unwrap()));
    let roots = roots.join(", ");
    format!(
        r#"{{"version": 1, "max_workers": 20, "callers": [
            {{"uid": {uid}, "roots": [{roots}], "max_workers": 4{more}}},
            {{"uid": {OTHER}, "roots": [], "max_workers": 4}},
            {{"uid": 0, "roots": ["/"], "rate": {{"per_second": 1000, "burst": 1000}}}}]}}"#
    )
}
