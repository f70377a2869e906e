//! The `bastle` binary: the one place where the trust zones meet. It dispatches on the verb before any thread
//! exists and before any zone's code runs.
#![forbid(unsafe_code)]

use std::os::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Spawner and egress are this binary under hidden verbs, with their socket as standard input and nothing else.
    let verb = std::env::args_os().nth(1);
    if verb.as_ref().is_some_and(|verb| verb == bastle_cli::SPAWNER_VERB) {
        return spawner();
    }
    if verb.as_ref().is_some_and(|verb| verb == EGRESS_VERB) {
        return egress();
    }
    // Nearly every run needs one, and now it is cheapest. Where it cannot be had, one is started when it is needed.
    if verb.as_ref().is_some_and(|verb| verb == "run")
        && let Ok(early) = bastle_spawner::early::start(bastle_init::enter)
    {
        bastle_cli::offer_spawner(early.socket, early.pidfd);
    }
    ExitCode::from(bastle_cli::main())
}

/// The hidden verb under which the binary is egress.
const EGRESS_VERB: &str = "__egress";

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

fn spawner() -> ExitCode {
    match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(control) => ExitCode::from(bastle_spawner::serve(&control, bastle_init::enter)),
        Err(_) => ExitCode::FAILURE,
    }
}
