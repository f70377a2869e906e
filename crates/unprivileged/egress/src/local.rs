//! What egress itself tells the agent: what is allowed, and where to ask for more.
//!
//! **Trust:** reads the agent's request, bounded. Rules and reasons go to a person as untrusted text; nothing is
//! granted here. The answer names no secret and no file.
use crate::http1::{Answer, Head, RequestReader, Target};
use crate::limits::MAX_WANTED;
use crate::state::State;
use bastle_contract::egress::FromEgress;
use bytes::BytesMut;
use http::Method;
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncRead;

/// Longest rule, by the contract.
const MAX_RULE: usize = 1_024;
/// Longest reason, by the contract.
const MAX_WHY: usize = 4_096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    rule: String,
    why: String,
}

/// Answers a request to ourselves.
pub(crate) async fn answer<R: AsyncRead + Unpin>(
    state: &State,
    head: &Head,
    reader: &mut RequestReader<R>,
) -> Answer {
    let path = match &head.target {
        Target::Absolute { path, .. } | Target::Origin(path) => path.as_str(),
        Target::Asterisk | Target::Connect(_) => "",
    };
    match (&head.method, path) {
        (&Method::GET, "/v1/policy") => Answer::json(200, policy(state)),
        (&Method::POST, "/v1/requests") => wanted(state, reader).await,
        (_, "/v1/policy" | "/v1/requests") => problem(405, "this path has another method"),
        _ => problem(
            404,
            "GET /v1/policy tells what is allowed, POST /v1/requests asks for more",
        ),
    }
}

fn problem(status: u16, text: &str) -> Answer {
    Answer::json(status, json!({ "error": text }).to_string().into_bytes())
}

/// The rules as their own text, without where they stand: files of the host are no business of the agent.
fn policy(state: &State) -> Vec<u8> {
    let generation = state.generation();
    let policy = &generation.policy;
    let tiers: Vec<_> = policy
        .tiers
        .iter()
        .map(|tier| {
            let texts = |rules: &[bastle_policy::Sourced<bastle_policy::NetRule>]| -> Vec<String> {
                rules.iter().map(|rule| rule.value.to_string()).collect()
            };
            json!({
                "allow": tier.allow.as_ref().map(|rules| texts(rules)),
                "ask": texts(&tier.ask),
                "deny": texts(&tier.deny),
            })
        })
        .collect();
    let body = json!({
        "run": state.run,
        "mode": policy.mode.name(),
        "generation": generation.number,
        "rules": tiers,
        "note": "A request must be allowed by the first list and by every other list that says anything about it.",
        "ask": { "method": "POST", "path": "/v1/requests", "body": { "rule": "GET host/path/**", "why": "..." } },
    });
    body.to_string().into_bytes()
}

async fn wanted<R: AsyncRead + Unpin>(state: &State, reader: &mut RequestReader<R>) -> Answer {
    let mut body = BytesMut::new();
    loop {
        match reader.body().await {
            Ok(Some(piece)) if body.len() + piece.len() <= MAX_WANTED => body.extend_from_slice(&piece),
            Ok(Some(_)) => return problem(413, "the request is too large"),
            Ok(None) => break,
            Err(_) => return problem(400, "the body is malformed"),
        }
    }
    let Ok(Wanted { rule, why }) = serde_json::from_slice(&body) else {
        return problem(400, "the body must be {\"rule\": \"...\", \"why\": \"...\"}");
    };
    if rule.is_empty() || rule.len() > MAX_RULE || why.len() > MAX_WHY {
        return problem(400, "rule must have 1 to 1024 bytes, why at most 4096");
    }
    match state.recorder.tell(FromEgress::Wanted { rule, why }).await {
        Ok(()) => Answer::json(202, json!({ "status": "asked" }).to_string().into_bytes()),
        Err(lost) => problem(503, &lost.to_string()),
    }
}
