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
    let directory = super::directory(state);
    let connected =
        super::open(&directory).and_then(|(_open, short)| UnixStream::connect(short.join(super::name(run))));
    let stream = connected.map_err(|error| {
        vec![
            Fault::new(
                Code::AuditMissing,
                format!("the run {run} does not live"),
                format!("{}: {error}", directory.join(super::name(run)).display()),
            )
            .help("bastle ps"),
        ]
    })?;
    let answer = talk(stream, command).map_err(|error| {
        vec![Fault::new(
            Code::FenceLost,
            format!("the run {run} did not answer"),
            error.to_string(),
        )]
    })?;
    if answer.ok {
        Ok(answer.result)
    } else {
        Err(answer.faults)
    }
}

fn talk(mut stream: UnixStream, command: &Command) -> std::io::Result<Answer> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let line = serde_json::to_string(command).map_err(std::io::Error::other)?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut text = String::new();
    stream.take(16 * MOST_LINE as u64).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(std::io::Error::other)
}

/// Runs that live, by name.
#[must_use]
pub fn living(state: &Path) -> Vec<RunId> {
    let Ok((_open, short)) = super::open(&super::directory(state)) else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir(&short) else {
        return Vec::new();
    };
    let mut runs: Vec<RunId> = entries
        .flatten()
        .filter(|entry| !super::server::is_dead(&entry.path()))
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            RunId::try_from(name.strip_suffix(".sock")?.to_owned()).ok()
        })
        .collect();
    runs.sort();
    runs
}
