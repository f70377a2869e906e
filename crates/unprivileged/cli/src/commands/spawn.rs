//! `bastle spawn`: many runs at once, kept by the daemon. A batch is taken whole or not at all.
mod file;
mod watch;

use super::source::absolute;
use crate::client::Daemon;
use crate::context::{Context, Ended, Failed, Format};
use crate::render::{Paint, Table, clean};
use bastle_contract::runs::Tags;
use bastle_contract::{Code, EnvName, Fault};
use bastle_control::Place;
use bastle_control::fleet::{BatchReport, OnConflict, RunRequest, SpawnRequest};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Arguments of `spawn`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle spawn --count 3 --tag job=lint -- cargo clippy
  bastle spawn --profile claude --prompt 'fix the flaky login test'
  bastle spawn --profile codex --keep-open --prompt 'look at the parser', then: bastle say RUN 'now fix it'
  bastle spawn -f batch.jsonl --max-parallel 4 --key nightly-2026-05-31 --watch
  bastle stop --tag job=lint

A line of the file is one run: {\"argv\":[\"CMD\"],\"workspace\":\"/project\",\"prompt\":\"…\",\"tags\":{\"a\":\"b\"}}.
Sent again under the same --key, the same batch is started once. Needs the daemon: bastle daemon start.
Exit codes: 0 taken, 1 refused, 2 usage; with --watch 1 also when a run did not complete.")]
pub(crate) struct SpawnArgs {
    /// Runs from a file, one JSON object per line (- is standard input)
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["count", "command", "profile", "prompt", "prompt_file"])]
    file: Option<PathBuf>,
    /// How many runs of the command
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: Option<u16>,
    /// First part of the names [default: run]
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// A label of every run (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    tag: Vec<String>,
    /// Most runs of the batch that live at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_parallel: Option<u32>,
    /// When another run writes the same place: refuse or queue
    #[arg(long, value_enum, default_value = "refuse", value_name = "WHAT")]
    on_conflict: Conflict,
    /// Sent twice under one key, the batch is started once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Start the good ones also when others are refused
    #[arg(long)]
    partial: bool,
    /// Profile: agent, limits and policy by name
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// What the agent is asked
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file")]
    prompt: Option<String>,
    /// How the agent is spoken to: claude, codex, acp, opencode, plain, or none [default: as the profile says]
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    driver: Option<String>,
    /// A driven agent does not end with its turn but waits for bastle say
    #[arg(long, conflicts_with = "file")]
    keep_open: bool,
    /// The same from a file
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Give the copy a repository with one commit and no hidden names
    #[arg(long, conflicts_with = "file")]
    hide_history: bool,
    /// The project [default: the git root above the current directory]
    #[arg(long, value_name = "DIR")]
    workspace_dir: Option<PathBuf>,
    /// copy, overlay, worktree or in-place
    #[arg(long, value_name = "MODE")]
    workspace: Option<String>,
    /// Start from this built-in preset
    #[arg(long, value_name = "NAME[@VERSION]")]
    preset: Option<String>,
    /// Policy file (JSON)
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// none, allowlist, open or offline
    #[arg(long, value_name = "MODE")]
    net: Option<String>,
    /// A variable for the agent (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Wall time of each run [default: 15m]
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Most turns with a model [default: 50]
    #[arg(long, value_name = "N")]
    max_turns: Option<u64>,
    /// Show states until every run has ended
    #[arg(long)]
    watch: bool,
    /// Check and show what would be sent and put before the prompt; start nothing
    #[arg(long, conflicts_with = "watch")]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The command of every run
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// What happens to a run whose place another one writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Conflict {
    /// The batch is refused
    Refuse,
    /// It waits
    Queue,
}

