//! `bastle acp`: an editor speaks the Agent Client Protocol on standard input and output; a fenced agent does the work.
use super::run_args::usage;
use crate::context::{Context, Ended, Failed};
use crate::render::now_ms;
use bastle_contract::runs::{Attended, DRIVERS, LaunchSpec, RawSpec, RunState, Tags};
use bastle_contract::{AbsPath, Argv, EnvName, Fault};
use bastle_control::acp::{self, Opened};
use bastle_control::runs::RunDir;
use bastle_control::{Place, Sources, keeper, load, new_run_id, presets};
use bastle_policy::profile::{How, builtin, builtins, parse};
use bastle_policy::{PreambleFacts, Profile};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long building may take.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Wall time of a conversation that names none: a day's work, not a task.
const DEFAULT_TIMEOUT: &str = "12h";
/// Model requests of a conversation that names none.
const DEFAULT_TURNS: u64 = 1000;

/// Arguments of `acp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples (the command line that an editor is given):
  bastle acp --profile claude
  bastle acp -- opencode acp
  bastle acp --driver acp --policy fence.json -- my-agent --acp

The agent works in a copy of the project that the editor names (--workspace in-place: in the project itself).
What it asks permission for is asked in the editor, and by bastle approvals; the first answer counts.
Its work is kept when the editor goes: bastle diff RUN, bastle apply RUN.
Exit codes: 0 the editor went, 2 usage.")]
pub(crate) struct AcpArgs {
    /// Profile: a built-in name or a file [default: the built-in one of the agent's name]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// How the agent is spoken to: claude, codex, acp, opencode, plain [default: as the profile says]
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// copy, overlay, worktree or in-place
    #[arg(long, value_name = "MODE")]
    workspace: Option<String>,
    /// Start from this built-in preset
    #[arg(long, value_name = "NAME[@VERSION]")]
    preset: Option<String>,
    /// Policy file, as your own word (repeatable)
    #[arg(long, value_name = "FILE")]
    policy: Vec<PathBuf>,
    /// none, allowlist, open or offline
    #[arg(long, value_name = "MODE")]
    net: Option<String>,
    /// A variable for the agent (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Wall time of the conversation [default: 12h]
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Most requests to a model [default: 1000]
    #[arg(long, value_name = "N")]
    max_turns: Option<u64>,
    /// The agent, where the profile does not say
    #[arg(last = true, value_name = "AGENT")]
    command: Vec<String>,
}

/// What was chosen before an editor named its project.
struct Chosen {
    profile: Option<Profile>,
    driver: String,
    argv: Argv,
    files: Vec<AbsPath>,
    env: Vec<(EnvName, String)>,
}

/// Serves the editor on the standard streams.
pub(crate) fn run(args: &AcpArgs, cx: &Context) -> Ended {
    let chosen = chosen(args)?;
    let mut open = |cwd: &str| start(args, &chosen, cwd);
    let mut out = std::io::stdout();
    let run = acp::serve(std::io::stdin(), &mut out, &mut open).map_err(Failed::from)?;
    if let Some(run) = run {
        cx.note(&work(run.as_str(), args.workspace.as_deref()));
    }
    Ok(0)
}

fn chosen(args: &AcpArgs) -> Result<Chosen, Failed> {
    let first = args.command.first().map(Path::new);
    let own = first.and_then(Path::file_name).and_then(|name| name.to_str());
    let profile = match (&args.profile, own) {
        (Some(name), _) if name.contains('/') || name.ends_with(".json") => Some(from_file(Path::new(name))?),
        (Some(name), _) => Some(builtin(name)?),
        (None, Some(own)) if builtins().contains(&own) => Some(builtin(own)?),
        (None, _) => None,
    };
    let driver = args
        .driver
        .clone()
        .or_else(|| profile.as_ref().and_then(|profile| profile.driver.clone()));
    let driver = driver
        .filter(|word| DRIVERS.contains(&word.as_str()))
        .ok_or_else(|| {
            usage("nothing says how the agent is spoken to", "")
                .help("bastle acp --profile claude")
                .help(format!("bastle acp --driver {} -- AGENT", DRIVERS.join("|")))
        })?;
    let argv = match (args.command.as_slice(), &profile) {
        ([], Some(profile)) => profile.driven_argv(None)?,
        // The name alone: its profile says the rest.
        ([_], Some(profile)) if !profile.driven.is_empty() && args.driver.is_none() => {
            let mut words = profile.driven_argv(None)?.as_slice().to_vec();
            words[0].clone_from(&args.command[0]);
            argv(words)?
        }
        ([], None) => {
            return Err(usage("nothing to run", "")
                .help("bastle acp --profile claude")
                .into());
        }
        (words, _) => argv(words.to_vec())?,
    };
    let mut env = profile.as_ref().map(Profile::driven_env).unwrap_or_default();
    for word in &args.env {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| usage(format!("--env {word:?} has no value"), "").help("--env NAME=VALUE"))?;
        let name = EnvName::try_from(name.to_owned())
            .map_err(|error| usage("--env cannot be used", error.to_string()))?;
        env.retain(|(known, _)| *known != name);
        env.push((name, value.to_owned()));
    }
    let files = args.policy.iter().map(|file| super::source::absolute(file));
    Ok(Chosen {
        files: files.collect::<Result<_, _>>()?,
        profile,
        driver,
        argv,
        env,
    })
}

