//! `bastle ps`: runs that live, at terminals and in the background; with `-a` also those that ended.
use super::kept::{self, Found, Label};
use super::source::state_dir;
use crate::context::{Context, Ended};
use crate::remote;
use crate::render::{Paint, Table, bytes, duration_ms, now_ms};
use bastle_contract::runs::RunState;
use bastle_control::keeper;
use bastle_control::live::{self, Command};
use bastle_control::runs::RunDir;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::Path;

/// Arguments of `ps`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle ps                    runs that live
  bastle ps -a --tag batch=a7  also those that ended, with this label
  bastle ps --watch

Exit codes: 0 ok, 1 failed.")]
pub(crate) struct PsArgs {
    /// Also runs in the background that ended
    #[arg(short, long)]
    all: bool,
    /// Only runs in the background with this label (repeatable: all of them)
    #[arg(long, value_name = "KEY[=VALUE]")]
    tag: Vec<String>,
    /// Show it again every second, until ^C
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lists runs.
pub(crate) fn run(args: &PsArgs, cx: &Context) -> Ended {
    let state = state_dir()?;
    let daemon = remote::daemon()?;
    let rows = || match &daemon {
        Some(daemon) => remote::rows(daemon, args.all.into(), &args.tag),
        None => Ok(rows(args, &state)),
    };
    if args.json {
        let runs = rows()?;
        cx.print_json(&json!({ "schema": "bastle.ps/v1", "runs": runs }))?;
        return Ok(0);
    }
    loop {
        let rows = rows()?;
        let text = table(&rows).render(cx.out);
        if !args.watch {
            return shown(&text, &rows, cx);
        }
        let clear = if std::io::stdout().is_terminal() {
            "\x1b[H\x1b[2J"
        } else {
            ""
        };
        cx.print(&format!("{clear}{text}"))?;
        let second = rustix::event::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        match rustix::event::poll(&mut [], Some(&second)) {
            Ok(_) | Err(_) => {}
        }
    }
}

fn shown(text: &str, rows: &[Value], cx: &Context) -> Ended {
    if rows.is_empty() {
        cx.note("no run lives");
    } else {
        cx.print(text)?;
    }
    Ok(0)
}

fn rows(args: &PsArgs, state: &Path) -> Vec<Value> {
    let labels: Vec<Label> = args.tag.iter().map(|text| kept::label(text)).collect();
    kept::all(state)
        .iter()
        .filter_map(|run| match run {
            Found::Kept(dir) if kept::has(dir, &labels) => background(state, dir, args),
            Found::Living(run) if labels.is_empty() => {
                let mut row = live::ask(state, run, &Command::Status {}).ok()?;
                row["kept"] = json!(false);
                Some(row)
            }
            Found::Kept(_) | Found::Living(_) => None,
        })
        .collect()
}

/// A run in the background: what its files say, and where it lives, what it says itself.
fn background(state: &Path, dir: &RunDir, args: &PsArgs) -> Option<Value> {
    let file = keeper::settle(dir).ok()?;
    if file.state.is_final() && !args.all {
        return None;
    }
    let spec = dir.spec().ok();
    let begun = !matches!(file.state, RunState::Queued | RunState::Building);
    let status = if begun && !file.state.is_final() {
        live::ask(state, dir.name(), &Command::Status {}).ok()
    } else {
        None
    };
    let mut row = status.unwrap_or_else(|| {
        json!({
            "run": dir.name(),
            "argv": spec.as_ref().map(|spec| spec.get().argv.clone()),
            "state": file.state,
            "reason": file.reason,
            "denials": file.denials,
            "findings": file.findings,
            "net": null,
            "grants": [],
        })
    });
    row["kept"] = json!(true);
    row["created_ms"] = json!(file.created_ms);
    row["started_ms"] = json!(file.started_ms);
    row["ended_ms"] = json!(file.ended_ms);
    row["code"] = json!(file.code);
    row["tags"] = json!(
        spec.as_ref()
            .map(|spec| spec.get().tags.as_map().clone())
            .unwrap_or_default()
    );
    row["batch"] = json!(spec.as_ref().and_then(|spec| spec.get().batch.clone()));
    Some(row)
}

fn table(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        "NAME", "STATE", "NEEDS", "UP", "REQUESTS", "DENIED", "UNUSUAL", "OUT", "IN", "GRANTS", "TAGS",
        "COMMAND",
    ]);
    let now = now_ms();
    for row in rows {
        let number = |key: &str| row["net"][key].as_u64().unwrap_or(0);
        let words = |value: &Value| -> String {
            let words = value.as_array().into_iter().flatten().filter_map(Value::as_str);
            words.collect::<Vec<_>>().join(" ")
        };
        let state = row["state"].as_str().unwrap_or_default();
        let reason = row["reason"].as_str().unwrap_or_default();
        let needs = match state {
            "needs-input" | "needs-credential" | "suspended" => reason.to_owned(),
            _ => words(&row["questions"]),
        };
        let state = match (state, reason) {
            ("failed" | "cancelled", reason) if !reason.is_empty() => format!("{state} ({reason})"),
            (state, _) => state.to_owned(),
        };
        let tags = row["tags"].as_object().into_iter().flatten();
        let tags: Vec<String> = tags
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        table.row([
            (row["run"].as_str().unwrap_or_default(), Paint::Bold),
            (&state, Paint::Plain),
            (&needs, Paint::Warn),
            (&up(row, now), Paint::Plain),
            (&number("requests").to_string(), Paint::Plain),
            (&row["denials"].as_u64().unwrap_or(0).to_string(), Paint::Plain),
            (&findings(&row["findings"]), Paint::Warn),
            (&bytes(number("bytes_out")), Paint::Plain),
            (&bytes(number("bytes_in")), Paint::Plain),
            (
                &row["grants"].as_array().map_or(0, Vec::len).to_string(),
                Paint::Plain,
            ),
            (&tags.join(","), Paint::Plain),
            (&words(&row["argv"]), Paint::Plain),
        ]);
    }
    table
}

/// `2 high`: how many findings, and the gravest; nothing where there are none.
fn findings(found: &Value) -> String {
    match (found["count"].as_u64().unwrap_or(0), found["worst"].as_str()) {
        (0, _) => String::new(),
        (count, worst) => format!("{count} {}", worst.unwrap_or_default()),
    }
}

/// How long it works, or worked.
fn up(row: &Value, now: u64) -> String {
    match (row["started_ms"].as_u64(), row["ended_ms"].as_u64()) {
        (Some(started), ended) => duration_ms(ended.unwrap_or(now).saturating_sub(started)),
        (None, _) => String::new(),
    }
}
