//! `bastle allow`, `deny`, `revoke` and `policy reload`: talking to a run that lives.
use super::grant;
use super::source::state_dir;
use crate::context::{Context, Ended, Failed, Format};
use crate::render::clean;
use bastle_contract::{Code, Fault, RunId};
use bastle_control::backend::{IsolationBackend, NativeBackend};
use bastle_control::live::{self, Command, Scope};
use serde_json::{Value, json};
use std::path::Path;

/// Arguments of `allow`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle allow calm-otter d_8f2k                 answer a question, or allow what was denied
  bastle allow calm-otter net api.example.com    a host, until the run ends
  bastle allow @last net 'GET api.example.com/v1/**' --once

Exit codes: 0 done, 1 refused, 3 no such run.")]
pub(crate) struct AllowArgs {
    /// The run (name, unique prefix, or @last for the only one)
    run: String,
    /// Id of a question or denial, or `net` and a rule
    #[arg(required = true, num_args = 1..=2, value_name = "ID | net RULE")]
    target: Vec<String>,
    /// For the first request it lets through
    #[arg(long, conflicts_with = "session")]
    once: bool,
    /// Until the run ends (default for rules; a question is answered once)
    #[arg(long)]
    session: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `deny` and `revoke`.
#[derive(Debug, clap::Args)]
pub(crate) struct DenyArgs {
    /// The run (name, unique prefix, or @last for the only one)
    run: String,
    /// Id of a question or denial, `net` and a rule; for revoke also a granted path (/…, ./…)
    #[arg(required = true, num_args = 1..=2, value_name = "ID | net RULE")]
    target: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl AllowArgs {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Human }
    }
}

impl DenyArgs {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Human }
    }
}

/// Allows.
pub(crate) fn allow(args: &AllowArgs, cx: &Context) -> Ended {
    let target = target(&args.target)?;
    let scope = match (args.once, args.session) {
        (true, _) => Scope::Once,
        (false, true) => Scope::Session,
        (false, false) => usual_scope(&args.run, &target)?,
    };
    say(
        &args.run,
        &Command::Allow {
            target,
            scope,
            hash: None,
            by: None,
        },
        args.format(),
        cx,
    )
}

/// A question is about one request; a rule, or a denial that is over, is about the rest of the run.
fn usual_scope(run: &str, id: &str) -> Result<Scope, Failed> {
    let state = state_dir()?;
    let run = find(&state, run)?;
    let status = live::ask(&state, &run, &Command::Status {})?;
    let open = status["questions"]
        .as_array()
        .is_some_and(|open| open.iter().any(|question| question == id));
    Ok(if open { Scope::Once } else { Scope::Session })
}

/// Refuses.
pub(crate) fn deny(args: &DenyArgs, cx: &Context) -> Ended {
    let target = target(&args.target)?;
    say(
        &args.run,
        &Command::Deny {
            target,
            hash: None,
            by: None,
        },
        args.format(),
        cx,
    )
}

/// Takes a rule or a path back.
pub(crate) fn revoke(args: &DenyArgs, cx: &Context) -> Ended {
    if let [path] = args.target.as_slice()
        && grant::is_path(path)
    {
        let path = grant::absolute(Path::new(path))?;
        let state = state_dir()?;
        let run = find(&state, &args.run)?;
        let told = NativeBackend::new(&state).get(&run)?.revoke(&path)?;
        let result = json!({ "revoked": path, "holders": told.holders, "ended": told.ended });
        return show(&run, &result, args.format(), cx);
    }
    let target = target(&args.target)?;
    say(
        &args.run,
        &Command::Revoke { target, by: None },
        args.format(),
        cx,
    )
}

/// Reads a run's policy again.
pub(crate) fn reload(run: &str, format: Format, cx: &Context) -> Ended {
    say(run, &Command::Reload {}, format, cx)
}

fn target(words: &[String]) -> Result<String, Failed> {
    match words {
        [kind, rule] if kind == "net" => Ok(rule.clone()),
        [only] if only != "net" => Ok(only.clone()),
        _ => Err(Fault::new(
            Code::UsageArgument,
            "name an id, or `net` and a rule",
            "only network rules of a living run can be changed",
        )
        .help("bastle allow RUN net api.example.com")
        .into()),
    }
}

pub(super) fn say(run: &str, command: &Command, format: Format, cx: &Context) -> Ended {
    let state = state_dir()?;
    let run = find(&state, run)?;
    let result = live::ask(&state, &run, command)?;
    show(&run, &result, format, cx)
}

/// Tells what a run answered.
pub(super) fn show(run: &RunId, result: &Value, format: Format, cx: &Context) -> Ended {
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.live/v1", "run": run, "result": result }))?;
        return Ok(0);
    }
    let text = match (result["changed"].as_str(), result["answered"].as_str()) {
        (Some(change), _) => {
            let cut = result["cut"].as_u64().unwrap_or(0);
            format!("{run}: {} is in force; {cut} connections were cut", clean(change))
        }
        (None, Some(id)) => format!("{run}: {} is answered", clean(id)),
        (None, None) => told(run, result),
    };
    cx.print(&format!("{} {text}\n", cx.out.tick()))?;
    Ok(0)
}

/// What became of a grant.
fn told(run: &RunId, result: &Value) -> String {
    let granted = &result["granted"];
    if let Some(path) = granted["path"].as_str() {
        let place = match granted["inside"].as_str() {
            Some(inside) => format!("at {}", clean(inside)),
            None => format!("by the broker: bastle-fs cat {}", clean(path)),
        };
        let until = granted["seconds"]
            .as_u64()
            .map_or_else(String::new, |left| format!(", for {} s", left + 1));
        let access = match granted["access"].as_str() {
            Some("read-write") => "reading and writing",
            Some(_) | None => "reading",
        };
        return format!(
            "{run}: {} can be used inside {place}, for {access}{until}",
            clean(path)
        );
    }
    match (
        result["revoked"].as_str(),
        result["holders"].as_u64().unwrap_or(0),
    ) {
        (Some(path), count) => {
            let mut text = format!("{run}: {} is taken back", clean(path));
            match result["ended"].as_u64().unwrap_or(0) {
                0 => {}
                ended => text.push_str(&format!(
                    "; {ended} processes that could still reach it were ended"
                )),
            }
            if count > 0 {
                text.push_str(&format!(
                    "; {count} processes still have a file of it open for reading, until they close it"
                ));
            }
            text
        }
        (None, _) => format!("{run}: done"),
    }
}

/// The living run that a person means.
pub(super) fn find(state: &Path, name: &str) -> Result<RunId, Fault> {
    let living = live::living(state);
    if let Some(exact) = living.iter().find(|run| run.as_str() == name) {
        return Ok(exact.clone());
    }
    let fits = |run: &&RunId| name == "@last" || run.as_str().starts_with(name);
    let mut fitting = living.iter().filter(fits);
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only.clone()),
        (Some(first), Some(second)) => Err(Fault::new(
            Code::UsageArgument,
            format!("{} names more than one living run", clean(name)),
            format!("{first} and {second}"),
        )
        .help("bastle ps")),
        (None, _) => Err(Fault::new(
            Code::AuditMissing,
            format!("no living run is called {}", clean(name)),
            "only living runs can be talked to",
        )
        .help("bastle ps")),
    }
}
