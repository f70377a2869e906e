//! The last word of a keeper: how the run ended, in its files, and then to whoever is attached.
use super::feed::{Fed, Feed};
use super::journal::Journal;
use crate::execute::Receipt;
use crate::live::Peer;
use bastle_agents::TurnEnd;
use bastle_contract::runs::{ModelsCounted, RunFile, RunState};
use bastle_contract::stream::StreamKind;
use bastle_contract::{Code, ExitCode, Fault, LimitKind};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long peers may take for the rest: the files have it too.
const FAREWELL: Duration = Duration::from_secs(5);

/// Peers, and what each is shown.
pub(super) type Left = Vec<(Peer, Feed)>;

/// How a run ended.
pub(super) enum End {
    /// The agent never started.
    Refused(Vec<Fault>),
    /// Somebody ended it before the agent started.
    Cancelled,
    /// bastle failed while the agent lived.
    Lost(Fault),
    /// There is a receipt.
    Ran(Box<Receipt>, Course),
}

/// What a run with a receipt went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// The agent never started.
    Unbegun,
    /// It started, and nobody ended it.
    Free,
    /// It started, and somebody ended it.
    Stopped,
}

/// Writes the end: what the run came to, then the state. On disk when this returns.
pub(super) fn write(journal: &mut Journal, end: End) -> Result<RunFile, Fault> {
    let (state, reason) = match end {
        End::Refused(mut faults) => {
            let first = (!faults.is_empty()).then(|| faults.remove(0));
            for fault in &faults {
                journal.event("note", json!({ "text": fault.to_string(), "fault": fault }))?;
            }
            (journal.file.code, journal.file.fault) = (Some(ExitCode::Failed as u8), first);
            (RunState::Refused, None)
        }
        End::Cancelled => {
            journal.file.code = Some(ExitCode::Failed as u8);
            (RunState::Cancelled, Some("stopped".to_owned()))
        }
        End::Lost(fault) => {
            let reason = fault.code.to_string();
            (journal.file.code, journal.file.fault) = (Some(ExitCode::Failed as u8), Some(fault));
            (RunState::Failed, Some(reason))
        }
        End::Ran(receipt, course) => {
            let how = judge(&receipt, course);
            if let Some(files) = &receipt.files {
                journal.event("files", json!(files))?;
            }
            journal.event("ended", document(&receipt))?;
            let file = &mut journal.file;
            file.code = Some(receipt.code);
            file.usage = receipt.usage;
            file.counted = receipt.net.as_ref().map(|net| ModelsCounted {
                turns: net.turns,
                tokens: net.tokens,
                cost_micro_usd: net.cost_micro_usd,
            });
            file.denials = receipt.denials;
            file.fault = receipt.fault;
            file.limits = receipt.limits;
            how
        }
    };
    journal.state(state, reason.as_deref())?;
    Ok(journal.file.clone())
}

/// How a driven agent went.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Went {
    /// By itself.
    Freely,
    /// Its work was done, its input closed, and it had to be ended.
    SeenOff,
}

impl From<bool> for Went {
    fn from(dismissed: bool) -> Self {
        if dismissed { Self::SeenOff } else { Self::Freely }
    }
}

/// A program that speaks a protocol ends well also where its work did not: what counts is how its last turn ended.
pub(super) fn by_turn(mut receipt: Receipt, last: Option<TurnEnd>, went: Went) -> Receipt {
    if went == Went::SeenOff && receipt.fault.is_none() {
        receipt.code = 0;
        receipt.killed = None;
    }
    let failed = match last {
        Some(TurnEnd::Done | TurnEnd::Interrupted) | None => false,
        Some(TurnEnd::Limit | TurnEnd::Refused | TurnEnd::Failed) => true,
    };
    if receipt.code == 0 && failed {
        receipt.code = 1;
    }
    receipt
}

/// What the end of an agent is called, and why.
fn judge(receipt: &Receipt, course: Course) -> (RunState, Option<String>) {
    let killed = receipt.killed.as_deref();
    let budget = |fault: &Fault| fault.code == Code::NetBudget;
    let memory = || receipt.limits.iter().any(|hit| hit.limit == LimitKind::Memory);
    if course == Course::Unbegun {
        (RunState::Refused, None)
    } else if course == Course::Stopped {
        (RunState::Cancelled, Some("stopped".to_owned()))
    } else if killed == Some("timeout") {
        (RunState::Failed, Some("timeout".to_owned()))
    } else if receipt.fault.as_ref().is_some_and(budget) {
        (RunState::Failed, Some("budget".to_owned()))
    } else if killed == Some("memory") || (receipt.code == 137 && memory()) {
        (RunState::Failed, Some("memory".to_owned()))
    } else if receipt.code == 0 && killed.is_none() && receipt.fault.is_none() {
        (RunState::Completed, None)
    } else {
        (RunState::Failed, Some(format!("exit {}", receipt.code)))
    }
}

fn document(receipt: &Receipt) -> Value {
    let changed =
        receipt.work.as_ref().and_then(|work| work.summary.as_ref()).map(
            |summary| json!({ "files": summary.files, "added": summary.added, "removed": summary.removed }),
        );
    json!({
        "code": receipt.code,
        "killed": receipt.killed,
        "fault": receipt.fault,
        "usage": receipt.usage,
        "denials": receipt.denials,
        "limits": receipt.limits,
        "discarded": receipt.discarded,
        "net": receipt.net,
        "changed": changed,
        "in_git": receipt.work.as_ref().map(|work| work.in_git.as_slice()).unwrap_or_default(),
        "records": receipt.records,
    })
}

/// Gives every peer the rest and the last frame. Who does not read in time has the files.
pub(super) fn farewell(mut left: Left, file: &Value) {
    let until = Instant::now() + FAREWELL;
    let last = file.to_string().into_bytes();
    while !left.is_empty() && Instant::now() < until {
        left.retain_mut(|(peer, feed)| {
            if !peer.flush() {
                return false;
            }
            let fed = match feed.fill(peer) {
                Ok(Fed::All) if peer.room() > last.len() => {
                    peer.queue(StreamKind::Ended, &last);
                    true
                }
                // Full, or it has its last frame already.
                Ok(_) => true,
                Err(_) => false,
            };
            fed && !peer.is_done()
        });
        let mut waiting: Vec<PollFd<'_>> = left
            .iter()
            .filter_map(|(peer, _)| peer.waits_for())
            .filter(|(_, flags)| flags.contains(PollFlags::OUT))
            .map(|(fd, _)| PollFd::from_borrowed_fd(fd, PollFlags::OUT))
            .collect();
        let rest = until.saturating_duration_since(Instant::now());
        let rest = Timespec {
            tv_sec: i64::try_from(rest.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(rest.subsec_nanos()),
        };
        if left.is_empty() || waiting.is_empty() {
            continue;
        }
        match rustix::event::poll(&mut waiting, Some(&rest)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
