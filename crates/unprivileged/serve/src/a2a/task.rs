//! A run as a task of the agent protocol: its state, its history, its artifacts.
//!
//! **Trust:** texts of agents are in it as data, bounded. What is about this host is shown to admins alone.
use super::artifacts;
use crate::app::App;
use crate::dto::time;
use crate::errors::{Refusal, Told, without_paths};
use crate::question_view;
use crate::transcript::{self, Mark};
use bastle_contract::RunId;
use bastle_contract::runs::RunState;
use bastle_control::fleet::{Approval, ApprovalQuery, ApprovalState, Caller, EventFilter, Fleet, RunRecord};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The extension under which questions are shown and answered.
pub(crate) const APPROVAL: &str = "https://bastle.dev/a2a/approval/v1";
/// The extension that says how a worker is started.
pub(crate) const SPAWN: &str = "https://bastle.dev/a2a/spawn/v1";
/// What is known of the run behind a task.
const RUN: &str = "https://bastle.dev/a2a/run/v1";

/// Messages of the history at most, and events of the agent that are looked at for it.
const MOST_HISTORY: usize = 100;
const MOST_SAID: usize = 500;
/// How often, and after which pauses, it is looked whether an end was written.
const MOST_LOOKS: usize = 100;
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of one message of an agent.
const MOST_TEXT: usize = 64 * 1024;

/// The states of the protocol that we come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    Submitted,
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Canceled,
    Rejected,
}

impl TaskState {
    const ALL: [Self; 8] = [
        Self::Submitted,
        Self::Working,
        Self::InputRequired,
        Self::AuthRequired,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::Rejected,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            Self::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Failed => "TASK_STATE_FAILED",
            Self::Canceled => "TASK_STATE_CANCELED",
            Self::Rejected => "TASK_STATE_REJECTED",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    pub(crate) fn of(state: RunState) -> Self {
        match state {
            RunState::Queued | RunState::Building => Self::Submitted,
            RunState::Running | RunState::Suspended => Self::Working,
            RunState::NeedsInput => Self::InputRequired,
            RunState::NeedsCredential => Self::AuthRequired,
            RunState::Completed => Self::Completed,
            RunState::Failed => Self::Failed,
            RunState::Cancelled => Self::Canceled,
            RunState::Refused => Self::Rejected,
        }
    }

    /// The states of runs that are told as this one.
    pub(crate) fn runs(self) -> Vec<RunState> {
        RunState::ALL
            .into_iter()
            .filter(|state| Self::of(*state) == self)
            .collect()
    }

    pub(crate) fn is_final(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected
        )
    }

    /// Whether somebody has to do something before it goes on.
    pub(crate) fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

/// What is wanted of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// Messages of its history; all that are kept when `None`.
    pub(crate) history: Option<usize>,
    pub(crate) artifacts: WithArtifacts,
    pub(crate) told: Told,
    /// Whether it is told what its questions ask.
    pub(crate) words: Words,
}

/// Whether a caller is told what questions ask, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    Told,
    Hidden,
}

impl Words {
    /// What holds for a caller.
    pub(crate) fn of(fleet: &Fleet, caller: &Caller, run: &RunId) -> Self {
        match fleet.may_read_questions(caller, run) {
            true => Self::Told,
            false => Self::Hidden,
        }
    }
}

impl Shown {
    /// Without what the agent was told, said and made, for whoever may not act inside the run.
    pub(crate) fn within(self, fleet: &Fleet, caller: &Caller, run: &RunId) -> Self {
        let words = Words::of(fleet, caller, run);
        let asks = self.artifacts == WithArtifacts::Yes || self.history != Some(0);
        if !asks || fleet.may_enter(caller, run).is_ok() {
            return Self { words, ..self };
        }
        Self {
            history: Some(0),
            artifacts: WithArtifacts::No,
            told: self.told,
            words,
        }
    }
}

/// Whether artifacts are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithArtifacts {
    Yes,
    No,
}

/// Where a task stands.
pub(crate) struct Standing {
    pub(crate) run: RunRecord,
    pub(crate) state: TaskState,
    pub(crate) open: Vec<Approval>,
    changed_ms: u64,
}

fn of_run(run: &RunId, kinds: &[&str]) -> EventFilter {
    EventFilter {
        run: Some(run.clone()),
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        ..EventFilter::default()
    }
}

