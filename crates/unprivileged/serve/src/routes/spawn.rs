//! Starting runs: one, or many together.
use super::{Body, Route};
use crate::app::App;
use crate::dto::{BatchReportForm, SpawnOne, Spawning, plain};
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use crate::json;
use crate::routes::runs::told;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use bastle_contract::TraceParent;
use bastle_control::fleet::{BatchReport, Caller, RunRequest, SpawnRequest, Verb};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/api/v1/runs",
            Need::Within(Verb::Spawn),
            "Start one or many runs",
            spawn,
        )
        .takes::<OneOrMany>()
        .gives::<BatchReportForm>()
        .status(201),
        Route::post(
            "/api/v1/preamble",
            Need::Within(Verb::Spawn),
            "What would be put before the prompt of such a run",
            preamble,
        )
        .takes::<SpawnOne>()
        .gives::<Preamble>(),
    ]
}

/// One run, or many together.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "the form of the document; the fleet's own types read the body"
)]
enum OneOrMany {
    Many(Spawning),
    One(Box<SpawnOne>),
}

/// What the server puts before a prompt.
#[derive(Serialize, ToSchema)]
pub(super) struct Preamble {
    /// The text; clients cannot change it.
    pub(super) preamble: Option<String>,
}

async fn spawn(
    State(app): State<App>,
    Who(caller, _): Who,
    headers: HeaderMap,
    Body(value): Body<Value>,
) -> Result<(StatusCode, Json<BatchReportForm>), Refusal> {
    let mut request = read(value)?;
    if let Some(key) = key(&headers)? {
        match &request.key {
            Some(own) if *own != key => return Err(Refusal::bad("the header and the body name two keys")),
            Some(_) | None => request.key = Some(key),
        }
    }
    request.trace = trace(&headers);
    let told = told(&caller);
    let report = start(&app, caller, request).await?;
    let status = if report.repeated {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok((status, Json(BatchReportForm::of(report, told))))
}

/// Starts runs in the caller's name.
pub(crate) async fn start(app: &App, caller: Caller, request: SpawnRequest) -> Result<BatchReport, Refusal> {
    app.ask(move |fleet| fleet.spawn(&caller, request)).await
}

fn read(value: Value) -> Result<SpawnRequest, Refusal> {
    super::extract::object(&value)?;
    let wrong = |wrong: json::Wrong| Refusal::bad(wrong.to_string());
    if value.get("runs").is_some() {
        return json::read(value).map_err(wrong);
    }
    let run: RunRequest = json::read(value).map_err(wrong)?;
    Ok(SpawnRequest {
        runs: vec![run],
        ..SpawnRequest::default()
    })
}

/// The key under which the same request gets the same answer.
fn key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    value
        .to_str()
        .map(|key| Some(key.trim().trim_matches('"').to_owned()))
        .map_err(|_| {
            Refusal::bad(format!(
                "the key {} cannot be read",
                plain(&String::from_utf8_lossy(value.as_bytes()))
            ))
        })
}

/// The trace of the request. One that cannot be read is no reason to refuse: the run begins one of its own.
fn trace(headers: &HeaderMap) -> Option<TraceParent> {
    let mut all = headers.get_all("traceparent").iter();
    match (all.next(), all.next()) {
        (Some(one), None) => one.to_str().ok().and_then(|text| TraceParent::parse(text).ok()),
        (None, _) | (_, Some(_)) => None,
    }
}

async fn preamble(
    State(app): State<App>,
    Who(caller, _): Who,
    Body(value): Body<Value>,
) -> Result<Json<Preamble>, Refusal> {
    super::extract::object(&value)?;
    let request: RunRequest = json::read(value).map_err(|wrong| Refusal::bad(wrong.to_string()))?;
    let text = app.ask(move |fleet| fleet.preamble(&caller, &request)).await?;
    Ok(Json(Preamble { preamble: Some(text) }))
}

/// A request that was taken is kept and read again as the same one.
pub(super) fn fuzz(body: &[u8]) {
    let request = json::parse::<Value>(body).ok().and_then(|value| read(value).ok());
    if let Some(request) = request {
        let kept = serde_json::to_vec(&request).unwrap_or_default();
        let again = json::parse::<SpawnRequest>(&kept);
        assert!(again.is_ok_and(|again| again == request), "reads back");
    }
}
