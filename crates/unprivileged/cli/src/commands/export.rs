//! `bastle export`: a run's work as one archive.
use super::review;
use crate::context::{Context, Ended};
use crate::render::clean;
use bastle_control::review::library::path::visible;
use bastle_control::review::{self as control, Replace};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle export calm-otter work.tar
  bastle export calm-otter@2 kept.tar      a snapshot, by number or name
  bastle export @last - | tar t

The archive holds files, directories and links that stay inside; no owner, no special bits, no git directory.
Branches, tags and stashes that the agent left are patches below bastle-refs, for git apply on the commit that the copy was
made of. Nothing in it is judged by the import gate: unpack it where nothing runs by itself.

Exit codes: 0 ok, 1 failed, 3 no such run.")]
pub(crate) struct ExportArgs {
    /// The run (name, unique prefix, or @last of this project), or RUN@SNAPSHOT
    run: String,
    /// The archive; `-` is standard output
    #[arg(value_name = "FILE.tar")]
    file: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Writes the archive.
pub(crate) fn run(args: &ExportArgs, cx: &Context) -> Ended {
    let to_stdout = args.file == Path::new("-");
    if to_stdout {
        review::refuse_terminal("an archive")?;
    }
    let at = review::whereabouts()?;
    let (name, which) = control::read_origin(&args.run)?;
    let space = review::open(&at, Some(name), cx)?;
    let archived = if to_stdout {
        control::export_stream(&space, which.as_ref(), &mut std::io::stdout().lock())?
    } else {
        let replace = if args.force {
            Replace::Allowed
        } else {
            Replace::Never
        };
        control::export_to(&space, which.as_ref(), &args.file, replace)?
    };
    let exported = &archived.exported;
    if args.json && !to_stdout {
        cx.print_json(&json!({
            "schema": "bastle.export/v1", "run": space.run(), "file": args.file.to_string_lossy(),
            "entries": exported.entries, "left_out": review::paths_json(&exported.left_out), "whole": archived.whole,
            "from_project": review::paths_json(&archived.from_project),
            "patches": review::paths_json(&archived.patches), "not_in_patches": archived.lacking,
        }))?;
        return Ok(0);
    }
    for path in &exported.left_out {
        cx.note(&format!("  not in the archive: {path}"));
    }
    for path in &archived.patches {
        cx.note(&format!("  commits that the files do not show are in {path}"));
    }
    for text in &archived.lacking {
        cx.note(&format!("  not in the archive: {}", clean(text)));
    }
    review::tell_from_project(&archived.from_project, "the archive", cx);
    let file = if to_stdout {
        "standard output".to_owned()
    } else {
        visible(args.file.as_os_str().as_encoded_bytes())
    };
    cx.note(&format!(
        "{} {} entries of {} in {file}",
        cx.err.tick(),
        exported.entries,
        space.run()
    ));
    Ok(0)
}