/// Waits a moment for how a run ended: its keeper says that it ends, then writes how. What is told of an end is whole.
pub(crate) async fn settle(app: &App, name: &RunId) {
    for _ in 0..MOST_LOOKS {
        let name = name.clone();
        let open = app
            .ask(move |fleet| {
                let run = fleet.run(&name)?;
                let written = run.file.as_ref().is_none_or(|file| file.state.is_final());
                // One that was never kept says why it ended; of others that is known when the file says it.
                let told = run.code.is_some() || run.reason.is_some() || run.fault.is_some();
                let known = run.ended_ms.is_some() && told;
                Ok::<_, Refusal>(run.state.is_final() && !known && !written)
            })
            .await;
        if !open.unwrap_or(false) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Looks where a task stands.
pub(crate) fn standing(fleet: &Fleet, name: &RunId) -> Result<Standing, Refusal> {
    let mut run = fleet.run(name)?;
    // The registry learns the last things when the keeper has gone; its own file has them before.
    if let Some(file) = run.file.as_ref().filter(|file| file.state.is_final()) {
        run.code = run.code.or(file.code);
        run.fault = run.fault.take().or_else(|| file.fault.clone());
    }
    let open = open_questions(fleet, name)?;
    let last = fleet.recent_events(&of_run(name, &["state"]), 1)?;
    let known = run.ended_ms.or(run.started_ms).unwrap_or(run.created_ms);
    let changed_ms = last.last().map_or(known, |event| event.time_ms);
    let state = match TaskState::of(run.state) {
        state if state.is_final() => state,
        _ if !open.is_empty() => TaskState::InputRequired,
        TaskState::Working | TaskState::InputRequired if idle(fleet, name)? => TaskState::InputRequired,
        // Answered already; the run has not said yet that it goes on.
        TaskState::InputRequired => TaskState::Working,
        state => state,
    };
    Ok(Standing {
        changed_ms,
        run,
        state,
        open,
    })
}

/// Open questions, oldest first: the first one is what the task waits for.
fn open_questions(fleet: &Fleet, name: &RunId) -> Result<Vec<Approval>, Refusal> {
    let mut open = fleet.approvals(&ApprovalQuery {
        state: Some(ApprovalState::Open),
        run: Some(name.clone()),
        after: 0,
        limit: 32,
    })?;
    open.reverse();
    Ok(open)
}

/// Questions that were open at a time, or all that ever were: read again later, it is the same.
pub(crate) fn asked(fleet: &Fleet, name: &RunId, at_ms: u64) -> Result<Vec<Approval>, Refusal> {
    let mut all = fleet.approvals(&ApprovalQuery {
        state: None,
        run: Some(name.clone()),
        after: 0,
        limit: 1000,
    })?;
    all.reverse();
    all.retain(|one| {
        one.asked_ms <= at_ms
            && (at_ms == u64::MAX || one.answered_ms.is_none_or(|answered| answered > at_ms))
    });
    Ok(all)
}

/// Whether a driven agent has finished its turn and waits for the next word.
fn idle(fleet: &Fleet, name: &RunId) -> Result<bool, Refusal> {
    let spec = fleet.spec(name)?;
    let waits = spec.get().open_input || fleet.run(name)?.state == RunState::NeedsInput;
    if spec.get().driver.is_none() || !waits {
        return Ok(false);
    }
    let said = fleet.recent_events(&of_run(name, &["agent", "said"]), 64)?;
    let turn = said.iter().rev().find_map(|event| match event.kind.as_str() {
        "said" => Some(false),
        _ => match event.data["said"].as_str() {
            Some("turn-ended") => Some(true),
            Some("turn-began") => Some(false),
            _ => None,
        },
    });
    Ok(turn.unwrap_or(false))
}

/// A message of the agent's side.
pub(crate) fn says(id: String, ids: (&str, &RunId), parts: Vec<Value>) -> Value {
    let (context, task) = ids;
    json!({ "messageId": id, "contextId": context, "taskId": task, "role": "ROLE_AGENT", "parts": parts })
}

/// Text of an agent, bounded.
pub(crate) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT)]
}

/// Open questions as a message: in words, and as data that an answer refers to.
pub(crate) fn questions(
    open: &[Approval],
    ids: (&str, &RunId),
    (told, words): (Told, Words),
) -> Option<Value> {
    let first = open.first()?;
    let mut parts = Vec::new();
    for one in open {
        let text = match (words, told) {
            (Words::Hidden, _) => None,
            (Words::Told, Told::All) => Some(one.text.clone()),
            (Words::Told, Told::Outside) => Some(without_paths(&one.text)),
        };
        if let Some(text) = text {
            parts.push(json!({ "text": bounded(&text), "mediaType": "text/plain" }));
        }
        parts.push(json!({
            "data": {
                "approval": one.id, "hash": one.hash, "about": one.about, "verdicts": ["approve", "deny"],
                "expires": time(one.expires_ms),
            },
            "mediaType": "application/json", "metadata": { "extension": APPROVAL },
        }));
    }
    let mut message = says(format!("question-{}", first.id), ids, parts);
    message["extensions"] = json!([APPROVAL]);
    Some(message)
}

