//! `bastle recover`: ends an apply that was interrupted, in the way a person chooses.
use super::apply::counted;
use super::review;
use crate::context::{Context, Ended};
use bastle_control::Place;
use bastle_control::review as control;
use bastle_control::review::library::path::visible;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Arguments of `recover`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle recover calm-otter                    finish it, or undo it where the project changed since
  bastle recover calm-otter --back             undo it
  bastle recover calm-otter --extract saved    write what its applies replaced to the new directory saved
  bastle recover calm-otter --abandon          leave the project as it is where neither is possible

Every other verb does the first by itself. Files that you changed after the interruption are never overwritten; what
was there before the apply stays in its journal until the run is removed. So does everything that a damaged journal keeps.

Exit codes: 0 ok, 1 the project does not allow it, 3 no such run.")]
pub(crate) struct RecoverArgs {
    /// The run [default: the last one of this project]
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Only finish it
    #[arg(long, conflicts_with_all = ["back", "extract", "abandon"])]
    forward: bool,
    /// Only undo it
    #[arg(long, conflicts_with_all = ["extract", "abandon"])]
    back: bool,
    /// Write what the applies of the run replaced in the project to a new directory
    #[arg(long, value_name = "DIR", conflicts_with = "abandon")]
    extract: Option<PathBuf>,
    /// Where its journal is damaged, leave the project as it is and set the journal aside
    #[arg(long)]
    abandon: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Ends what was interrupted in any project, before a verb reads one.
pub(crate) fn interrupted(cx: &Context) {
    // Without a state directory nothing was applied.
    if let Ok(at) = Place::without_project() {
        review::tell(&control::repair_marked(&at.state), cx);
    }
}

/// Ends it, or writes what it replaced.
pub(crate) fn run(args: &RecoverArgs, cx: &Context) -> Ended {
    let at = review::whereabouts()?;
    match &args.extract {
        Some(into) => extract(args, &at, into, cx),
        None => end(args, &at, cx),
    }
}

fn end(args: &RecoverArgs, at: &control::Whereabouts, cx: &Context) -> Ended {
    let direction = match (args.forward, args.back) {
        (true, _) => control::Direction::Forward,
        (_, true) => control::Direction::Back,
        _ => control::Direction::Either,
    };
    let (run, repaired) = match args.abandon {
        true => control::abandon(at, args.run.as_deref())?,
        false => control::recover(at, args.run.as_deref(), direction)?,
    };
    if args.json {
        let ended: Vec<Value> = repaired.iter().map(as_json).collect();
        cx.print_json(
            &json!({ "schema": "bastle.recover/v1", "run": run, "ended": ended, "extracted": [] }),
        )?;
        return Ok(0);
    }
    for one in &repaired {
        cx.print(&format!("{}\n", one.note()))?;
    }
    if repaired.is_empty() {
        cx.note(&format!(
            "{} no interrupted apply to the project of {run}",
            cx.err.tick()
        ));
    }
    Ok(0)
}

fn as_json(one: &control::Repaired) -> Value {
    let (outcome, kept) = match &one.done {
        control::Recovered::Finished(_) => ("finished", Vec::new()),
        control::Recovered::Undone { kept, .. } => ("undone", review::paths_json(kept)),
        control::Recovered::SetAside { .. } => ("set-aside", Vec::new()),
    };
    json!({ "run": one.run, "outcome": outcome, "kept": kept })
}

fn extract(args: &RecoverArgs, at: &control::Whereabouts, into: &std::path::Path, cx: &Context) -> Ended {
    let (run, written) = control::extract(at, args.run.as_deref(), into)?;
    if args.json {
        let written: Vec<_> = written.iter().map(|path| path.to_string_lossy()).collect();
        cx.print_json(
            &json!({ "schema": "bastle.recover/v1", "run": run, "ended": [], "extracted": written }),
        )?;
        return Ok(0);
    }
    for path in &written {
        cx.print(&format!("{}\n", visible(path.as_os_str().as_bytes())))?;
    }
    cx.note(&format!(
        "{} {} of the project as it was before applies of {run}, one directory for each apply",
        cx.err.tick(),
        counted(written.len(), "object")
    ));
    Ok(0)
}
