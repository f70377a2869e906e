//! The nine addresses of the original interface, in its own simple words. Each is one of ours behind another name.
use super::policies::{blocked_list, merged};
use super::runs::{stop_which, told};
use super::spawn::start;
use super::{Body, Params, PathOf, Route};
use crate::app::App;
use crate::dto::{ActedList, Nothing, PolicySource, RunForm, plain};
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use crate::routes::meta::Anything;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bastle_contract::runs::{RunState, Tags};
use bastle_control::fleet::{RunQuery, RunRecord, RunRequest, SpawnRequest, StopHow, Verb, Which};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/api/v1/agents/spawn",
            Need::Within(Verb::Spawn),
            "Start agents",
            spawn,
        )
        .takes::<SpawnAgents>()
        .gives::<SpawnedAgents>()
        .status(201),
        Route::get(
            "/api/v1/agents/active",
            Need::Within(Verb::Read),
            "Agents that live or wait",
            active,
        )
        .params::<Nothing>()
        .gives::<Agents>(),
        Route::get(
            "/api/v1/agents/blocked-commands",
            Need::Within(Verb::Read),
            "What is stopped",
            blocked,
        )
        .params::<Nothing>()
        .gives::<Anything>(),
        Route::get(
            "/api/v1/agents/containment-status",
            Need::Within(Verb::Read),
            "What holds agents",
            containment,
        )
        .params::<Nothing>()
        .gives::<Containment>(),
        Route::get(
            "/api/v1/agents/status",
            Need::Within(Verb::Read),
            "Whether agents can be started",
            status,
        )
        .params::<Nothing>()
        .gives::<AgentStatus>(),
        Route::get(
            "/api/v1/agents/ws-url",
            Need::Within(Verb::Read),
            "Where events are told",
            ws_url,
        )
        .params::<Nothing>()
        .gives::<WsUrl>(),
        Route::post(
            "/api/v1/agents/stop-all",
            Need::Within(Verb::Control),
            "End all agents",
            stop_all,
        )
        .takes::<Nothing>()
        .gives::<ActedList>(),
        Route::get("/api/v1/agents/{id}", Need::OnRun(Verb::Read), "One agent", one)
            .params::<Nothing>()
            .gives::<RunForm>(),
        Route::post(
            "/api/v1/agents/{id}/stop",
            Need::OnRun(Verb::Control),
            "End one agent",
            stop,
        )
        .takes::<Nothing>()
        .gives::<ActedList>(),
    ]
}

/// Agents that are asked for: one per prompt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SpawnAgents {
    /// What they are asked; one agent each.
    #[schema(min_items = 1, max_items = 1000)]
    prompts: Vec<String>,
    /// The project: an absolute path.
    #[schema(pattern = "^/")]
    workspace: String,
    /// What is executed; or the profile says it.
    #[serde(default)]
    command: Vec<String>,
    /// The profile.
    #[serde(default)]
    profile: Option<String>,
    /// `copy`, `overlay`, `worktree`, `in-place`; default `copy`: agents that work side by side do not meet.
    #[serde(default)]
    mode: Option<String>,
    /// Places each may write, absolute.
    #[serde(default)]
    scope: Vec<String>,
    /// How many at once.
    #[serde(default)]
    concurrency: Option<u32>,
    /// Longest life of each, in seconds.
    #[serde(default)]
    timeout_seconds: Option<u64>,
    /// Most turns of each.
    #[serde(default)]
    max_turns: Option<u64>,
    /// Sent again under the same key, the same request gets the first answer.
    #[serde(default)]
    idempotency_key: Option<String>,
    /// Labels.
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

/// Agents that were started.
#[derive(Serialize, ToSchema)]
struct SpawnedAgents {
    /// Id of the batch.
    #[serde(rename = "batchId")]
    batch_id: String,
    /// Their names.
    agents: Vec<String>,
}

/// Agents.
#[derive(Serialize, ToSchema)]
struct Agents {
    /// The agents.
    agents: Vec<RunForm>,
    /// How many.
    count: usize,
}

/// What holds agents.
#[derive(Serialize, ToSchema)]
struct Containment {
    /// The fence that every run is started in; a run that cannot have it is not started.
    provider: &'static str,
    /// Whether the kernel enforces it.
    enforced: bool,
    /// Its layers.
    layers: Vec<&'static str>,
}

/// Whether agents can be started.
#[derive(Serialize, ToSchema)]
struct AgentStatus {
    /// Whether the store takes writes.
    connected: bool,
    /// Agents that live.
    active: u64,
    /// Agents that wait.
    queued: u64,
    /// Most that live at once.
    #[serde(rename = "maxParallel")]
    max_parallel: u32,
}

