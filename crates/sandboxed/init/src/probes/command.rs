//! Probes of a command that is started beside the agent: what it did not get by being a copy of init, which has the
//! rest and was proven with the agent.
//!
//! They open nothing for writing: until it executes, this process hides its memory, so the guard could not serve it.
use super::{Baseline, Control, Probe, descriptors, kernel, name};
use bastle_contract::{Code, Fault, Guarantee, ProbeResult, Verdict};
use bastle_sys::probe;
use std::os::fd::RawFd;

/// Refuses what is not proven. `own` is the one descriptor above 2 that the process still has.
pub(crate) fn of_command(baseline: &Baseline, own: RawFd) -> Result<(), Fault> {
    let mut results = Vec::with_capacity(6);
    descriptors::stray(own, &mut results);
    kernel::capabilities(baseline, &mut results);
    kernel::no_new_privs(&mut results);
    kernel::leader(&mut results);
    filter(&mut results);
    judge(&results)
}

fn judge(results: &[ProbeResult]) -> Result<(), Fault> {
    let failed: Vec<String> = results
        .iter()
        .filter(|result| result.verdict != Verdict::Held)
        .map(|result| {
            format!(
                "{}: expected {}, observed {} ({})",
                result.attempt, result.expected, result.observed, result.control
            )
        })
        .collect();
    if failed.is_empty() {
        Ok(())
    } else {
        let what = "the fence is not proven for this command, it was not started";
        Err(Fault::new(Code::FenceProbe, what, failed.join("; ")).help("bastle doctor"))
    }
}

fn filter(results: &mut Vec<ProbeResult>) {
    let control = Control::new("getpid", probe::by_number(libc::SYS_getpid, [0; 3]).is_ok());
    // init's own filter, which every copy of it has, allows this call: only the agent's answers so.
    let observed = probe::by_number(libc::SYS_openat2, [0; 3]).map_or_else(name, |_| "succeeded".to_owned());
    let attempt = Probe::new(Guarantee::SyscallsFiltered, "openat2", "ENOSYS");
    results.push(attempt.judge(observed, &control));
    let status = super::text_of("/proc/self/status");
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))
        .map(|mode| mode.trim().to_owned());
    let control = Control::new("the mode is listed", mode.is_some());
    let attempt = Probe::new(Guarantee::SyscallsFiltered, "read the filter mode", "2");
    results.push(attempt.judge(mode.unwrap_or_default(), &control));
}
