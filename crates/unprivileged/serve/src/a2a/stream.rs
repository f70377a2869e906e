//! What happens to a task, as it happens: made from the numbered events of its run, so that every reader gets the same
//! ones in the same order, however slow it is.
use super::artifacts;
use super::live::Live;
use super::modes::Modes;
use super::task::{TaskState, Words, about, asked, bounded, questions, says, settle, standing, status};
use crate::app::App;
use crate::dto::time;
use crate::errors::{Refusal, Told};
use crate::routes::events::{Feed, Next};
use bastle_contract::RunId;
use bastle_contract::runs::RunState;
use bastle_control::fleet::{Caller, EventFilter, Fleet, StoredEvent};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Kinds of events that change what is told of a task.
const KINDS: [&str; 6] = ["state", "question", "agent", "said", "approval", "removed"];
/// How often a quiet stream says that it lives.
const PULSE: Duration = Duration::from_secs(5);
/// How often it is looked whether more was printed.
const LOOK: Duration = Duration::from_millis(100);
/// Under which the number of the event is told: a receiver that gets it twice knows it.
const EVENT: &str = "https://bastle.dev/a2a/event/v1";

/// The filter of a task's events.
pub(crate) fn filter(run: &RunId) -> EventFilter {
    EventFilter {
        run: Some(run.clone()),
        kinds: KINDS.iter().map(|kind| (*kind).to_owned()).collect(),
        ..EventFilter::default()
    }
}

/// One task's events.
pub(crate) struct TaskStream {
    app: App,
    feed: Feed,
    run: RunId,
    told: Told,
    /// Who reads it; nobody where a receiver is told, whose maker may act inside the run.
    reader: Option<Caller>,
    held: VecDeque<(u64, Value)>,
    state: TaskState,
    over: bool,
    modes: Modes,
    /// What it prints, for readers who are told as it comes.
    live: Option<Live>,
    /// When something was told.
    spoke: Instant,
}

/// What comes next.
pub(crate) enum Step {
    /// Something of the event with this number.
    Told(u64, Value),
    /// Nothing; it lives.
    Quiet,
    /// Nothing more comes.
    Over,
}

impl TaskStream {
    /// From an event on; `first` is told before.
    pub(crate) fn new(app: App, feed: Feed, run: RunId, told: Told, first: Option<Value>) -> Self {
        let word = |task: &Value| task["status"]["state"].as_str().and_then(TaskState::of_word);
        let state = first.as_ref().and_then(word).unwrap_or(TaskState::Working);
        let since = feed.since();
        Self {
            app,
            feed,
            run,
            told,
            reader: None,
            over: state.is_final(),
            held: first
                .map(|task| (since, json!({ "task": task })))
                .into_iter()
                .collect(),
            state,
            modes: Modes::default(),
            live: None,
            spoke: Instant::now(),
        }
    }

    /// For a caller, who is told of questions what they may read.
    pub(crate) fn read_by(mut self, caller: Caller) -> Self {
        self.reader = Some(caller);
        self
    }

    /// In these media types only.
    pub(crate) fn in_modes(mut self, modes: Modes) -> Self {
        self.modes = modes;
        self
    }

    /// With what it prints, as it prints it.
    pub(super) fn with_output(mut self, live: Live) -> Self {
        self.live = Some(live).filter(|_| !self.over && self.modes.takes("text/plain"));
        self
    }

    pub(crate) async fn next(&mut self) -> Step {
        loop {
            if let Some((seq, held)) = self.held.pop_front() {
                self.spoke = Instant::now();
                return Step::Told(seq, held);
            }
            if self.over {
                return Step::Over;
            }
            let since = self.feed.since();
            let mut patience = PULSE;
            if let Some(live) = &mut self.live {
                let printed = live.now(&self.app, since).await;
                if !printed.is_empty() {
                    self.held.extend(printed.into_iter().map(|told| (since, told)));
                    continue;
                }
                patience = LOOK;
            }
            match self.feed.next_within(patience).await {
                Next::Events(events) => {
                    for event in events {
                        if self.over {
                            break;
                        }
                        self.take(event).await;
                    }
                }
                Next::Quiet if self.spoke.elapsed() < PULSE => {}
                Next::Quiet => {
                    self.spoke = Instant::now();
                    return Step::Quiet;
                }
                Next::Over => return Step::Over,
            }
        }
    }

