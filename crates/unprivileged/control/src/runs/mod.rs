//! The directory of a run that has a keeper: what was asked for, where it is, what it printed, what happened to it.
//!
//! ```text
//! STATE/runs/NAME/   0700   made exclusively: who made it has the name
//!   spec.json        the request, written before anything is started and never changed
//!   run.json         where it is, replaced whole
//!   events.jsonl     what happened, numbered
//!   output           what it printed, in records
//!   lock             held by its keeper for its life: a run whose lock is free has none
//! ```
//! **Trust:** the directory is its owner's alone and no sandbox sees it. What the agent printed is in it as bytes.
mod events;
mod files;
mod foreground;
mod output;
mod tail;
mod waiter;

pub use events::{EventLog, read_events};
pub use foreground::{findings_directory, findings_path, run_of_findings, with_findings};
pub use output::{MOST_OUTPUT, OutputLog, OutputReader, OutputRecord};
pub use tail::EventReader;
pub use waiter::Waiter;

pub(crate) use events::now_ms;
pub(crate) use foreground::{Durable, append_finding, make_findings_directory};

use bastle_contract::runs::{LaunchSpec, MAX_SPEC, RunFile, RunState};
use bastle_contract::{Code, Fault, RunId, Usage};
use rustix::event::Timespec;
use rustix::fs::{CWD, FlockOperation, RenameFlags};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a keeper that wrote how its run ended may take to let go of it.
const LETTING_GO: Duration = Duration::from_secs(20);
const MOMENT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// The directory of one run.
#[derive(Clone, Debug)]
pub struct RunDir {
    name: RunId,
    path: PathBuf,
}

/// The right to keep a run: whoever has it is alone. Ends with the process.
#[derive(Debug)]
pub struct KeeperLock {
    _file: File,
}

