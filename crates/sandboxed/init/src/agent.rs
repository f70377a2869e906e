//! The process that becomes the agent: own session, standard streams, filter, probes, then `exec`.
//!
//! Forked from init after init confined itself, so it has every restriction already; it adds the filter,
//! proves from its own place that all of them hold, waits for the word, and executes.
use crate::filter::{FilterSpec, Filters};
use crate::probes::{self, Baseline};
use crate::step::Step;
use crate::steps::Steps;
use crate::{hooks, last_words};
use bastle_contract::socket;
use bastle_contract::{Argv, Claim, Code, EnvName, Fault, Handover, LaunchPlan, ProbeResult, Stdio};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const STREAMS: &str = "standard streams";

/// What the probes found, and how long each step took.
type Report = (Vec<ProbeResult>, Vec<(String, u64)>);

/// From the agent's process to init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromAgent {
    /// The filter is on; its listener comes along.
    Filtered,
    /// What the probes found, and how long each step took.
    Probed(Vec<ProbeResult>, Vec<(String, u64)>),
    /// A step failed.
    Failed(Fault),
    /// `exec` failed with this exit code.
    NotExecuted(u8, Fault),
}

/// From init to the agent's process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    /// What it will be. Descriptors: stdin, stdout, stderr.
    Claim(Claim),
    /// Execute.
    Go,
}

/// When the process learns what it will execute.
pub(crate) enum Start {
    /// It is in the plan; with the slave of a terminal, where it has one.
    AtOnce(Option<OwnedFd>),
    /// Later, from a claim.
    WhenClaimed,
}

/// Never returns: executes the agent or exits.
pub(crate) fn become_agent(
    handover: &Handover,
    start: Start,
    (baseline, filters): (&Baseline, &Filters),
    init: &OwnedFd,
) -> ! {
    let claimed = match start {
        Start::AtOnce(terminal) => {
            let told = tell(init, prepare(handover, terminal, (baseline, filters), init));
            told.then(|| Claim::of(&handover.plan))
        }
        Start::WhenClaimed => {
            let told = tell(init, stand(handover, (baseline, filters), init));
            told.then(|| claimed(handover, init)).flatten()
        }
    };
    // Without a word from init, whatever the reason, nothing is executed.
    if let Some(claim) = claimed
        && let Ok(Some((ToAgent::Go, _))) = socket::receive::<ToAgent>(init)
    {
        let (code, fault) = execute(&claim.argv, environment(&claim.env));
        if socket::send(init, &FromAgent::NotExecuted(code, fault), &[]).is_ok() {
            bastle_sys::exec::exit(code);
        }
    }
    bastle_sys::exec::exit(125)
}

/// Whether there was something good to tell, and it was told.
fn tell(init: &OwnedFd, report: Result<Report, Fault>) -> bool {
    match report {
        Ok((probes, steps)) => socket::send(init, &FromAgent::Probed(probes, steps), &[]).is_ok(),
        Err(fault) => {
            // init that cannot be told sees the end.
            drop(socket::send(init, &FromAgent::Failed(fault), &[]));
            false
        }
    }
}

fn prepare(
    handover: &Handover,
    terminal: Option<OwnedFd>,
    (baseline, filters): (&Baseline, &Filters),
    init: &OwnedFd,
) -> Result<Report, Fault> {
    let mut steps = Steps::start();
    let plan = &handover.plan;
    own_session()?;
    streams(plan.stdio, &handover.stdio, terminal)?;
    close_others(init)?;
    bastle_sys::signal::unblock_all().step("signal mask", "sigprocmask")?;
    enter(plan)?;
    steps.done("session");
    put_filter_on(plan, filters, init)?;
    steps.done("filter");
    // First what init is not needed for: it is busy with the others.
    let mut probes = probes::of_inheritance(&plan.env, init.as_raw_fd());
    probes.extend(probes::of_agent(handover, baseline));
    // Last: egress starts beside the fence and has had the longest time by now.
    probes.extend(probes::of_network(&plan.network));
    steps.done("probes");
    Ok((probes, steps.taken()))
}

/// The same as far as it can be done without a run.
fn stand(
    handover: &Handover,
    (baseline, filters): (&Baseline, &Filters),
    init: &OwnedFd,
) -> Result<Report, Fault> {
    own_session()?;
    close_others(init)?;
    bastle_sys::signal::unblock_all().step("signal mask", "sigprocmask")?;
    put_filter_on(&handover.plan, filters, init)?;
    Ok((probes::of_agent(handover, baseline), Vec::new()))
}

/// And the rest, once there is one. `None`: there will be none, or it failed, which was told.
fn claimed(handover: &Handover, init: &OwnedFd) -> Option<Claim> {
    let (claim, pipes) = match socket::receive::<ToAgent>(init) {
        Ok(Some((ToAgent::Claim(claim), pipes))) => (claim, pipes),
        Ok(Some((ToAgent::Go, _)) | None) | Err(_) => return None,
    };
    let take = || {
        let mut steps = Steps::start();
        let plan = &handover.plan;
        streams(plan.stdio, &pipes, None)?;
        drop(pipes);
        close_others(init)?;
        enter(plan)?;
        steps.done("session");
        let mut probes = probes::of_inheritance(&claim.env, init.as_raw_fd());
        probes.extend(probes::of_network(&plan.network));
        steps.done("probes");
        Ok((probes, steps.taken()))
    };
    let taken = take();
    tell(init, taken).then_some(claim)
}

