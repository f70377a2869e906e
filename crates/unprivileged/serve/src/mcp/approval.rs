//! Saying yes to a worker's question: where the client can ask a person, the person sees the exact request and decides.
//!
//! **Trust:** the question is text of the agent. The answer names the hash of what was shown, so that nothing else is
//! approved; whether the caller may answer at all is the operation's to say.
use super::content::{clean, failed, refused, result};
use super::door::{Asker, Door, Rest};
use bastle_mcp::{Call, Era, Outcome, RpcError, done};
use serde_json::{Map, Value, json};

/// What the person is asked, by name.
const QUESTION: &str = "decision";

pub(super) async fn approve(
    door: &Door,
    rest: Rest,
    arguments: &Map<String, Value>,
    call: &Call<Asker>,
) -> Result<Outcome, RpcError> {
    if !asks_people(call) {
        return Ok(carried(door, rest, call).await);
    }
    let number = arguments["approval"].as_u64().unwrap_or(0);
    let Some(answer) = call.inputs.get(QUESTION) else {
        return ask(door, number, arguments, call).await;
    };
    // Only an answer to what was shown counts: the state holds the hash of it, and nobody else can have made it.
    let shown = call.state.as_ref().map(|state| &state["hash"]);
    if shown != arguments.get("hash") {
        return ask(door, number, arguments, call).await;
    }
    match (answer["action"].as_str(), &answer["content"]["approve"]) {
        (Some("accept"), Value::Bool(true)) => Ok(carried(door, rest, call).await),
        (Some("accept"), Value::Bool(false)) => {
            let path = format!("/api/v1/approvals/{number}/deny");
            let body = rest.body.unwrap_or_else(|| json!({}));
            Ok(carried(door, Rest::post(path, body), call).await)
        }
        (Some("accept"), _) => ask(door, number, arguments, call).await,
        (_, _) => Ok(done(failed(
            "the person who was asked did not decide; the question is still open",
        ))),
    }
}

/// Whether the client can show somebody a form: one that says nothing more precise can.
fn asks_people(call: &Call<Asker>) -> bool {
    let said = call.capabilities.get("elicitation").and_then(Value::as_object);
    said.is_some_and(|kinds| kinds.is_empty() || kinds.contains_key("form"))
}

async fn carried(door: &Door, rest: Rest, call: &Call<Asker>) -> Outcome {
    done(match door.ask(&call.caller, rest).await {
        Ok(value) => result(value),
        Err(faults) => refused(&faults),
    })
}

async fn ask(
    door: &Door,
    number: u64,
    arguments: &Map<String, Value>,
    call: &Call<Asker>,
) -> Result<Outcome, RpcError> {
    let found = match door
        .ask(&call.caller, Rest::get(format!("/api/v1/approvals/{number}")))
        .await
    {
        Ok(found) => found,
        Err(faults) => return Ok(done(refused(&faults))),
    };
    if Some(&found["hash"]) != arguments.get("hash") {
        return Ok(done(failed(
            "hash: the question is about another request; look at list_approvals again",
        )));
    }
    let word = |name: &str| -> String {
        let text = clean(found[name].as_str().unwrap_or_default());
        text.chars().take(2000).collect()
    };
    let message = format!(
        "Worker {} asks ({}):\n\n{}\n\nThe text is the worker's own. Allow exactly this?",
        word("run"),
        word("about"),
        word("text"),
    );
    let mut form = json!({
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": {
                "approve": { "type": "boolean", "title": "Allow", "description": "Yes allows it, no denies it" },
            },
            "required": ["approve"],
        },
    });
    // The oldest revision has forms only, and no word for it.
    if call.era != Era::Legacy("2025-06-18") {
        form["mode"] = "form".into();
    }
    let wish = json!({ "method": "elicitation/create", "params": form });
    Ok(Outcome::Ask {
        requests: Map::from_iter([(QUESTION.to_owned(), wish)]),
        state: Some(json!({ "hash": found["hash"] })),
    })
}