/// Checks, sends, tells.
pub(crate) fn run(args: &SpawnArgs, cx: &Context) -> Ended {
    let format = if args.json { Format::Json } else { Format::Human };
    let request = request(args)?;
    let daemon = Daemon::open()?;
    if args.dry_run {
        return dry_run(&request, &daemon, format, cx);
    }
    let body = serde_json::to_value(&request).map_err(|error| unsendable(&error))?;
    let report: BatchReport = daemon.read(daemon.post("/api/v1/runs", &body)?)?;
    tell(&report, format, cx)?;
    let refused = report.runs.iter().any(|run| run.name.is_none());
    if args.watch {
        let complete = watch::until_ended(&daemon, &report, cx)?;
        return Ok(u8::from(!complete || refused));
    }
    Ok(u8::from(refused))
}

fn unsendable(error: &serde_json::Error) -> Fault {
    Fault::new(Code::UsageArgument, "the batch cannot be sent", error.to_string())
}

/// The batch as it is sent. Everything that can be known here is checked here.
fn request(args: &SpawnArgs) -> Result<SpawnRequest, Failed> {
    let workspace = workspace(args.workspace_dir.as_deref())?;
    let runs = match &args.file {
        Some(path) => file::read(path, &workspace)?,
        None => {
            let one = single(args, workspace)?;
            vec![one; usize::from(args.count.unwrap_or(1))]
        }
    };
    Ok(SpawnRequest {
        key: args.key.clone(),
        prefix: args.prefix.clone(),
        runs,
        on_conflict: match args.on_conflict {
            Conflict::Refuse => OnConflict::Refuse,
            Conflict::Queue => OnConflict::Queue,
        },
        max_parallel: args.max_parallel,
        tags: tags(&args.tag)?,
        partial: args.partial,
        ..SpawnRequest::default()
    })
}

/// The run that the flags describe.
fn single(args: &SpawnArgs, workspace: String) -> Result<RunRequest, Failed> {
    if args.command.is_empty() && args.profile.is_none() {
        return Err(Fault::new(
            Code::UsageArgument,
            "nothing to run",
            "neither a file, nor a profile, nor a command was named",
        )
        .help("bastle spawn --count 3 -- CMD")
        .help("bastle spawn --profile claude --prompt TEXT")
        .help("bastle spawn -f batch.jsonl")
        .into());
    }
    let prompt = match (&args.prompt, &args.prompt_file) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(path)) => Some(text_of(path)?),
        (None, None) => None,
    };
    let policy = match &args.policy {
        Some(path) => Some(document(path)?),
        None => None,
    };
    let run = RunRequest {
        argv: args.command.clone(),
        profile: args.profile.clone(),
        driver: args.driver.clone(),
        open_input: args.keep_open,
        hide_history: args.hide_history,
        prompt,
        workspace,
        mode: args.workspace.clone(),
        preset: args.preset.clone(),
        policy,
        net: args.net.clone(),
        env: variables(&args.env)?,
        timeout: args.timeout.clone(),
        max_turns: args.max_turns,
        ..RunRequest::default()
    };
    file::check(&run).map_err(|why| Fault::new(Code::UsageArgument, "the run cannot be asked for", why))?;
    Ok(run)
}

/// The project: as named, or the one above the current directory. A daemon elsewhere knows only its own paths.
fn workspace(named: Option<&Path>) -> Result<String, Fault> {
    if let Some(path) = named {
        return Ok(absolute(path)?.as_str().to_owned());
    }
    if crate::client::is_elsewhere()? {
        return Err(Fault::new(
            Code::UsageArgument,
            "name the project",
            "the daemon is on another machine and knows only its own paths",
        )
        .help("bastle spawn --workspace-dir /path/there …"));
    }
    Ok(Place::find(None)?.workspace.as_str().to_owned())
}

fn text_of(path: &Path) -> Result<String, Fault> {
    std::fs::read_to_string(path).map_err(|error| {
        Fault::new(
            Code::UsageArgument,
            format!("cannot read {}", path.display()),
            error.to_string(),
        )
    })
}

