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
pub mod fuzzing;
mod guard;
mod hooks;
mod identity;
mod last_words;
mod network;
mod probes;
mod programs;
mod root;
mod server;
mod stand;
mod step;
mod steps;
mod still;
mod supervise;
mod watchdog;

pub use server::fence_server;

use agent::{FromAgent, ToAgent};
use bastle_contract::socket;
use bastle_contract::{
    Birth, CapabilityStatement, Code, Fault, FromInit, Handover, LaunchParts, ProbeResult, Stdio, ToChild,
    ToInit,
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
struct Agent {
    pid: u32,
    line: OwnedFd,
    listener: Option<OwnedFd>,
}

/// What was found out about a fence, and how long each step took.
type Report = (Vec<ProbeResult>, Vec<(String, u64)>);

/// Does once what every copy of this process would do: for one that will become init many times by copies.
pub fn get_ready() {
    know_page_size();
    confine::available();
    Filters::ahead();
}

/// Reads the page size into the library's cache. Before Linux 6.4 it is only in `/proc/self/auxv`, which a process that is not
/// dumpable cannot read, and a later caller would abort.
fn know_page_size() {
    std::hint::black_box(rustix::param::page_size());
}

/// Becomes init. Never returns; everything in the sandbox ends with it.
pub fn enter(birth: Birth) -> ! {
    let mut birth = birth;
    let plan = birth.plan.take();
    // Whatever went wrong is told once there is somebody to tell: control's line comes with the plan.
    let ahead = ahead(&birth);
    let code = match plan {
        Some(plan) => stand::stand(birth, plan, ahead),
        None => by_order(birth, ahead),
    };
    bastle_sys::exec::exit(code)
}

/// Waits for a plan and carries it out.
fn by_order(birth: Birth, mut ahead: Ahead) -> u8 {
    let mut steps = Steps::start();
    match receive_plan(&birth.line) {
        Ok(None) => 0,
        Ok(Some(parts)) => {
            steps.restart();
            let outcome = match release(birth, parts, &mut ahead) {
                Ok(Some((handover, sources))) => {
                    let heard = last_words::leave_to(&handover.events).step("last words", "dup");
                    let carried = heard
                        .and(ahead)
                        .and_then(|(root, filters)| run(&handover, root, filters, sources, steps));
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
    }
}

/// What is there before a sandbox is released; or what went wrong with it.
type Ahead = Result<(root::Unfilled, &'static Filters), Fault>;

/// Everything that no plan changes: done while the policy is still being read elsewhere.
fn ahead(birth: &Birth) -> Ahead {
    know_page_size();
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
                    by_root,
                    line: _,
                    host_namespaces,
                    out_of_reach,
                    plan: _,
                } = birth;
                let handover = Handover {
                    plan,
                    identity,
                    by_root,
                    fence,
                    events,
                    attachments,
                    stdio,
                    cgroups,
                    host_namespaces,
                    out_of_reach,
                };
                return Ok(Some((handover, sources)));
            }
            Some((ToChild::Mapped | ToChild::Plan | ToChild::Claim(_) | ToChild::Confirmed, _)) => {
                return Err(out_of_order());
            }
            None => return Ok(None),
        }
    }
}

fn out_of_order() -> std::io::Error {
    std::io::Error::other("the spawner's frames are out of order")
}

fn run(
    handover: &Handover,
    root: root::Unfilled,
    filters: &Filters,
    sources: Vec<OwnedFd>,
    mut steps: Steps,
) -> Result<u8, Fault> {
    steps.done("release");
    let (mut baseline, _) = build(handover, root, sources, Some(&handover.events), &mut steps)?;
    let (master, slave) = terminal(handover.plan.stdio)?.unzip();
    confine(handover, &mut baseline)?;
    steps.done("confinement");
    let mask = own_mask();
    let mut guard = Guard::new(&handover.plan).with_programs(baseline.programs.as_ref());
    let start = agent::Start::AtOnce(slave);
    // What the probes provoke is no denial of the agent's.
    let (agent, (probes, parts)) = prepare(handover, start, (&baseline, filters), &mut guard)?;
    steps.add("fork", &parts);
    let common = command::Common {
        plan: &handover.plan,
        baseline: &baseline,
        filters,
        mask,
    };
    start_agent(handover, agent, (probes, steps.taken()), master, (guard, common))
}

/// The mask of permissions that the agent starts with.
fn own_mask() -> Mode {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask
}

/// Tells what was proven, and executes the agent when control says so.
fn start_agent(
    handover: &Handover,
    agent: Agent,
    (probes, steps): Report,
    master: Option<OwnedFd>,
    (mut guard, common): (Guard, command::Common<'_>),
) -> Result<u8, Fault> {
    let statement = CapabilityStatement {
        fence: handover.fence.clone(),
        identity: handover.identity,
        probes,
    };
    // Whatever the plan lists: each part of Landlock, or what replaces it.
    let landlock = handover.plan.landlock_guarantees();
    let proven = statement.proves(&handover.plan.guarantees) && statement.proves(&landlock);
    let ready = FromInit::Ready { statement, steps };
    socket::send(
        &handover.events,
        &ready,
        master.as_ref().map(AsFd::as_fd).as_slice(),
    )
    .step("reporting", "ready")?;
    drop((ready, master));
    // Control judges too, but a fence that is not proven is not started even if it says so.
    if !proven {
        return Ok(125);
    }
    match socket::receive::<ToInit>(&handover.events).step("waiting for the word", "control")? {
        Some((ToInit::Go, _)) => {}
        Some(_) => return Err("another frame came first").step("waiting for the word", "control"),
        None => return Ok(125),
    }
    hooks::panic_at("start");
    guard.expect(agent.pid, guard::Expected::Launch);
    socket::send(&agent.line, &ToAgent::Go, &[]).step("starting the agent", "go")?;
    supervise::supervise(handover, agent.into(), guard, common)
}

type Terminal = Option<(OwnedFd, OwnedFd)>;

/// Sockets that others will serve, made inside because a socket belongs to where it was made.
struct Outlets {
    broker: Option<OwnedFd>,
    faces: Vec<OwnedFd>,
}

impl Outlets {
    /// Hands everything to control; no copy stays.
    fn hand_over(&mut self, control: &OwnedFd) -> Result<(), Fault> {
        broker::hand_over(self.broker.take(), control)?;
        network::hand_over(std::mem::take(&mut self.faces), control)
    }
}

/// Everything up to the point where this process confines itself. Outlets go to `control` as soon as they are there, or
/// stay until somebody is.
fn build(
    handover: &Handover,
    root: root::Unfilled,
    sources: Vec<OwnedFd>,
    control: Option<&OwnedFd>,
    steps: &mut Steps,
) -> Result<(Baseline, Outlets), Fault> {
    let baseline = Baseline::before_root();
    if hooks::enforces("cgroup-namespace") {
        bastle_sys::clone::unshare_cgroup().step("cgroup namespace", "unshare")?;
    }
    let root::Finished { broker, path_socket } =
        root::finish(root, &handover.plan, sources, handover.attachments.as_ref())?;
    let faces = Vec::new();
    let mut outlets = Outlets { broker, faces };
    if let Some(control) = control {
        outlets.hand_over(control)?;
    }
    steps.done("root");
    outlets.faces = network::faces(&handover.plan.network)?;
    if let Some(control) = control {
        outlets.hand_over(control)?;
    }
    steps.done("network");
    let mut baseline = baseline.before_confinement(&handover.plan);
    baseline.path_socket = path_socket;
    Ok((baseline, outlets))
}

/// After this, this process is as confined as the agent will be, but for the filter.
fn confine(handover: &Handover, baseline: &mut Baseline) -> Result<(), Fault> {
    let plan = &handover.plan;
    let before = probes::Before::confinement(plan);
    if hooks::enforces("rlimits") {
        confine::limits(plan)?;
    }
    if hooks::enforces("no-new-privs") {
        confine::no_new_privs()?;
    }
    if hooks::enforces("landlock") {
        confine::landlock(plan, baseline.programs.as_ref())?;
    }
    // Last of all: everything above needs them.
    if hooks::enforces("capabilities") {
        identity::empty_sets()?;
    }
    baseline.landlock = before.again(handover);
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

/// Forks the agent's process, proves what the two have in common, and hears what the other one found.
fn prepare(
    handover: &Handover,
    start: agent::Start,
    (baseline, filters): (&Baseline, &Filters),
    guard: &mut Guard,
) -> Result<(Agent, Report), Fault> {
    let what = "the agent's process";
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .step(what, "socketpair")?;
    let pid = match clone_into(Namespaces::NONE, None).step(what, "clone")? {
        Cloned::Child => agent::become_agent(handover, start, (baseline, filters), &theirs),
        Cloned::Parent { pid, pidfd: _ } => pid,
    };
    drop((theirs, start));
    // While the other one puts its own filter on. From here on no other process of the sandbox can look into this one.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hiding init", "prctl")?;
    let mut place = probes::of_place(handover, baseline);
    bastle_sys::seccomp::install(filters.init()).step("filter of init", "seccomp")?;
    let mut agent = Agent {
        pid,
        line: ours,
        listener: None,
    };
    let (probes, steps) = attend(&mut agent, guard)?;
    place.extend(probes);
    Ok((agent, (place, steps)))
}

/// Serves the guarded calls of the agent's process until it has told what its probes found. What these provoke is no
/// denial of the agent's.
fn attend(agent: &mut Agent, guard: &mut Guard) -> Result<Report, Fault> {
    let what = "the agent's process";
    loop {
        let mut waiting = vec![PollFd::new(&agent.line, PollFlags::IN)];
        if let Some(listener) = &agent.listener {
            waiting.push(PollFd::new(listener, PollFlags::IN));
        }
        rustix::event::poll(&mut waiting, None).step(what, "poll")?;
        let (spoke, called) = (
            !waiting[0].revents().is_empty(),
            waiting
                .get(1)
                .is_some_and(|fd| fd.revents().contains(PollFlags::IN)),
        );
        if called && let Some(listener) = &agent.listener {
            guard.serve(listener.as_fd(), &mut |_| ()).step(what, "guard")?;
        }
        if !spoke {
            continue;
        }
        match socket::receive::<FromAgent>(&agent.line).step(what, "report")? {
            Some((FromAgent::Filtered, mut fds)) => {
                agent.listener = fds.pop();
                if let Some(listener) = &agent.listener {
                    bastle_sys::seccomp::prefer_same_processor(listener.as_fd());
                }
            }
            Some((FromAgent::Probed(probes, steps), _)) => return Ok((probes, steps)),
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

impl From<Agent> for supervise::Agent {
    fn from(agent: Agent) -> Self {
        let Agent { pid, line, listener } = agent;
        Self { pid, line, listener }
    }
}
