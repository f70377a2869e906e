//! The verbs for single runs through a daemon that was named: the same words, the same output, another machine.
//!
//! **Trust:** the daemon is one the user chose; what runs printed passes through it and is escaped at a terminal.
use crate::client::{Daemon, is_named, part, rest};
use crate::context::{Context, Ended, Failed, Format};
use crate::render::{escaped, timestamp};
use bastle_contract::runs::RunState;
use bastle_contract::stream::{StreamKind, StreamReader};
use bastle_contract::{Code, ExitCode, Fault, RunId};
use bastle_control::backend::ExecRequest;
use bastle_control::beside::{Ends, Finished, stay};
use bastle_control::fleet::RunRecord;
use bastle_control::live::{Command, SessionEnd, SessionWish, session};
use serde_json::{Value, json};
use std::io::{IsTerminal, Read, Write};
use std::time::{Duration, Instant};

/// How often a run is looked at whose end is waited for.
const LOOK: Duration = Duration::from_millis(200);
/// How long after its grace a run may take to be gone.
const AFTERWARDS: Duration = Duration::from_secs(120);
/// Bytes of output that are asked for at once.
const PART: u64 = 1024 * 1024;

/// The daemon, where one was named by flag, variable or context; else verbs work on this machine's own files.
pub(crate) fn daemon() -> Result<Option<Daemon>, Fault> {
    if is_named()? {
        Daemon::open().map(Some)
    } else {
        Ok(None)
    }
}

/// One run: its name, a unique beginning of it, or `@last`.
fn find(daemon: &Daemon, name: &str) -> Result<RunRecord, Vec<Fault>> {
    if name == "@last" {
        let newest = all(daemon, "")?.into_iter().max_by_key(|run| run.created_ms);
        return newest.ok_or_else(|| vec![Fault::new(Code::RunMissing, "the daemon has no run", "")]);
    }
    let found = daemon.get(&format!("/api/v1/runs/{}", part(name)));
    let found = found.map_err(|faults| near(daemon, name, faults))?;
    daemon.read(found).map_err(|fault| vec![fault])
}

fn all(daemon: &Daemon, query: &str) -> Result<Vec<RunRecord>, Vec<Fault>> {
    daemon.list(&format!("/api/v1/runs?limit=1000{query}"))
}

/// A name that is not there: perhaps another was meant.
fn near(daemon: &Daemon, name: &str, mut faults: Vec<Fault>) -> Vec<Fault> {
    let missing = |fault: &&mut Fault| matches!(fault.code, Code::RunMissing | Code::ApiMissing);
    if let Some(fault) = faults.iter_mut().find(missing)
        && let Ok(runs) = all(daemon, "")
        && let Some(near) = bastle_policy::nearest(name, runs.iter().map(|run| run.name.as_str()))
    {
        // The daemon may have had the same thought.
        if !fault.help.iter().any(|help| help.starts_with("did you mean")) {
            fault.help.insert(0, format!("did you mean {near}?"));
        }
    }
    faults
}

fn act(daemon: &Daemon, run: &RunRecord, verb: &str, body: &Value) -> Result<Value, Vec<Fault>> {
    daemon.post(&format!("/api/v1/runs/{}/{verb}", part(run.name.as_str())), body)
}

/// Which runs are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Those that live or wait.
    Living,
    /// Also those that ended.
    All,
}

impl From<bool> for Listed {
    /// From the flag `--all`.
    fn from(all: bool) -> Self {
        if all { Self::All } else { Self::Living }
    }
}

/// Rows as `ps` shows them.
pub(crate) fn rows(daemon: &Daemon, listed: Listed, tags: &[String]) -> Result<Vec<Value>, Failed> {
    let query = tags
        .first()
        .map(|tag| format!("&tag={}", part(tag)))
        .unwrap_or_default();
    let has = |run: &RunRecord, tag: &String| match tag.split_once('=') {
        Some((key, value)) => run.tags.as_map().get(key).is_some_and(|is| is == value),
        None => run.tags.as_map().contains_key(tag),
    };
    let rows = all(daemon, &query)?
        .into_iter()
        .filter(|run| {
            (listed == Listed::All || !run.state.is_final()) && tags.iter().all(|tag| has(run, tag))
        })
        .map(|run| {
            let questions: Vec<&String> = run.question.iter().collect();
            let findings = run.file.as_ref().map(|file| file.findings.clone());
            let findings = findings.unwrap_or_default();
            json!({
                "run": run.name, "argv": [run.agent], "state": run.state, "reason": run.reason,
                "denials": run.denials, "findings": findings, "net": null, "grants": [], "questions": questions, "kept": true,
                "created_ms": run.created_ms, "started_ms": run.started_ms, "ended_ms": run.ended_ms,
                "code": run.code, "tags": run.tags, "batch": run.batch,
            })
        });
    Ok(rows.collect())
}