/// Where events are told.
#[derive(Serialize, ToSchema)]
struct WsUrl {
    /// A WebSocket.
    url: String,
}

async fn spawn(
    State(app): State<App>,
    Who(caller, _): Who,
    Body(asked): Body<SpawnAgents>,
) -> Result<(StatusCode, Json<SpawnedAgents>), Refusal> {
    if asked.prompts.is_empty() {
        return Err(Refusal::bad("field prompts: at least one"));
    }
    let tags = Tags::try_from(asked.tags).map_err(|error| Refusal::bad(format!("field tags: {error}")))?;
    let one = RunRequest {
        argv: asked.command,
        profile: asked.profile,
        workspace: asked.workspace,
        mode: Some(asked.mode.unwrap_or_else(|| "copy".to_owned())),
        scopes: asked.scope,
        timeout: asked.timeout_seconds.map(|seconds| format!("{seconds}s")),
        max_turns: asked.max_turns,
        ..RunRequest::default()
    };
    let runs = asked.prompts.into_iter().map(|prompt| RunRequest {
        prompt: Some(prompt),
        ..one.clone()
    });
    let request = SpawnRequest {
        key: asked.idempotency_key,
        prefix: Some("agent".to_owned()),
        runs: runs.collect(),
        max_parallel: asked.concurrency,
        tags,
        ..SpawnRequest::default()
    };
    let report = start(&app, caller, request).await?;
    let made = SpawnedAgents {
        batch_id: report.batch,
        agents: report
            .runs
            .into_iter()
            .filter_map(|run| run.name.map(String::from))
            .collect(),
    };
    Ok((StatusCode::CREATED, Json(made)))
}

async fn active(
    State(app): State<App>,
    Who(caller, _): Who,
    Params(_): Params<Nothing>,
) -> Result<Json<Agents>, Refusal> {
    let query = RunQuery {
        states: RunState::ALL
            .into_iter()
            .filter(|state| !state.is_final())
            .collect(),
        prefix: caller.prefix.clone(),
        limit: 1000,
        ..RunQuery::default()
    };
    let page = app.ask(move |fleet| fleet.runs(&query)).await?;
    let told = told(&caller);
    let theirs = |run: &RunRecord| caller.may_on(Verb::Read, &run.name);
    let agents: Vec<RunForm> = page
        .items
        .into_iter()
        .filter(theirs)
        .map(|run| RunForm::of(run, told))
        .collect();
    let count = agents.len();
    Ok(Json(Agents { agents, count }))
}

async fn one(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<RunForm>, Refusal> {
    let run = app.run(&caller, Verb::Read, &id).await?;
    Ok(Json(RunForm::of(run, told(&caller))))
}

const USUAL: StopHow = StopHow::Stop {
    grace: Duration::from_secs(10),
};

async fn stop(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(_): Body<Nothing>,
) -> Result<Json<ActedList>, Refusal> {
    let name = app.named(&caller, Verb::Control, &id).await?;
    stop_which(&app, caller, Which::Name(name.into()), USUAL).await
}

async fn stop_all(
    State(app): State<App>,
    Who(caller, _): Who,
    Body(_): Body<Nothing>,
) -> Result<Json<ActedList>, Refusal> {
    let which = match &caller.prefix {
        Some(prefix) => Which::Prefix(prefix.clone()),
        None => Which::All,
    };
    stop_which(&app, caller, which, USUAL).await
}

async fn blocked(State(app): State<App>, Params(_): Params<Nothing>) -> Result<Json<Anything>, Refusal> {
    let source = PolicySource::default();
    let value = app
        .ask(move |_| merged(&source).map(|effective| blocked_list(&effective)))
        .await?;
    Ok(Json(Anything(match value {
        Value::Object(members) => members,
        other => Map::from_iter([("result".to_owned(), json!(plain(&other.to_string())))]),
    })))
}

async fn containment(Params(_): Params<Nothing>) -> Json<Containment> {
    Json(Containment {
        provider: "native",
        enforced: true,
        layers: vec![
            "user, mount, PID, network, IPC and UTS namespaces",
            "constructed root",
            "Landlock",
            "seccomp",
            "no capabilities",
            "egress by policy only",
        ],
    })
}

async fn status(State(app): State<App>, Params(_): Params<Nothing>) -> Result<Json<AgentStatus>, Refusal> {
    let health = app.ask(|fleet| Ok::<_, Refusal>(fleet.health())).await?;
    Ok(Json(AgentStatus {
        connected: health.store,
        active: health.living,
        queued: health.queued,
        max_parallel: health.max_parallel,
    }))
}

async fn ws_url(State(app): State<App>, Params(_): Params<Nothing>) -> Json<WsUrl> {
    Json(WsUrl {
        url: app.ws_url.clone(),
    })
}
