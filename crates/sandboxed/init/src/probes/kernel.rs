//! Probes of privileges and the system-call filter.
use super::{Baseline, Control, Probe, name, outcome};
use bastle_contract::{Guarantee, LaunchPlan, ProbeResult};
#[cfg(target_arch = "x86_64")]
use bastle_sys::probe::Tried;
use bastle_sys::probe::{self, Outcome};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::AsFd;

pub(super) fn probe(_plan: &LaunchPlan, baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    capabilities(baseline, results);
    no_new_privs(results);
    filter(baseline, results);
    namespaces(results);
    leader(results);
    terminal_input(results);
}

pub(super) fn no_new_privs(results: &mut Vec<ProbeResult>) {
    let set = rustix::thread::no_new_privs()
        .map_or_else(|errno| errno.to_string(), |set| u8::from(set).to_string());
    let control = Control::new("the flag can be read", rustix::thread::no_new_privs().is_ok());
    results.push(Probe::new(Guarantee::NoNewPrivs, "read no_new_privs", "1").judge(set, &control));
}

pub(super) fn capabilities(baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    let status = super::text_of("/proc/self/status");
    let sets: Vec<&str> = status.lines().filter(|line| line.starts_with("Cap")).collect();
    let held: Vec<&&str> = sets
        .iter()
        .filter(|line| {
            line.split_whitespace()
                .nth(1)
                .is_none_or(|bits| bits.bytes().any(|b| b != b'0'))
        })
        .collect();
    let observed = if held.is_empty() {
        "all five sets empty".to_owned()
    } else {
        format!("{held:?}")
    };
    let control = Control::new(
        "five sets are listed and they were not empty before",
        sets.len() == 5 && baseline.had_capabilities,
    );
    results.push(
        Probe::new(
            Guarantee::NoCapabilities,
            "read the capability sets",
            "all five sets empty",
        )
        .judge(observed, &control),
    );
}

fn filter(baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    let control = Control::new("getpid", probe::by_number(libc::SYS_getpid, [0; 3]).is_ok());
    let before = Control::new("the same before the filter", baseline.had_mempolicy);
    let mut attempt = |text: &str, expected: &str, seen: Outcome, control: &Control| {
        let observed = seen.map_or_else(name, |_| "succeeded".to_owned());
        results.push(Probe::new(Guarantee::SyscallsFiltered, text, expected).judge(observed, control));
    };
    attempt(
        "get_mempolicy",
        "EPERM",
        probe::by_number(libc::SYS_get_mempolicy, [0; 3]),
        &before,
    );
    attempt(
        "clone3",
        "ENOSYS",
        probe::by_number(libc::SYS_clone3, [0; 3]),
        &control,
    );
    #[cfg(target_arch = "x86_64")]
    {
        // In the order of `calls`.
        let texts = ["getpid through int 0x80", "getpid under its x32 number"];
        let calls: [fn() -> Outcome; 2] = [probe::getpid_through_int80, probe::getpid_through_x32];
        for (text, call) in texts.into_iter().zip(calls) {
            if baseline.had_filter {
                other_entry(text, call, &control, results);
            } else {
                let observed = call().map_or_else(name, |_| "succeeded".to_owned());
                results
                    .push(Probe::new(Guarantee::SyscallsFiltered, text, "ENOSYS").judge(observed, &control));
            }
        }
    }
    let mut attempt = |text: &str, expected: &str, seen: Outcome, control: &Control| {
        let observed = seen.map_or_else(name, |_| "succeeded".to_owned());
        results.push(Probe::new(Guarantee::SyscallsFiltered, text, expected).judge(observed, control));
    };
    let socket = |family: u16| {
        rustix::net::socket_with(
            AddressFamily::from_raw(family),
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map(|_| 0)
        .map_err(|e| e.raw_os_error())
    };
    let unix = Control::new("a Unix socket", socket(libc::AF_UNIX as u16).is_ok());
    attempt(
        "a packet socket",
        "EAFNOSUPPORT",
        socket(libc::AF_PACKET as u16),
        &unix,
    );
    attempt(
        "a vsock socket",
        "EAFNOSUPPORT",
        socket(libc::AF_VSOCK as u16),
        &unix,
    );
}

/// A call of another architecture under a filter that is not ours: that one may end whoever tries, so a child tries.
#[cfg(target_arch = "x86_64")]
fn other_entry(text: &str, call: fn() -> Outcome, control: &Control, results: &mut Vec<ProbeResult>) {
    let (expected, observed) = match probe::by_a_child(call) {
        // The stricter of two answers holds, and being ended is the strictest.
        Ok(Tried::Ended(libc::SIGSYS)) => ("SIGSYS", "SIGSYS".to_owned()),
        Ok(Tried::Ended(signal)) => ("ENOSYS", format!("signal {signal}")),
        Ok(Tried::Failed(errno)) => ("ENOSYS", name(errno)),
        Ok(Tried::Succeeded) => ("ENOSYS", "succeeded".to_owned()),
        Err(error) => ("ENOSYS", format!("no child could try: {error}")),
    };
    results.push(
        Probe::new(
            Guarantee::SyscallsFiltered,
            format!("{text}, by a child"),
            expected,
        )
        .judge(observed, control),
    );
}

fn namespaces(results: &mut Vec<ProbeResult>) {
    let control = Control::new(
        "the sandbox's own user namespace could be made",
        std::fs::metadata("/proc/self/ns/user").is_ok(),
    );
    let user = libc::c_long::from(libc::CLONE_NEWUSER);
    let observed =
        probe::by_number(libc::SYS_unshare, [user, 0, 0]).map_or_else(name, |_| "succeeded".to_owned());
    results.push(
        Probe::new(Guarantee::NoNestedNamespaces, "unshare a user namespace", "EPERM")
            .judge(observed, &control),
    );
    // With a stack of 0 this is fork: should it get through, the child must not live on as a second prober.
    let cloned = probe::by_number(libc::SYS_clone, [user | libc::c_long::from(libc::SIGCHLD), 0, 0]);
    if cloned == Ok(0) {
        bastle_sys::exec::exit(0);
    }
    let observed = cloned.map_or_else(name, |_| "succeeded".to_owned());
    results.push(
        Probe::new(
            Guarantee::NoNestedNamespaces,
            "clone into a user namespace",
            "EPERM",
        )
        .judge(observed, &control),
    );
}

pub(super) fn leader(results: &mut Vec<ProbeResult>) {
    let own = i64::from(rustix::process::getpid().as_raw_nonzero().get());
    let leader = probe::session();
    let control = Control::new("the session can be read", leader.is_ok());
    let observed = if leader == Ok(own) {
        "this process"
    } else {
        "another"
    };
    results.push(
        Probe::new(
            Guarantee::OwnSession,
            "look for the session's leader",
            "this process",
        )
        .judge(observed, &control),
    );
}

fn terminal_input(results: &mut Vec<ProbeResult>) {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    // A request that is let through answers ENOTTY on a file that is no terminal.
    let passes = null
        .as_ref()
        .is_ok_and(|fd| rustix::termios::tcgetwinsize(fd) == Err(rustix::io::Errno::NOTTY));
    let control = Control::new("another request on the same file answers ENOTTY", passes);
    let observed = match &null {
        Ok(fd) => probe::push_terminal_input(fd.as_fd()).map_or_else(name, |_| "succeeded".to_owned()),
        Err(_) => outcome(null.as_ref().map_err(|errno| *errno)),
    };
    results.push(
        Probe::new(
            Guarantee::OwnSession,
            "push a byte into a terminal's input",
            "EPERM",
        )
        .judge(observed, &control),
    );
}