    async fn take(&mut self, event: StoredEvent) {
        if event.kind == "state" {
            settle(&self.app, &self.run).await;
        }
        if let Some(live) = &mut self.live {
            let printed = live.before(&self.app, event.seq).await;
            self.held
                .extend(printed.into_iter().map(|told| (event.seq, told)));
        }
        let (run, told, now) = (self.run.clone(), self.told, self.state);
        let state = self.app.state.clone();
        let (seq, reader) = (event.seq, self.reader.clone());
        let made = self
            .app
            .ask(move |fleet| {
                let words = reader.map_or(Words::Told, |reader| Words::of(fleet, &reader, &run));
                translate(fleet, &state, &run, &event, (now, (told, words)))
            })
            .await;
        match made {
            Ok(Made { state, told }) => {
                self.state = state;
                self.over = state.is_final();
                let closed = self
                    .live
                    .as_mut()
                    .filter(|_| state.is_final())
                    .and_then(Live::close);
                let whole = closed.is_some();
                self.held.extend(closed.map(|told| (seq, told)));
                for told in told {
                    // What was told piece by piece is not told again.
                    let output =
                        told.pointer("/artifactUpdate/artifact/artifactId") == Some(&json!("output"));
                    let fits = match output && whole {
                        true => None,
                        false => fit(&self.modes, told),
                    };
                    self.held.extend(fits.map(|told| (seq, told)));
                }
            }
            // A run that is gone has nothing more to tell.
            Err(_) => self.over = true,
        }
    }
}

/// What is told, in a form that is taken.
fn fit(modes: &Modes, mut told: Value) -> Option<Value> {
    if let Some(artifact) = told.pointer_mut("/artifactUpdate/artifact") {
        *artifact = modes.fit(artifact.take())?;
    }
    Some(told)
}

struct Made {
    state: TaskState,
    told: Vec<Value>,
}

/// What an event of a run is in the words of the protocol; often nothing.
fn translate(
    fleet: &Fleet,
    state: &Path,
    run: &RunId,
    event: &StoredEvent,
    (now, told): (TaskState, (Told, Words)),
) -> Result<Made, Refusal> {
    let context = fleet.conversation(run)?;
    let ids = (context.as_str(), run);
    let update = |state: TaskState, message: Option<Value>| {
        let mut status = json!({ "state": state.word(), "timestamp": time(event.time_ms) });
        if let Some(message) = message {
            status["message"] = message;
        }
        let seq = json!({ EVENT: { "seq": event.seq } });
        json!({ "statusUpdate": { "taskId": run, "contextId": context, "status": status, "metadata": seq } })
    };
    let one = |state: TaskState, message: Option<Value>| Made {
        state,
        told: vec![update(state, message)],
    };
    let nothing = Made {
        state: now,
        told: Vec::new(),
    };
    let word = event.data["said"].as_str();
    Ok(match event.kind.as_str() {
        "state" => {
            let word = event.data["state"].as_str();
            let Some(state_now) = RunState::ALL.into_iter().find(|state| Some(state.word()) == word) else {
                return Ok(nothing);
            };
            match TaskState::of(state_now) {
                last if last.is_final() => ended(fleet, state, run, event, told)?,
                TaskState::InputRequired => {
                    let open = asked(fleet, run, event.time_ms)?;
                    one(TaskState::InputRequired, questions(&open, ids, told))
                }
                other => one(other, None),
            }
        }
        "question" => {
            let id = event.data["id"].as_str();
            let mut open = asked(fleet, run, u64::MAX)?;
            open.retain(|one| Some(one.question.as_str()) == id);
            match questions(&open, ids, told) {
                Some(message) => one(TaskState::InputRequired, Some(message)),
                None => nothing,
            }
        }
        "agent" if word == Some("text") => {
            // Left out where the caller may not act inside the run any more.
            let Some(text) = event.data["text"].as_str() else {
                return Ok(nothing);
            };
            let part = json!({ "text": bounded(text), "mediaType": "text/plain" });
            one(now, Some(says(format!("agent-{}", event.seq), ids, vec![part])))
        }
        "said" | "approval"
            if now == TaskState::InputRequired && asked(fleet, run, event.time_ms)?.is_empty() =>
        {
            one(TaskState::Working, None)
        }
        "removed" => return Err(Refusal::missing("the run is gone")),
        _ => nothing,
    })
}

/// The end: everything it left behind, then the last word.
fn ended(
    fleet: &Fleet,
    state: &Path,
    run: &RunId,
    event: &StoredEvent,
    told: (Told, Words),
) -> Result<Made, Refusal> {
    let context = fleet.conversation(run)?;
    let seq = json!({ EVENT: { "seq": event.seq } });
    let mut all: Vec<Value> = artifacts::all(fleet, state, run)
        .into_iter()
        .map(|artifact| {
            json!({ "artifactUpdate": {
                "taskId": run, "contextId": context, "artifact": artifact, "append": false, "lastChunk": true,
                "metadata": seq,
            } })
        })
        .collect();
    let standing = standing(fleet, run)?;
    let mut metadata = about(&standing.run);
    metadata[EVENT] = json!({ "seq": event.seq });
    let mut status = status(&standing, &context, told);
    let word = event.data["state"].as_str();
    let said = RunState::ALL.into_iter().find(|state| Some(state.word()) == word);
    let last = said.map_or(standing.state, TaskState::of);
    status["state"] = json!(last.word());
    all.push(json!({ "statusUpdate": {
        "taskId": run, "contextId": context, "status": status, "metadata": metadata,
    } }));
    Ok(Made {
        state: last,
        told: all,
    })
}
