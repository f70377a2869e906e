//! `bastle stop`, `kill`, `pause`, `resume` and `wait`: a run that lives, or will.
use super::kept::{self, Found, Label, code_of, duration, find, find_kept, wait_for_end};
use super::source::state_dir;
use crate::context::{Context, Ended, Failed, Format};
use crate::remote;
use crate::render::clean;
use bastle_contract::Fault;
use bastle_contract::runs::RunState;
use bastle_control::backend::{NativeSandbox, Sandbox, Standing};
use bastle_control::{keeper, runs::RunDir};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long after its grace a run may take to be gone: its work is kept and its record is sealed meanwhile.
const AFTERWARDS: Duration = Duration::from_secs(120);

/// Arguments of `stop`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bastle stop calm-otter                 asks the agent to end, kills it after 10 s
  bastle stop --grace 60s calm-otter
  bastle stop --tag batch=a7             every run with this label

Exit codes: 0 all are gone, 1 one is not, 3 no such run.")]
pub(crate) struct StopArgs {
    /// Runs (names, unique prefixes, or @last)
    #[arg(required_unless_present_any = ["tag", "all"])]
    runs: Vec<String>,
    /// How long the agent may take
    #[arg(long, value_name = "TIME", default_value = "10s")]
    grace: String,
    /// Every run in the background with this label (repeatable: all of them)
    #[arg(long, value_name = "KEY[=VALUE]")]
    tag: Vec<String>,
    /// Every run in the background
    #[arg(long, conflicts_with = "tag")]
    all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `kill`.
#[derive(Debug, clap::Args)]
pub(crate) struct KillArgs {
    /// Runs (names, unique prefixes, or @last)
    #[arg(required_unless_present_any = ["tag", "all"])]
    runs: Vec<String>,
    /// Every run in the background with this label (repeatable: all of them)
    #[arg(long, value_name = "KEY[=VALUE]")]
    tag: Vec<String>,
    /// Every run in the background
    #[arg(long, conflicts_with = "tag")]
    all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `pause` and `resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    /// Runs (names, unique prefixes, or @last)
    #[arg(required = true)]
    runs: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) pause: PauseArgs,
    /// Resume also while a file system has less left than the disk reserve (for the rest of the run)
    #[arg(long)]
    force: bool,
}

/// Arguments of `wait`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: the run's own, as `run` would have given it; 3 no such run.")]
pub(crate) struct WaitArgs {
    /// The run (name, unique prefix, or @last)
    run: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Asks runs to end.
pub(crate) fn stop(args: &StopArgs, cx: &Context) -> Ended {
    let grace = duration(&args.grace)?;
    if let Some(daemon) = remote::daemon()? {
        return remote::end(&daemon, &args.runs, &args.tag, Some(grace), args.json.into(), cx);
    }
    let chosen = Chosen {
        names: &args.runs,
        tags: &args.tag,
        all: args.all,
    };
    end(&chosen, grace, args.json.into(), cx)
}

/// Ends runs at once.
pub(crate) fn kill(args: &KillArgs, cx: &Context) -> Ended {
    if let Some(daemon) = remote::daemon()? {
        return remote::end(&daemon, &args.runs, &args.tag, None, args.json.into(), cx);
    }
    let chosen = Chosen {
        names: &args.runs,
        tags: &args.tag,
        all: args.all,
    };
    end(&chosen, Duration::ZERO, args.json.into(), cx)
}

struct Chosen<'a> {
    names: &'a [String],
    tags: &'a [String],
    all: bool,
}

impl Chosen<'_> {
    /// The runs; those that ended already only where they are named.
    fn runs(&self, state: &Path) -> Result<Vec<Found>, Fault> {
        let mut found = Vec::new();
        for name in self.names {
            found.push(find(state, name)?);
        }
        if self.all || !self.tags.is_empty() {
            let labels: Vec<Label> = self.tags.iter().map(|text| kept::label(text)).collect();
            let lives = |dir: &RunDir| keeper::settle(dir).is_ok_and(|file| !file.state.is_final());
            let dirs = RunDir::all(state).into_iter();
            found.extend(
                dirs.filter(|dir| kept::has(dir, &labels) && lives(dir))
                    .map(Found::Kept),
            );
        }
        Ok(found)
    }
}

fn end(chosen: &Chosen<'_>, grace: Duration, format: Format, cx: &Context) -> Ended {
    let state = state_dir()?;
    let runs = chosen.runs(&state)?;
    // All are asked first, then all are waited for: their graces pass together.
    let asked: Vec<Result<(), Vec<Fault>>> = runs
        .iter()
        .map(|run| run.sandbox(&state).ask_to_end(grace))
        .collect();
    let until = Instant::now() + grace + AFTERWARDS;
    let mut told: Vec<Value> = Vec::new();
    let mut faults = Vec::new();
    for (run, asked) in runs.iter().zip(asked) {
        match asked.and_then(|()| {
            let gone = run.sandbox(&state).gone(until);
            gone.map_err(|fault| vec![fault])
        }) {
            Ok(file) => {
                let state = file.as_ref().map(|file| file.state);
                told.push(
                    json!({ "run": run.name(), "state": state, "code": file.and_then(|file| file.code) }),
                );
                if format == Format::Human {
                    cx.print(&format!("{}\n", run.name()))?;
                }
            }
            Err(mut found) => faults.append(&mut found),
        }
    }
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.ended/v1", "runs": told }))?;
    } else if runs.is_empty() {
        cx.note("no run to end");
    }
    if faults.is_empty() {
        Ok(0)
    } else {
        Err(Failed::from(faults))
    }
}

/// Makes runs stand still.
pub(crate) fn pause(args: &PauseArgs, cx: &Context) -> Ended {
    if let Some(daemon) = remote::daemon()? {
        return remote::pause(&daemon, &args.runs, "pause", args.json.into(), cx);
    }
    each(args, cx, |sandbox| {
        sandbox.suspend()?;
        let done = "stands still; bastle resume lets it go on".to_owned();
        Ok((done, json!({ "paused": sandbox.id() })))
    })
}

/// Lets runs go on.
pub(crate) fn resume(args: &ResumeArgs, cx: &Context) -> Ended {
    let ResumeArgs { pause: args, force } = args;
    if !*force && let Some(daemon) = remote::daemon()? {
        return remote::pause(&daemon, &args.runs, "resume", args.json.into(), cx);
    }
    each(args, cx, |sandbox| {
        let Standing { state, reason } = if *force {
            sandbox.resume_by_force()?
        } else {
            sandbox.resume()?
        };
        let told = match state {
            RunState::Running => "goes on".to_owned(),
            held => {
                let why = clean(reason.as_deref().unwrap_or_default());
                format!("is no longer paused, and still {held}: {why}")
            }
        };
        Ok((
            told,
            json!({ "resumed": sandbox.id(), "state": state, "reason": reason }),
        ))
    })
}

/// Does something to each, and tells what came of it.
fn each(
    args: &PauseArgs,
    cx: &Context,
    act: impl Fn(&NativeSandbox) -> Result<(String, Value), Vec<Fault>>,
) -> Ended {
    let state = state_dir()?;
    let mut told = Vec::new();
    for name in &args.runs {
        let run = find(&state, name)?;
        let (text, result) = act(&run.sandbox(&state))?;
        if !args.json {
            cx.print(&format!("{} {} {text}\n", cx.out.tick(), run.name()))?;
        }
        told.push(json!({ "run": run.name(), "result": result }));
    }
    if args.json {
        cx.print_json(&json!({ "schema": "bastle.paused/v1", "runs": told }))?;
    }
    Ok(0)
}

/// Waits for the end of a run.
pub(crate) fn wait(args: &WaitArgs, cx: &Context) -> Ended {
    if let Some(daemon) = remote::daemon()? {
        return remote::wait(&daemon, &args.run, args.json.into(), cx);
    }
    let state = state_dir()?;
    let dir = find_kept(&state, &args.run)?;
    let file = wait_for_end(&dir, None)?;
    if args.json {
        cx.print_json(&json!({ "schema": "bastle.wait/v1", "run": file }))?;
    }
    Ok(code_of(&file))
}
