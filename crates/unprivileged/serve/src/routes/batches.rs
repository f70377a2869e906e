//! Batches.
use super::runs::{limit, stop_which};
use super::{Body, Params, PathOf, Route};
use crate::app::App;
use crate::dto::{ActedList, BatchForm, BatchesForm, Nothing, Stopping, Which1};
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use axum::Json;
use axum::extract::State;
use bastle_control::fleet::{StopHow, Verb, Which};
use std::time::Duration;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/batches", Need::OnAll(Verb::Read), "List batches", list)
            .params::<Which1>()
            .gives::<BatchesForm>(),
        Route::get("/api/v1/batches/{id}", Need::OnAll(Verb::Read), "One batch", one)
            .params::<Nothing>()
            .gives::<BatchForm>(),
        Route::post(
            "/api/v1/batches/{id}/stop",
            Need::OnAll(Verb::Control),
            "End the runs of a batch",
            stop,
        )
        .takes::<Stopping>()
        .gives::<ActedList>(),
    ]
}

async fn list(State(app): State<App>, Params(asked): Params<Which1>) -> Result<Json<BatchesForm>, Refusal> {
    if asked.state.is_some() || asked.run.is_some() {
        return Err(Refusal::bad("batches are listed by after and limit"));
    }
    let limit = limit(asked.limit)?;
    let page = app
        .ask(move |fleet| fleet.batches(asked.after.as_deref(), limit))
        .await?;
    Ok(Json(page.into()))
}

async fn one(
    State(app): State<App>,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<BatchForm>, Refusal> {
    let batch = app.ask(move |fleet| fleet.batch(&id)).await?;
    Ok(Json(batch.into()))
}

async fn stop(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(how): Body<Stopping>,
) -> Result<Json<ActedList>, Refusal> {
    let grace_ms = how.grace_ms.unwrap_or(10_000);
    if grace_ms > 3_600_000 {
        return Err(Refusal::bad("grace_ms: at most 3600000"));
    }
    let known = id.clone();
    app.ask(move |fleet| fleet.batch(&known)).await?;
    let how = StopHow::Stop {
        grace: Duration::from_millis(grace_ms),
    };
    stop_which(&app, caller, Which::Batch(id), how).await
}
