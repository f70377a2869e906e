//! Carrying out a plan: record, spawner, relay, seal. Makes no choice.
use crate::anomaly::LiveWatch;
use crate::caches::{CacheEnd, Caches};
use crate::egress::NetTotals;
use crate::fileops::Watch;
use crate::grants::Grants;
use crate::keeper::Front;
use crate::live::{self, Live};
use crate::name_watch::NameWatch;
use crate::record::Record;
use crate::relay::{Approvals, Ending, Net, Parts, Relay};
use crate::signals::Signals;
use crate::spawner::Spawner;
use crate::streams::Streams;
use crate::voice::Voice;
use crate::workspaces::{Work, WorkEnd};
use bastle_audit::{AuditEvent, Exit};
use bastle_contract::{AbsPath, Code, Fault, FilesTold, LaunchPlan, LimitHit, LimitKind, Usage, socket};
use rustix::event::Timespec;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// Exit code of `run`: the agent's own, or bastle's.
    pub code: u8,
    /// Why the agent did not run or was ended by bastle, if so.
    pub fault: Option<Fault>,
    /// Why it was killed, if it was.
    pub killed: Option<String>,
    /// What it used.
    pub usage: Usage,
    /// How many attempts were denied.
    pub denials: u64,
    /// Limits that were hit.
    pub limits: Vec<LimitHit>,
    /// Bytes of output that were discarded.
    pub discarded: u64,
    /// Records in the sealed audit log.
    pub records: u64,
    /// How long each step of building took, in microseconds.
    pub steps: Vec<(String, u64)>,
    /// What it did with the network; `None`: it had none.
    pub net: Option<NetTotals>,
    /// What became of the tree it worked in; `None`: without a fence there is only the project.
    pub work: Option<WorkEnd>,
    /// What became of files, as far as it was seen; `None` without a fence.
    pub files: Option<FilesTold>,
    /// What it left above named caches.
    pub caches: Vec<CacheEnd>,
}

/// What beside the plan a run is carried out with.
pub(crate) struct Means<'a> {
    pub(crate) spawner: Spawner,
    pub(crate) attachments: Vec<u8>,
    pub(crate) net: Option<Net>,
    /// bastle's own directory, where the run's socket is made.
    pub(crate) state: &'a Path,
    pub(crate) approvals: Approvals,
    pub(crate) work: Work,
    /// Directories of the host's own trees, and when they were searched.
    pub(crate) directories: (Vec<AbsPath>, SystemTime),
    pub(crate) caches: Caches,
    pub(crate) grants: Option<Grants>,
    pub(crate) front: &'a mut Front,
}

/// The end of a run that bastle itself could not hold.
fn failed(fault: Fault) -> Ending {
    Ending {
        exit: Exit::Unknown,
        fault: Some((125, fault)),
        usage: Usage::default(),
        killed: Some("bastle failed".to_owned()),
        discarded: 0,
        steps: Vec::new(),
        net: None,
        egress: None,
    }
}

