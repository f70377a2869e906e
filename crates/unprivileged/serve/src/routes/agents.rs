//! The nine addresses of the original interface, in its own simple words. Each is one of ours behind another name.
use super::policies::{BlockedOf, blocked_by};
use super::runs::{stop_which, told};
use super::spawn::start;
use super::{Body, Params, PathOf, Route};
use crate::app::App;
use crate::containment::ContainmentForm;
use crate::dto::{ActedList, Nothing, RunForm, StopAgents, answers};
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use crate::question_view;
use crate::routes::meta::Anything;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bastle_contract::Code;
use bastle_contract::runs::{RunState, Tags};
use bastle_control::containment::ContainmentVerdict;
use bastle_control::fleet::{RunQuery, RunRecord, RunRequest, SpawnRequest, StopHow, Verb, Via, Which};
use serde::{Deserialize, Serialize};
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
        .params::<BlockedOf>()
        .gives::<answers::BlockedCommands>(),
        Route::get(
            "/api/v1/agents/containment-status",
            Need::Within(Verb::Read),
            "What holds agents",
            containment,
        )
        .params::<Nothing>()
        .gives::<ContainmentForm>(),
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
            "End the agents that you started here",
            stop_all,
        )
        .takes::<StopAgents>()
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
    /// Places of the workspace that each may write, absolute; reading stays. All that the policy grants when empty.
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

/// Whether agents can be started.
#[derive(Serialize, ToSchema)]
struct AgentStatus {
    /// Whether agents can be started: the store takes writes, and the newest containment probe did not fail.
    connected: bool,
    /// Whether the store takes writes.
    store: bool,
    /// What the newest containment probe showed: `enforced`, `not-enforced` or `inconclusive`.
    containment: &'static str,
    /// When that probe ended.
    probed_at: String,
    /// How long ago that was, in milliseconds.
    age_ms: u64,
    /// Why agents cannot be started.
    problem: Option<String>,
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
    let prefix = caller.prefix.as_deref().map(|own| own.trim_end_matches('-'));
    let request = SpawnRequest {
        key: asked.idempotency_key,
        prefix: Some(prefix.filter(|own| !own.is_empty()).unwrap_or("agent").to_owned()),
        via: Via::Agents,
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
    let found: Vec<RunRecord> = page.items.into_iter().filter(theirs).collect();
    let found = question_view::runs(&app, &caller, found).await?;
    let agents: Vec<RunForm> = found.into_iter().map(|run| RunForm::of(run, told)).collect();
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
    let run = question_view::run(&app, &caller, run).await?;
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
    Body(asked): Body<StopAgents>,
) -> Result<Json<ActedList>, Refusal> {
    let which = match asked.scope.as_deref() {
        None | Some("own") => Which::Agents(Some(caller.id.clone())),
        Some("agents" | "all") if !caller.is_trusted() => {
            return Err(Refusal::new(
                Code::ApiForbidden,
                "this token does not allow that",
                "scope: for admins",
            )
            .help("leave scope out: what you started here is ended"));
        }
        Some("agents") => Which::Agents(None),
        Some("all") => Which::All,
        Some(_) => return Err(Refusal::bad("scope: own, agents or all")),
    };
    stop_which(&app, caller, which, USUAL).await
}

async fn blocked(State(app): State<App>, Params(of): Params<BlockedOf>) -> Result<Json<Anything>, Refusal> {
    blocked_by(&app, of).await
}

async fn containment(
    State(app): State<App>,
    Params(_): Params<Nothing>,
) -> Result<Json<ContainmentForm>, Refusal> {
    Ok(Json(app.contained().await?.into()))
}

async fn status(State(app): State<App>, Params(_): Params<Nothing>) -> Result<Json<AgentStatus>, Refusal> {
    let health = app.ask(|fleet| Ok::<_, Refusal>(fleet.health())).await?;
    let known = app.contained().await?;
    let verdict = known.verdict;
    let ContainmentForm {
        probed_at,
        age_ms,
        problem,
        ..
    } = known.into();
    Ok(Json(AgentStatus {
        connected: health.store && verdict != ContainmentVerdict::NotEnforced,
        store: health.store,
        containment: crate::containment::word(verdict),
        probed_at,
        age_ms,
        problem: problem.or_else(|| (!health.store).then(|| "the store takes no writes".to_owned())),
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
