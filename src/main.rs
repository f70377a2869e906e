//! The `bastle` binary: the one place where the trust zones meet. It dispatches on the verb before any thread
//! exists and before any zone's code runs.
#![forbid(unsafe_code)]

use bastle_cli::{StandaloneRequest, StandaloneWish};
use bastle_contract::{Code, Fault};
use std::os::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Spawner and egress are this binary under hidden verbs, with their socket as standard input and nothing else.
    let verb = std::env::args_os().nth(1);
    if verb.as_ref().is_some_and(|verb| verb == bastle_cli::SPAWNER_VERB) {
        return spawner();
    }
    if verb.as_ref().is_some_and(|verb| verb == bastle_cli::EGRESS_VERB) {
        return egress();
    }
    // Nearly every run needs one, and now it is cheapest. Where it cannot be had, one is started when it is needed.
    if verb.as_ref().is_some_and(|verb| verb == "run")
        && let Ok(early) = bastle_spawner::early::start(bastle_init::enter)
    {
        bastle_cli::offer_spawner(early.socket, early.pidfd);
    }
    bastle_cli::offer_standalone(standalone);
    ExitCode::from(bastle_cli::main())
}

fn egress() -> ExitCode {
    let Ok(control) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    // The roots of trust are read while there is a file system; from then on there is none.
    bastle_egress::preload_roots();
    match bastle_init::fence_server(&[]) {
        Ok(()) => ExitCode::from(bastle_egress::serve(control)),
        Err(fault) => {
            eprintln!("bastle: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// `bastle egress`: the proxy alone, in front of other sandboxes, with a thread that hears what its operator wants.
fn standalone(request: StandaloneRequest) -> Result<(), Fault> {
    let StandaloneRequest {
        run,
        state,
        table,
        secrets,
        http,
        socks,
        mut wishes,
        authority,
    } = request;
    let (control, commands) = bastle_egress::commands();
    bastle_egress::preload_roots();
    let hearing = move || {
        loop {
            let heard = match wishes.wait() {
                StandaloneWish::Reload(table, digest) => control.reload(*table, digest),
                StandaloneWish::Refused(faults) => {
                    for fault in faults {
                        eprintln!("bastle: {fault}; the old rules stay");
                    }
                    true
                }
                StandaloneWish::Stop => control.stop(),
            };
            // The proxy is gone: there is nobody left to tell.
            if !heard {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("wishes".to_owned())
        .spawn(hearing)
        .map_err(|error| Fault::new(Code::FenceStep, "cannot start a thread", error.to_string()))?;
    bastle_egress::standalone(bastle_egress::Standalone {
        run,
        state,
        policy: table,
        secrets,
        http,
        socks,
        authority,
        verbosity: bastle_egress::Verbosity::Denials,
        commands,
    })
}

fn spawner() -> ExitCode {
    match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(control) => ExitCode::from(bastle_spawner::serve(&control, bastle_init::enter)),
        Err(_) => ExitCode::FAILURE,
    }
}
