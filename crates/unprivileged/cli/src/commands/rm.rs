//! `bastle rm`: a run's copy and what is kept of a run in the background go, unless work would be lost.
use super::kept::{self, Found};
use super::review;
use crate::context::{Context, Ended};
use bastle_contract::{Code, Digest, Fault};
use bastle_control::review as control;
use bastle_control::review::library::path::visible;
use bastle_control::{keeper, runs::RunDir};
use serde_json::json;
use std::path::{Path, PathBuf};

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
    let kept = in_background(&at.state, &args.run)?;
    let name = kept.as_ref().map_or(args.run.as_str(), |dir| dir.name().as_str());
    let (run, mut paths) = match control::open(&at, Some(name)) {
        Ok(opened) => {
            review::tell(&opened.notes, cx);
            let run = opened.space.run().clone();
            (
                run,
                control::remove(
                    &at.state,
                    opened.space,
                    discard.as_ref(),
                    &control::local_person(),
                )?,
            )
        }
        // A run that worked in the project itself has no copy: only its own files go.
        Err(fault) => match &kept {
            Some(dir) if fault.code == Code::WorkspaceMissing => (dir.name().clone(), Vec::new()),
            Some(_) | None => return Err(fault.into()),
        },
    };
    if let Some(dir) = kept {
        paths.push(dir.path().to_path_buf());
        dir.remove()?;
    }
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

/// The run in the background that is meant, if it is one. One that has not ended is refused.
fn in_background(state: &Path, name: &str) -> Result<Option<RunDir>, Fault> {
    // The last run of a project is found by its copy.
    let Ok(Found::Kept(dir)) = kept::find(state, name) else {
        return Ok(None);
    };
    if name == "@last" {
        return Ok(None);
    }
    let file = keeper::settle(&dir)?;
    if file.state.is_final() {
        return Ok(Some(dir));
    }
    Err(Fault::new(
        Code::WorkspaceBusy,
        format!("run {} has not ended", dir.name()),
        format!("it is {}", file.state),
    )
    .help(format!("bastle stop {}", dir.name())))
}

/// Every path, escaped.
pub(super) fn shown_all(paths: &[PathBuf]) -> Vec<String> {
    paths
        .iter()
        .map(|path| visible(path.as_os_str().as_encoded_bytes()))
        .collect()
}
