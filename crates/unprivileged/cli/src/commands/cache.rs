//! `bastle cache`: list, merge and remove the caches that runs share. Names in a layer are the agent's.
use super::runs;
use super::source::state_dir;
use crate::context::{Context, Ended, Failed};
use crate::render::{Paint, Table, bytes, clean};
use bastle_contract::{Code, Fault, RunId};
use bastle_control::caches::{self, Fate, MergeWish, Told};
use serde_json::{Value, json};
use std::path::Path;

/// Arguments of `cache`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle run --cache cargo -- cargo build    with a copy of the cargo cache
  bastle cache merge --dry-run               what the last run added to its copy
  bastle cache merge calm-otter              share it with later runs
  bastle cache rm cargo                      begin anew

A run's own copy is shared by nobody before it is merged; a name that is there is never replaced.
Exit codes: 0 ok, 1 failed, 2 usage, 3 no such cache, or nothing to merge.")]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    verb: CacheVerb,
}

#[derive(Debug, clap::Subcommand)]
enum CacheVerb {
    /// List caches and what runs left above them
    #[command(visible_alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Share new files that a run left, after checking them
    Merge {
        /// Run name, unique prefix or @last
        #[arg(default_value = "@last", value_name = "RUN")]
        run: String,
        /// Only files whose content is stated by a lock file or by their own name
        #[arg(long)]
        checked: bool,
        /// Show what would be merged, merge nothing
        #[arg(long, conflicts_with = "checked")]
        dry_run: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a cache, or only what one run left above it
    Rm {
        /// The cache
        name: String,
        /// Only what this run left
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl CacheArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            CacheVerb::Ls { json } | CacheVerb::Merge { json, .. } | CacheVerb::Rm { json, .. } => *json,
        }
    }
}

/// Does it.
pub(crate) fn run(args: CacheArgs, cx: &Context) -> Ended {
    let state = state_dir()?;
    match args.verb {
        CacheVerb::Ls { json: true } => ls_json(&state, cx),
        CacheVerb::Ls { json: false } => ls(&state, cx),
        CacheVerb::Merge {
            run,
            checked,
            dry_run,
            json,
        } => {
            let wish = match (dry_run, checked) {
                (true, _) => MergeWish::Nothing,
                (false, true) => MergeWish::Checked,
                (false, false) => MergeWish::Everything,
            };
            let run = runs::find(&state, &run)?;
            let told = caches::merge(&state, &run, wish).map_err(missing)?;
            if json {
                merged_json(&run, wish, &told, cx)?;
            } else {
                merged(&run, wish, &told, cx)?;
            }
            Ok(0)
        }
        CacheVerb::Rm { name, run, json } => {
            let run = run.map(|run| runs::find(&state, &run)).transpose()?;
            let gone = caches::remove(&state, &name, run.as_ref()).map_err(missing)?;
            if json {
                cx.print_json(&json!({ "schema": "bastle.cache-rm/v1", "cache": name, "removed": gone }))?;
                return Ok(0);
            }
            for path in gone {
                cx.print(&format!("removed {}\n", clean(&path.display().to_string())))?;
            }
            Ok(0)
        }
    }
}

fn missing(fault: Fault) -> Failed {
    let code = if fault.code == Code::CacheMissing { 3 } else { 1 };
    Failed::from(fault).exit(code)
}

fn ls_json(state: &Path, cx: &Context) -> Ended {
    let caches = caches::list(state)?;
    cx.print_json(&json!({ "schema": "bastle.cache-ls/v1", "caches": caches }))?;
    Ok(0)
}

fn ls(state: &Path, cx: &Context) -> Ended {
    let caches = caches::list(state)?;
    let mut table = Table::new(&["CACHE", "FILES", "SIZE", "WAITING"]);
    for cache in &caches {
        let waiting: Vec<String> = cache
            .candidates
            .iter()
            .map(|one| {
                let live = if one.live { ", lives" } else { "" };
                format!("{} ({}{live})", one.run, one.files)
            })
            .collect();
        table.row([
            (cache.cache.as_str(), Paint::Bold),
            (&cache.files.to_string(), Paint::Plain),
            (&bytes(cache.bytes), Paint::Plain),
            (&waiting.join(" "), Paint::Plain),
        ]);
    }
    if table.is_empty() {
        cx.note("no run has used a cache yet; bastle run --cache cargo -- CMD");
        return Ok(0);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

fn merged(run: &RunId, wish: MergeWish, told: &[Told], cx: &Context) -> Result<(), Failed> {
    let would = if wish == MergeWish::Nothing {
        "would be "
    } else {
        ""
    };
    for one in told {
        for name in one.names.iter().filter(|name| shown(name.fate)) {
            let (mark, word) = match name.fate {
                fate if fate.is_merged() => (cx.out.tick(), "merged"),
                fate if fate.is_refused() => (cx.out.cross(), "refused"),
                _ => (cx.out.query(), "left out"),
            };
            // `Display` of a path makes it one harmless line.
            cx.print(&format!(
                "{mark} {word:<8} {}  ({})\n",
                name.path,
                name.fate.words()
            ))?;
        }
        let hidden = one.count(|fate| !shown(*fate));
        cx.note(&format!(
            "cache {}: {} of {run} {would}merged, {} refused, {} left out{}",
            one.cache,
            one.count(Fate::is_merged),
            one.count(Fate::is_refused),
            one.count(|fate| !fate.is_merged() && !fate.is_refused()),
            if hidden > 0 {
                format!(" ({hidden} that are there or are made anew by each run are not listed)")
            } else {
                String::new()
            }
        ));
    }
    Ok(())
}

/// What is worth a line.
fn shown(fate: Fate) -> bool {
    !matches!(fate, Fate::Exists | Fate::NotShared)
}

fn merged_json(run: &RunId, wish: MergeWish, told: &[Told], cx: &Context) -> Result<(), Failed> {
    let caches: Vec<Value> = told
        .iter()
        .map(|one| {
            json!({
                "cache": one.cache,
                "merged": one.count(Fate::is_merged),
                "refused": one.count(Fate::is_refused),
                "names": one.names,
            })
        })
        .collect();
    cx.print_json(&json!({
        "schema": "bastle.cache-merge/v1", "run": run, "dry_run": wish == MergeWish::Nothing, "caches": caches,
    }))
}
