//! `bastle stop`, `kill`, `pause`, `resume` and `wait`: a run that lives, or will.
use super::kept::{self, Found, Label, code_of, duration, find, find_kept, wait_for_end};
use super::source::state_dir;
use crate::context::{Context, Ended, Failed, Format};
use crate::remote;
use crate::render::clean;
use bastle_contract::runs::{RunFile, RunState};
use bastle_contract::{Code, Fault, RunId};
use bastle_control::live::{self, Command};
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
    let asked: Vec<Result<(), Vec<Fault>>> = runs.iter().map(|run| ask_to_end(&state, run, grace)).collect();
    let until = Instant::now() + grace + AFTERWARDS;
    let mut told: Vec<Value> = Vec::new();
    let mut faults = Vec::new();
    for (run, asked) in runs.iter().zip(asked) {
        match asked.and_then(|()| gone(&state, run, until).map_err(|fault| vec![fault])) {
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

fn ask_to_end(state: &Path, run: &Found, grace: Duration) -> Result<(), Vec<Fault>> {
    let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    let command = if grace.is_zero() {
        Command::Kill {}
    } else {
        Command::Stop { grace_ms }
    };
    let dir = match run {
        Found::Living(name) => return live::ask(state, name, &command).map(|_| ()),
        Found::Kept(dir) => dir,
    };
    let one = |fault| vec![fault];
    let file = keeper::settle(dir).map_err(one)?;
    if file.state.is_final() {
        return Ok(());
    }
    if file.state == RunState::Queued && keeper::cancel_queued(dir).map_err(one)? {
        return Ok(());
    }
    match live::ask(state, dir.name(), &command) {
        Ok(_) => Ok(()),
        // No socket yet, or no more: it is being built, or its end is being written.
        Err(_) => match dir.file().map_err(one)?.state {
            RunState::Building | RunState::Queued => keeper::interrupt(dir).map_err(one),
            _ => Ok(()),
        },
    }
}

/// Waits until it is gone.
fn gone(state: &Path, run: &Found, until: Instant) -> Result<Option<RunFile>, Fault> {
    let still = |name: &RunId| {
        Fault::new(
            Code::FenceLost,
            format!("the run {name} has not ended yet"),
            "its grace is over",
        )
        .help(format!("bastle kill {name}"))
    };
    match run {
        Found::Kept(dir) => {
            let file = wait_for_end(dir, Some(until))?;
            if file.state.is_final() {
                Ok(Some(file))
            } else {
                Err(still(dir.name()))
            }
        }
        Found::Living(name) => {
            // Its socket goes with it.
            while live::connect(state, name).is_ok() {
                if Instant::now() >= until {
                    return Err(still(name));
                }
                let moment = rustix::event::Timespec {
                    tv_sec: 0,
                    tv_nsec: 50_000_000,
                };
                match rustix::event::poll(&mut [], Some(&moment)) {
                    Ok(_) | Err(_) => {}
                }
            }
            Ok(None)
        }
    }
}

/// Makes runs stand still.
pub(crate) fn pause(args: &PauseArgs, cx: &Context) -> Ended {
    if let Some(daemon) = remote::daemon()? {
        return remote::pause(&daemon, &args.runs, "pause", args.json.into(), cx);
    }
    each(
        args,
        &Command::Pause {},
        "stands still; bastle resume lets it go on",
        cx,
    )
}

/// Lets runs go on.
pub(crate) fn resume(args: &PauseArgs, cx: &Context) -> Ended {
    if let Some(daemon) = remote::daemon()? {
        return remote::pause(&daemon, &args.runs, "resume", args.json.into(), cx);
    }
    each(args, &Command::Resume {}, "goes on", cx)
}

fn each(args: &PauseArgs, command: &Command, done: &str, cx: &Context) -> Ended {
    let state = state_dir()?;
    let mut told = Vec::new();
    for name in &args.runs {
        let run = find(&state, name)?;
        if let Found::Kept(dir) = &run {
            let file = keeper::settle(dir)?;
            if file.state.is_final() {
                let what = format!("the run {} has ended", dir.name());
                let fault = Fault::new(Code::UsageArgument, what, format!("it is {}", file.state));
                return Err(fault.help("bastle ps").into());
            }
        }
        let result = live::ask(&state, run.name(), command)?;
        if !args.json {
            let text = match result["state"].as_str() {
                Some("running") | None => done.to_owned(),
                Some(state) => format!(
                    "is no longer paused, and still {}: {}",
                    clean(state),
                    clean(result["reason"].as_str().unwrap_or_default())
                ),
            };
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
