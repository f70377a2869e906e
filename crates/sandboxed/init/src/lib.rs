//! PID 1 of a sandbox: take the identity, build the root, confine itself, start the agent's process, prove the
//! fence from inside it, wait for the word, then guard, relay events and reap.
//!
//! Runs inside every namespace of the sandbox with the agent's own unprivileged identity. Trusts the plan and
//! control; does not trust one byte the agent writes.
#![forbid(unsafe_code)]

mod agent;
mod broker;
mod command;
mod confine;
mod dials;
mod execs;
mod filter;
mod guard;
mod hooks;
mod identity;
mod network;
mod probes;
mod root;
mod server;
mod step;
mod steps;
mod supervise;
mod watchdog;

pub use server::fence_server;

use agent::{FromAgent, ToAgent};
use bastle_contract::socket;
use bastle_contract::{
    Birth, CapabilityStatement, Code, Event, Fault, FromInit, Handover, LaunchParts, ProbeResult, Stdio,
    ToChild, ToInit,
};
use bastle_sys::clone::{Cloned, Namespaces, clone_into};
use filter::Filters;
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
pub fn enter(birth: Birth) -> ! {
    let mut steps = Steps::start();
    // Whatever went wrong is told once there is somebody to tell: control's line comes with the plan.
    let mut ahead = ahead(&birth);
    let code = match receive_plan(&birth.line) {
        Ok(None) => 0,
        Ok(Some(parts)) => {
            steps.restart();
            let outcome = match release(birth, parts, &mut ahead) {
                Ok(Some((handover, sources))) => {
                    let carried =
                        ahead.and_then(|(root, filters)| run(&handover, root, &filters, sources, steps));
                    carried.or_else(|fault| {
                        // The spawner sees the exit and control the closed socket even when this cannot be told.
                        socket::send(&handover.events, &FromInit::Failed(fault), &[]).map(|()| 125)
                    })
                }
                Ok(None) => Ok(0),
                Err(_) => Ok(125),
            };
            outcome.unwrap_or(124)
        }
        Err(_) => 125,
    };
    bastle_sys::exec::exit(code)
}

/// What is there before a sandbox is released; or what went wrong with it.
type Ahead = Result<(root::Unfilled, Filters), Fault>;

/// Everything that no plan changes: done while the policy is still being read elsewhere.
fn ahead(birth: &Birth) -> Ahead {
    bastle_sys::fd::close_all_except(&[birth.line.as_raw_fd()]).step("closing descriptors", "close_range")?;
    rustix::thread::set_name(c"bastle-init").step("own name", "prctl")?;
    // Also for the agent's process, which is a copy of this one.
    bastle_sys::signal::default_all();
    silence()?;
    match socket::receive::<ToChild>(&birth.line).step("waiting for the spawner", "identity")? {
        Some((ToChild::Mapped, _)) => {}
        Some(_) | None => return Err("it is gone").step("waiting for the spawner", "identity"),
    }
    let groups = if birth.by_root {
        identity::Groups::OfRoot
    } else {
        identity::Groups::OfAnOrdinaryUser
    };
    identity::assume(birth.identity, groups)?;
    identity::die_with_parent()?;
    // Changing the identity made this process undumpable, and its own /proc files root's.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).step("own /proc files", "prctl")?;
    if hooks::enforces("capabilities") {
        identity::empty_bounding_set()?;
    }
    if hooks::enforces("host-name") {
        rustix::system::sethostname(HOST_NAME.as_bytes()).step("host name", "sethostname")?;
    }
    network::loopback()?;
    Ok((root::begin()?, Filters::ahead()))
}

