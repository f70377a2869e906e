//! Probes of the list of programs: Landlock from init's place, the judge of `execve` from the agent's.
//!
//! Nothing is executed by them. What Landlock is asked about is no program, and would be refused as such; what the judge
//! is asked about comes with arguments that cannot be read.
use super::{Baseline, Control, Probe, name};
use bastle_contract::{AbsPath, Guarantee, ProbeResult};
use bastle_sys::probe;
use std::ffi::CString;
use std::os::unix::fs::PermissionsExt;

/// An executable file without a format that the kernel knows; on the run's own scratch space.
const UNLISTED: &str = "/tmp/.bastle-unlisted";

/// Puts the unlisted file there. Whether executing it fails for its format alone: the control of what comes after.
pub(super) fn plant() -> bool {
    let mode = std::fs::Permissions::from_mode(0o755);
    let planted =
        std::fs::write(UNLISTED, "no program").and_then(|()| std::fs::set_permissions(UNLISTED, mode));
    planted.is_ok() && execute() == "ENOEXEC"
}

fn execute() -> String {
    CString::new(UNLISTED).map_or_else(
        |_| String::new(),
        |path| probe::execute_no_program(&path).map_or_else(name, |_| "succeeded".to_owned()),
    )
}

/// What Landlock says, without a judge before it.
pub(super) fn of_place(baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    if baseline.programs.is_none() {
        return;
    }
    let control = Control::new(
        "ENOEXEC for the same file before Landlock",
        baseline.tried_unlisted,
    );
    let attempt = Probe::new(
        Guarantee::ProgramsListed,
        "execute a file that is not listed",
        "EACCES",
    );
    results.push(attempt.judge(execute(), &control));
    let removed = std::fs::remove_file(UNLISTED);
    let control = Control::new("it was there", baseline.tried_unlisted);
    let attempt = Probe::new(Guarantee::ProgramsListed, "remove that file", "removed");
    let observed = removed.map_or_else(|error| error.to_string(), |()| "removed".to_owned());
    results.push(attempt.judge(observed, &control));
}

/// What the judge says about a file that Landlock grants for the sake of listed programs.
pub(super) fn of_agent(baseline: &Baseline, results: &mut Vec<ProbeResult>) {
    let Some(programs) = &baseline.programs else {
        return;
    };
    let listed = |path: &AbsPath| programs.listed.values().any(|own| own == path);
    let helper = programs
        .helpers
        .iter()
        .find(|path| !same_as_listed(programs, path) && !listed(path));
    let (Some(helper), Some(program)) = (helper, programs.listed.values().next()) else {
        return;
    };
    let control = Control::new(
        "EFAULT for a listed program with unreadable arguments",
        unreadable(program) == "EFAULT",
    );
    let attempt = format!("execute {helper} by itself");
    results
        .push(Probe::new(Guarantee::ProgramsListed, attempt, "EACCES").judge(unreadable(helper), &control));
}

/// Whether a helper is a listed program under another name.
fn same_as_listed(programs: &crate::programs::Programs, path: &AbsPath) -> bool {
    rustix::fs::stat(path.as_path())
        .is_ok_and(|stat| programs.listed.contains_key(&crate::programs::FileId::of(&stat)))
}

fn unreadable(path: &AbsPath) -> String {
    CString::new(path.as_str()).map_or_else(
        |_| String::new(),
        |path| probe::execute_unreadable(&path).map_or_else(name, |_| "succeeded".to_owned()),
    )
}
