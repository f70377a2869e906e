//! The life of a run outside: the clock, the kill, the freezer, and the clean-up at the end.
use crate::launch::Running;
use bastle_contract::socket;
use bastle_contract::{Code, Event, Fault, FromSpawner, LimitHit, LimitKind, ToSpawner, Usage};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Serves the run until everything of it is gone; returns the process's exit code.
pub(crate) fn supervise(control: &OwnedFd, running: Running) -> u8 {
    let launched = FromSpawner::Launched {
        pid: running.pid,
        cgroups: running.group.directories(),
    };
    let outcome = socket::send(control, &launched, &[]).and_then(|()| watch(control, &running));
    // Control is gone or the kernel failed us: end everything all the same, with nobody to tell.
    let listener = outcome.is_ok().then_some(control);
    let ended = end(listener, running, outcome.unwrap_or_default());
    u8::from(ended.is_err())
}

/// Waits for init's end; says why the run was killed, if it was.
fn watch(control: &OwnedFd, running: &Running) -> io::Result<Option<String>> {
    let clock = clock(running.wall_ms)?;
    let mut killed = None;
    loop {
        let mut waiting = vec![
            PollFd::new(&running.pidfd, PollFlags::IN),
            PollFd::new(control, PollFlags::IN),
        ];
        if killed.is_none() {
            waiting.extend(clock.as_ref().map(|clock| PollFd::new(clock, PollFlags::IN)));
        }
        match rustix::event::poll(&mut waiting, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            return Ok(killed);
        }
        if ready.get(2) == Some(&true) {
            kill(running)?;
            killed = Some("timeout".to_owned());
            let effect = "every process of the run was killed".to_owned();
            let hit = LimitHit {
                limit: LimitKind::WallTime,
                value: running.wall_ms.unwrap_or(0),
                effect,
            };
            socket::send(control, &FromSpawner::Event(Event::Limit(hit)), &[])?;
        }
        if ready[1] && !obey(control, running, &mut killed)? {
            return Ok(Some("control is gone".to_owned()));
        }
    }
}

/// One request of control; `false` when control is gone.
fn obey(control: &OwnedFd, running: &Running, killed: &mut Option<String>) -> io::Result<bool> {
    let reply = match socket::receive::<ToSpawner>(control)? {
        None => return Ok(false),
        Some((ToSpawner::Kill, _)) => {
            kill(running)?;
            *killed = Some("stopped".to_owned());
            return Ok(true);
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
    rustix::process::waitid(WaitId::PidFd(running.pidfd.as_fd()), WaitIdOptions::EXITED)?;
    let (cpu_ms, peak_memory) = bastle_sys::usage::of_children()?;
    let wall_ms = u64::try_from(running.started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (hits, group_peak) = running.group.readings();
    let usage = Usage {
        wall_ms,
        cpu_ms,
        peak_memory: group_peak.unwrap_or(peak_memory),
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