/// The launch frame's descriptors; `None` when no sandbox is wanted after all.
fn receive_plan(line: &OwnedFd) -> Result<Option<LaunchParts>, String> {
    match socket::receive::<ToChild>(line) {
        Ok(Some((ToChild::Plan, descriptors))) => LaunchParts::read(descriptors).map(Some),
        Ok(Some(other)) => Err(format!("unexpected {:?}", other.0)),
        Ok(None) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits for the binds and the word. `None`: the plan was not admitted, and the spawner has said why.
fn release(
    birth: Birth,
    parts: LaunchParts,
    ahead: &mut Ahead,
) -> std::io::Result<Option<(Handover, Vec<OwnedFd>)>> {
    let mut sources = Vec::new();
    loop {
        match socket::receive::<ToChild>(&birth.line)? {
            // While the spawner opens the binds.
            Some((ToChild::Admitted, _)) => {
                let laid = ahead.as_mut().ok().map(|(root, _)| root.lay_out(&parts.plan));
                if let Some(Err(fault)) = laid {
                    *ahead = Err(fault);
                }
            }
            Some((ToChild::Sources, some)) => sources.extend(some),
            Some((ToChild::Release { fence, cgroups }, _)) => {
                let LaunchParts {
                    plan,
                    events,
                    attachments,
                    stdio,
                } = parts;
                let Birth {
                    identity,
                    by_root: _,
                    line: _,
                    host_namespaces,
                } = birth;
                let handover = Handover {
                    plan,
                    identity,
                    fence,
                    events,
                    attachments,
                    stdio,
                    cgroups,
                    host_namespaces,
                };
                return Ok(Some((handover, sources)));
            }
            Some((ToChild::Mapped | ToChild::Plan, _)) => {
                return Err(std::io::Error::other("the spawner's frames are out of order"));
            }
            None => return Ok(None),
        }
    }
}

fn run(
    handover: &Handover,
    root: root::Unfilled,
    filters: &Filters,
    sources: Vec<OwnedFd>,
    mut steps: Steps,
) -> Result<u8, Fault> {
    steps.done("release");
    let (baseline, terminal) = build(handover, root, sources, &mut steps)?;
    let (master, slave) = match terminal {
        Some((master, slave)) => (Some(master), Some(slave)),
        None => (None, None),
    };
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    let mut guard = Guard::new(&handover.plan);
    let mut events = Vec::new();
    let prepared = prepare(handover, slave, (&baseline, filters), &mut guard, &mut |event| {
        events.push(event)
    })?;
    steps.add("fork", &prepared.steps);
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
    let common = command::Common {
        plan: &handover.plan,
        baseline: &baseline,
        filters,
        mask,
    };
    supervise::supervise(handover, prepared.into(), guard, common)
}

type Terminal = Option<(OwnedFd, OwnedFd)>;

/// Everything up to the point where this process is as confined as the agent will be, but for the filter.
fn build(
    handover: &Handover,
    root: root::Unfilled,
    sources: Vec<OwnedFd>,
    steps: &mut Steps,
) -> Result<(Baseline, Terminal), Fault> {
    let baseline = Baseline::before_root();
    if hooks::enforces("cgroup-namespace") {
        bastle_sys::clone::unshare_cgroup().step("cgroup namespace", "unshare")?;
    }
    let broker = root::finish(root, &handover.plan, sources, handover.attachments.as_ref())?;
    broker::hand_over(broker, &handover.events)?;
    steps.done("root");
    network::faces(&handover.plan.network, &handover.events)?;
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
        identity::empty_sets()?;
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

/// A pseudo-terminal of the sandbox's own file system: the agent's terminal is never the caller's.
fn terminal(stdio: Stdio) -> Result<Terminal, Fault> {
    match stdio {
        Stdio::Pty { rows, cols } => open_terminal(rows, cols).map(Some),
        Stdio::Pipes => Ok(None),
    }
}

/// Its master and its slave.
pub(crate) fn open_terminal(rows: u16, cols: u16) -> Result<(OwnedFd, OwnedFd), Fault> {
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
    Ok((master, slave))
}

/// Forks the agent's process and serves its guarded calls until it has reported its probes.
fn prepare(
    handover: &Handover,
    slave: Option<OwnedFd>,
    (baseline, filters): (&Baseline, &Filters),
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
        Cloned::Child => agent::become_agent(handover, slave, (baseline, filters), &theirs),
        Cloned::Parent { pid, pidfd: _ } => pid,
    };
    drop(theirs);
    // While the other one puts its own filter on. From here on no other process of the sandbox can look into this one.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hiding init", "prctl")?;
    let mut place = probes::of_place(handover, baseline);
    bastle_sys::seccomp::install(filters.init()).step("filter of init", "seccomp")?;
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
                place.extend(probes);
                return Ok(Prepared {
                    pid,
                    line: ours,
                    listener,
                    probes: place,
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
