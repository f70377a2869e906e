//! PID 1 of a sandbox: take the identity, build the root, confine itself, start the agent's process, prove the
//! fence from inside it, wait for the word, then guard, relay events and reap.
//!
//! Runs inside every namespace of the sandbox with the agent's own unprivileged identity. Trusts the plan and
//! control; does not trust one byte the agent writes.
#![forbid(unsafe_code)]

mod agent;
mod confine;
mod filter;
mod guard;
mod hooks;
mod identity;
mod probes;
mod root;
mod step;
mod steps;
mod supervise;
mod watchdog;

use agent::{FromAgent, ToAgent};
use bastle_contract::socket;
use bastle_contract::{
    CapabilityStatement, Code, Event, Fault, FromInit, Handover, ProbeResult, Stdio, ToInit,
};
use bastle_sys::clone::{Cloned, Namespaces, clone_into};
use guard::Guard;
use probes::Baseline;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::DumpableBehavior;
use rustix::pty::OpenptFlags;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use step::Step;
use steps::Steps;

/// The name of every sandbox's host: it tells nothing about the real one.
const HOST_NAME: &str = "bastle";

/// The agent's process before it executes.
struct Prepared {
    pid: u32,
    line: OwnedFd,
    listener: Option<OwnedFd>,
    probes: Vec<ProbeResult>,
    steps: Vec<(String, u64)>,
}

/// Becomes init. Never returns; everything in the sandbox ends with it.
pub fn enter(mut handover: Handover) -> ! {
    let sources = std::mem::take(&mut handover.sources);
    let code = match run(&handover, sources) {
        Ok(code) => code,
        Err(fault) => {
            // The spawner sees the exit and control the closed socket even when this cannot be told.
            let told = socket::send(&handover.events, &FromInit::Failed(fault), &[]);
            if told.is_ok() { 125 } else { 124 }
        }
    };
    bastle_sys::exec::exit(code)
}

fn run(handover: &Handover, sources: Vec<OwnedFd>) -> Result<u8, Fault> {
    let mut steps = Steps::start();
    let (baseline, terminal) = build(handover, sources, &mut steps)?;
    let (master, slave) = match terminal {
        Some((master, slave)) => (Some(master), Some(slave)),
        None => (None, None),
    };
    let mut guard = Guard::new(&handover.plan);
    let mut events = Vec::new();
    let prepared = prepare(handover, slave, &baseline, &mut guard, &mut |event| {
        events.push(event)
    })?;
    steps.add("fork", &prepared.steps);
    // From here on no other process of the sandbox can look into this one.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hiding init", "prctl")?;
    let statement = CapabilityStatement {
        fence: handover.fence.clone(),
        identity: handover.identity,
        probes: prepared.probes.clone(),
    };
    let proven = statement.proves(&handover.plan.guarantees);
    socket::send(
        &handover.events,
        &FromInit::Ready {
            statement,
            steps: steps.taken(),
        },
        master.as_ref().map(AsFd::as_fd).as_slice(),
    )
    .step("reporting", "ready")?;
    drop(master);
    // While control writes the statement down.
    bastle_sys::seccomp::install(&filter::for_init()).step("filter of init", "seccomp")?;
    // Control judges too, but a fence that is not proven is not started even if it says so.
    if !proven {
        return Ok(125);
    }
    match socket::receive::<ToInit>(&handover.events).step("waiting for the word", "control")? {
        Some((ToInit::Go, _)) => {}
        Some(_) | None => return Ok(125),
    }
    // What the probes provoked is no denial of the agent's.
    events.clear();
    socket::send(&prepared.line, &ToAgent::Go, &[]).step("starting the agent", "go")?;
    supervise::supervise(handover, prepared.into(), guard)
}

type Terminal = Option<(OwnedFd, OwnedFd)>;

/// Everything up to the point where this process is as confined as the agent will be, but for the filter.
fn build(
    handover: &Handover,
    sources: Vec<OwnedFd>,
    steps: &mut Steps,
) -> Result<(Baseline, Terminal), Fault> {
    let keep: Vec<i32> = [handover.release.as_raw_fd(), handover.events.as_raw_fd()]
        .into_iter()
        .chain(
            sources
                .iter()
                .chain(&handover.stdio)
                .chain(&handover.attachments)
                .map(AsRawFd::as_raw_fd),
        )
        .collect();
    bastle_sys::fd::close_all_except(&keep).step("closing descriptors", "close_range")?;
    silence()?;
    wait_for_release(&handover.release)?;
    steps.done("release");
    let baseline = Baseline::before_root();
    if hooks::enforces("cgroup-namespace") {
        bastle_sys::clone::unshare_cgroup().step("cgroup namespace", "unshare")?;
    }
    let groups = if sources.is_empty() {
        identity::Groups::OfAnOrdinaryUser
    } else {
        identity::Groups::OfRoot
    };
    identity::assume(handover.identity, groups)?;
    identity::die_with_parent()?;
    // Changing the identity made this process undumpable, and its own /proc files root's.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).step("own /proc files", "prctl")?;
    steps.done("identity");
    root::build(&handover.plan, sources, handover.attachments.as_ref())?;
    steps.done("root");
    if hooks::enforces("host-name") {
        rustix::system::sethostname(HOST_NAME.as_bytes()).step("host name", "sethostname")?;
    }
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .step("loopback", "socket")?;
    bastle_sys::net::loopback_up(socket.as_fd()).step("loopback", "lo")?;
    steps.done("network");
    let terminal = terminal(handover.plan.stdio)?;
    let baseline = baseline.before_confinement();
    confine(handover)?;
    steps.done("confinement");
    Ok((baseline, terminal))
}