/// The status of a task.
pub(crate) fn status(standing: &Standing, context: &str, (told, words): (Told, Words)) -> Value {
    let ids = (context, &standing.run.name);
    let mut status = json!({ "state": standing.state.word(), "timestamp": time(standing.changed_ms) });
    let text = |text: String| match told {
        Told::All => text,
        Told::Outside => without_paths(&text),
    };
    let message = match standing.state {
        TaskState::InputRequired => questions(&standing.open, ids, (told, words)),
        TaskState::Failed | TaskState::Rejected | TaskState::AuthRequired => {
            let fault = standing.run.fault.as_ref().map(ToString::to_string);
            fault.or_else(|| standing.run.reason.clone()).map(|why| {
                let part = json!({ "text": bounded(&text(why)), "mediaType": "text/plain" });
                says(format!("status-{}", standing.changed_ms), ids, vec![part])
            })
        }
        TaskState::Submitted | TaskState::Working | TaskState::Completed | TaskState::Canceled => None,
    };
    if let Some(message) = message {
        status["message"] = message;
    }
    status
}

/// What is known of the run, for whoever wants more than the protocol tells.
pub(crate) fn about(run: &RunRecord) -> Value {
    json!({ RUN: {
        "run": run.name, "state": run.state, "reason": run.reason, "code": run.code, "profile": run.profile,
        "denials": run.denials,
    } })
}

/// The whole task.
pub(crate) fn task(fleet: &Fleet, state: &Path, name: &RunId, shown: Shown) -> Result<Value, Refusal> {
    let mut standing = standing(fleet, name)?;
    if shown.words == Words::Hidden {
        question_view::unworded(&mut standing.run);
    }
    let context = fleet.conversation(name)?;
    let mut task = json!({
        "id": name, "contextId": context, "status": status(&standing, &context, (shown.told, shown.words)),
        "metadata": about(&standing.run),
    });
    if shown.history != Some(0) {
        let most = shown.history.unwrap_or(MOST_HISTORY).min(MOST_HISTORY);
        let mut all = history(fleet, name, &context)?;
        let kept = all.split_off(all.len().saturating_sub(most));
        if !kept.is_empty() {
            task["history"] = Value::Array(kept);
        }
    }
    if shown.artifacts == WithArtifacts::Yes {
        // What a task left behind is whole only when it ended.
        let all = if standing.state.is_final() {
            artifacts::all(fleet, state, name)
        } else {
            Vec::new()
        };
        if !all.is_empty() || !standing.state.is_final() {
            task["artifacts"] = Value::Array(all);
        }
    }
    Ok(task)
}

/// What was said to it and what its agent said, in the order of time.
fn history(fleet: &Fleet, name: &RunId, context: &str) -> Result<Vec<Value>, Refusal> {
    let mut all: Vec<(u64, Value)> = fleet.messages(name)?;
    let said = fleet.recent_events(&of_run(name, &transcript::KINDS), MOST_SAID)?;
    let mut open: Option<(u64, u64, String)> = None;
    let mut close = |open: &mut Option<(u64, u64, String)>| {
        if let Some((seq, at, text)) = open.take() {
            let part = json!({ "text": bounded(&text), "mediaType": "text/plain" });
            all.push((at, says(format!("agent-{seq}"), (context, name), vec![part])));
        }
    };
    for event in &said {
        // What an agent says piece by piece is one message until it does something else or is spoken to.
        match transcript::mark(event) {
            Mark::Text(text) => {
                let (_, _, whole) = open.get_or_insert((event.seq, event.time_ms, String::new()));
                if whole.len() < MOST_TEXT {
                    whole.push_str(text);
                }
            }
            Mark::Within => {}
            Mark::Boundary => close(&mut open),
        }
    }
    close(&mut open);
    // Stable: a message of the same millisecond as an answer of the agent stands before it.
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, message)| message).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_a_run_has_one_of_the_protocol_and_the_ends_agree() {
        for state in RunState::ALL {
            let told = TaskState::of(state);
            assert_eq!(told.is_final(), state.is_final(), "{state}");
            assert_eq!(TaskState::of_word(told.word()), Some(told));
            assert!(told.runs().contains(&state));
        }
        assert_eq!(TaskState::of_word("working"), None);
        assert_eq!(TaskState::of_word("TASK_STATE_UNSPECIFIED"), None);
    }
}
