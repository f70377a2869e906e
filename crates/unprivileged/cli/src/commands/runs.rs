//! Names of recorded runs: `@last`, a whole name, or a prefix that only one run has.
use crate::render::clean;
use bastle_audit::{RunEntry, RunState, list};
use bastle_contract::{Code, Fault, RunId};
use bastle_control::AFTERWARDS;
use std::path::Path;

/// Runs that still have a log, newest first.
pub(crate) fn newest_first(state: &Path) -> Result<Vec<RunEntry>, Fault> {
    let mut runs = list(state).map_err(|error| error.fault())?;
    runs.retain(|run| match run.state {
        RunState::Open | RunState::Sealed { .. } => true,
        RunState::Removed { .. } => false,
    });
    runs.sort_by(|a, b| (b.opened_ms, &b.run).cmp(&(a.opened_ms, &a.run)));
    Ok(runs)
}

/// The run that a person means.
pub(crate) fn find(state: &Path, name: &str) -> Result<RunId, Fault> {
    let runs = match newest_first(state) {
        Ok(runs) => runs,
        // A changed index must not keep anybody from looking at a log that is named in full.
        Err(fault) => return RunId::try_from(name.to_owned()).map_err(|_| fault),
    };
    if name == "@last" {
        return runs
            .into_iter()
            .map(|entry| entry.run)
            .find(|run| !run.as_str().starts_with(AFTERWARDS))
            .ok_or_else(none);
    }
    if let Some(exact) = runs.iter().find(|entry| entry.run.as_str() == name) {
        return Ok(exact.run.clone());
    }
    let mut fitting = runs.iter().filter(|entry| entry.run.as_str().starts_with(name));
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only.run.clone()),
        (Some(first), Some(second)) => {
            let why = format!("{} and {} begin so", first.run, second.run);
            Err(Fault::new(
                Code::UsageArgument,
                format!("{} names more than one run", shown(name)),
                why,
            )
            .help("bastle audit ls"))
        }
        // A log without an entry in the index is still somebody's question: verifying it finds what is wrong.
        (None, _) => match RunId::try_from(name.to_owned()) {
            Ok(run) if state.join("audit").join(run.as_str()).is_dir() => Ok(run),
            Ok(_) | Err(_) => Err(unknown(name, &runs)),
        },
    }
}

fn none() -> Fault {
    Fault::new(Code::AuditMissing, "no run has been recorded yet", "").help("bastle run -- CMD")
}

fn unknown(name: &str, runs: &[RunEntry]) -> Fault {
    let mut fault = Fault::new(
        Code::AuditMissing,
        format!("no run is called {}", shown(name)),
        "",
    );
    let words = name.split('-').next().unwrap_or_default();
    let near = runs
        .iter()
        .find(|entry| !words.is_empty() && entry.run.as_str().starts_with(words));
    if let Some(near) = near {
        fault = fault.help(format!("did you mean {}?", near.run));
    }
    fault.help("bastle audit ls")
}

fn shown(name: &str) -> String {
    clean(&name.chars().take(80).collect::<String>())
}
