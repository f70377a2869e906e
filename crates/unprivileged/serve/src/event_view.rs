//! What of an event is told to whom. What an agent was asked, says and does, and what its policy is, go only to whoever may
//! act inside its run ([`Fleet::may_enter`]), as its output does; what a question asks goes to whoever may answer it or act
//! there by their role too ([`Fleet::may_read_questions`]); that something happened, states and counts go to all who may see
//! the run.
//!
//! **Trust:** data of an event holds text of the agent. Members are told by name: what is not listed here is left out.
//!
//! [`Fleet::may_enter`]: bastle_control::fleet::Fleet::may_enter
//! [`Fleet::may_read_questions`]: bastle_control::fleet::Fleet::may_read_questions
use crate::app::App;
use crate::errors::Refusal;
use bastle_contract::RunId;
use bastle_control::fleet::{Caller, StoredEvent};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long a verdict about a run holds at most: the ceiling of the daemon is read again, and names are given again.
const AGAIN: Duration = Duration::from_secs(10);
/// Verdicts that one reader keeps.
const MOST_VERDICTS: usize = 4096;

/// Events as one caller may see them.
pub(crate) struct EventView {
    app: App,
    /// Whoever may act inside every run is not asked about.
    caller: Option<Caller>,
    verdicts: HashMap<RunId, Verdict>,
}

/// What the caller may do in a run.
#[derive(Clone, Copy)]
struct Rights {
    /// Act inside it, as far as its authority goes.
    enter: bool,
    /// Read what its questions ask.
    questions: bool,
}

/// What was found about a run.
struct Verdict {
    rights: Rights,
    /// Of the run that the verdict is about; another run of its name has another.
    batch: Option<String>,
    found: Instant,
}

impl EventView {
    pub(crate) fn of(app: App, caller: &Caller) -> Self {
        let all = caller.run.is_none() && caller.is_trusted();
        Self {
            app,
            caller: (!all).then(|| caller.clone()),
            verdicts: HashMap::new(),
        }
    }

    /// Leaves out of events what the caller may not see of them.
    pub(crate) async fn narrow(&mut self, events: &mut [StoredEvent]) {
        let Some(caller) = self.caller.clone() else {
            return;
        };
        for event in events {
            let Some(run) = &event.run else { continue };
            // The run began, ended or became another one: what was found about it is found again.
            if matches!(event.kind.as_str(), "state" | "adopted" | "removed") {
                self.verdicts.remove(run);
            }
            let Some(less) = outside(event) else { continue };
            // An event without its number is of a run that was removed: nobody can tell any more who might enter it.
            let whole = event.run_seq.is_some() && {
                let rights = self.rights(&caller, run, event.batch.as_deref()).await;
                if asks(event) {
                    rights.questions
                } else {
                    rights.enter
                }
            };
            if !whole {
                event.data = less;
            }
        }
    }

    async fn rights(&mut self, caller: &Caller, run: &RunId, batch: Option<&str>) -> Rights {
        if let Some(known) = self.verdicts.get(run)
            && known.batch.as_deref() == batch
            && known.found.elapsed() < AGAIN
        {
            return known.rights;
        }
        let (who, name, of) = (caller.clone(), run.clone(), batch.map(str::to_owned));
        let asked = self.app.ask(move |fleet| {
            let rights = Rights {
                enter: fleet.may_enter(&who, &name).is_ok(),
                questions: fleet.may_read_questions(&who, &name),
            };
            // After the verdict: a run that took the name meanwhile is of another batch, and the verdict was about it.
            Ok::<_, Refusal>((fleet.run(&name)?.batch == of).then_some(rights))
        });
        let none = Rights {
            enter: false,
            questions: false,
        };
        let rights = asked.await.ok().flatten().unwrap_or(none);
        if self.verdicts.len() >= MOST_VERDICTS {
            self.verdicts.clear();
        }
        let verdict = Verdict {
            rights,
            batch: batch.map(str::to_owned),
            found: Instant::now(),
        };
        self.verdicts.insert(run.clone(), verdict);
        rights
    }
}

/// Members of an event that hold words and numbers of bastle's own. A kind that is not here has none.
fn members(kind: &str) -> &'static [&'static str] {
    match kind {
        "state" => &["state", "reason", "traceparent"],
        "adopted" => &["by"],
        "removed" => &["name"],
        "agent" => &[
            "said",
            "how",
            "turns",
            "input_tokens",
            "output_tokens",
            "cost_usd",
        ],
        "said" => &["how", "why"],
        "note" => &["snapshot"],
        "question" => &["id", "hash"],
        "answered" => &["id", "verdict", "by"],
        "approval" => &["id", "state", "by", "kind", "scope"],
        "permit" => &["id", "verdict", "by"],
        "denied" => &["id", "kind"],
        "net" => &["seq", "id", "face", "verdict", "code", "count"],
        "canary" => &["severity", "id", "count"],
        "anomaly" => &["rule", "severity", "action", "paused"],
        "rules" => &["cut"],
        "grant" => &["access", "way"],
        "covered" => &["count"],
        "programs" => &["more"],
        "traffic" => &["bytes_out", "bytes_in"],
        "pause" => &["awake"],
        "exec" => &["id", "state", "code"],
        "limit" => &["limit", "value"],
        "budget" => &["kind", "step", "used", "limit"],
        "files" => &[
            "created",
            "changed",
            "deleted",
            "read",
            "left_out",
            "gaps",
            "recovered",
        ],
        "ended" => &[
            "code",
            "killed",
            "usage",
            "denials",
            "discarded",
            "net",
            "changed",
            "records",
        ],
        _ => &[],
    }
}

