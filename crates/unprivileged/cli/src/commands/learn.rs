//! `bastle learn`: rules proposed from what a run that learned did, and saved to a file that you choose.
use super::runs;
use super::source::state_dir;
use crate::context::{Context, Ended, Format};
use crate::render::{Paint, Table, clean, timestamp};
use bastle_contract::{Fault, RunId};
use bastle_control::learn::{self, Proposal};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Runs that are looked at for `--min-runs`: the newest.
const MOST_RUNS: usize = 50;

/// Arguments of `learn`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle run --learn -- npm test               reads of unknown hosts pass and are recorded
  bastle learn show @last
  bastle learn save @last --to my-policy.json
  bastle run --policy my-policy.json -- npm test

Exit codes: 0 ok, 1 failed, 3 no such run.")]
pub(crate) struct LearnArgs {
    #[command(subcommand)]
    verb: LearnVerb,
}

#[derive(Debug, clap::Subcommand)]
enum LearnVerb {
    /// Show the narrowest rules that cover what the run did, with evidence
    Show(Source),
    /// Add them to a policy file
    Save {
        #[command(flatten)]
        source: Source,
        /// The file; it is made, or merged with
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Source {
    /// The run (name, unique prefix or @last)
    run: String,
    /// Only what at least this many of your newest runs needed
    #[arg(long, value_name = "N", default_value_t = 1)]
    min_runs: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl LearnArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            LearnVerb::Show(source) | LearnVerb::Save { source, .. } => source.json,
        }
    }
}

/// Shows or saves.
pub(crate) fn run(args: LearnArgs, cx: &Context) -> Ended {
    match &args.verb {
        LearnVerb::Show(source) => {
            let proposals = proposals(source)?;
            show(&proposals, source, cx)
        }
        LearnVerb::Save { source, to } => {
            let proposals = proposals(source)?;
            let new = learn::save(to, &proposals)?;
            if source.json {
                let result =
                    json!({ "schema": "bastle.learn/v1", "rules": proposals, "file": to, "new": new });
                cx.print_json(&result)?;
            } else {
                cx.note(&saved(to, new, cx));
            }
            Ok(0)
        }
    }
}

/// What was written where, and how it is used.
pub(super) fn saved(file: &Path, new: usize, cx: &Context) -> String {
    let shown = clean(&file.display().to_string());
    format!(
        "{} {new} new rules in {shown}; bastle run --policy {shown} -- CMD holds a run to them",
        cx.err.tick()
    )
}

fn proposals(source: &Source) -> Result<Vec<Proposal>, Fault> {
    let state = state_dir()?;
    let run = runs::find(&state, &source.run)?;
    let mut wanted: Vec<RunId> = vec![run];
    if source.min_runs > 1 {
        let others = runs::newest_first(&state)?.into_iter().map(|entry| entry.run);
        wanted.extend(others.take(MOST_RUNS));
        wanted.sort();
        wanted.dedup();
    }
    learn::propose(&state, &wanted, source.min_runs)
}

fn show(proposals: &[Proposal], source: &Source, cx: &Context) -> Ended {
    let format = if source.json { Format::Json } else { Format::Human };
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.learn/v1", "rules": proposals, "file": null, "new": 0 }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["RULE", "REQUESTS", "RUNS", "FIRST SEEN", "NOTE"]);
    for proposal in proposals {
        table.row([
            (&proposal.rule, Paint::Bold),
            (&proposal.count.to_string(), Paint::Plain),
            (&proposal.runs.to_string(), Paint::Plain),
            (&timestamp(proposal.first_seen_ms), Paint::Plain),
            (&proposal.notes.join("; "), Paint::Warn),
        ]);
    }
    if table.is_empty() {
        cx.note("nothing was learned: only runs with --learn let unknown hosts through");
        return Ok(0);
    }
    cx.print(&table.render(cx.out))?;
    cx.note(&format!(
        "save them: bastle learn save {} --to FILE",
        clean(&source.run)
    ));
    Ok(0)
}