/// Everything the daemon knows of a run.
pub(crate) fn inspect(daemon: &Daemon, name: &str, format: Format, cx: &Context) -> Ended {
    let run = find(daemon, name)?;
    let document = json!({ "schema": "bastle.record/v1", "host": daemon.host().to_string(), "run": run });
    if format == Format::Json {
        cx.print_json(&document)?;
    } else {
        let text = serde_json::to_string_pretty(&document).unwrap_or_default();
        cx.print(&format!("{}\n", escaped(&text)))?;
    }
    Ok(0)
}

/// Which part of a run's output, and how.
pub(crate) struct LogsWish {
    pub(crate) follow: bool,
    /// Place in the log where a record begins.
    pub(crate) since: u64,
    pub(crate) only: Option<StreamKind>,
    pub(crate) timestamps: bool,
}

/// What a run printed, and with `follow` what it prints until it ends.
pub(crate) fn logs(daemon: &Daemon, name: &str, wish: &LogsWish) -> Ended {
    let run = find(daemon, name)?;
    let mut since = wish.since;
    loop {
        let part = daemon.get(&format!(
            "/api/v1/runs/{}/logs?limit={PART}&since={since}",
            part(run.name.as_str())
        ))?;
        for record in part["records"].as_array().into_iter().flatten() {
            let kind = match record["stream"].as_str() {
                Some("errors") => StreamKind::Errors,
                Some(_) | None => StreamKind::Output,
            };
            let time = wish
                .timestamps
                .then(|| record["time"].as_str().unwrap_or_default());
            let text = record["text"].as_str().unwrap_or_default();
            if !show(kind, text.as_bytes(), time, wish) {
                return Ok(0);
            }
        }
        since = part["next"].as_u64().unwrap_or(since);
        if part["whole"] != Value::Bool(false) {
            break;
        }
    }
    if !wish.follow || find(daemon, run.name.as_str())?.state.is_final() {
        return Ok(0);
    }
    follow(daemon, &run, since, wish)
}

/// The rest as it comes. A stream that breaks off while the run lives is taken up again where it was.
fn follow(daemon: &Daemon, run: &RunRecord, since: u64, wish: &LogsWish) -> Ended {
    let path = format!(
        "/api/v1/runs/{}/attach?input=false&since={since}",
        part(run.name.as_str())
    );
    let mut stream = daemon.client().websocket(&path, None)?;
    let mut frames = StreamReader::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match stream.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        if count == 0 {
            return Err(lost(run, "the daemon closed it").into());
        }
        frames.push(&buffer[..count]);
        while let Some(frame) = frames
            .next_frame()
            .map_err(|error| lost(run, &error.to_string()))?
        {
            match frame.kind {
                StreamKind::Output | StreamKind::Errors => {
                    let now = timestamp(crate::render::now_ms());
                    let time = wish.timestamps.then_some(now.as_str());
                    if !show(frame.kind, &frame.payload, time, wish) {
                        return Ok(0);
                    }
                }
                StreamKind::Ended => return Ok(0),
                StreamKind::Input | StreamKind::Resize | StreamKind::Event | StreamKind::Signal => {}
            }
        }
    }
}

fn lost(run: &RunRecord, why: &str) -> Fault {
    Fault::new(
        Code::FenceLost,
        format!("lost the connection to {}", run.name),
        why,
    )
    .help(format!("bastle logs -f {}", run.name))
}

/// Prints a piece; `false` when nobody reads any more. A terminal gets it escaped: whose bytes they are is not known here.
fn show(kind: StreamKind, bytes: &[u8], time: Option<&str>, wish: &LogsWish) -> bool {
    if wish.only.is_some_and(|only| only != kind) {
        return true;
    }
    let errors = kind == StreamKind::Errors;
    let terminal = if errors {
        std::io::stderr().is_terminal()
    } else {
        std::io::stdout().is_terminal()
    };
    let mut bytes = if terminal {
        crate::commands::logs::escaped(bytes).into_bytes()
    } else {
        bytes.to_vec()
    };
    if let Some(time) = time {
        bytes = crate::commands::logs::stamped(&bytes, time);
    }
    let written = if errors {
        std::io::stderr().lock().write_all(&bytes)
    } else {
        let mut out = std::io::stdout().lock();
        out.write_all(&bytes).and_then(|()| out.flush())
    };
    written.is_ok()
}

/// How to attach.
pub(crate) struct AttachWish {
    /// Also what it printed before.
    pub(crate) replay: bool,
    /// What is typed goes to the run.
    pub(crate) input: bool,
    /// Keys that leave.
    pub(crate) leave: Vec<u8>,
}

/// A terminal at a run elsewhere. Every key goes there where both ends here are terminals.
pub(crate) fn attach(daemon: &Daemon, name: &str, how: AttachWish, cx: &Context) -> Ended {
    let AttachWish { replay, input, leave } = how;
    let run = find(daemon, name)?;
    if run.state.is_final() {
        return Err(Fault::new(
            Code::UsageArgument,
            format!("the run {} has ended", run.name),
            format!("it is {}", run.state),
        )
        .help(format!("bastle logs {}", run.name))
        .into());
    }
    let since = if replay { "&since=0" } else { "" };
    let path = format!(
        "/api/v1/runs/{}/attach?input={input}{since}",
        part(run.name.as_str())
    );
    let stream = daemon.client().websocket(&path, None)?;
    let tty = input && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let wish = SessionWish { input, tty, leave };
    let end = session(stream, &wish).map_err(|error| lost(&run, &error.to_string()))?;
    match end {
        SessionEnd::Left => {
            cx.note(&format!("left {}; it goes on", run.name));
            Ok(0)
        }
        SessionEnd::Ended(_) => Ok(code_of(&until_ended(daemon, &run, None)?)),
        SessionEnd::Broken => Err(lost(&run, "the daemon closed it").into()),
    }
}

