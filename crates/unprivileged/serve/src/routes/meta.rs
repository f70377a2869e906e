//! The daemon itself: is it well, which version, what does it count, what does it serve.
use super::{Params, Route};
use crate::app::App;
use crate::dto::{Ceiling, HealthForm, Nothing, StatsForm};
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bastle_contract::Code;
use bastle_control::containment::ContainmentVerdict;
use bastle_control::fleet::Verb;
use serde::Serialize;
use std::sync::LazyLock;
use utoipa::ToSchema;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/healthz", Need::Nothing, "Whether the daemon answers", healthz).gives::<Status>(),
        Route::get(
            "/readyz",
            Need::Nothing,
            "Whether the daemon takes requests",
            readyz,
        )
        .gives::<Ready>(),
        Route::get(
            "/metrics",
            Need::OnAll(Verb::Read),
            "Numbers for Prometheus",
            metrics,
        )
        .bytes("text/plain"),
        Route::get("/api/v1/openapi.json", Need::Nothing, "This document", openapi).gives::<Anything>(),
        Route::get(
            "/api/v1/health",
            Need::OnAll(Verb::Read),
            "How the daemon is",
            health,
        )
        .params::<Nothing>()
        .gives::<HealthForm>(),
        Route::get(
            "/api/v1/ready",
            Need::Within(Verb::Read),
            "Whether the daemon takes requests",
            readyz,
        )
        .gives::<Ready>(),
        Route::get(
            "/api/v1/version",
            Need::Within(Verb::Read),
            "Which version it is",
            version,
        )
        .params::<Nothing>()
        .gives::<Version>(),
        Route::get(
            "/api/v1/whoami",
            Need::Within(Verb::Read),
            "Who the daemon thinks you are",
            whoami,
        )
        .params::<Nothing>()
        .gives::<Known>(),
        Route::get(
            "/api/v1/stats",
            Need::OnAll(Verb::Read),
            "Sums over all runs",
            stats,
        )
        .params::<Nothing>()
        .gives::<StatsForm>(),
    ]
}

/// A word.
#[derive(Serialize, ToSchema)]
pub(super) struct Status {
    /// `ok`.
    pub(super) status: &'static str,
}

/// Whether runs can be started.
#[derive(Serialize, ToSchema)]
struct Ready {
    /// `ok`.
    status: &'static str,
    /// What the newest containment probe showed: `enforced` or `inconclusive`.
    containment: &'static str,
    /// When that probe ended.
    probed_at: String,
    /// How long ago that was, in milliseconds.
    age_ms: u64,
}

/// A JSON object whose form another document has.
#[derive(Serialize, ToSchema)]
#[serde(transparent)]
pub(crate) struct Anything(pub(crate) serde_json::Map<String, serde_json::Value>);

/// Versions.
#[derive(Serialize, ToSchema)]
struct Version {
    /// Of the program.
    version: &'static str,
    /// Of the interface.
    api: &'static str,
}

/// A caller.
#[derive(Serialize, ToSchema)]
struct Known {
    /// Who.
    id: String,
    /// `local-person`, `token-person` or `program`.
    kind: &'static str,
    /// What they may do.
    role: &'static str,
    /// The run whose own token this is.
    run: Option<String>,
    /// Only runs whose names begin so.
    prefix: Option<String>,
    /// The most that they may give to a run, defaults filled in; none for an admin, who is held to nothing.
    ceiling: Option<Ceiling>,
}

pub(super) const OK: Json<Status> = Json(Status { status: "ok" });

async fn healthz() -> Json<Status> {
    OK
}

async fn readyz(State(app): State<App>) -> Result<Json<Ready>, Refusal> {
    let health = app.ask(|fleet| Ok::<_, Refusal>(fleet.health())).await?;
    if !health.store || *app.closing.borrow() {
        return Err(Refusal::new(Code::ApiBusy, "the daemon takes no requests now", "").retry_after(5));
    }
    let known = app.contained().await?;
    if known.verdict == ContainmentVerdict::NotEnforced {
        let age = crate::containment::millis(known.age());
        return Err(Refusal::new(
            Code::ApiBusy,
            "no run can be started",
            format!("the containment probe failed {age} ms ago"),
        )
        .help("bastle doctor")
        .retry_after(5));
    }
    Ok(Json(Ready {
        status: "ok",
        containment: crate::containment::word(known.verdict),
        probed_at: crate::dto::time(known.probed_at_ms),
        age_ms: crate::containment::millis(known.age()),
    }))
}

async fn metrics(State(app): State<App>) -> Result<Response, Refusal> {
    let snapshot = app.ask(|fleet| fleet.metrics()).await?;
    let contained = match bastle_control::is_spawner_bound() {
        true => app.containment.latest(),
        false => Some(app.contained().await?),
    };
    let text = app
        .metrics
        .text(&snapshot, app.streams.count(), contained.as_ref());
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

async fn openapi() -> Response {
    // Made once: anybody may ask for it.
    static TEXT: LazyLock<String> = LazyLock::new(crate::openapi::text);
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::OK, kind, TEXT.as_str()).into_response()
}

async fn health(State(app): State<App>, Params(_): Params<Nothing>) -> Result<Json<HealthForm>, Refusal> {
    let health = app.ask(|fleet| Ok::<_, Refusal>(fleet.health())).await?;
    Ok(Json(health.into()))
}

async fn version(Params(_): Params<Nothing>) -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION"),
        api: "v1",
    })
}

async fn whoami(
    State(app): State<App>,
    Who(caller, _): Who,
    Params(_): Params<Nothing>,
) -> Result<Json<Known>, Refusal> {
    let asked = caller.clone();
    let ceiling = app.ask(move |fleet| fleet.ceiling_of(&asked)).await?;
    Ok(Json(Known {
        id: caller.id,
        kind: caller.kind.word(),
        role: caller.role.word(),
        run: caller.run.map(String::from),
        prefix: caller.prefix,
        ceiling: ceiling.map(Ceiling::from),
    }))
}

async fn stats(State(app): State<App>, Params(_): Params<Nothing>) -> Result<Json<StatsForm>, Refusal> {
    let stats = app.ask(|fleet| fleet.stats()).await?;
    Ok(Json(stats.into()))
}
