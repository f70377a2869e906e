//! `bastle rm`: a run's copy and what is kept of a run in the background go, unless work would be lost.
use super::apply::counted;
use super::kept::{self, Found};
use super::review;
use crate::context::{Context, Ended};
use bastle_contract::{Code, Fault};
use bastle_control::review::library::discard::Discard;
use bastle_control::review::library::path::visible;
use bastle_control::review::library::reserve;
use bastle_control::review::{self as control, Fate};
use bastle_control::{keeper, runs::RunDir};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of `rm`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle rm calm-otter                      to the trash; bastle restore calm-otter takes it back
  bastle rm calm-otter --discard 4ab19e22   throws work away; the refusal prints the word
  bastle rm calm-otter --now                frees its room at once

Refused while work exists only in the copy: in its tree, its snapshots, its git stash, or in the journal of an apply.
Every path that goes is printed. The audit log stays. bastle prune empties the trash.

Exit codes: 0 ok, 1 refused or failed, 3 no such run.")]
pub(crate) struct RmArgs {
    /// The run (name, unique prefix, or @last of this project)
    run: String,
    /// Throw away work that is nowhere else, named by its digest or the first 8 digits of it
    #[arg(long, value_name = "DIGEST")]
    discard: Option<String>,
    /// Remove it for good instead of moving it to the trash
    #[arg(long)]
    now: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Removes the copy.
pub(crate) fn run(args: &RmArgs, cx: &Context) -> Ended {
    let discard = args.discard.clone().map(Discard::try_from).transpose()?;
    let fate = if args.now { Fate::AtOnce } else { Fate::Trash };
    let at = review::whereabouts()?;
    let kept = in_background(&at.state, &args.run)?;
    let name = kept.as_ref().map_or(args.run.as_str(), |dir| dir.name().as_str());
    let (run, mut paths, trashed) = match control::open_to_remove(&at, Some(name)) {
        Ok(opened) => {
            review::tell(&opened.notes, cx);
            let run = opened.space.run().clone();
            let how = (discard.as_ref(), fate);
            let paths = control::remove(&at.state, opened.space, how, &control::local_person())?;
            (run, paths, fate == Fate::Trash)
        }
        // A run that worked in the project itself has no copy: only its own files go.
        Err(fault) => match &kept {
            Some(dir) if fault.code == Code::WorkspaceMissing => (dir.name().clone(), Vec::new(), false),
            Some(_) | None => return Err(fault.into()),
        },
    };
    if let Some(dir) = kept {
        paths.push(control::remove_record(&at.state, dir)?);
    }
    if args.json {
        cx.print_json(&json!({
            "schema": "bastle.rm/v1", "run": run, "paths": shown_all(&paths), "trashed": trashed,
        }))?;
        return Ok(0);
    }
    for path in shown_all(&paths) {
        cx.print(&format!("{path}\n"))?;
    }
    let count = counted(paths.len(), "path");
    cx.note(&format!("{} {run} is removed: {count}", cx.err.tick()));
    if trashed {
        cx.note(&format!("  to take it back: bastle restore {run}"));
        if reserve::is_full(&at.state) {
            cx.note("  the disk is full, and the trash frees no room: bastle prune --now");
        }
    }
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
