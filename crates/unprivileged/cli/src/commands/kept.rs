//! Runs in the background, as the verbs see them: found by name, prefix, `@last` or label.
use crate::render::clean;
use bastle_contract::runs::{RunFile, RunState};
use bastle_contract::{Code, Fault, RunId};
use bastle_control::backend::NativeSandbox;
use bastle_control::runs::{RunDir, with_findings};
use bastle_control::{keeper, live};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a run whose keeper may have been killed is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A run that a person means.
pub(super) enum Found {
    /// One with a keeper, alive or not.
    Kept(RunDir),
    /// One that lives at somebody's terminal.
    Living(RunId),
}

impl Found {
    pub(super) fn name(&self) -> &RunId {
        match self {
            Self::Kept(dir) => dir.name(),
            Self::Living(run) => run,
        }
    }
}

impl Found {
    /// The run as a sandbox.
    pub(super) fn sandbox(&self, state: &Path) -> NativeSandbox {
        match self {
            Self::Kept(dir) => NativeSandbox::kept(state, dir.clone()),
            Self::Living(run) => NativeSandbox::living(state, run.clone()),
        }
    }
}

/// Every run of this user: those in the background, then those that live elsewhere.
pub(super) fn all(state: &Path) -> Vec<Found> {
    let kept = RunDir::all(state);
    let mut living = live::living(state);
    living.retain(|run| kept.iter().all(|dir| dir.name() != run));
    kept.into_iter()
        .map(Found::Kept)
        .chain(living.into_iter().map(Found::Living))
        .collect()
}

/// The run that a person means.
pub(super) fn find(state: &Path, name: &str) -> Result<Found, Fault> {
    let mut runs = all(state);
    if let Some(at) = runs.iter().position(|run| run.name().as_str() == name) {
        return Ok(runs.swap_remove(at));
    }
    if name == "@last" {
        let created = |run: &Found| match run {
            Found::Kept(dir) => dir.file().map_or(0, |file| file.created_ms),
            // It lives now, and nobody knows since when: only where nothing else is there.
            Found::Living(_) => 1,
        };
        return runs
            .into_iter()
            .max_by_key(created)
            .ok_or_else(|| unknown(name, &[]));
    }
    let fitting: Vec<usize> = (0..runs.len())
        .filter(|at| runs[*at].name().as_str().starts_with(name))
        .collect();
    match fitting.as_slice() {
        [only] => Ok(runs.swap_remove(*only)),
        [] => Err(unknown(name, &runs)),
        [first, second, ..] => Err(Fault::new(
            Code::UsageArgument,
            format!("{} names more than one run", clean(name)),
            format!("{} and {}", runs[*first].name(), runs[*second].name()),
        )
        .help("bastle ps -a")),
    }
}

/// The run in the background that a person means.
pub(super) fn find_kept(state: &Path, name: &str) -> Result<RunDir, Fault> {
    match find(state, name)? {
        Found::Kept(dir) => Ok(dir),
        Found::Living(run) => Err(Fault::new(
            Code::UsageArgument,
            format!("the run {run} has a terminal or pipes of its own"),
            "what it prints is shown there, and not kept",
        )
        .help("start it in the background: bastle run -d -- CMD")),
    }
}

/// The run in the foreground that a person means, alive or not, where something was found in it.
pub(super) fn find_unusual(state: &Path, name: &str) -> Option<RunId> {
    if let Ok(found) = find(state, name) {
        return match found {
            Found::Kept(_) => None,
            Found::Living(run) => Some(run),
        };
    }
    let all = with_findings(state);
    if let Some(exact) = all.iter().find(|run| run.as_str() == name) {
        return Some(exact.clone());
    }
    let mut fitting = all.into_iter().filter(|run| run.as_str().starts_with(name));
    fitting.next().filter(|_| fitting.next().is_none())
}

fn unknown(name: &str, runs: &[Found]) -> Fault {
    let shown: String = name.chars().take(80).collect();
    let mut fault = Fault::new(
        Code::AuditMissing,
        format!("no run in the background is called {}", clean(&shown)),
        "neither alive nor ended",
    );
    let word = name.split('-').next().unwrap_or_default();
    let near = runs
        .iter()
        .find(|run| !word.is_empty() && run.name().as_str().starts_with(word));
    if let Some(near) = near {
        fault = fault.help(format!("did you mean {}?", near.name()));
    }
    fault.help("bastle ps -a")
}

/// Labels `key=value` that a run must have.
#[derive(Clone, Debug)]
pub(super) struct Label {
    key: String,
    value: Option<String>,
}

/// Reads `key=value`, or `key` for any value.
pub(super) fn label(text: &str) -> Label {
    match text.split_once('=') {
        Some((key, value)) => Label {
            key: key.to_owned(),
            value: Some(value.to_owned()),
        },
        None => Label {
            key: text.to_owned(),
            value: None,
        },
    }
}

/// Whether a run has all of the labels.
pub(super) fn has(dir: &RunDir, labels: &[Label]) -> bool {
    if labels.is_empty() {
        return true;
    }
    let Ok(spec) = dir.spec() else {
        return false;
    };
    let tags = spec.get().tags.as_map();
    labels
        .iter()
        .all(|label| match (&label.value, tags.get(&label.key)) {
            (Some(wanted), Some(value)) => wanted == value,
            (None, Some(_)) => true,
            (_, None) => false,
        })
}

/// Waits until the run is over, or a moment has come. Where it is then.
pub(super) fn wait_for_end(dir: &RunDir, until: Option<Instant>) -> Result<RunFile, Fault> {
    wait_until(dir, until, |file| file.state.is_final())
}

/// Waits until the run is as wanted, is over, or a moment has come.
pub(super) fn wait_until(
    dir: &RunDir,
    until: Option<Instant>,
    wanted: impl Fn(&RunFile) -> bool,
) -> Result<RunFile, Fault> {
    let waiter = dir.waiter();
    loop {
        let file = keeper::settle(dir)?;
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if wanted(&file) || file.state.is_final() || left.is_some_and(|left| left.is_zero()) {
            return Ok(file);
        }
        waiter.wait(left.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN));
    }
}

/// The code that a run ended with, as `run` would give it.
pub(super) fn code_of(file: &RunFile) -> u8 {
    match (file.code, file.state) {
        (Some(code), _) => code,
        (None, RunState::Completed) => 0,
        (None, _) => bastle_contract::ExitCode::Failed as u8,
    }
}

/// `10s`, `5m`, `2h`, `1d`, `500ms`; a bare number is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, Fault> {
    let wrong = || {
        Fault::new(Code::UsageArgument, format!("{} is no duration", clean(text)), "")
            .help("write 500ms, 10s, 5m, 2h or 1d")
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let millis = match &text[digits.len()..] {
        "ms" => 1,
        "s" | "" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(millis)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
}
