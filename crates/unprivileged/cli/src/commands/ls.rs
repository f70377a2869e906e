//! `bastle ls`: runs that have a copy.
use super::review;
use crate::context::{Context, Ended};
use crate::render::{Paint, Table, ago, bytes, now_ms, timestamp};
use bastle_control::review as control;
use bastle_control::review::library::meta::{Meta, State};
use bastle_control::review::library::path::visible;
use bastle_control::review::library::place::Place;
use bastle_control::review::library::trash::{self, Trashed};
use serde_json::{Value, json};

/// Arguments of `ls`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Runs that worked in place have no copy; bastle audit ls lists every run. bastle restore RUN takes a removed copy back.

Exit codes: 0 ok, 1 failed.")]
pub(crate) struct LsArgs {
    /// Only those of the project you stand in
    #[arg(long)]
    here: bool,
    /// Removed copies that can still be taken back, with their age and size
    #[arg(long, conflicts_with = "here")]
    trash: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lists the copies, newest first.
pub(crate) fn run(args: &LsArgs, cx: &Context) -> Ended {
    let at = review::whereabouts()?;
    if args.trash {
        return removed(args, &at.place(), cx);
    }
    let mut metas = control::metas(&at.place())?;
    if args.here {
        metas.retain(|meta| at.project.as_deref() == Some(meta.source.as_path()));
    }
    if args.json {
        let listed: Vec<Value> = metas.iter().map(as_json).collect();
        cx.print_json(&json!({ "schema": "bastle.ls/v1", "runs": listed }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["NAME", "STATE", "WHEN", "BRANCH", "PROJECT"]);
    for meta in &metas {
        table.row([
            (meta.run.as_str(), Paint::Bold),
            (word(meta.state), Paint::Plain),
            (&ago(created_ms(meta), now_ms()), Paint::Plain),
            (meta.agent_branch.as_deref().unwrap_or_default(), Paint::Plain),
            (&source(meta), Paint::Plain),
        ]);
    }
    if table.is_empty() {
        cx.note("no run has a copy");
        return Ok(0);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

fn removed(args: &LsArgs, place: &Place, cx: &Context) -> Ended {
    let trashed = trash::trashed(place)?;
    let source = |one: &Trashed| {
        let source = one.source(place);
        source.map(|source| visible(source.as_path().as_os_str().as_encoded_bytes()))
    };
    let removed_ms = |one: &Trashed| u64::try_from(one.removed / 1_000_000).unwrap_or(0);
    if args.json {
        let listed = trashed.iter().map(|one| {
            json!({
                "run": one.run, "removed": timestamp(removed_ms(one)), "bytes": one.size(), "source": source(one),
            })
        });
        let listed: Vec<Value> = listed.collect();
        cx.print_json(&json!({ "schema": "bastle.trash/v1", "trash": listed }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["NAME", "REMOVED", "SIZE", "PROJECT"]);
    for one in &trashed {
        table.row([
            (one.run.as_str(), Paint::Bold),
            (&ago(removed_ms(one), now_ms()), Paint::Plain),
            (&bytes(one.size()), Paint::Plain),
            (&source(one).unwrap_or_default(), Paint::Plain),
        ]);
    }
    if table.is_empty() {
        cx.note("the trash is empty");
        return Ok(0);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

fn as_json(meta: &Meta) -> Value {
    json!({
        "run": meta.run, "state": meta.state, "mode": meta.mode, "created": timestamp(created_ms(meta)),
        "source": source(meta), "branch": meta.agent_branch,
        "from": meta.origin.as_ref().map(|origin| format!("{}@{}", origin.run, origin.snapshot)),
    })
}

fn source(meta: &Meta) -> String {
    visible(meta.source.as_path().as_os_str().as_encoded_bytes())
}

fn created_ms(meta: &Meta) -> u64 {
    u64::try_from(meta.created / 1_000_000).unwrap_or(0)
}

fn word(state: State) -> &'static str {
    match state {
        State::Making => "being made",
        State::Ready => "ready",
        State::Running => "running",
        State::Finished => "finished",
        State::Applied => "applied",
    }
}
