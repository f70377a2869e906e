//! Talking to a living run.
use super::words::{Command, MOST_LINE};
use bastle_contract::{Code, Fault, RunId};
use serde::Deserialize;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take: a reload may start helpers that ask package managers.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a run answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    ok: bool,
    #[serde(default)]
    result: serde_json::Value,
    #[serde(default)]
    faults: Vec<Fault>,
}

/// Says something to a run and waits for its answer.
pub fn ask(state: &Path, run: &RunId, command: &Command) -> Result<serde_json::Value, Vec<Fault>> {
    let stream = connect(state, run).map_err(|fault| vec![fault])?;
    answered(talk(stream, command), run)
}

/// A connection to a living run.
pub fn connect(state: &Path, run: &RunId) -> Result<UnixStream, Fault> {
    super::reach(state, run).map_err(|error| {
        let path = super::directory(state).join(super::name(run));
        let known = ["runs", "audit"]
            .iter()
            .any(|place| state.join(place).join(run.as_str()).exists());
        let code = if known { Code::RunState } else { Code::AuditMissing };
        Fault::new(
            code,
            format!("the run {run} does not live"),
            format!("{}: {error}", path.display()),
        )
        .help("bastle ps -a")
    })
}

/// Says a streaming command; after the answer both sides speak frames on the connection that is given back.
pub fn stream(
    state: &Path,
    run: &RunId,
    command: &Command,
) -> Result<(UnixStream, serde_json::Value), Vec<Fault>> {
    let mut stream = connect(state, run).map_err(|fault| vec![fault])?;
    let answer = begin(&mut stream, command);
    answered(answer, run).map(|result| (stream, result))
}

fn answered(answer: std::io::Result<Answer>, run: &RunId) -> Result<serde_json::Value, Vec<Fault>> {
    match answer {
        Ok(answer) if answer.ok => Ok(answer.result),
        Ok(answer) => Err(answer.faults),
        Err(error) => Err(vec![Fault::new(
            Code::FenceLost,
            format!("the run {run} did not answer"),
            error.to_string(),
        )]),
    }
}

/// Says it and reads the one line, and not a byte of what follows it.
fn begin(stream: &mut UnixStream, command: &Command) -> std::io::Result<Answer> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let line = serde_json::to_string(command).map_err(std::io::Error::other)?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut text = Vec::new();
    let mut byte = [0; 1];
    while text.len() < MOST_LINE {
        stream.read_exact(&mut byte)?;
        if byte == *b"\n" {
            break;
        }
        text.push(byte[0]);
    }
    stream.set_read_timeout(None)?;
    serde_json::from_slice(&text).map_err(std::io::Error::other)
}

fn talk(mut stream: UnixStream, command: &Command) -> std::io::Result<Answer> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let line = serde_json::to_string(command).map_err(std::io::Error::other)?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut text = String::new();
    stream.take(MOST_LINE as u64).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(std::io::Error::other)
}

/// Runs that live, by name.
#[must_use]
pub fn living(state: &Path) -> Vec<RunId> {
    let mut runs: Vec<RunId> = [super::kept_directory(state), super::directory(state)]
        .iter()
        .flat_map(|directory| living_in(directory))
        .collect();
    runs.sort();
    runs.dedup();
    runs
}

fn living_in(directory: &Path) -> Vec<RunId> {
    let Ok((_open, short)) = super::open(directory) else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir(&short) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| !super::server::is_dead(&entry.path()))
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            RunId::try_from(name.strip_suffix(".sock")?.to_owned()).ok()
        })
        .filter(|run| !super::RESERVED.contains(&run.as_str()))
        .collect()
}