impl RunDir {
    /// Makes the directory of a new run with its request, durably. A name that is taken is refused.
    pub fn create(state: &Path, spec: &LaunchSpec, created_ms: u64) -> Result<Self, Fault> {
        let name = spec.get().name.clone();
        let all = state.join("runs");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&all)
            .map_err(|error| cannot("make", &all, &error))?;
        let path = all.join(name.as_str());
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(Fault::new(
                    Code::UsageArgument,
                    format!("the name {name} is taken"),
                    format!("{} exists", path.display()),
                )
                .help("leave --name out, or: bastle ps -a"));
            }
            Err(error) => return Err(cannot("make", &path, &error)),
        }
        let dir = Self { name, path };
        let made = dir.begin(spec, created_ms);
        if made.is_err() {
            // A name without a request would be taken for ever.
            drop(std::fs::remove_dir_all(&dir.path));
        }
        made.map(|()| dir)
    }

    fn begin(&self, spec: &LaunchSpec, created_ms: u64) -> Result<(), Fault> {
        let file = RunFile {
            name: self.name.clone(),
            state: RunState::Queued,
            reason: None,
            created_ms,
            started_ms: None,
            ended_ms: None,
            keeper: None,
            init: None,
            code: None,
            fault: None,
            usage: Usage::default(),
            denials: 0,
            limits: Vec::new(),
            last_event: 0,
            findings: bastle_contract::runs::Findings::default(),
            counted: None,
            reported: None,
        };
        self.put(&file)?;
        files::replace(&self.path, "spec.json", spec).map_err(|error| cannot("write", &self.path, &error))?;
        // The name itself, in the directory above.
        files::sync_directory(self.path.parent().unwrap_or(&self.path))
            .map_err(|error| cannot("write", &self.path, &error))
    }

    /// The directory of a run that was asked for.
    pub fn open(state: &Path, name: &RunId) -> Result<Self, Fault> {
        let path = state.join("runs").join(name.as_str());
        if path.join("spec.json").is_file() {
            return Ok(Self {
                name: name.clone(),
                path,
            });
        }
        Err(Fault::new(
            Code::AuditMissing,
            format!("there is no run {name} in the background"),
            format!("{} holds no request", path.display()),
        )
        .help("bastle ps -a"))
    }

    /// Every run that was asked for, by name. One without a whole request is left out: nobody was promised it.
    #[must_use]
    pub fn all(state: &Path) -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir(state.join("runs")) else {
            return Vec::new();
        };
        let mut found: Vec<Self> = entries
            .flatten()
            .filter_map(|entry| RunId::try_from(entry.file_name().into_string().ok()?).ok())
            .filter_map(|name| Self::open(state, &name).ok())
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &RunId {
        &self.name
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was asked for.
    pub fn spec(&self) -> Result<LaunchSpec, Fault> {
        files::read(&self.path, "spec.json", MAX_SPEC)
            .map_err(|error| cannot("read", &self.path.join("spec.json"), &error))
    }

    /// Where the run is in its life, as its keeper wrote it last.
    pub fn file(&self) -> Result<RunFile, Fault> {
        files::read(&self.path, "run.json", MAX_SPEC)
            .map_err(|error| cannot("read", &self.path.join("run.json"), &error))
    }

    /// Replaces `run.json`, durably. Only the keeper may, or whoever holds its lock after its death.
    pub fn put(&self, file: &RunFile) -> Result<(), Fault> {
        files::replace(&self.path, "run.json", file)
            .map_err(|error| cannot("write", &self.path.join("run.json"), &error))
    }

    /// The right to keep the run; `None` while somebody has it.
    pub fn lock(&self) -> Result<Option<KeeperLock>, Fault> {
        let path = self.path.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|error| cannot("open", &path, &error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(KeeperLock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(cannot("lock", &path, &error.into())),
        }
    }

    /// Its events, for whoever holds the lock: a last line that is not whole is cut off.
    pub fn events(&self) -> Result<EventLog, Fault> {
        EventLog::open(&self.path.join("events.jsonl"))
            .map_err(|error| cannot("open", &self.path.join("events.jsonl"), &error))
    }

    /// Where its events are.
    #[must_use]
    pub fn events_path(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// What it prints goes here.
    pub fn output(&self) -> Result<OutputLog, Fault> {
        OutputLog::open(&self.path.join("output"))
            .map_err(|error| cannot("open", &self.path.join("output"), &error))
    }

    /// What it printed.
    pub fn printed(&self) -> Result<OutputReader, Fault> {
        OutputReader::open(&self.path.join("output"))
            .map_err(|error| cannot("read", &self.path.join("output"), &error))
    }

    /// Removes the directory. Refused while it has a keeper; one that wrote its last word is about to let go and is
    /// waited for.
    pub fn remove(self) -> Result<(), Fault> {
        let _lock = self.wait_for_keeper()?;
        std::fs::remove_dir_all(&self.path).map_err(|error| cannot("remove", &self.path, &error))
    }

    /// Moves the directory elsewhere in the state directory, by one rename. Refused as [`Self::remove`] is.
    pub fn move_to(self, to: &Path) -> Result<(), Fault> {
        let _lock = self.wait_for_keeper()?;
        rename_durably(&self.path, to)
    }

    /// Takes the directory of a run back from elsewhere; `false` when there is none.
    pub fn take_back(state: &Path, name: &RunId, from: &Path) -> Result<bool, Fault> {
        if !from.is_dir() {
            return Ok(false);
        }
        let to = state.join("runs").join(name.as_str());
        if to.exists() {
            return Err(Fault::new(
                Code::UsageArgument,
                format!("the name {name} is taken"),
                format!("{} exists", to.display()),
            )
            .help("bastle ps -a"));
        }
        rename_durably(from, &to)?;
        Ok(true)
    }

    fn wait_for_keeper(&self) -> Result<KeeperLock, Fault> {
        let deadline = Instant::now() + LETTING_GO;
        loop {
            if let Some(lock) = self.lock()? {
                return Ok(lock);
            }
            let over = self.file().is_ok_and(|file| file.state.is_final());
            if !over || Instant::now() >= deadline {
                return Err(Fault::new(
                    Code::UsageArgument,
                    format!("the run {} lives", self.name),
                    "its keeper is there",
                )
                .help(format!("bastle stop {}", self.name)));
            }
            // Nothing tells when another process lets a lock go.
            match rustix::event::poll(&mut [], Some(&MOMENT)) {
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// Gives a directory another name that nothing has, and waits for the disk.
fn rename_durably(from: &Path, to: &Path) -> Result<(), Fault> {
    let fail = |error: std::io::Error| cannot("move", from, &error);
    rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
        .map_err(|error| fail(error.into()))?;
    for path in [to, from] {
        files::sync_directory(path.parent().unwrap_or(path)).map_err(fail)?;
    }
    Ok(())
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(
        Code::StateDir,
        format!("cannot {what} {}", path.display()),
        error.to_string(),
    )
    .help("df -h, and whether the directory is yours: bastle doctor")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::stream::StreamKind;
    use serde_json::json;

    fn spec(name: &str) -> LaunchSpec {
        serde_json::from_value(json!({"name": name, "argv": ["true"], "workspace": "/w"})).unwrap()
    }

    #[test]
    fn a_name_that_is_taken_is_refused_and_the_first_request_stays() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(state.path(), &spec("a"), 1).unwrap();
        assert!(RunDir::create(state.path(), &spec("a"), 2).is_err());
        assert_eq!(dir.file().unwrap().created_ms, 1);
        assert_eq!(dir.spec().unwrap(), spec("a"));
        assert_eq!(RunDir::all(state.path()).len(), 1);
    }

    #[test]
    fn a_second_keeper_is_not_let_in_and_a_kept_run_is_not_removed() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(state.path(), &spec("a"), 1).unwrap();
        let first = dir.lock().unwrap();
        assert!(first.is_some());
        assert!(dir.lock().unwrap().is_none());
        assert!(dir.clone().remove().is_err());
        drop(first);
        dir.remove().unwrap();
        assert!(RunDir::all(state.path()).is_empty());
    }

    #[test]
    fn a_run_that_has_ended_is_removed_once_its_keeper_lets_go() {
        use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(state.path(), &spec("a"), 1).unwrap();
        let keeper = dir.lock().unwrap().unwrap();
        let mut file = dir.file().unwrap();
        file.state = RunState::Completed;
        dir.put(&file).unwrap();
        let told = inotify::init(CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&told, dir.path().join("lock"), WatchFlags::CLOSE_WRITE).unwrap();
        let path = dir.path().to_path_buf();
        let removing = std::thread::spawn(move || dir.remove());
        // It has tried once, and was not let in.
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        inotify::Reader::new(&told, &mut buffer).next().unwrap();
        drop(keeper);
        removing.join().unwrap().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn events_and_output_torn_at_every_byte_lose_only_their_last_record() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(state.path(), &spec("a"), 1).unwrap();
        let mut events = dir.events().unwrap();
        let mut output = dir.output().unwrap();
        for n in 0..3 {
            events.append("note", json!({ "n": n })).unwrap();
            output
                .append(StreamKind::Output, format!("line {n}\n").as_bytes())
                .unwrap();
        }
        drop((events, output));
        let whole = std::fs::read(dir.events_path()).unwrap();
        let last = whole[..whole.len() - 1]
            .iter()
            .rposition(|b| *b == b'\n')
            .unwrap()
            + 1;
        for cut in last..whole.len() {
            std::fs::write(dir.events_path(), &whole[..cut]).unwrap();
            assert_eq!(
                read_events(&dir.events_path(), 0, 100).unwrap().len(),
                2,
                "cut at {cut}"
            );
        }
        // Whoever goes on writing numbers from the last whole one.
        std::fs::write(dir.events_path(), &whole[..whole.len() - 1]).unwrap();
        assert_eq!(dir.events().unwrap().append("note", json!({})).unwrap().seq, 3);
        assert_eq!(read_events(&dir.events_path(), 2, 100).unwrap().len(), 1);

        let path = dir.path().join("output");
        let whole = std::fs::read(&path).unwrap();
        for cut in 2 * whole.len() / 3..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut reader = dir.printed().unwrap();
            let mut records = 0;
            while reader.next_record().unwrap().is_some() {
                records += 1;
            }
            assert_eq!(records, 2, "cut at {cut}");
        }
    }
}
