//! `bastle batch`: runs that were asked for together.
use super::stats::age;
use crate::client::{Daemon, part};
use crate::context::{Context, Ended, Format};
use crate::render::{Paint, Table, timestamp};
use bastle_control::fleet::{Acted, BatchRecord, RunRecord};
use serde_json::{Value, json};

/// Arguments of `batch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle batch ls
  bastle batch show k3v9x2ab
  bastle batch stop k3v9x2ab

Exit codes: 0 ok, 1 failed, 3 no such batch.")]
pub(crate) struct BatchArgs {
    #[command(subcommand)]
    verb: BatchVerb,
}

#[derive(Debug, clap::Subcommand)]
enum BatchVerb {
    /// List batches, newest first
    #[command(visible_alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask every run of one to end; those that wait do not start
    Stop {
        /// Its id
        id: String,
        /// At once, without asking
        #[arg(long)]
        kill: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the runs of one
    Show {
        /// Its id
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl BatchArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            BatchVerb::Ls { json } | BatchVerb::Show { json, .. } | BatchVerb::Stop { json, .. } => *json,
        }
    }
}

/// Does it.
pub(crate) fn run(args: &BatchArgs, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    match &args.verb {
        BatchVerb::Ls { json } => {
            let batches: Vec<BatchRecord> = daemon.list("/api/v1/batches")?;
            if *json {
                let listed: Vec<Value> = batches.iter().map(as_value).collect();
                cx.print_json(&json!({ "schema": "bastle.batches/v1", "batches": listed }))?;
                return Ok(0);
            }
            let mut table = Table::new(&["ID", "PREFIX", "RUNS", "STATES", "WHEN", "BY"]);
            for batch in &batches {
                table.row([
                    (&batch.id, Paint::Bold),
                    (&batch.prefix, Paint::Plain),
                    (&batch.size.to_string(), Paint::Plain),
                    (&states(batch), Paint::Plain),
                    (&age(batch.created_ms), Paint::Plain),
                    (&batch.caller, Paint::Plain),
                ]);
            }
            if table.is_empty() {
                cx.note("no batch was asked for; bastle spawn --count 3 -- CMD");
                return Ok(0);
            }
            cx.print(&table.render(cx.out))?;
            Ok(0)
        }
        BatchVerb::Show { id, json } => show(&daemon, id, (*json).into(), cx),
        BatchVerb::Stop { id, kill, json } => {
            // One that is not there is told as such: stopping none of its runs would look like success.
            let batch: BatchRecord = daemon.read(daemon.get(&format!("/api/v1/batches/{}", part(id)))?)?;
            let acted = daemon.post("/api/v1/stop", &json!({ "batch": batch.id, "kill": kill }))?;
            let acted: Vec<Acted> = daemon.read(acted["runs"].clone())?;
            stopped(&acted, (*json).into(), cx)
        }
    }
}

fn show(daemon: &Daemon, id: &str, format: Format, cx: &Context) -> Ended {
    let batch: BatchRecord = daemon.read(daemon.get(&format!("/api/v1/batches/{}", part(id)))?)?;
    let runs: Vec<RunRecord> = daemon.list(&format!("/api/v1/runs?limit=1000&batch={}", part(&batch.id)))?;
    if format == Format::Json {
        let listed: Vec<Value> = runs
            .iter()
            .map(|run| json!({ "run": run.name, "state": run.state, "reason": run.reason, "code": run.code }))
            .collect();
        cx.print_json(&json!({ "schema": "bastle.batch/v1", "batch": as_value(&batch), "runs": listed }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["NAME", "STATE", "REASON", "CODE", "DENIED"]);
    for run in &runs {
        table.row([
            (run.name.as_str(), Paint::Bold),
            (run.state.word(), Paint::Plain),
            (run.reason.as_deref().unwrap_or_default(), Paint::Plain),
            (
                &run.code.map(|code| code.to_string()).unwrap_or_default(),
                Paint::Plain,
            ),
            (&run.denials.to_string(), Paint::Plain),
        ]);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

fn stopped(acted: &[Acted], format: Format, cx: &Context) -> Ended {
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.batch-stop/v1", "runs": acted }))?;
    }
    for one in acted {
        match &one.fault {
            _ if format == Format::Json => {}
            None => cx.print(&format!("{}\n", one.name))?,
            Some(fault) => cx.report(std::slice::from_ref(fault), Format::Human),
        }
    }
    Ok(u8::from(acted.iter().any(|one| one.fault.is_some())))
}

fn states(batch: &BatchRecord) -> String {
    let words = batch
        .states
        .iter()
        .map(|(state, count)| format!("{count} {state}"));
    words.collect::<Vec<_>>().join(", ")
}

fn as_value(batch: &BatchRecord) -> Value {
    json!({
        "id": batch.id, "prefix": batch.prefix, "caller": batch.caller, "created": timestamp(batch.created_ms),
        "size": batch.size, "states": batch.states, "max_parallel": batch.max_parallel,
    })
}