fn own_session() -> Result<(), Fault> {
    if hooks::enforces("session") {
        rustix::process::setsid().step("own session", "setsid")?;
    }
    Ok(())
}

fn close_others(init: &OwnedFd) -> Result<(), Fault> {
    if hooks::enforces("descriptors") {
        last_words::none();
        bastle_sys::fd::close_all_except(&[init.as_raw_fd()]).step("closing descriptors", "close_range")?;
    }
    Ok(())
}

fn enter(plan: &LaunchPlan) -> Result<(), Fault> {
    rustix::process::chdir(plan.cwd.as_path()).step("working directory", &plan.cwd)
}

fn put_filter_on(plan: &LaunchPlan, filters: &Filters, init: &OwnedFd) -> Result<(), Fault> {
    if hooks::enforces("seccomp") {
        let program = filters.agent(FilterSpec::of(plan));
        let listener =
            bastle_sys::seccomp::install_with_listener(&program).step("system-call filter", "seccomp")?;
        socket::send(init, &FromAgent::Filtered, &[listener.as_fd()])
            .step("system-call filter", "listener")?;
    }
    Ok(())
}

fn streams(stdio: Stdio, pipes: &[OwnedFd], terminal: Option<OwnedFd>) -> Result<(), Fault> {
    match (stdio, pipes, &terminal) {
        (Stdio::Pipes, [stdin, stdout, stderr], None) => connect([stdin, stdout, stderr]),
        (Stdio::Pty { .. }, [], Some(terminal)) => {
            rustix::process::ioctl_tiocsctty(terminal).step(STREAMS, "controlling terminal")?;
            connect([terminal; 3])
        }
        _ => Err("the descriptors do not fit the plan").step(STREAMS, "handover"),
    }
}

/// Makes three descriptors standard input, output and errors.
pub(crate) fn connect([stdin, stdout, stderr]: [&OwnedFd; 3]) -> Result<(), Fault> {
    rustix::stdio::dup2_stdin(stdin).step(STREAMS, "stdin")?;
    rustix::stdio::dup2_stdout(stdout).step(STREAMS, "stdout")?;
    rustix::stdio::dup2_stderr(stderr).step(STREAMS, "stderr")
}

/// The environment that will be executed with: what was planned and nothing else.
pub(crate) fn environment(planned: &[(EnvName, String)]) -> Vec<(String, String)> {
    let mut environment: Vec<(String, String)> = planned
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.clone()))
        .collect();
    if !hooks::enforces("environment") {
        environment.extend(std::env::vars());
    }
    environment
}

/// Executes a program with exactly this environment. Returns only when that failed: with which code, and why.
pub(crate) fn execute(argv: &Argv, env: Vec<(String, String)>) -> (u8, Fault) {
    let program = argv.program();
    let path = find(&env, program).map(CString::new);
    let strings = |items: Vec<String>| -> Result<Vec<CString>, std::ffi::NulError> {
        items.into_iter().map(CString::new).collect()
    };
    let env = strings(
        env.into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
    );
    let argv = strings(argv.as_slice().to_vec());
    let (Ok(env), Ok(argv)) = (env, argv) else {
        return (
            126,
            Fault::new(
                Code::ExecFailed,
                format!("cannot execute {program}"),
                "an argument or variable contains a NUL byte",
            ),
        );
    };
    let path = match path {
        Some(Ok(path)) => path,
        Some(Err(_)) | None => {
            let fault = Fault::new(
                Code::ExecNotFound,
                format!("{program}: not found inside the fence"),
                "no such file on the sandbox's PATH",
            )
            .help(format!("bastle can-i exec {program}"))
            .help("bastle run --ro DIRECTORY -- ... grants the directory it lies in");
            return (127, fault);
        }
    };
    let cause = bastle_sys::exec::execve(&path, &argv, &env);
    let cause = if cause.raw_os_error() == Some(libc::ENOEXEC) {
        through_shell(path.clone(), argv, &env)
    } else {
        cause
    };
    let code = if cause.raw_os_error() == Some(libc::ENOENT) {
        127
    } else {
        126
    };
    let shown = path.to_string_lossy();
    (
        code,
        Fault::new(
            Code::ExecFailed,
            format!("cannot execute {shown}"),
            cause.to_string(),
        ),
    )
}

/// A script without `#!` is the shell's, as every `execvp` does.
fn through_shell(path: CString, argv: Vec<CString>, env: &[CString]) -> std::io::Error {
    let mut line = vec![c"sh".to_owned(), path];
    line.extend(argv.into_iter().skip(1));
    bastle_sys::exec::execve(&c"/bin/sh".to_owned(), &line, env)
}

/// Looks a program up as a shell would, on the `PATH` it is executed with.
pub(crate) fn find(env: &[(String, String)], program: &str) -> Option<String> {
    if program.contains('/') {
        return Some(program.to_owned());
    }
    let path = env
        .iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value.as_str())?;
    let candidates = path
        .split(':')
        .filter(|directory| !directory.is_empty())
        .map(|directory| format!("{directory}/{program}"));
    let mut unusable = None;
    for candidate in candidates {
        match rustix::fs::access(candidate.as_str(), rustix::fs::Access::EXEC_OK) {
            Ok(()) => return Some(candidate),
            // Found but not executable: executing it gives the honest reason, unless a later one works.
            Err(rustix::io::Errno::ACCESS) => unusable = unusable.or(Some(candidate)),
            Err(_) => {}
        }
    }
    unusable
}
