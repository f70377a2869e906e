//! The process that becomes a further command beside the agent: own session, standard streams, filter, a few probes,
//! then `exec`.
//!
//! Forked from init while the agent lives. Until it executes it hides its memory as init does, so no process of the
//! sandbox can take it over before the agent's filter is on it. Trusts the wish, which is control's word.
use crate::agent::{self, FromAgent};
use crate::filter::{FilterSpec, Filters};
use crate::probes::{self, Baseline};
use crate::programs::FileId;
use crate::step::Step;
use crate::{hooks, last_words};
use bastle_contract::socket;
use bastle_contract::{Code, ExecWish, Fault, LaunchPlan};
use rustix::fs::Mode;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What every further command of a run has in common.
pub(crate) struct Common<'a> {
    pub(crate) plan: &'a LaunchPlan,
    pub(crate) baseline: &'a Baseline,
    pub(crate) filters: &'a Filters,
    /// The permission mask the agent started with: init's own is another since it carries out calls.
    pub(crate) mask: Mode,
}

/// Where its standard streams come from.
pub(crate) enum Streams {
    Pipes([OwnedFd; 3]),
    /// The slave of a terminal of its own.
    Terminal(OwnedFd),
}

/// Never returns: executes the command or exits.
pub(crate) fn become_command(common: &Common<'_>, wish: &ExecWish, streams: &Streams, init: &OwnedFd) -> ! {
    let (code, word) = match prepare(common, wish, streams, init) {
        Ok(()) => {
            let (code, fault) = agent::execute(&wish.argv, environment(common.plan, wish));
            (code, FromAgent::NotExecuted(code, fault))
        }
        Err(fault) => (125, FromAgent::Failed(fault)),
    };
    // init that cannot be told sees the end.
    drop(socket::send(init, &word, &[]));
    bastle_sys::exec::exit(code)
}

fn prepare(common: &Common<'_>, wish: &ExecWish, streams: &Streams, init: &OwnedFd) -> Result<(), Fault> {
    if hooks::enforces_beside("session") {
        rustix::process::setsid().step("own session", "setsid")?;
    }
    match streams {
        Streams::Pipes([stdin, stdout, stderr]) => agent::connect([stdin, stdout, stderr])?,
        Streams::Terminal(slave) => {
            rustix::process::ioctl_tiocsctty(slave).step("standard streams", "controlling terminal")?;
            agent::connect([slave; 3])?;
        }
    }
    if hooks::enforces_beside("descriptors") {
        last_words::none();
        bastle_sys::fd::close_all_except(&[init.as_raw_fd()]).step("closing descriptors", "close_range")?;
    }
    bastle_sys::signal::unblock_all().step("signal mask", "sigprocmask")?;
    rustix::process::umask(common.mask);
    let cwd = wish.cwd.as_ref().unwrap_or(&common.plan.cwd);
    rustix::process::chdir(cwd.as_path()).step("working directory", cwd)?;
    if hooks::enforces_beside("seccomp") {
        let program = common.filters.agent(FilterSpec::of(common.plan));
        let listener =
            bastle_sys::seccomp::install_with_listener(&program).step("system-call filter", "seccomp")?;
        socket::send(init, &FromAgent::Filtered, &[listener.as_fd()])
            .step("system-call filter", "listener")?;
    }
    // The listener is closed again: what is open now is what the command would get.
    probes::of_command(common.baseline, init.as_raw_fd())
}

/// Refuses a program that the plan's list does not have, before anything is forked: until the command executes its
/// memory is hidden from the guard, which then has nothing to judge.
pub(crate) fn check_program(common: &Common<'_>, wish: &ExecWish) -> Result<(), Fault> {
    let Some(programs) = &common.baseline.programs else {
        return Ok(());
    };
    let program = wish.argv.program();
    // What is not found is told by `execute`, as without a list.
    let Some(found) = agent::find(&environment(common.plan, wish), program) else {
        return Ok(());
    };
    let cwd = wish.cwd.as_ref().unwrap_or(&common.plan.cwd);
    match rustix::fs::stat(cwd.as_path().join(found)) {
        Ok(stat) if !programs.listed.contains_key(&FileId::of(&stat)) => Err(Fault::new(
            Code::ExecDenied,
            format!("{program} is not executed in this run"),
            "exec.allow of the run's policy does not name this program",
        )
        .help("bastle policy show --origin")),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The plan's variables, and those of the wish in place of or beside them.
fn environment(plan: &LaunchPlan, wish: &ExecWish) -> Vec<(String, String)> {
    let named = |name: &str| wish.env.iter().any(|(other, _)| other.as_str() == name);
    let mut environment = agent::environment(&plan.env);
    environment.retain(|(name, _)| !named(name));
    let own = wish.env.iter();
    environment.extend(own.map(|(name, value)| (name.as_str().to_owned(), value.clone())));
    environment
}