/// Runs the plan to its end. The log is sealed whatever happens.
pub(crate) fn execute(
    plan: &LaunchPlan,
    means: Means<'_>,
    record: impl FnOnce() -> Result<Record, Fault>,
    voice: &mut dyn Voice,
) -> Result<Receipt, Fault> {
    // The sandbox is built by others while the record is opened here: building has no effect, and the agent's start
    // waits for a word that is given only when the record is on disk. Without one, dropping the spawner undoes it all.
    let Means {
        spawner,
        attachments,
        net,
        state,
        approvals,
        mut work,
        directories: (directories, since),
        caches,
        grants,
        front,
    } = means;
    // Before anything is mounted: what the host replaces from here on is told.
    let mut names = NameWatch::begin(plan)?;
    let (events, streams) = launch(plan, &spawner, &attachments)?;
    let unwatched = names
        .as_mut()
        .map_or(Ok(0), |names| names.watch_rest(directories, since))?;
    // Before the agent lives. Until then a signal that ends this process ends the fence too: its socket closes.
    let signals = match front {
        Front::Own => Signals::register()?,
        Front::Kept(_) => Signals::register_kept()?,
    };
    work.hand_signals_over();
    let live = reachable(state, plan, net.as_ref(), front)?;
    let mut files = Watch::begin(plan, &work);
    drop(attachments);
    let parts = Parts {
        plan,
        spawner: &spawner,
        events,
        streams,
        signals,
        net,
        live,
        approvals,
        reads: files.reads(),
        grants,
        front,
        space: work.space().cloned(),
        names: &mut names,
        state,
        unusual: LiveWatch::new(
            state,
            &plan.run,
            work.facts().source.as_str(),
            plan.argv.program(),
        ),
    };
    let mut record = record()?;
    tell_gaps(&mut record, voice, unwatched)?;
    // From here on the copy counts as the agent's: whatever fails before leaves none behind.
    work.begin()?;
    let outcome = Relay::new(parts, &mut record, voice).run();
    if let Some(names) = names {
        names.close();
    }
    let cgroups = record.cgroups.clone();
    // It lets go of the run's mounts while the record is sealed here.
    let closing = spawner.let_go();
    // It tells the end when init is reaped, and with init every process of the run.
    let gone = outcome.as_ref().is_ok_and(|ending| ending.fault.is_none());
    let ending = outcome.unwrap_or_else(failed);
    let (mut receipt, closed) = if work.is_copy() && !gone {
        // What is kept of the tree is its last state: where no end was told, that of the spawner says that nobody is left.
        let closed = closing.wait();
        (close(plan, ending, record, (&mut work, files, caches)), closed)
    } else {
        (
            close(plan, ending, record, (&mut work, files, caches)),
            closing.wait(),
        )
    };
    // Should the spawner have been killed, its groups are empty by now (init died with it) but still there.
    if closed.is_err() || closed.is_ok_and(|status| !status.success()) {
        cgroups.iter().for_each(|directory| remove(Path::new(directory)));
    }
    if let Ok(Receipt {
        fault: Some(_),
        work: Some(end),
        ..
    }) = &mut receipt
    {
        work.forget_if_unused(end);
    }
    receipt
}

/// Tells what is known to be missing before the agent starts: an anchor that contradicts the record, and directories of the
/// project beyond the limit of what is watched.
fn tell_gaps(record: &mut Record, voice: &mut dyn Voice, count: usize) -> Result<(), Fault> {
    if let Some(text) = record.take_warning() {
        voice.audit_contradicted(&text);
    }
    if count == 0 {
        return Ok(());
    }
    record.append(&AuditEvent::Note {
        topic: "names".to_owned(),
        text: format!("{count} directories are not watched for hidden names that the host makes"),
    })
}

/// Removes a group whose members are dying: again while they still count, at most two seconds.
fn remove(directory: &Path) {
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: 2_000_000,
    };
    for _ in 0..1000 {
        let busy = std::fs::remove_dir(directory).is_err_and(|error| error.kind() == ErrorKind::ResourceBusy);
        if !busy || rustix::event::poll(&mut [], Some(&pause)).is_err() {
            return;
        }
    }
}

/// Hands the plan over. Whatever does not belong to that is done afterwards, while the sandbox is built.
fn launch(plan: &LaunchPlan, spawner: &Spawner, attachments: &[u8]) -> Result<(OwnedFd, Streams), Fault> {
    let fault = |error: std::io::Error| {
        Fault::new(Code::FenceStep, "cannot make the event socket", error.to_string())
    };
    let (events, theirs) = socket::pair().map_err(fault)?;
    let (streams, ends) = Streams::open(plan.stdio)?;
    spawner.launch(plan, theirs.as_fd(), attachments, &ends)?;
    // The agent's ends are the sandbox's alone: a copy here would keep its streams open for ever.
    drop((theirs, ends));
    Ok((events, streams))
}

