//! Waiting for workers: looking again and again, with the caller's own right each time, and saying how far it is.
use super::content::escaped;
use super::door::{Asker, Door, Rest};
use super::tools::brief;
use bastle_contract::{Code, Fault};
use bastle_mcp::Call;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Between two looks: short at first, then longer.
const LOOKS: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(2));
/// How long when nobody says.
const USUAL: u64 = 60;

/// States that no run leaves.
const ENDED: [&str; 4] = ["completed", "failed", "cancelled", "refused"];
/// States in which somebody must do something.
const ASKS: [&str; 2] = ["needs-input", "needs-credential"];

pub(super) async fn wait(
    door: &Door,
    arguments: &Map<String, Value>,
    call: &Call<Asker>,
) -> Result<Value, Vec<Fault>> {
    let names: Vec<String> = arguments["workers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let any = arguments.get("until").and_then(Value::as_str) == Some("any");
    let seconds = arguments
        .get("timeout_s")
        .and_then(Value::as_u64)
        .unwrap_or(USUAL);
    let began = Instant::now();
    let longest = Duration::from_secs(seconds);
    let (mut pause, slowest) = LOOKS;
    let mut step = 0;
    let mut before = String::new();
    loop {
        let mut workers = Vec::new();
        for name in &names {
            let path = format!("/api/v1/runs/{}", escaped(name));
            match door.ask(&call.caller, Rest::get(path)).await {
                Ok(run) => workers.push(brief(&run)),
                // Looking too often is ours to slow down, not a reason to stop waiting.
                Err(faults) if faults.first().is_some_and(|fault| fault.code == Code::ApiRate) => {
                    pause = slowest;
                    break;
                }
                Err(faults) => return Err(faults),
            }
        }
        let count = |states: &[&str]| workers.iter().filter(|worker| is_in(worker, states)).count();
        let (ended, asks) = (count(&ENDED), count(&ASKS));
        let over = if any {
            ended > 0 || names.is_empty()
        } else {
            ended == names.len()
        };
        let why = match (over, asks > 0, began.elapsed() >= longest) {
            (true, _, _) => Some("ended"),
            (_, true, _) => Some("question"),
            (_, _, true) => Some("timeout"),
            (false, false, false) => None,
        };
        if let Some(why) = why {
            return Ok(json!({ "why": why, "workers": workers }));
        }
        let now = told(&workers);
        if now != before && call.out.wants_progress() {
            step += 1;
            call.out.progress(step, None, &now).await;
            before = now;
        }
        let left = longest.saturating_sub(began.elapsed());
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(slowest);
    }
}

fn is_in(worker: &Value, states: &[&str]) -> bool {
    worker["state"]
        .as_str()
        .is_some_and(|state| states.contains(&state))
}

/// `calm-otter: running, …`. Names and states are ours.
fn told(workers: &[Value]) -> String {
    let word = |worker: &Value, name: &str| worker[name].as_str().unwrap_or("?").to_owned();
    let all: Vec<String> = workers
        .iter()
        .map(|worker| format!("{}: {}", word(worker, "name"), word(worker, "state")))
        .collect();
    all.join(", ")
}
