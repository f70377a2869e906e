//! Prove, then run: attempts that must fail, each beside a control that must succeed, made by the very process
//! that becomes the agent, or for what mounts alone hold by init, which has the same ones and the same Landlock
//! domain. What was not proven is not claimed.
mod baseline;
mod command;
mod descriptors;
mod egress;
mod files;
mod kernel;
mod landlock;
mod limits;
mod path_sockets;
mod programs;
mod server;
mod spaces;

use bastle_contract::{EnvName, Guarantee, Handover, Network, ProbeResult, Verdict};
use rustix::io::Errno;
use std::io::Read;
use std::os::fd::RawFd;

pub(crate) use baseline::Baseline;
pub(crate) use command::of_command;
pub(crate) use landlock::Before;
pub(crate) use path_sockets::Outside;
pub(crate) use server::{BeforeLandlock, Unconfined};

/// Probes of what init and the agent's process have in common: mounts and Landlock. Init runs them while the other one puts
/// its filter on.
pub(crate) fn of_place(handover: &Handover, baseline: &Baseline) -> Vec<ProbeResult> {
    let mut results = Vec::with_capacity(64);
    files::of_place(&handover.plan, baseline, &mut results);
    programs::of_place(baseline, &mut results);
    results.extend_from_slice(&baseline.landlock);
    results.extend(baseline.path_socket.clone());
    results
}

/// Probes of the process that becomes the agent: what holds for it whatever it will execute.
pub(crate) fn of_agent(handover: &Handover, baseline: &Baseline) -> Vec<ProbeResult> {
    let plan = &handover.plan;
    let mut results = Vec::with_capacity(40);
    limits::probe(handover, baseline, &mut results);
    spaces::identity(handover, &mut results);
    spaces::of_place(handover, &mut results);
    kernel::probe(plan, baseline, &mut results);
    files::of_agent(plan, baseline, &mut results);
    programs::of_agent(baseline, &mut results);
    results
}

/// Probes of what it will execute with. `own` is the one descriptor above 2 it still has.
pub(crate) fn of_inheritance(env: &[(EnvName, String)], own: RawFd) -> Vec<ProbeResult> {
    let mut results = Vec::with_capacity(2);
    descriptors::probe(env, own, &mut results);
    results
}

/// Probes of the way out, where there is one.
pub(crate) fn of_network(network: &Network) -> Vec<ProbeResult> {
    let mut results = Vec::new();
    egress::probe(network, &mut results);
    results
}

/// Probes of the covers once more, for a fence that has stood for a while.
pub(crate) fn of_covers(handover: &Handover) -> Vec<ProbeResult> {
    let mut results = Vec::new();
    files::masks(&handover.plan, &mut results);
    results
}

/// The text of a file of `/proc`, empty where it cannot be read. These files have no size, so that a reader who begins
/// with a small buffer asks many times.
fn text_of(path: &str) -> String {
    let mut bytes = Vec::with_capacity(8192);
    let read = std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    match (read, String::from_utf8(bytes)) {
        (Ok(_), Ok(text)) => text,
        (Err(_), _) | (_, Err(_)) => String::new(),
    }
}

/// A probe under construction.
struct Probe {
    guarantee: Guarantee,
    attempt: String,
    expected: String,
}

impl Probe {
    fn new(guarantee: Guarantee, attempt: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            guarantee,
            attempt: attempt.into(),
            expected: expected.into(),
        }
    }

    /// Judges: the control first, because without it the attempt says nothing.
    fn judge(self, observed: impl Into<String>, control: &Control) -> ProbeResult {
        let observed = observed.into();
        let verdict = match (control.held, observed == self.expected) {
            (false, _) => Verdict::Inconclusive,
            (true, true) => Verdict::Held,
            (true, false) => Verdict::Broken,
        };
        let Self {
            guarantee,
            attempt,
            expected,
        } = self;
        ProbeResult {
            guarantee,
            attempt,
            expected,
            observed,
            control: control.text.clone(),
            verdict,
        }
    }
}

/// The twin of an attempt.
#[derive(Clone, Debug)]
struct Control {
    text: String,
    held: bool,
}

impl Control {
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "one fact, named by the text beside it"
    )]
    fn new(text: &str, held: bool) -> Self {
        Self {
            text: format!("{text}: {}", if held { "ok" } else { "FAILED" }),
            held,
        }
    }
}

/// The short name of an errno, or `succeeded`.
fn outcome<T>(result: Result<T, Errno>) -> String {
    result.map_or_else(|errno| name(errno.raw_os_error()), |_| "succeeded".to_owned())
}

fn name(errno: i32) -> String {
    match errno {
        libc::EPERM => "EPERM".into(),
        libc::ENOENT => "ENOENT".into(),
        libc::EACCES => "EACCES".into(),
        libc::EAGAIN => "EAGAIN".into(),
        libc::EROFS => "EROFS".into(),
        libc::EFAULT => "EFAULT".into(),
        libc::ENOEXEC => "ENOEXEC".into(),
        libc::ENOSYS => "ENOSYS".into(),
        libc::ENETUNREACH => "ENETUNREACH".into(),
        libc::EAFNOSUPPORT => "EAFNOSUPPORT".into(),
        libc::ENOTTY => "ENOTTY".into(),
        libc::EINVAL => "EINVAL".into(),
        libc::ESRCH => "ESRCH".into(),
        libc::EFBIG => "EFBIG".into(),
        libc::ECONNREFUSED => "ECONNREFUSED".into(),
        other => format!("errno {other}"),
    }
}