/// Whether an event holds what a question asks, in words.
fn asks(event: &StoredEvent) -> bool {
    let is = |member: &str, word: &str| event.data.get(member).is_some_and(|value| value == word);
    match event.kind.as_str() {
        "question" => true,
        "state" => is("state", "needs-input"),
        "agent" => is("said", "permission"),
        _ => false,
    }
}

/// The data of an event as it is told to whoever may not act inside its run; `None`: nothing of it is left out.
fn outside(event: &StoredEvent) -> Option<Value> {
    let Value::Object(all) = &event.data else {
        return (!event.data.is_null()).then_some(Value::Null);
    };
    let allowed = members(&event.kind);
    // Where it waits for an answer, the reason is the question.
    let asks = event.kind == "state" && asks(event);
    let left: Map<String, Value> = all
        .iter()
        .filter(|(name, _)| allowed.contains(&name.as_str()) && !(asks && *name == "reason"))
        .map(|(name, value)| (name.clone(), flat(value)))
        .collect();
    (left != *all).then_some(Value::Object(left))
}

/// A word or a number as it is; of sums only the numbers, since hosts and names of secrets stand among them.
fn flat(value: &Value) -> Value {
    match value {
        Value::Object(sums) => {
            let numbers = sums.iter().filter(|(_, sum)| sum.is_number());
            Value::Object(numbers.map(|(name, sum)| (name.clone(), sum.clone())).collect())
        }
        Value::Array(_) => Value::Null,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(kind: &str, data: Value) -> Value {
        let event = StoredEvent {
            seq: 1,
            run: RunId::try_from("one".to_owned()).ok(),
            run_seq: Some(1),
            batch: None,
            time_ms: 1,
            kind: kind.to_owned(),
            data: data.clone(),
        };
        outside(&event).unwrap_or(data)
    }

    /// Events of what an agent says, and what of them is told.
    fn spoken() -> Vec<(&'static str, Value, Value)> {
        vec![
            (
                "agent",
                json!({"said": "text", "text": "hush"}),
                json!({"said": "text"}),
            ),
            (
                "agent",
                json!({"said": "tool", "id": "hush", "name": "hush", "state": "done", "input": {"how": "hush", "n": 7}}),
                json!({"said": "tool"}),
            ),
            (
                "agent",
                json!({"said": "turn-ended", "how": "done", "text": "hush"}),
                json!({"said": "turn-ended", "how": "done"}),
            ),
            (
                "agent",
                json!({"said": "usage", "turns": 2, "how": ["hush"]}),
                json!({"said": "usage", "turns": 2, "how": null}),
            ),
        ]
    }

    /// The same of everything else.
    fn happened() -> Vec<(&'static str, Value, Value)> {
        vec![
            (
                "note",
                json!({"text": "hush", "rule": "hush", "why": "hush", "snapshot": 3}),
                json!({"snapshot": 3}),
            ),
            (
                "question",
                json!({"id": "p_1", "hash": "h", "text": "hush", "about": {"host": "hush"}}),
                json!({"id": "p_1", "hash": "h"}),
            ),
            (
                "permit",
                json!({"id": "p_1", "used": "hush", "verdict": "allowed", "by": "person", "rule": "hush"}),
                json!({"id": "p_1", "verdict": "allowed", "by": "person"}),
            ),
            (
                "state",
                json!({"state": "needs-input", "reason": "p_1 hush"}),
                json!({"state": "needs-input"}),
            ),
            (
                "state",
                json!({"state": "failed", "reason": "timeout"}),
                json!({"state": "failed", "reason": "timeout"}),
            ),
            (
                "denied",
                json!({"id": "d", "kind": "exec", "target": "hush", "comm": "hush"}),
                json!({"id": "d", "kind": "exec"}),
            ),
            (
                "net",
                json!({"verdict": "denied", "host": "hush", "path": "hush", "reason": "hush"}),
                json!({"verdict": "denied"}),
            ),
            (
                "exec",
                json!({"id": 1, "state": "requested", "argv": ["hush"]}),
                json!({"id": 1, "state": "requested"}),
            ),
            (
                "grant",
                json!({"path": "hush", "access": "read-only", "way": "mount"}),
                json!({"access": "read-only", "way": "mount"}),
            ),
            (
                "covered",
                json!({"paths": ["hush"], "count": 1}),
                json!({"count": 1}),
            ),
            (
                "ended",
                json!({"code": 1, "fault": {"why": "hush"}, "usage": {"cpu_ms": 4}, "net": {"hosts": ["hush"], "tokens": 9, "x": "hush"}, "limits": ["hush"]}),
                json!({"code": 1, "usage": {"cpu_ms": 4}, "net": {"tokens": 9}}),
            ),
            ("of-a-newer-version", json!({"text": "hush"}), json!({})),
            ("of-a-newer-version", json!("hush"), Value::Null),
        ]
    }

    #[test]
    fn no_text_of_an_agent_a_prompt_or_a_policy_is_told_outside() {
        for (kind, data, left) in spoken().into_iter().chain(happened()) {
            let told = told(kind, data.clone());
            assert_eq!(told, left, "{kind}: {data}");
            assert!(!told.to_string().contains("hush"), "{kind}: {told}");
        }
    }
}