/// A further command in a run elsewhere.
pub(crate) fn exec(
    daemon: &Daemon,
    name: &str,
    request: &ExecRequest,
    ends: Ends<'_>,
) -> Result<Finished, Failed> {
    let run = find(daemon, name)?;
    // The time is held here: when this end goes, the run ends the command.
    let wish = json!({ "argv": request.argv, "env": request.env, "cwd": request.cwd, "tty": request.tty });
    let path = format!("/api/v1/runs/{}/exec", part(run.name.as_str()));
    let stream = daemon.client().websocket(&path, Some(&wish))?;
    Ok(stay(stream, ends)?)
}

/// Ends runs: those named, those with a label, or all.
pub(crate) fn end(
    daemon: &Daemon,
    names: &[String],
    tags: &[String],
    grace: Option<Duration>,
    format: Format,
    cx: &Context,
) -> Ended {
    let mut runs = Vec::new();
    for name in names {
        runs.push(find(daemon, name)?);
    }
    if names.is_empty() {
        // What is shown by ps with the same labels, and nothing else, is ended.
        for row in rows(daemon, Listed::Living, tags)? {
            runs.push(find(daemon, row["run"].as_str().unwrap_or_default())?);
        }
    }
    let grace_ms = grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
    for run in runs.iter().filter(|run| !run.state.is_final()) {
        match grace_ms {
            Some(grace) => act(daemon, run, "stop", &json!({ "grace_ms": grace }))?,
            None => act(daemon, run, "kill", &json!({}))?,
        };
    }
    let until = Instant::now() + grace.unwrap_or_default() + AFTERWARDS;
    let mut told = Vec::new();
    for run in &runs {
        let ended = until_ended(daemon, run, Some(until))?;
        told.push(json!({ "run": ended.name, "state": ended.state, "code": ended.code }));
        if format == Format::Human {
            cx.print(&format!("{}\n", ended.name))?;
        }
    }
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.ended/v1", "runs": told }))?;
    } else if runs.is_empty() {
        cx.note("no run to end");
    }
    Ok(0)
}

/// Waits for the end of a run; its exit code.
pub(crate) fn wait(daemon: &Daemon, name: &str, format: Format, cx: &Context) -> Ended {
    let run = find(daemon, name)?;
    let ended = until_ended(daemon, &run, None)?;
    if format == Format::Json {
        // What its keeper wrote last, as a run here would be told.
        cx.print_json(&json!({ "schema": "bastle.wait/v1", "run": ended.file }))?;
    }
    Ok(code_of(&ended))
}

fn until_ended(daemon: &Daemon, run: &RunRecord, until: Option<Instant>) -> Result<RunRecord, Vec<Fault>> {
    loop {
        let now = find(daemon, run.name.as_str())?;
        if now.state.is_final() {
            return Ok(now);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(vec![
                Fault::new(
                    Code::FenceLost,
                    format!("the run {} has not ended yet", run.name),
                    "its grace is over",
                )
                .help(format!("bastle kill {}", run.name)),
            ]);
        }
        rest(LOOK);
    }
}

fn code_of(run: &RunRecord) -> u8 {
    match (run.code, run.state) {
        (Some(code), _) => code,
        (None, RunState::Completed) => 0,
        (None, _) => ExitCode::Failed as u8,
    }
}

/// Says something to a driven agent, or interrupts it: the run and its answer.
pub(crate) fn tell(daemon: &Daemon, name: &str, command: &Command) -> Result<(RunId, Value), Failed> {
    let run = find(daemon, name)?;
    let (verb, body) = match command {
        Command::Say { text } => ("say", json!({ "text": text })),
        _ => ("interrupt", json!({})),
    };
    let answer = act(daemon, &run, verb, &body)?;
    Ok((run.name, answer))
}

/// Makes runs stand still, or go on.
pub(crate) fn pause(daemon: &Daemon, names: &[String], verb: &str, format: Format, cx: &Context) -> Ended {
    let mut told = Vec::new();
    for name in names {
        let run = find(daemon, name)?;
        let result = act(daemon, &run, verb, &json!({}))?;
        if format == Format::Human {
            let word = if verb == "pause" {
                "stands still"
            } else {
                "goes on"
            };
            cx.print(&format!("{} {} {word}\n", cx.out.tick(), run.name))?;
        }
        told.push(json!({ "run": run.name, "result": result }));
    }
    if format == Format::Json {
        cx.print_json(&json!({ "schema": "bastle.paused/v1", "runs": told }))?;
    }
    Ok(0)
}
