//! Cards: who the door is, for everybody; who a worker is, for whoever may see it; and what known callers are told besides.
use super::calls::{At, Call, VERSION};
use super::modes::GIVEN;
use super::send::hex;
use super::task::{APPROVAL, SPAWN};
use super::wrong::Wrong;
use crate::app::App;
use crate::errors::Refusal;
use crate::guard::Who;
use crate::routes::PathOf;
use aws_lc_rs::digest;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use bastle_contract::Code;
use bastle_control::fleet::{Fleet, Verb};
use serde_json::{Value, json};

/// How long a card may be kept, in seconds.
const LASTS: u32 = 300;

/// Where the daemon is reached, as the caller reached it. The guards know the host by now.
pub(super) fn base(app: &App, headers: &HeaderMap) -> String {
    if let Some(public) = &app.a2a.settings().public_url {
        return public.clone();
    }
    let scheme = if app.ws_url.starts_with("wss:") {
        "https"
    } else {
        "http"
    };
    // Over the local socket a caller names no address; the first one is told, where there is one.
    let first = app
        .ws_url
        .split_once("://")
        .and_then(|(_, rest)| rest.split('/').next());
    let first = first.filter(|first| !first.is_empty()).unwrap_or("localhost");
    let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = named.filter(|host| host.contains(['.', ':'])).unwrap_or(first);
    let plain = host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte));
    format!("{scheme}://{}", if plain { host } else { "localhost" })
}

/// The card of the door or of a worker.
fn card(app: &App, base: &str, at: &At) -> Value {
    let (name, description, path) = match at {
        At::Door => (
            "bastle".to_owned(),
            "Starts AI coding agents inside a fence that the kernel enforces: a message becomes a task"
                .to_owned(),
            "/a2a".to_owned(),
        ),
        At::Worker(run) => (
            run.as_str().to_owned(),
            "An AI coding agent inside a fence that the kernel enforces".to_owned(),
            format!("/a2a/workers/{run}"),
        ),
    };
    let url = format!("{base}{path}");
    let spawn = json!({
        "uri": SPAWN,
        "description": "Under this name in the metadata of a message: profile, workspace, mode and limits of the worker",
    });
    let approval = json!({
        "uri": APPROVAL,
        "description": "A question is a data part {approval, hash}; its answer is one {approval, verdict, hash}",
    });
    let (skill, extensions) = match at {
        At::Door => (
            json!({ "id": "code", "name": "Work on a project", "tags": ["code", "sandbox"],
                "description": "Has a fenced agent do what the message says, on a copy of a project" }),
            json!([spawn, approval]),
        ),
        At::Worker(_) => (
            json!({ "id": "steer", "name": "Steer this worker", "tags": ["code", "sandbox"],
                "description": "Says something to the agent while it works, or answers its question" }),
            json!([approval]),
        ),
    };
    // Nothing here stands at a default that readers leave out: they could not verify the signature.
    json!({
        "name": name, "description": description, "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [
            { "url": format!("{url}/jsonrpc"), "protocolBinding": "JSONRPC", "protocolVersion": VERSION },
            { "url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": VERSION },
        ],
        "capabilities": {
            "streaming": true, "pushNotifications": !app.a2a.settings().push_targets.is_empty(),
            "extendedAgentCard": true, "extensions": extensions,
        },
        "securitySchemes": { "bearer": { "httpAuthSecurityScheme": { "scheme": "Bearer", "bearerFormat": "opaque" } } },
        "securityRequirements": [{ "schemes": { "bearer": { "list": ["viewer"] } } }],
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": GIVEN,
        "skills": [skill],
    })
}

/// The door's, for everybody.
pub(super) async fn door(State(app): State<App>, headers: HeaderMap) -> Result<Response<Body>, Refusal> {
    let base = base(&app, &headers);
    let card = app.a2a.signer.signed(card(&app, &base, &At::Door), &base);
    answer(&app, &headers, &card, "public")
}

/// A worker's. That it exists is told only to whoever may see it.
pub(super) async fn worker(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let run = app.named(&caller, Verb::Read, &id).await?;
    let base = base(&app, &headers);
    let card = app.a2a.signer.signed(card(&app, &base, &At::Worker(run)), &base);
    answer(&app, &headers, &card, "private")
}

/// What their signatures are verified with, for everybody.
pub(super) async fn keys(State(app): State<App>, headers: HeaderMap) -> Result<Response<Body>, Refusal> {
    answer(&app, &headers, &app.a2a.signer.keys(), "public")
}

fn answer(app: &App, headers: &HeaderMap, card: &Value, whose: &str) -> Result<Response<Body>, Refusal> {
    let text = card.to_string();
    let tag = format!(
        "\"{}\"",
        &hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())[..32]
    );
    let known = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let same = known
        .flat_map(|value| value.split(','))
        .any(|one| matches!(one.trim().trim_start_matches("W/"), one if one == tag || one == "*"));
    let (status, body) = match same {
        true => (StatusCode::NOT_MODIFIED, Body::empty()),
        false => (StatusCode::OK, Body::from(text)),
    };
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CACHE_CONTROL, format!("{whose}, max-age={LASTS}"))
        .header(header::ETAG, tag)
        .header(header::VARY, "Host, Authorization")
        .header(header::LAST_MODIFIED, date(app.fleet.health().since_ms))
        .body(body)
        .map_err(|error| {
            Refusal::new(
                Code::ApiInternal,
                "the answer cannot be written",
                error.to_string(),
            )
        })
}

/// A time as HTTP writes it.
fn date(ms: u64) -> String {
    let time = i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map_or_else(String::new, |time| {
        time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
    })
}

/// With one skill for every profile, for known callers.
pub(super) async fn extended(call: &Call) -> Result<Value, Wrong> {
    let mut card = card(&call.app, &call.base, &call.at);
    if call.at == At::Door && call.who.0.may(Verb::Spawn) {
        let profiles = call.ask(Fleet::profiles).await?;
        let skills = profiles.iter().map(|profile| {
            json!({
                "id": format!("profile:{}", profile.name), "name": profile.name, "tags": ["profile"],
                "description": format!("A worker of the profile {}", profile.name),
                "examples": [json!({ SPAWN: { "profile": profile.name } }).to_string()],
            })
        });
        if let Some(all) = card["skills"].as_array_mut() {
            all.extend(skills);
        }
    }
    Ok(call.app.a2a.signer.signed(card, &call.base))
}