fn confine(handover: &Handover) -> Result<(), Fault> {
    let plan = &handover.plan;
    if hooks::enforces("rlimits") {
        confine::limits(plan)?;
    }
    if hooks::enforces("no-new-privs") {
        confine::no_new_privs()?;
    }
    if hooks::enforces("landlock") {
        confine::landlock(plan)?;
    }
    // Last of all: everything above needs them.
    if hooks::enforces("capabilities") {
        identity::drop_capabilities()?;
    }
    Ok(())
}

/// Lets go of the spawner's own streams: its socket to control and the caller's terminal have no business in here.
fn silence() -> Result<(), Fault> {
    let what = "own streams";
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty()).step(what, "/dev/null")?;
    rustix::stdio::dup2_stdin(&null).step(what, "stdin")?;
    rustix::stdio::dup2_stdout(&null).step(what, "stdout")?;
    rustix::stdio::dup2_stderr(&null).step(what, "stderr")
}

/// One byte: identity and cgroups are set. End of file: the spawner is gone.
fn wait_for_release(release: &OwnedFd) -> Result<(), Fault> {
    let mut byte = [0];
    match rustix::io::read(release, &mut byte).step("waiting for the spawner", "release")? {
        1 => Ok(()),
        _ => Err("it is gone").step("waiting for the spawner", "release"),
    }
}

/// A pseudo-terminal of the sandbox's own file system: the agent's terminal is never the caller's.
fn terminal(stdio: Stdio) -> Result<Terminal, Fault> {
    let Stdio::Pty { rows, cols } = stdio else {
        return Ok(None);
    };
    let what = "own terminal";
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .step(what, "openpt")?;
    rustix::pty::unlockpt(&master).step(what, "unlockpt")?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).step(what, "open the slave")?;
    let size = rustix::termios::Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&master, size).step(what, "size")?;
    Ok(Some((master, slave)))
}

/// Forks the agent's process and serves its guarded calls until it has reported its probes.
fn prepare(
    handover: &Handover,
    slave: Option<OwnedFd>,
    baseline: &Baseline,
    guard: &mut Guard,
    tell: &mut dyn FnMut(Event),
) -> Result<Prepared, Fault> {
    let what = "the agent's process";
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .step(what, "socketpair")?;
    let pid = match clone_into(Namespaces::NONE, None).step(what, "clone")? {
        Cloned::Child => agent::become_agent(handover, slave, baseline, &theirs),
        Cloned::Parent { pid, pidfd: _ } => pid,
    };
    drop(theirs);
    let mut listener: Option<OwnedFd> = None;
    loop {
        let mut waiting = vec![PollFd::new(&ours, PollFlags::IN)];
        if let Some(listener) = &listener {
            waiting.push(PollFd::new(listener, PollFlags::IN));
        }
        rustix::event::poll(&mut waiting, None).step(what, "poll")?;
        let (spoke, called) = (
            !waiting[0].revents().is_empty(),
            waiting
                .get(1)
                .is_some_and(|fd| fd.revents().contains(PollFlags::IN)),
        );
        if called && let Some(listener) = &listener {
            guard.serve(listener.as_fd(), tell).step(what, "guard")?;
        }
        if !spoke {
            continue;
        }
        match socket::receive::<FromAgent>(&ours).step(what, "report")? {
            Some((FromAgent::Filtered, mut fds)) => {
                listener = fds.pop();
                if let Some(listener) = &listener {
                    bastle_sys::seccomp::prefer_same_processor(listener.as_fd());
                }
            }
            Some((FromAgent::Probed(probes, steps), _)) => {
                return Ok(Prepared {
                    pid,
                    line: ours,
                    listener,
                    probes,
                    steps,
                });
            }
            Some((FromAgent::Failed(fault), _)) => return Err(fault),
            Some((FromAgent::NotExecuted(..), _)) | None => {
                return Err(Fault::new(
                    Code::FenceLost,
                    "the agent's process ended before it was started",
                    "it did not say why",
                ));
            }
        }
    }
}

impl From<Prepared> for supervise::Agent {
    fn from(prepared: Prepared) -> Self {
        let Prepared {
            pid,
            line,
            listener,
            probes: _,
            steps: _,
        } = prepared;
        Self { pid, line, listener }
    }
}