fn argv(words: Vec<String>) -> Result<Argv, Fault> {
    Argv::try_from(words).map_err(|error| usage("unusable command", error.to_string()))
}

fn from_file(path: &Path) -> Result<Profile, Failed> {
    let bytes = std::fs::read(path)
        .map_err(|error| usage(format!("cannot read {}", path.display()), error.to_string()))?;
    parse(&path.display().to_string(), &bytes).map_err(Failed::from)
}

/// Starts the agent in the directory that the editor named.
fn start(args: &AcpArgs, chosen: &Chosen, cwd: &str) -> Result<Opened, Vec<Fault>> {
    let one = |fault| vec![fault];
    let place = Place::find(Some(Path::new(cwd))).map_err(one)?;
    let policy = document(args, chosen)?;
    let asked = args.preset.clone().or_else(|| preset(chosen));
    let preset = presets::choose(&place, asked.as_deref(), chosen.argv.as_slice())?.preset;
    let sources = Sources {
        preset: preset.clone(),
        argv: chosen.argv.as_slice().to_vec(),
        files: chosen
            .files
            .iter()
            .map(|file| file.as_path().to_path_buf())
            .collect(),
        flags: Some(bastle_policy::parse("request", policy.to_string().as_bytes())?),
        ..Sources::default()
    };
    let loaded = load(&place, &sources)?;
    let facts = PreambleFacts {
        cwd: None,
        scopes: Vec::new(),
        answered: true,
    };
    let preamble = bastle_policy::preamble(&loaded.effective, &facts);
    let notes = match &chosen.profile {
        Some(profile) => profile.notes(How::Driven),
        None => Vec::new(),
    };
    let spec = spec(args, chosen, &place, (preset, policy), &notes).map_err(one)?;
    let dir = RunDir::create(&place.state, &spec, now_ms()).map_err(one)?;
    let file = match keeper::start(&place.state, &dir, None, PATIENCE) {
        Ok(file) => file,
        Err(fault) => {
            // Nobody was promised it yet.
            drop(dir.remove());
            return Err(one(fault));
        }
    };
    if file.state.is_final() || file.state == RunState::Queued {
        let gone = usage(
            format!("the agent did not start: {}", file.state),
            file.reason.clone().unwrap_or_default(),
        );
        return Err(one(file
            .fault
            .unwrap_or(gone)
            .help(format!("bastle logs {}", dir.name()))));
    }
    let run = dir.name().clone();
    Ok(Opened {
        state: place.state.clone(),
        preamble,
        notes: Vec::new(),
        work: work(run.as_str(), args.workspace.as_deref()),
        run,
    })
}

/// Where the work of a run is.
fn work(run: &str, mode: Option<&str>) -> String {
    if mode == Some("in-place") {
        return format!("Run {run}: the work is in the project. What happened: bastle audit show {run}");
    }
    format!("Run {run}: the work is kept. See it: bastle diff {run}. Take it: bastle apply {run}")
}

fn preset(chosen: &Chosen) -> Option<String> {
    chosen.profile.as_ref().and_then(|profile| profile.preset.clone())
}

/// What the profile and the flags say, as one document.
fn document(args: &AcpArgs, chosen: &Chosen) -> Result<Value, Vec<Fault>> {
    let text = chosen
        .profile
        .as_ref()
        .map(|profile| profile.document().to_json());
    let mut document: Value = match text {
        Some(text) => {
            serde_json::from_str(&text).map_err(|error| vec![usage("unusable profile", error.to_string())])?
        }
        None => json!({ "version": 1 }),
    };
    document["limits"]["timeout"] = json!(args.timeout.as_deref().unwrap_or(DEFAULT_TIMEOUT));
    document["budget"]["turns"] = json!(args.max_turns.unwrap_or(DEFAULT_TURNS));
    Ok(document)
}

fn spec(
    args: &AcpArgs,
    chosen: &Chosen,
    place: &Place,
    (preset, policy): (Option<String>, Value),
    notes: &[String],
) -> Result<LaunchSpec, Fault> {
    let raw = RawSpec {
        name: new_run_id()?,
        argv: chosen.argv.clone(),
        workspace: place.workspace.clone(),
        cwd: Some(place.cwd.clone()),
        mode: args.workspace.clone(),
        branch: None,
        from: None,
        preset,
        policy_files: chosen.files.clone(),
        policy: Some(policy),
        bounds: None,
        net: args.net.clone(),
        client_command: false,
        expand: false,
        unprotect: Vec::new(),
        hide_history: false,
        waive: Vec::new(),
        no_debuggers: false,
        share_workspace: false,
        approved: false,
        scopes: Vec::new(),
        env: chosen.env.clone(),
        tty: None,
        open_input: true,
        profile: chosen.profile.as_ref().map(|profile| profile.name.clone()),
        driver: Some(chosen.driver.clone()),
        model: chosen.profile.as_ref().and_then(|profile| profile.model.clone()),
        input: None,
        notes: notes.to_vec(),
        tags: Tags::default(),
        batch: None,
        parent: None,
        trace: None,
        attended: Attended::Elsewhere,
    };
    LaunchSpec::new(raw).map_err(|error| usage("the agent cannot be started", error.to_string()))
}
