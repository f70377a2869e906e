//! `bastle fork`: a new run's copy from a state of another.
use super::review;
use super::snapshot::as_json;
use crate::context::{Context, Ended};
use bastle_contract::{Code, Fault, RunId};
use bastle_control::review as control;
use serde_json::json;

/// Arguments of `fork`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle fork calm-otter               as it is now
  bastle fork calm-otter@3 --name try-2
  bastle fork @last@works

The new copy is compared with, and applied to, the same project as the old one.

Exit codes: 0 ok, 1 failed, 3 no such run or snapshot.")]
pub(crate) struct ForkArgs {
    /// The run, and after `@` number or name of a snapshot [default: as it is now]
    #[arg(value_name = "RUN[@SNAPSHOT]")]
    from: String,
    /// The new run's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Makes the copy.
pub(crate) fn run(args: &ForkArgs, cx: &Context) -> Ended {
    let (origin, which) = control::read_origin(&args.from)?;
    let name = match &args.name {
        Some(name) => RunId::try_from(name.clone())
            .map_err(|error| Fault::new(Code::UsageArgument, "unusable name", error.to_string()))?,
        None => bastle_control::new_run_id()?,
    };
    let at = review::whereabouts()?;
    let space = review::open(&at, Some(origin), cx)?;
    let forked = control::fork(&space, which.as_ref(), name)?;
    let (child, snapshot) = (&forked.space, &forked.snapshot);
    let run = child.run();
    if args.json {
        let value = json!({
            "schema": "bastle.fork/v1", "run": run, "from": space.run(), "snapshot": as_json(snapshot),
            "tree": child.tree().to_string_lossy(), "source": child.source().to_string_lossy(),
            "from_project": review::paths_json(&forked.from_project),
        });
        cx.print_json(&value)?;
        return Ok(0);
    }
    cx.print(&format!("{run}\n"))?;
    review::tell_from_project(&forked.from_project, "the new copy", cx);
    cx.note(&format!(
        "{} {run} starts where {} was at snapshot {}\n  work in a copy of it: bastle run --from {run} -- CMD",
        cx.err.tick(),
        space.run(),
        snapshot.number
    ));
    Ok(0)
}
