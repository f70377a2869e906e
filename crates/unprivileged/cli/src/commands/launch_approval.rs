//! Asks the person at the command line about a command that asks: an ask rule, or tier 3 of the danger matrix.
//!
//! **Trust:** the answer is taken from the terminal that the person typed the command at, and holds for that line alone.
use super::run_args::{Backend, RunArgs};
use crate::render::clean;
use bastle_contract::{Argv, BackendKind, Fault};
use bastle_control::Loaded;
use bastle_policy::{LaunchAnswer, LaunchApproval, launch_asks};
use std::io::{BufRead, IsTerminal, Write};

/// Whether a person approves the command. Without one who can be asked it is not approved, and the run is refused.
pub(super) fn launch_approval(args: &RunArgs, loaded: &Loaded, argv: &Argv) -> Result<LaunchApproval, Fault> {
    let backend = match args.chosen_backend()? {
        Backend::Native => BackendKind::Native,
        Backend::Host => BackendKind::Host,
    };
    let whole = match &loaded.agent {
        Some(agent) => agent.argv(argv.clone())?,
        None => argv.clone(),
    };
    let fault = match launch_asks(&loaded.effective, whole.as_slice(), backend) {
        // What is denied is told by the launch itself; nobody's yes changes it.
        LaunchAnswer::Allowed | LaunchAnswer::Denied(_) => return Ok(LaunchApproval::None),
        LaunchAnswer::Asks(fault) => fault,
    };
    if args.approve {
        return Ok(LaunchApproval::Person);
    }
    let attended = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !attended || args.json || args.dry_run_policy {
        return Ok(LaunchApproval::None);
    }
    Ok(ask(&whole, &fault.why))
}

fn ask(argv: &Argv, why: &str) -> LaunchApproval {
    let mut terminal = std::io::stderr();
    let question = format!(
        "bastle: `{}` asks for approval\n        {}\n        run it inside the fence? [y/N] ",
        clean(&argv.as_slice().join(" ")),
        clean(why)
    );
    let asked = terminal
        .write_all(question.as_bytes())
        .and_then(|()| terminal.flush());
    let mut answer = String::new();
    // What cannot be asked or heard is not approved.
    let heard = asked.and_then(|()| std::io::stdin().lock().read_line(&mut answer));
    match (heard, answer.trim()) {
        (Ok(_), "y" | "Y" | "yes") => LaunchApproval::Person,
        (Ok(_) | Err(_), _) => LaunchApproval::None,
    }
}