fn document(path: &Path) -> Result<Value, Failed> {
    let text = text_of(path)?;
    let name = path.display().to_string();
    bastle_policy::parse(&name, text.as_bytes()).map_err(Failed::from)?;
    serde_json::from_str(&text).map_err(|error| {
        Fault::new(
            Code::PolicySyntax,
            "a policy that is sent is plain JSON",
            format!(" --> {name}:{}:{}", error.line(), error.column()),
        )
        .into()
    })
}

/// Labels as typed.
pub(crate) fn tags(words: &[String]) -> Result<Tags, Fault> {
    let mut map = BTreeMap::new();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        if map.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Fault::new(
                Code::UsageArgument,
                format!("--tag {} is named twice", clean(key)),
                "",
            ));
        }
    }
    Tags::try_from(map).map_err(|error| {
        Fault::new(Code::UsageArgument, "--tag is not understood", error.to_string()).help("--tag job=lint")
    })
}

fn variables(words: &[String]) -> Result<BTreeMap<EnvName, String>, Fault> {
    let mut map = BTreeMap::new();
    for word in words {
        let Some((name, value)) = word.split_once('=') else {
            return Err(Fault::new(
                Code::UsageEnv,
                format!("--env {} has no value", clean(word)),
                "the daemon does not have your environment",
            )
            .help("--env NAME=VALUE"));
        };
        let name = EnvName::try_from(name.to_owned())
            .map_err(|error| Fault::new(Code::UsageEnv, "--env is refused", error.to_string()))?;
        map.insert(name, value.to_owned());
    }
    Ok(map)
}

fn tell(report: &BatchReport, format: Format, cx: &Context) -> Result<(), Failed> {
    if format == Format::Json {
        return cx.print_json(&json!({
            "schema": "bastle.spawn/v1", "batch": report.batch, "repeated": report.repeated, "runs": report.runs,
        }));
    }
    let started = report.runs.iter().filter_map(|run| run.name.as_ref());
    let names: String = started.map(|name| format!("{name}\n")).collect();
    let count = names.lines().count();
    let again = if report.repeated {
        " (asked for before under this key)"
    } else {
        ""
    };
    cx.note(&format!(
        "{} batch {}: {count} runs{again}; bastle top, bastle batch stop {}",
        cx.err.tick(),
        clean(&report.batch),
        clean(&report.batch)
    ));
    cx.print(&names)?;
    let notes: BTreeSet<&String> = report.runs.iter().flat_map(|run| &run.notes).collect();
    for note in notes {
        cx.note(&format!("  {}", clean(note)));
    }
    for run in report.runs.iter().filter(|run| run.name.is_none()) {
        cx.note(&format!(
            "{} run {} of the batch was refused",
            cx.err.cross(),
            run.index + 1
        ));
        cx.report(&run.faults, format);
    }
    Ok(())
}

/// What would be sent, and what the daemon would put before the prompt of the first run.
fn dry_run(request: &SpawnRequest, daemon: &Daemon, format: Format, cx: &Context) -> Ended {
    let preamble = match request.runs.first() {
        Some(first) => {
            let body = serde_json::to_value(first).map_err(|error| unsendable(&error))?;
            daemon.post("/api/v1/preamble", &body)?
        }
        None => Value::Null,
    };
    let text = preamble["preamble"].as_str().unwrap_or_default();
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.spawn-plan/v1", "request": request, "preamble": text }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["#", "NAME", "PROFILE", "COMMAND", "WORKSPACE"]);
    for (index, run) in request.runs.iter().enumerate() {
        table.row([
            (&(index + 1).to_string(), Paint::Plain),
            (run.name.as_deref().unwrap_or_default(), Paint::Bold),
            (run.profile.as_deref().unwrap_or_default(), Paint::Plain),
            (&run.argv.join(" "), Paint::Plain),
            (&run.workspace, Paint::Plain),
        ]);
    }
    cx.print(&table.render(cx.out))?;
    if !text.is_empty() {
        cx.print(&format!("\n{}\n", crate::render::clean_lines(text)))?;
    }
    cx.note("nothing was started");
    Ok(0)
}