/// The run's socket: another terminal reaches the run before its agent lives.
fn reachable(
    state: &Path,
    plan: &LaunchPlan,
    net: Option<&Net>,
    front: &Front,
) -> Result<Option<Live>, Fault> {
    let directory = match front {
        Front::Own => live::directory(state),
        Front::Kept(_) => live::kept_directory(state),
    };
    let live = Live::open(&directory, &plan.run);
    match front {
        // Without a network nothing but grants is said there, and a run at a terminal can do without them.
        Front::Own if net.is_none() => Ok(live.ok()),
        // Nobody sits at a run in the background: without its socket it could not be stopped.
        Front::Own | Front::Kept(_) => live.map(Some),
    }
}

fn close(
    plan: &LaunchPlan,
    ending: Ending,
    mut record: Record,
    (tree, files, caches): (&mut Work, Watch, Caches),
) -> Result<Receipt, Fault> {
    let Ending {
        exit,
        fault,
        mut usage,
        killed,
        discarded,
        steps,
        mut net,
        egress,
    } = ending;
    if let Some((_, fault)) = &fault {
        record.append(&AuditEvent::Refused(fault.clone()))?;
    }
    if discarded > 0 {
        record.append(&AuditEvent::OutputTruncated { bytes: discarded })?;
    }
    let work = tree.end(plan);
    let (files, written) = files.end(&mut record, tree)?;
    // The guard counts exactly. The kernel's own count misses children whose parent ignores SIGCHLD: it reaps them itself,
    // and what they used is added to nobody (wait(2), getrusage(2)).
    if !plan.limits.iter().any(|rule| rule.mechanism.counts_writes()) {
        usage.bytes_written = usage.bytes_written.max(written);
    }
    let (caches, told) = caches.end();
    for event in &told {
        record.append(event)?;
    }
    if let Some(fault) = &work.fault {
        record.append(&AuditEvent::Note {
            topic: "workspace".to_owned(),
            text: fault.to_string(),
        })?;
    }
    if !work.in_git.is_empty() {
        record.append(&AuditEvent::Note {
            topic: "git".to_owned(),
            text: format!(
                "guarded names that git has otherwise than at the start: {}",
                work.in_git.join("; ")
            ),
        })?;
    }
    // It was killed before the tree was looked at: there is nothing left to wait for by now.
    if let (Some(net), Some(mut egress)) = (&mut net, egress) {
        net.spent(egress.end());
    }
    usage.cpu_ms = usage
        .cpu_ms
        .saturating_add(net.as_ref().map_or(0, |net| net.cpu_ms));
    record.append(&AuditEvent::Ended {
        exit,
        usage,
        reason: killed.clone(),
    })?;
    let (denials, limits) = (record.denials, std::mem::take(&mut record.limits));
    let code = exit_code(exit, fault.as_ref(), killed.as_deref(), &limits);
    let records = record.seal()?;
    Ok(Receipt {
        code,
        fault: fault.map(|(_, fault)| fault),
        killed,
        usage,
        denials,
        limits,
        discarded,
        records,
        steps,
        net,
        work: Some(work),
        files: Some(files),
        caches,
    })
}

fn exit_code(exit: Exit, fault: Option<&(u8, Fault)>, killed: Option<&str>, limits: &[LimitHit]) -> u8 {
    if let Some((code, _)) = fault {
        return *code;
    }
    if killed == Some("timeout") {
        return bastle_contract::ExitCode::Timeout as u8;
    }
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => 128 + signal,
        // Killed from outside before it could report: by the memory watchdog or on request.
        Exit::Unknown if limits.iter().any(|hit| hit.limit == LimitKind::Memory) || killed.is_some() => 137,
        Exit::Unknown => bastle_contract::ExitCode::Failed as u8,
    }
}
