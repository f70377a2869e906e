//! The policy document of a run: what its profile says, what the request says, time and turns.
use super::planning::{Known, bad};
use super::{DEFAULT_TIMEOUT, RunRequest};
use bastle_contract::Fault;
use bastle_contract::runs::{LaunchSpec, Tags};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What the policy of a request counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inline {
    /// As the operator's own word: an admin's.
    Trusted,
    /// It only narrows, and travels apart from the document.
    Narrows,
}

/// The document that counts as the operator's word. A child has its parent's.
pub(super) fn policy(
    known: &Known,
    run: &RunRequest,
    parent: Option<&LaunchSpec>,
    inline: Inline,
) -> Result<Value, Fault> {
    let unreadable = |why: String| bad("unusable policy", why);
    let profile = &known.profile;
    let own = run.policy.clone().unwrap_or_else(|| json!({}));
    if !own.is_object() {
        return Err(unreadable("it is no object".to_owned()));
    }
    let mut whole = if parent.is_some() {
        own
    } else {
        let mut base = known.document.clone();
        match inline {
            Inline::Trusted => overlay(&mut base, own),
            Inline::Narrows => {}
        }
        base
    };
    let named = |section: &str, key: &str| {
        run.policy
            .as_ref()
            .and_then(|policy| policy.get(section)?.get(key).cloned())
    };
    let turns = match run.max_turns {
        Some(turns) if !(1..=1000).contains(&turns) => {
            return Err(bad(format!("{turns} turns"), "between 1 and 1000"));
        }
        Some(turns) => Some(json!(turns)),
        None => named("budget", "turns").or_else(|| Some(json!(profile.max_turns))),
    };
    let timeout = run
        .timeout
        .clone()
        .map(Value::String)
        .or_else(|| named("limits", "timeout"));
    let timeout = timeout.unwrap_or_else(|| match profile.timeout_ms {
        0 => json!(DEFAULT_TIMEOUT),
        ms => json!(format!("{ms}ms")),
    });
    set(&mut whole, "limits", "timeout", timeout);
    if let Some(turns) = turns {
        set(&mut whole, "budget", "turns", turns);
    }
    Ok(whole)
}

/// The policy of a request with the time and the turns that it asks for beside it; `None` when it asks for nothing.
pub(super) fn narrowing(run: &RunRequest) -> Option<Value> {
    let mut whole = run.policy.clone();
    if let Some(timeout) = &run.timeout {
        set(blank(&mut whole), "limits", "timeout", json!(timeout));
    }
    if let Some(turns) = run.max_turns {
        set(blank(&mut whole), "budget", "turns", json!(turns));
    }
    whole
}

fn blank(whole: &mut Option<Value>) -> &mut Value {
    whole.get_or_insert_with(|| json!({ "version": 1 }))
}

fn set(whole: &mut Value, section: &str, key: &str, value: Value) {
    if let Some(root) = whole.as_object_mut()
        && let Some(section) = root
            .entry(section.to_owned())
            .or_insert_with(|| Value::Object(Map::new()))
            .as_object_mut()
    {
        section.insert(key.to_owned(), value);
    }
}

/// Objects are united, lists are joined, anything else is replaced.
fn overlay(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                match base.get_mut(&key) {
                    Some(slot) => overlay(slot, value),
                    None => {
                        base.insert(key, value);
                    }
                }
            }
        }
        (Value::Array(base), Value::Array(over)) => {
            for value in over {
                if !base.contains(&value) {
                    base.push(value);
                }
            }
        }
        (base, over) => *base = over,
    }
}

pub(super) fn tags(all: &Tags, own: &Tags) -> Result<Tags, Fault> {
    let mut map: BTreeMap<String, String> = all.as_map().clone();
    map.extend(
        own.as_map()
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    Tags::try_from(map).map_err(|error| bad("unusable labels", error.to_string()))
}
