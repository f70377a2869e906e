//! `bastle restore`: a removed run comes back out of the trash.
use super::review;
use crate::context::{Context, Ended};
use bastle_control::review as control;
use serde_json::json;

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle ls --trash            what can be taken back
  bastle restore calm-otter

The copy comes back whole, with its snapshots and the record of a run in the background. Of several removed runs with
one name the newest comes back.

Exit codes: 0 ok, 1 its name is in use, 3 no such run in the trash.")]
pub(crate) struct RestoreArgs {
    /// The removed run (name or unique prefix)
    run: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Takes it back.
pub(crate) fn run(args: &RestoreArgs, cx: &Context) -> Ended {
    let at = review::whereabouts()?;
    let restored = control::restore(&at, &args.run, &control::local_person())?;
    if args.json {
        cx.print_json(&json!({
            "schema": "bastle.restore/v1", "run": restored.run, "tree": restored.tree.to_string_lossy(),
            "record": restored.record,
        }))?;
        return Ok(0);
    }
    cx.print(&format!("{}\n", restored.run))?;
    let run = &restored.run;
    cx.note(&format!("{} {run} is back: bastle diff {run}", cx.err.tick()));
    Ok(0)
}
