//! Speaking to a run's own socket: one line there, one line back.
use bastle_contract::{Code, Fault, RunId};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a run may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest answer.
const MOST: u64 = 256 * 1024;

/// A connection to the run's socket.
pub(super) fn connect(state: &Path, run: &RunId) -> Result<UnixStream, Fault> {
    crate::live::reach(state, run).map_err(|error| {
        Fault::new(
            Code::RunState,
            format!("the run {run} does not live"),
            error.to_string(),
        )
        .help(format!("bastle inspect {run}"))
    })
}

/// Says something and waits for the answer.
pub(super) fn ask(state: &Path, run: &RunId, command: &Value) -> Result<Value, Fault> {
    let lost = |why: String| Fault::new(Code::FenceLost, format!("the run {run} did not answer"), why);
    let answer = exchange(connect(state, run)?, command).map_err(|error| lost(error.to_string()))?;
    if answer.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(answer.get("result").cloned().unwrap_or(Value::Null));
    }
    let faults: Vec<Fault> = answer
        .get("faults")
        .cloned()
        .and_then(|faults| serde_json::from_value(faults).ok())
        .unwrap_or_default();
    Err(faults
        .into_iter()
        .next()
        .unwrap_or_else(|| lost("its answer cannot be read".to_owned())))
}

fn exchange(mut stream: UnixStream, command: &Value) -> std::io::Result<Value> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{command}\n").as_bytes())?;
    let mut line = Vec::new();
    BufReader::new(stream.take(MOST)).read_until(b'\n', &mut line)?;
    serde_json::from_slice(&line).map_err(std::io::Error::other)
}
