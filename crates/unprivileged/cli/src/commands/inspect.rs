//! `bastle inspect`: everything that is known of a run in the background, and what one in the foreground says of itself while it
//! lives. Values of variables are not shown.
use super::kept::{Found, find};
use super::source::state_dir;
use crate::context::{Context, Ended};
use crate::remote;
use crate::render::clean_lines;
use bastle_contract::RunId;
use bastle_contract::runs::RunFile;
use bastle_control::keeper;
use bastle_control::live::{self, Command};
use serde_json::{Value, json};
use std::path::Path;

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// The run (name, unique prefix, or @last)
    run: String,
    /// Print JSON on one line; else the same, indented. Of models: what was counted, and what the agent reports
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows it.
pub(crate) fn run(args: &InspectArgs, cx: &Context) -> Ended {
    if let Some(daemon) = remote::daemon()? {
        return remote::inspect(&daemon, &args.run, args.json.into(), cx);
    }
    let state = state_dir()?;
    let dir = match find(&state, &args.run)? {
        Found::Kept(dir) => dir,
        Found::Living(run) => return foreground(args, &state, &run, cx),
    };
    let file = keeper::settle(&dir)?;
    let mut spec = json!(dir.spec()?);
    for variable in spec
        .get_mut("env")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(value) = variable.get_mut(1) {
            *value = json!("[redacted]");
        }
    }
    let status = if file.state.is_final() {
        None
    } else {
        live::ask(&state, dir.name(), &Command::Status {}).ok()
    };
    let output = std::fs::metadata(dir.path().join("output")).map_or(0, |meta| meta.len());
    let document: Value = json!({
        "schema": "bastle.inspect/v1",
        "run": file,
        "models": models(&file, status.as_ref()),
        "request": spec,
        "status": status,
        "output_bytes": output,
        "directory": dir.path(),
    });
    show(args, &document, cx)
}

fn show(args: &InspectArgs, document: &Value, cx: &Context) -> Ended {
    if args.json {
        cx.print_json(document)?;
    } else {
        let text = serde_json::to_string_pretty(document).unwrap_or_default();
        cx.print(&format!("{}\n", clean_lines(&text)))?;
    }
    Ok(0)
}

/// A run in the foreground has no request and no files that are kept: what it says itself is all there is.
fn foreground(args: &InspectArgs, state: &Path, run: &RunId, cx: &Context) -> Ended {
    let status = live::ask(state, run, &Command::Status {})?;
    let models = json!({
        "counted": counted(&status["net"]),
        "reported": status["reported"],
    });
    let document = json!({
        "schema": "bastle.inspect/v1",
        "run": null,
        "models": models,
        "request": null,
        "status": status,
        "output_bytes": 0,
        "directory": null,
    });
    show(args, &document, cx)
}

/// What it used of models: as it was counted outside of the agent, and as the agent reports it. The living run knows better
/// than its file.
fn models(file: &RunFile, status: Option<&Value>) -> Value {
    let alive = |key: &str| {
        status
            .and_then(|status| status.get(key))
            .filter(|told| !told.is_null())
    };
    let counted = alive("net").map_or_else(|| json!(file.counted), counted);
    let reported = alive("reported").map_or_else(|| json!(file.reported), Clone::clone);
    json!({ "counted": counted, "reported": reported })
}

fn counted(net: &Value) -> Value {
    if net.is_null() {
        return Value::Null;
    }
    json!({ "turns": net["turns"], "tokens": net["tokens"], "cost_micro_usd": net["cost_micro_usd"] })
}
