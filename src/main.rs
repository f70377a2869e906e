//! The `bastle` binary: the one place where the trust zones meet. It dispatches on the verb before any thread
//! exists and before any zone's code runs.
#![forbid(unsafe_code)]

mod standing;

use bastle_contract::egress::FromEgress;
use bastle_contract::socket;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Inside a sandbox the same file is the client of the file broker, under its own name.
    let mut words = std::env::args_os();
    if words
        .next()
        .is_some_and(|own| Path::new(&own).file_name() == Some("bastle-fs".as_ref()))
    {
        let words: Vec<_> = words.collect();
        return ExitCode::from(bastle_cli::fs_client(&words));
    }
    // Spawner and egress are this binary under hidden verbs, with their socket as standard input and nothing else.
    let verb = std::env::args_os().nth(1);
    if verb.as_ref().is_some_and(|verb| verb == bastle_cli::SPAWNER_VERB) {
        return spawner();
    }
    if verb.as_ref().is_some_and(|verb| verb == bastle_cli::EGRESS_VERB) {
        return egress();
    }
    if verb.as_ref().is_some_and(|verb| verb == standing::VERB) {
        return standing::serve();
    }
    if verb.as_ref().is_some_and(|verb| verb == bastle_cli::BROKER_VERB) {
        return broker();
    }
    if verb.as_ref().is_some_and(|verb| verb == bastle_cli::KEEP_VERB) {
        return keep();
    }
    if verb.as_ref().is_some_and(|verb| verb == bastle_cli::MOTHER_VERB) {
        return bear();
    }
    if verb
        .as_ref()
        .is_some_and(|verb| verb == bastle_cli::FENCE_STEPS_VERB)
    {
        return ExitCode::from(bastle_cli::try_fence_steps());
    }
    // Before anything of the command line's: the privileged zone has its own small parser.
    if verb.as_ref().is_some_and(|verb| verb == "spawner") {
        let words: Vec<_> = std::env::args_os().skip(2).collect();
        bastle_init::get_ready();
        return ExitCode::from(bastle_spawner::daemon::main(&words, bastle_init::enter));
    }
    // Nearly every run needs one, and now it is cheapest. Where it cannot be had, one is started when it is needed.
    if verb.as_ref().is_some_and(|verb| verb == "run")
        && !bastle_cli::has_spawner_daemon()
        && let Ok(early) = bastle_spawner::early::start(bastle_init::enter)
    {
        bastle_cli::offer_spawner(early.socket, early.pidfd);
    }
    bastle_cli::offer_standalone(standing::start);
    ExitCode::from(bastle_cli::main())
}

/// The keeper of a run in the background: it leaves its caller, and only then its spawner is made.
fn keep() -> ExitCode {
    let keeping = match bastle_cli::Keeping::begin(std::env::args_os().skip(2)) {
        Ok(keeping) => keeping,
        Err(fault) => {
            eprintln!("bastle: {fault}");
            return ExitCode::FAILURE;
        }
    };
    if !bastle_cli::has_spawner_daemon()
        && let Ok(early) = bastle_spawner::early::start(bastle_init::enter)
    {
        bastle_cli::offer_spawner(early.socket, early.pidfd);
    }
    ExitCode::from(keeping.run())
}

/// The mother of keepers; each of her copies comes back here as a keeper.
fn bear() -> ExitCode {
    match bastle_cli::bear() {
        Ok(bastle_cli::Born::Keeper) => keep(),
        Ok(bastle_cli::Born::Nobody) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("bastle: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn egress() -> ExitCode {
    let Ok(control) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    // Out of the project, and no relative path means anything. Here, because whoever starts a process elsewhere has to
    // copy itself first.
    if std::env::set_current_dir("/").is_err() {
        return ExitCode::FAILURE;
    }
    if bastle_egress::bound_memory().is_err() {
        return ExitCode::FAILURE;
    }
    // The roots of trust are read while there is a file system; from then on there is none.
    bastle_egress::preload_roots();
    match bastle_init::fence_server() {
        Ok(probes) => ExitCode::from(bastle_egress::serve(control, probes)),
        // To control, which shows it; nobody may be there to read the other streams.
        Err(fault) => match socket::send(&control, &FromEgress::Refused(fault), &[]) {
            Ok(()) | Err(_) => ExitCode::FAILURE,
        },
    }
}

/// The file broker: fenced as egress is, before it reads a byte of the agent.
fn broker() -> ExitCode {
    let Ok(control) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    match bastle_init::fence_server() {
        Ok(_probes) => ExitCode::from(bastle_egress::serve_files(control)),
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
