//! `bastle inspect`: everything that is known of a run in the background. Values of variables are not shown.
use super::kept::find_kept;
use super::source::state_dir;
use crate::context::{Context, Ended};
use crate::remote;
use crate::render::clean_lines;
use bastle_contract::runs::RunFile;
use bastle_control::keeper;
use bastle_control::live::{self, Command};
use serde_json::{Value, json};

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
    let dir = find_kept(&state, &args.run)?;
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
    if args.json {
        cx.print_json(&document)?;
    } else {
        let text = serde_json::to_string_pretty(&document).unwrap_or_default();
        cx.print(&format!("{}\n", clean_lines(&text)))?;
    }
    Ok(0)
}

/// What it used of models: as it was counted outside of the agent, and as the agent reports it. The living run knows better
/// than its file.
fn models(file: &RunFile, status: Option<&Value>) -> Value {
    let alive = |key: &str| {
        status
            .and_then(|status| status.get(key))
            .filter(|told| !told.is_null())
    };
    let counted = alive("net").map_or_else(
        || json!(file.counted),
        |net| json!({ "turns": net["turns"], "tokens": net["tokens"], "cost_micro_usd": net["cost_micro_usd"] }),
    );
    let reported = alive("reported").map_or_else(|| json!(file.reported), Clone::clone);
    json!({ "counted": counted, "reported": reported })
}
