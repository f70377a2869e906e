//! The life of a run outside: the clock, the kill, the freezer, and the clean-up at the end.
use crate::Outcome;
use crate::cgroup::LimitWatch;
use crate::errand::{Errand, Task};
use crate::launch::Running;
use bastle_contract::grants::{Cover, MAX_COVERS};
use bastle_contract::socket;
use bastle_contract::{
    AbsPath, Code, Event, Fault, FromSpawner, LimitHit, LimitKind, ReadSight, ToSpawner, Usage,
};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A run that lives longer is worth giving memory back for.
const YOUNG: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Serves the run until everything of it is gone; returns the process's exit code. `tell` hears that the run exists after
/// control did, who waits for it.
pub(crate) fn supervise(control: &OwnedFd, mut running: Running, tell: &mut dyn FnMut(Outcome<'_>)) -> u8 {
    let launched = FromSpawner::Launched {
        pid: running.pid,
        cgroups: running.group.directories(),
        reads: sight(&running),
    };
    let told = match (&running.reads, &running.mounts) {
        (Ok(reads), Some(mounts)) => socket::send(control, &launched, &[reads.as_fd(), mounts.as_fd()]),
        (Ok(_) | Err(_), _) => socket::send(control, &launched, &[]),
    };
    tell(Outcome::Launched(&running.run));
    // It is control's now, and its end costs time: this process must not be the last that has it.
    running.reads = Err(String::new());
    let outcome = told.and_then(|()| watch(control, &running));
    // Control is gone or the kernel failed us: end everything all the same, with nobody to tell.
    let listener = outcome.is_ok().then_some(control);
    let ended = end(listener, running, outcome.unwrap_or_default());
    u8::from(ended.is_err())
}

/// Whether whoever reads the paths of the run can be told which files are read.
fn sight(running: &Running) -> ReadSight {
    let why = match (&running.reads, &running.mounts) {
        (Ok(_), Some(_)) => return ReadSight::Fanotify,
        (Ok(_), None) => "the mounts of the run cannot be held".to_owned(),
        (Err(why), _) => why.clone(),
    };
    ReadSight::Nothing { why }
}

/// What one round of waiting found.
#[derive(Default)]
struct Ready {
    nothing: bool,
    over: bool,
    spoke: bool,
    timeout: bool,
    back: bool,
    /// Somebody wrote to a file of the run's cgroups.
    written: bool,
}

/// The state of watching.
#[derive(Default)]
struct Watch {
    /// Why the run was killed, if it was.
    killed: Option<String>,
    /// Somebody who is inside to bring something in or take it out.
    errand: Option<Errand>,
    /// Names to be covered once that one is back.
    covers: VecDeque<Vec<Cover>>,
    /// Whether the limits of the run's cgroups still hold.
    limits: Option<LimitWatch>,
}

impl Watch {
    /// The limits that are still worth watching: of a run that was killed nothing can be lost.
    fn live_limits(&self) -> Option<&LimitWatch> {
        self.limits.as_ref().filter(|_| self.killed.is_none())
    }
}

/// Waits for init's end; says why the run was killed, if it was.
fn watch(control: &OwnedFd, running: &Running) -> io::Result<Option<String>> {
    let clock = clock(running.wall_ms)?;
    let mut watch = Watch {
        limits: LimitWatch::begin(&running.group),
        ..Watch::default()
    };
    let mut young = Some(&YOUNG);
    // What was changed before the watch began is not told by it.
    check_limits(control, running, &mut watch)?;
    loop {
        let armed = clock.as_ref().filter(|_| watch.killed.is_none());
        let most = young.or_else(|| watch.live_limits().map(LimitWatch::interval));
        let ready = wait(control, running, (armed, most), &watch)?;
        if ready.nothing && young.take().is_some() {
            // The plan was read, checked and carried out, and this process may wait for days from now on.
            bastle_sys::memory::give_back();
        }
        if ready.over {
            return Ok(watch.killed);
        }
        if ready.nothing || ready.written {
            check_limits(control, running, &mut watch)?;
        }
        if ready.timeout {
            kill(running)?;
            watch.killed = Some("timeout".to_owned());
            let effect = "every process of the run was killed".to_owned();
            let hit = LimitHit {
                limit: LimitKind::WallTime,
                value: running.wall_ms.unwrap_or(0),
                effect,
            };
            socket::send(control, &FromSpawner::Event(Event::Limit(hit)), &[])?;
        }
        if ready.back
            && let Some(errand) = watch.errand.take()
        {
            socket::send(control, &errand.end(), &[])?;
            if let Some(covers) = watch.covers.pop_front() {
                cover(control, running, &mut watch, covers)?;
            }
        }
        if ready.spoke && !obey(control, running, &mut watch)? {
            return Ok(Some("control is gone".to_owned()));
        }
    }
}

/// Ends the run when a limit of its cgroups is lost: nothing runs without a limit that was promised.
fn check_limits(control: &OwnedFd, running: &Running, watch: &mut Watch) -> io::Result<()> {
    let Some(limits) = watch.limits.as_mut().filter(|_| watch.killed.is_none()) else {
        return Ok(());
    };
    let Some(lost) = limits.check(&running.group, running.pid) else {
        return Ok(());
    };
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // Of a process that ended nothing is lost, and its groups may be gone with the unit they were in.
    let mut init = [PollFd::new(&running.pidfd, PollFlags::IN)];
    match rustix::event::poll(&mut init, Some(&at_once)) {
        Ok(0) | Err(Errno::INTR) => {}
        Ok(_) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    kill(running)?;
    watch.killed = Some("limit lost".to_owned());
    watch.limits = None;
    socket::send(control, &FromSpawner::Event(Event::LimitLost(lost)), &[])
}

fn wait(
    control: &OwnedFd,
    running: &Running,
    (clock, most): (Option<&OwnedFd>, Option<&Timespec>),
    watch: &Watch,
) -> io::Result<Ready> {
    let mut waiting = vec![
        PollFd::new(&running.pidfd, PollFlags::IN),
        PollFd::new(control, PollFlags::IN),
    ];
    let timer = clock.map(|clock| {
        waiting.push(PollFd::new(clock, PollFlags::IN));
        waiting.len() - 1
    });
    let line = watch.errand.as_ref().map(|errand| {
        waiting.push(PollFd::from_borrowed_fd(errand.line(), PollFlags::IN));
        waiting.len() - 1
    });
    let limits = watch.live_limits().and_then(LimitWatch::events).map(|events| {
        waiting.push(PollFd::from_borrowed_fd(events, PollFlags::IN));
        waiting.len() - 1
    });
    let nothing = match rustix::event::poll(&mut waiting, most) {
        Ok(count) => count == 0,
        Err(Errno::INTR) => false,
        Err(error) => return Err(error.into()),
    };
    let is = |index: usize| waiting.get(index).is_some_and(|fd| !fd.revents().is_empty());
    Ok(Ready {
        nothing,
        over: is(0),
        spoke: is(1),
        timeout: timer.is_some_and(is),
        back: line.is_some_and(is),
        written: limits.is_some_and(is),
    })
}

/// One request of control; `false` when control is gone.
fn obey(control: &OwnedFd, running: &Running, watch: &mut Watch) -> io::Result<bool> {
    let reply = match socket::receive::<ToSpawner>(control)? {
        None => return Ok(false),
        Some((ToSpawner::Kill, _)) => {
            kill(running)?;
            watch.killed = Some("stopped".to_owned());
            return Ok(true);
        }
        Some((ToSpawner::Grant { order }, mut descriptors)) => {
            let path = order.path.clone();
            let refusal = running
                .bounds
                .as_ref()
                .filter(|bounds| !bounds.allows(&path, order.access));
            if let Some(bounds) = refusal {
                let fault = crate::admit::outside(&path, bounds);
                socket::send(control, &FromSpawner::GrantFailed { path, fault }, &[])?;
                return Ok(true);
            }
            let task = descriptors.pop().map(|judged| Task::Bring(order, judged));
            return send_in(control, running, watch, path, task).map(|()| true);
        }
        Some((ToSpawner::Withdraw { path }, _)) => {
            let task = Some(Task::Take(path.clone()));
            return send_in(control, running, watch, path, task).map(|()| true);
        }
        Some((ToSpawner::Cover { covers }, _)) => {
            return cover(control, running, watch, covers).map(|()| true);
        }
        Some((ToSpawner::Freeze, _)) => running.group.freeze(),
        Some((ToSpawner::Thaw, _)) => running.group.thaw(),
        Some((ToSpawner::Launch { .. }, _)) => {
            Err(Fault::new(Code::FenceStep, "this spawner serves one run", ""))
        }
    };
    socket::send(
        control,
        &reply.map_or_else(FromSpawner::Refused, |()| FromSpawner::Done),
        &[],
    )?;
    Ok(true)
}

/// Sends somebody into the sandbox; the answer comes when they are back.
fn send_in(
    control: &OwnedFd,
    running: &Running,
    watch: &mut Watch,
    path: AbsPath,
    task: Option<Task>,
) -> io::Result<()> {
    let refused = |why: &str| Fault::new(Code::GrantFailed, format!("{path} is not brought in"), why);
    let started = match (task, &watch.errand) {
        (Some(task), None) => Errand::start(running, task),
        (Some(_), Some(_)) => Err(refused("another path is on its way")),
        (None, _) => Err(refused("the order came without what was judged")),
    };
    match started {
        Ok(errand) => {
            watch.errand = Some(errand);
            Ok(())
        }
        Err(fault) => socket::send(control, &FromSpawner::GrantFailed { path, fault }, &[]),
    }
}

/// Covers names again; after a grant that is on its way, never instead of it.
fn cover(control: &OwnedFd, running: &Running, watch: &mut Watch, covers: Vec<Cover>) -> io::Result<()> {
    if watch.errand.is_some() {
        watch.covers.push_back(covers);
        return Ok(());
    }
    let started = if covers.len() > MAX_COVERS {
        Err(Fault::new(Code::FenceStep, "too many names to cover at once", ""))
    } else {
        Errand::start(running, Task::Cover(covers))
    };
    match started {
        Ok(errand) => {
            watch.errand = Some(errand);
            Ok(())
        }
        Err(fault) => socket::send(control, &FromSpawner::CoverFailed { fault }, &[]),
    }
}

/// Kills init, and with its PID namespace everything in it. A frozen tree dies too.
fn kill(running: &Running) -> io::Result<()> {
    running.group.kill();
    match rustix::process::pidfd_send_signal(&running.pidfd, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes sure that nothing is left, and reports to whoever still listens.
fn end(listener: Option<&OwnedFd>, running: Running, killed: Option<String>) -> io::Result<()> {
    kill(&running)?;
    let used = bastle_sys::usage::at_the_end_of(running.pid)?;
    let wall_ms = u64::try_from(running.started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (hits, group_peak) = running.group.readings();
    let usage = Usage {
        wall_ms,
        cpu_ms: used.cpu_ms,
        peak_memory: group_peak.unwrap_or(used.peak_memory),
        bytes_written: used.bytes_written,
        ..Usage::default()
    };
    let Running { group, mounts, .. } = running;
    let removed = group.remove();
    if let Some(control) = listener {
        for hit in hits {
            socket::send(control, &FromSpawner::Event(Event::Limit(hit)), &[])?;
        }
        socket::send(control, &FromSpawner::Ended { usage, killed }, &[])?;
    }
    drop(mounts);
    removed
}

/// A timer by the monotonic clock, armed with the wall-time limit.
fn clock(wall_ms: Option<u64>) -> io::Result<Option<OwnedFd>> {
    let Some(ms) = wall_ms else { return Ok(None) };
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let never = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let due = Timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ms % 1000).unwrap_or(0) * 1_000_000,
    };
    rustix::time::timerfd_settime(
        &timer,
        TimerfdTimerFlags::empty(),
        &Itimerspec {
            it_interval: never,
            it_value: due,
        },
    )?;
    Ok(Some(timer))
}
