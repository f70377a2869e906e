//! What a question of a run asks, in words, goes only to whoever may answer it or act inside the run
//! ([`Fleet::may_read_questions`]). Everybody else who may see the run gets its number, its kind and its times.
//!
//! **Trust:** the words are an agent's. Every answer that holds a run or a question passes here first; events pass
//! `event_view`.
use crate::app::App;
use crate::errors::Refusal;
use bastle_contract::RunId;
use bastle_contract::runs::RunState;
use bastle_control::fleet::{Approval, Caller, Fleet, RunRecord};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Leaves the words out of runs whose questions the caller may not read.
pub(crate) async fn runs(
    app: &App,
    caller: &Caller,
    mut runs: Vec<RunRecord>,
) -> Result<Vec<RunRecord>, Refusal> {
    if !runs.iter().any(asks) {
        return Ok(runs);
    }
    let caller = caller.clone();
    app.ask(move |fleet| {
        for run in runs.iter_mut().filter(|run| asks(run)) {
            if !fleet.may_read_questions(&caller, &run.name) {
                unworded(run);
            }
        }
        Ok::<_, Refusal>(runs)
    })
    .await
}

/// The same of one run.
pub(crate) async fn run(app: &App, caller: &Caller, run: RunRecord) -> Result<RunRecord, Refusal> {
    let missing = || Refusal::missing("there is no such run");
    runs(app, caller, vec![run]).await?.pop().ok_or_else(missing)
}

/// Leaves the words out of questions that the caller may not read.
pub(crate) fn approvals(fleet: &Fleet, caller: &Caller, all: &mut [Approval]) {
    let mut known: BTreeMap<RunId, bool> = BTreeMap::new();
    for one in all {
        let may = known
            .entry(one.run.clone())
            .or_insert_with(|| fleet.may_read_questions(caller, &one.run));
        if !*may {
            one.text = String::new();
            one.message = None;
        }
    }
}

/// What a living run says of itself, without the words of its questions.
pub(crate) fn status(told: &mut Map<String, Value>) {
    if told
        .get("state")
        .is_some_and(|state| state == RunState::NeedsInput.word())
    {
        told.insert("reason".to_owned(), Value::Null);
    }
    if let Some(Value::Array(all)) = told.get_mut("asks") {
        for one in all.iter_mut().filter_map(Value::as_object_mut) {
            one.retain(|name, _| matches!(name.as_str(), "id" | "hash"));
        }
    }
}

/// Whether the record of a run holds words of a question.
fn asks(run: &RunRecord) -> bool {
    run.question.is_some() || waits(run.state, run.reason.as_ref()) || file_waits(run)
}

fn file_waits(run: &RunRecord) -> bool {
    let file = run.file.as_ref();
    file.is_some_and(|file| waits(file.state, file.reason.as_ref()))
}

/// Where a run waits for an answer, its reason is the question.
fn waits(state: RunState, reason: Option<&String>) -> bool {
    state == RunState::NeedsInput && reason.is_some()
}

/// Leaves the words of questions out of a run.
pub(crate) fn unworded(run: &mut RunRecord) {
    run.question = None;
    if run.state == RunState::NeedsInput {
        run.reason = None;
    }
    if let Some(file) = run
        .file
        .as_mut()
        .filter(|file| file.state == RunState::NeedsInput)
    {
        file.reason = None;
    }
}
