//! Watching a batch until its last run has ended.
use crate::client::{Daemon, part};
use crate::context::{Context, Failed};
use crate::render::{clean, timestamp};
use bastle_contract::runs::RunState;
use bastle_control::fleet::{BatchReport, RunRecord};
use bastle_serve::client::{SseEvent, Waited};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long nothing may be heard before the list is looked at again.
const QUIET: Duration = Duration::from_secs(30);

/// Tells every change of state on standard error; says whether all completed.
pub(super) fn until_ended(daemon: &Daemon, report: &BatchReport, cx: &Context) -> Result<bool, Failed> {
    let mut states: BTreeMap<String, Option<RunState>> = report
        .runs
        .iter()
        .filter_map(|run| Some((run.name.as_ref()?.to_string(), None)))
        .collect();
    let batch = part(&report.batch);
    let mut since = None;
    while !over(&states) {
        let mut events = daemon.events(since, &format!("batch={batch}&kind=state,ended"))?;
        // What happened before the stream began is in the list.
        look(daemon, &batch, &mut states, cx)?;
        while !over(&states) {
            match events.wait(QUIET) {
                Waited::Event(event) => {
                    since = event.id.as_deref().and_then(|id| id.parse().ok()).or(since);
                    if let Some((run, state, data)) = change(&event) {
                        told(&mut states, &run, state, data["reason"].as_str(), cx);
                    }
                }
                Waited::Late => look(daemon, &batch, &mut states, cx)?,
                Waited::Ended => break,
            }
        }
    }
    Ok(states.values().all(|state| *state == Some(RunState::Completed)))
}

fn over(states: &BTreeMap<String, Option<RunState>>) -> bool {
    states.values().all(|state| state.is_some_and(RunState::is_final))
}

/// Reads every state from the daemon's list.
fn look(
    daemon: &Daemon,
    batch: &str,
    states: &mut BTreeMap<String, Option<RunState>>,
    cx: &Context,
) -> Result<(), Failed> {
    let runs: Vec<RunRecord> = daemon.list(&format!("/api/v1/runs?limit=1000&batch={batch}"))?;
    for run in &runs {
        told(states, run.name.as_str(), run.state, run.reason.as_deref(), cx);
    }
    // One that is not in the list any more was removed: nobody will tell its end.
    for (name, state) in states.iter_mut() {
        if !runs.iter().any(|run| run.name.as_str() == name) && !state.is_some_and(RunState::is_final) {
            cx.note(&format!("{} is gone", clean(name)));
            *state = Some(RunState::Cancelled);
        }
    }
    Ok(())
}

/// The run and the state that an event tells.
fn change(event: &SseEvent) -> Option<(String, RunState, Value)> {
    let value: Value = serde_json::from_str(&event.data).ok()?;
    let data = if value["data"].is_object() {
        &value["data"]
    } else {
        &value
    };
    let state: RunState = serde_json::from_value(data["state"].clone()).ok()?;
    let run = [&value["subject"], &value["run"], &data["run"]]
        .into_iter()
        .find_map(Value::as_str)?;
    let run = run.rsplit('/').next().unwrap_or(run);
    Some((run.to_owned(), state, data.clone()))
}

fn told(
    states: &mut BTreeMap<String, Option<RunState>>,
    run: &str,
    state: RunState,
    reason: Option<&str>,
    cx: &Context,
) {
    // A state that is over is not taken back by an event that comes late.
    let Some(known) = states.get_mut(run) else { return };
    if *known == Some(state) || known.is_some_and(RunState::is_final) {
        return;
    }
    *known = Some(state);
    let reason = reason
        .map(|reason| format!(" ({})", clean(reason)))
        .unwrap_or_default();
    let time = timestamp(crate::render::now_ms());
    cx.note(&format!("{time} {} {}{reason}", clean(run), state.word()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_that_tells_no_state_changes_nothing_and_an_end_is_not_taken_back() {
        let event = |data: Value| SseEvent {
            data: data.to_string(),
            ..SseEvent::default()
        };
        for bad in [
            json!(1),
            json!({}),
            json!({"subject": "a", "data": {"state": "odd"}}),
            json!({"data": {"state": "running"}}),
        ] {
            assert!(change(&event(bad.clone())).is_none(), "{bad}");
        }
        let good = event(json!({"subject": "runs/a", "data": {"state": "running"}}));
        let (run, state, _) = change(&good).unwrap();
        assert_eq!((run.as_str(), state), ("a", RunState::Running));
        let mut states = BTreeMap::from([("a".to_owned(), Some(RunState::Failed))]);
        let cx = Context::new(crate::args::ColorWhen::Never);
        told(&mut states, "a", RunState::Running, None, &cx);
        assert_eq!(states["a"], Some(RunState::Failed));
        assert!(over(&states));
    }
}
