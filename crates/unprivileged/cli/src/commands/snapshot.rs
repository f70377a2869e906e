//! `bastle snapshot`, `snapshots` and `rollback`: states of a run's copy, kept and brought back.
use super::review;
use crate::context::{Context, Ended};
use crate::render::{Paint, Table, ago, bytes, now_ms, timestamp};
use bastle_contract::{Code, Fault};
use bastle_control::review::library::audit_delta::ChangeKind;
use bastle_control::review::library::meta::{Reason, Snapshot, SnapshotName};
use bastle_control::review::{self as control, read_which};
use serde_json::{Value, json};

/// Arguments of `snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle snapshot                      the last run of this project, as it is now
  bastle snapshot calm-otter works     under a name

Exit codes: 0 ok, 1 failed, 3 no such run.")]
pub(crate) struct SnapshotArgs {
    /// The run (name, unique prefix, or @last of this project) [default: @last]
    run: Option<String>,
    /// A name for it: a letter, then letters, digits, `.`, `_`, `-`
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `snapshots`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 ok, 1 failed, 3 no such run.")]
pub(crate) struct SnapshotsArgs {
    /// The run (name, unique prefix, or @last of this project) [default: @last]
    run: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `rollback`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle rollback 3                    the last run of this project, to snapshot 3
  bastle rollback calm-otter works     to the snapshot of that name
  bastle rollback calm-otter base      to the tree as it was copied

What the copy is now becomes a snapshot first. A run that lives is not rolled back.

Exit codes: 0 ok, 1 failed, 3 no such run or snapshot.")]
pub(crate) struct RollbackArgs {
    /// The run [default: the last of this project], then number or name of a snapshot
    #[arg(required = true, num_args = 1..=2, value_name = "[RUN] N|NAME")]
    words: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Takes a snapshot.
pub(crate) fn take(args: &SnapshotArgs, cx: &Context) -> Ended {
    let name = args.name.clone().map(SnapshotName::try_from).transpose()?;
    let at = review::whereabouts()?;
    let space = review::open(&at, args.run.as_deref(), cx)?;
    let taken = control::snapshot(&space, name)?;
    for finding in &taken.findings {
        cx.note(&format!("note: {finding}"));
    }
    if args.json {
        let value = json!({
            "schema": "bastle.snapshot/v1", "run": space.run(), "snapshot": as_json(&taken.snapshot),
            "findings": taken.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        cx.print_json(&value)?;
        return Ok(0);
    }
    let name = taken
        .snapshot
        .name
        .as_ref()
        .map_or_else(String::new, |name| format!(" {name}"));
    cx.print(&format!("{}\n", taken.snapshot.number))?;
    let (run, number, files) = (space.run(), taken.snapshot.number, taken.snapshot.totals.0);
    cx.note(&format!(
        "{} snapshot {number}{name} of {run}: {files} files; back to it: bastle rollback {run} {number}",
        cx.err.tick()
    ));
    Ok(0)
}

/// Lists snapshots.
pub(crate) fn list(args: &SnapshotsArgs, cx: &Context) -> Ended {
    let at = review::whereabouts()?;
    let space = review::open(&at, args.run.as_deref(), cx)?;
    let snapshots = space.snapshots()?;
    if args.json {
        let listed: Vec<Value> = snapshots.iter().map(as_json).collect();
        cx.print_json(&json!({ "schema": "bastle.snapshots/v1", "run": space.run(), "snapshots": listed }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["N", "NAME", "WHEN", "WHY", "FILES", "SIZE"]);
    for snapshot in &snapshots {
        let name = snapshot
            .name
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        table.row([
            (&snapshot.number.to_string(), Paint::Bold),
            (&name, Paint::Accent),
            (&ago(created_ms(snapshot), now_ms()), Paint::Plain),
            (reason(snapshot.reason), Paint::Plain),
            (&snapshot.totals.0.to_string(), Paint::Plain),
            (&bytes(snapshot.totals.1), Paint::Plain),
        ]);
    }
    cx.print(&table.render(cx.out))?;
    let run = space.run();
    cx.note(&format!(
        "back to one: bastle rollback {run} N; since one: bastle diff {run} --from N"
    ));
    Ok(0)
}

/// Brings a snapshot back.
pub(crate) fn rollback(args: &RollbackArgs, cx: &Context) -> Ended {
    let (run, which) = match args.words.as_slice() {
        [which] => (None, which),
        [run, which] => (Some(run.as_str()), which),
        _ => {
            return Err(Fault::new(Code::UsageArgument, "name a snapshot", "")
                .help("bastle snapshots")
                .into());
        }
    };
    // The base is always the first one.
    let which = if which == "base" {
        read_which("0")?
    } else {
        read_which(which)?
    };
    let at = review::whereabouts()?;
    let space = review::open(&at, run, cx)?;
    let done = control::rollback(&space, &which)?;
    let run = space.run();
    if args.json {
        let changes = done.changes.iter().map(|change| {
            let mut value = review::path_json(&change.path);
            value["change"] = json!(change.sort());
            value
        });
        let value = json!({
            "schema": "bastle.rollback/v1", "run": run, "to": as_json(&done.to),
            "before": as_json(&done.before), "changes": changes.collect::<Vec<_>>(),
        });
        cx.print_json(&value)?;
        return Ok(0);
    }
    for change in done.changes.iter().filter(|change| !change.path.in_git()) {
        let letter = match change.sort() {
            ChangeKind::Created => 'A',
            ChangeKind::Changed => 'M',
            ChangeKind::Deleted => 'D',
        };
        cx.print(&format!("{letter} {}\n", change.path))?;
    }
    cx.note(&format!(
        "{} {run} is snapshot {} again; what it was is snapshot {}: bastle rollback {run} {}",
        cx.err.tick(),
        done.to.number,
        done.before.number,
        done.before.number
    ));
    Ok(0)
}

/// One snapshot for programs.
pub(super) fn as_json(snapshot: &Snapshot) -> Value {
    json!({
        "number": snapshot.number, "name": snapshot.name, "reason": snapshot.reason,
        "created": timestamp(created_ms(snapshot)), "state": snapshot.manifest,
        "files": snapshot.totals.0, "bytes": snapshot.totals.1,
    })
}

fn created_ms(snapshot: &Snapshot) -> u64 {
    u64::try_from(snapshot.created / 1_000_000).unwrap_or(0)
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Base => "as it was copied",
        Reason::Asked => "asked for",
        Reason::Turn => "before a turn or command",
        Reason::BeforeRollback => "before a rollback",
        Reason::Look => "looked at",
        Reason::Fork => "start of a fork",
    }
}
