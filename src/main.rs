//! The `bastle` binary: the one place where the trust zones meet. It dispatches on the verb before any thread
//! exists and before any zone's code runs.
#![forbid(unsafe_code)]

use std::os::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The spawner is this binary under a hidden verb, with its socket as standard input and nothing else.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|verb| verb == bastle_cli::SPAWNER_VERB)
    {
        return spawner();
    }
    ExitCode::from(bastle_cli::main())
}

fn spawner() -> ExitCode {
    match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(control) => ExitCode::from(bastle_spawner::serve(&control, bastle_init::enter)),
        Err(_) => ExitCode::FAILURE,
    }
}
