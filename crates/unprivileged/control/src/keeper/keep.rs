//! The life of a keeper: detached, alone, from the request to the last word.
use super::driven::Driven;
use super::front::{Front, Kept, Then};
use super::journal::Journal;
use super::voice::KeptVoice;
use super::{ending, request};
use crate::pipeline::run_behind;
use crate::runs::{KeeperLock, RunDir};
use bastle_contract::runs::{LaunchSpec, RawSpec, RunState};
use bastle_contract::{Code, ExitCode, Fault, RunId};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// The word after the name that makes a keeper say on its standard output when the agent works.
pub const TELL: &str = "tell";

/// A keeper that has left its caller behind and not begun yet.
pub struct Keeping {
    state: PathBuf,
    dir: RunDir,
    notice: Notice,
}

/// Whoever waits for the agent's start; told once.
pub(super) struct Notice(Option<OwnedFd>);

impl Notice {
    pub(super) fn give(&mut self) {
        if let Some(line) = self.0.take() {
            // Who does not wait any more needs no word.
            match rustix::io::write(&line, b"go\n") {
                Ok(_) | Err(_) => {}
            }
        }
    }
}

impl Keeping {
    /// Reads the words after the verb and leaves the caller behind: an own session, no stream of it, no directory of
    /// it. To be called before any thread exists.
    pub fn begin(words: impl Iterator<Item = OsString>) -> Result<Self, Fault> {
        let words: Vec<OsString> = words.collect();
        let wrong = |why: String| Fault::new(Code::UsageArgument, "a keeper needs a state and a run", why);
        let (state, name, tells) = match words.as_slice() {
            [state, name] => (state, name, false),
            [state, name, tell] if tell == TELL => (state, name, true),
            _ => return Err(wrong("it is started by bastle itself".to_owned())),
        };
        let name = name
            .to_str()
            .and_then(|name| RunId::try_from(name.to_owned()).ok())
            .ok_or_else(|| wrong(format!("{name:?} is no name of a run")))?;
        let state = PathBuf::from(state);
        if !state.is_absolute() {
            return Err(wrong(format!("{} is not an absolute path", state.display())));
        }
        let dir = RunDir::open(&state, &name)?;
        let line = detach(&dir).map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            state,
            dir,
            notice: Notice(tells.then_some(line)),
        })
    }

    /// Keeps the run to its end. Gives back the exit code of the run.
    #[must_use]
    pub fn run(mut self) -> u8 {
        match self.keep() {
            Ok(code) => code,
            Err(fault) => {
                // Its file of last words is all that is left.
                eprintln!("bastle: {fault}");
                ExitCode::Failed as u8
            }
        }
    }

    fn keep(&mut self) -> Result<u8, Fault> {
        let Some(lock) = self.dir.lock()? else {
            return Err(self.not_mine("another keeper has it"));
        };
        let mut journal = Journal::open(&self.dir)?;
        if journal.file.state != RunState::Queued {
            return Err(self.not_mine(&format!("it is {}", journal.file.state)));
        }
        journal.file.keeper = Some(std::process::id());
        journal.state(RunState::Building, None)?;
        let (end, left) = match self.dir.spec() {
            Ok(spec) => self.carry_out(spec, &mut journal),
            Err(fault) => (refused(vec![fault]), Vec::new()),
        };
        let file = ending::write(&mut journal, end)?;
        self.end(lock, &file, left);
        Ok(file.code.unwrap_or(ExitCode::Failed as u8))
    }

    fn not_mine(&self, why: &str) -> Fault {
        Fault::new(
            Code::UsageArgument,
            format!("the run {} is not begun again", self.dir.name()),
            why,
        )
    }

    fn carry_out(&mut self, asked: LaunchSpec, journal: &mut Journal) -> (ending::End, ending::Left) {
        let spec = asked.get();
        if spec.name != *self.dir.name() {
            let why = format!("{} holds the request of {}", self.dir.path().display(), spec.name);
            let fault = Fault::new(Code::UsageArgument, "the request is of another run", why);
            return (refused(vec![fault]), Vec::new());
        }
        let mut front = match self.front(spec) {
            Ok(front) => front,
            Err(fault) => return (refused(vec![fault]), Vec::new()),
        };
        let (place, ready, policy) = match request::prepare(&self.state, spec) {
            Ok(prepared) => prepared,
            Err(faults) => return (refused(faults), Vec::new()),
        };
        // The plan says the same by now, and a run may wait for days.
        drop(asked);
        if request::is_unwanted(&self.dir) {
            return (ending::End::Cancelled, Vec::new());
        }
        match &mut front.driven {
            Some(driven) => driven.policy = Some(policy),
            // Only answers to an agent's questions need it again.
            None => drop(policy),
        }
        let mut front = Front::Kept(Box::new(front));
        let mut voice = KeptVoice::new(journal, &mut self.notice);
        let outcome = run_behind(&place, ready, &mut voice, &mut front);
        let course = match (voice.begun, &voice.stopped) {
            (false, _) => ending::Course::Unbegun,
            (true, None) => ending::Course::Free,
            (true, Some(_)) => ending::Course::Stopped,
        };
        let unwanted = voice.stopped.is_some();
        let mut done = None;
        let left = match front {
            Front::Kept(kept) => {
                let Kept {
                    log, left, driven, ..
                } = *kept;
                done = driven.map(|driven| (driven.last, driven.dismissed));
                if let Err(error) = log.sync() {
                    eprintln!("bastle: what the run printed may not be on disk: {error}");
                }
                left
            }
            Front::Own => Vec::new(),
        };
        let end = match (outcome, course) {
            (Ok(_), ending::Course::Unbegun) if unwanted => ending::End::Cancelled,
            (Ok(receipt), course) => {
                let receipt = match done {
                    Some((last, dismissed)) => ending::by_turn(receipt, last, dismissed.into()),
                    None => receipt,
                };
                ending::End::Ran(Box::new(receipt), course)
            }
            (Err(fault), ending::Course::Unbegun) => refused(vec![fault]),
            (Err(fault), ending::Course::Free | ending::Course::Stopped) => ending::End::Lost(fault),
        };
        (end, left)
    }

    fn front(&self, spec: &RawSpec) -> Result<Kept, Fault> {
        let cwd = spec.cwd.as_ref().unwrap_or(&spec.workspace);
        let (driven, input, then) = match Driven::of(spec, cwd.as_str())? {
            Some((driven, first)) => (Some(driven), first, Then::Words),
            None => {
                let input = spec.input.clone().unwrap_or_default().into_bytes();
                let open = spec.open_input || spec.tty.is_some();
                (None, input, if open { Then::Peers } else { Then::End })
            }
        };
        Ok(Kept {
            log: self.dir.output()?,
            dir: self.dir.clone(),
            input,
            then,
            driven,
            holder: None,
            feeds: Vec::new(),
            left: Vec::new(),
        })
    }

    /// The end is written: whoever waits may go on, and who is attached is told.
    fn end(&mut self, lock: KeeperLock, file: &bastle_contract::runs::RunFile, left: ending::Left) {
        drop(lock);
        self.notice.give();
        ending::farewell(left, &json!(file));
    }
}

fn refused(faults: Vec<Fault>) -> ending::End {
    ending::End::Refused(faults)
}

/// Leaves the caller: own session, streams of nobody, the root directory. Gives back what its output was.
fn detach(dir: &RunDir) -> std::io::Result<OwnedFd> {
    // Who leads a session already needs none.
    match rustix::process::setsid() {
        Ok(_) | Err(_) => {}
    }
    let line = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let words = rustix::fs::open(dir.path().join("keeper.log"), flags, Mode::RUSR | Mode::WUSR)?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&words)?;
    rustix::process::chdir("/")?;
    Ok(line)
}
