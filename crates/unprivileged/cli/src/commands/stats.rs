//! `bastle stats`: what the runs of a daemon used and met, summed.
use crate::client::Daemon;
use crate::context::{Context, Ended};
use crate::render::{Paint, Table, ago, duration_ms, now_ms};
use bastle_contract::runs::RunState;
use bastle_control::fleet::{Stats, StatsRow};
use serde_json::json;
use std::collections::BTreeMap;

/// Arguments of `stats`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle stats
  bastle stats --by day
  bastle stats --by tag --json

Exit codes: 0 ok, 1 failed.")]
pub(crate) struct StatsArgs {
    /// Sums by agent, tag, day or batch
    #[arg(long, value_enum, default_value = "agent", value_name = "WHAT")]
    by: By,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What sums are made over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// The first word of the command
    Agent,
    /// Labels
    Tag,
    /// Days, UTC
    Day,
    /// Batches
    Batch,
}

impl By {
    fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Tag => "tag",
            Self::Day => "day",
            Self::Batch => "batch",
        }
    }
}

/// Asks and shows.
pub(crate) fn run(args: &StatsArgs, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    let stats: Stats = daemon.read(daemon.get("/api/v1/stats")?)?;
    let rows = match args.by {
        By::Agent => &stats.by_agent,
        By::Tag => &stats.by_tag,
        By::Day => &stats.by_day,
        By::Batch => &stats.by_batch,
    };
    if args.json {
        cx.print_json(&json!({
            "schema": "bastle.stats/v1", "by": args.by.word(), "total": stats.total, "rows": rows,
        }))?;
        return Ok(0);
    }
    cx.print(&table(rows, &stats.total, args.by).render(cx.out))?;
    Ok(0)
}

fn table(rows: &BTreeMap<String, StatsRow>, total: &StatsRow, by: By) -> Table {
    let heading = by.word().to_uppercase();
    let mut table = Table::new(&[
        &heading, "RUNS", "LIVE", "DONE", "FAILED", "TIME", "CPU", "DENIED", "TOKENS", "COST",
    ]);
    let all = rows
        .iter()
        .map(|(name, row)| (name.as_str(), row, Paint::Bold))
        .chain([("all", total, Paint::Dim)]);
    for (name, row, paint) in all {
        let count = |fits: &dyn Fn(RunState) -> bool| -> u64 {
            let fitting = row.states.iter().filter(|(state, _)| fits(**state));
            fitting.map(|(_, count)| *count).sum()
        };
        let live = count(&|state| !state.is_final());
        let done = count(&|state| state == RunState::Completed);
        let failed = count(&|state| matches!(state, RunState::Failed | RunState::Refused));
        table.row([
            (name, paint),
            (&row.runs.to_string(), Paint::Plain),
            (&live.to_string(), Paint::Plain),
            (&done.to_string(), Paint::Plain),
            (
                &failed.to_string(),
                if failed > 0 { Paint::Bad } else { Paint::Plain },
            ),
            (&duration_ms(row.wall_ms), Paint::Plain),
            (&duration_ms(row.cpu_ms), Paint::Plain),
            (&row.denials.to_string(), Paint::Plain),
            (&row.model_tokens.to_string(), Paint::Plain),
            (&dollars(row.micro_usd), Paint::Plain),
        ]);
    }
    table
}

/// `$0.84`, or nothing where nothing was paid.
pub(super) fn dollars(micro: u64) -> String {
    if micro == 0 {
        return String::new();
    }
    format!("${}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000)
}

/// How long ago.
pub(super) fn age(ms: u64) -> String {
    ago(ms, now_ms())
}
