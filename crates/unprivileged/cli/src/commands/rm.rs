//! `bastle rm`: a run's copy goes, unless work would be lost.
use super::review;
use crate::context::{Context, Ended};
use bastle_contract::{Code, Digest, Fault};
use bastle_control::review as control;
use bastle_control::review::library::path::visible;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `rm`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle rm calm-otter
  bastle rm calm-otter --discard DIGEST    throws work away; the refusal prints the digest

Every path that goes is printed. The audit log stays.

Exit codes: 0 ok, 1 refused or failed, 3 no such run.")]
pub(crate) struct RmArgs {
    /// The run (name, unique prefix, or @last of this project)
    run: String,
    /// Throw away work that is nowhere else, named by the digest of its state
    #[arg(long, value_name = "DIGEST")]
    discard: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Removes the copy.
pub(crate) fn run(args: &RmArgs, cx: &Context) -> Ended {
    let discard = args
        .discard
        .clone()
        .map(Digest::try_from)
        .transpose()
        .map_err(|error| Fault::new(Code::UsageArgument, "unusable digest", error.to_string()))?;
    let at = review::whereabouts()?;
    let space = review::open(&at, Some(&args.run), cx)?;
    let run = space.run().clone();
    let paths = control::remove(&at.state, space, discard.as_ref())?;
    if args.json {
        cx.print_json(&json!({ "schema": "bastle.rm/v1", "run": run, "paths": shown_all(&paths) }))?;
        return Ok(0);
    }
    for path in shown_all(&paths) {
        cx.print(&format!("{path}\n"))?;
    }
    cx.note(&format!(
        "{} {run} is removed: {} paths",
        cx.err.tick(),
        paths.len()
    ));
    Ok(0)
}

/// Every path, escaped.
pub(super) fn shown_all(paths: &[PathBuf]) -> Vec<String> {
    paths
        .iter()
        .map(|path| visible(path.as_os_str().as_encoded_bytes()))
        .collect()
}
