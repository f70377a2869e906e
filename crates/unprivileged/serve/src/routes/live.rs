//! Words to a living run: what it does, paths it is granted, rules for what it reaches.
use super::meta::Anything;
use super::{Body, Params, PathOf, Route};
use crate::app::App;
use crate::dto::{Granting, Nothing, Ruling, Saying, answers};
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use crate::question_view;
use axum::Json;
use axum::extract::State;
use bastle_contract::grants::GrantWay;
use bastle_contract::{AbsPath, Access, Code, Fault};
use bastle_control::fleet::{Caller, Verb};
use bastle_control::live::{Command, Scope, ask};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::IntoParams;

const GRANTS: &str = "/api/v1/runs/{id}/grants";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/runs/{id}/status",
            Need::OnRun(Verb::Read),
            "What a living run does",
            status,
        )
        .params::<Nothing>()
        .gives::<answers::RunStatus>(),
        Route::get(
            GRANTS,
            Need::OnRun(Verb::Read),
            "Paths that a living run was granted",
            grants,
        )
        .params::<Nothing>()
        .gives::<answers::LiveGrants>(),
        // To show a run a path of the host is to widen its fence: as much as answering its questions.
        Route::post(
            GRANTS,
            Need::OnRun(Verb::Answer),
            "Grant a living run a path",
            grant,
        )
        .takes::<Granting>()
        .gives::<answers::GrantMade>(),
        Route::delete(
            GRANTS,
            Need::OnRun(Verb::Answer),
            "Take a granted path back",
            withdraw,
        )
        .params::<Granted>()
        .gives::<answers::GrantRevoked>(),
        Route::post(
            "/api/v1/runs/{id}/rules",
            Need::OnRun(Verb::Answer),
            "Allow or deny a living run a host, or take that back",
            rule,
        )
        .takes::<Ruling>()
        .gives::<answers::RuleChanged>(),
        Route::post(
            "/api/v1/runs/{id}/say",
            Need::OnRun(Verb::Control),
            "Ask a driven agent something, or say something to it while it works",
            speak,
        )
        .takes::<Saying>()
        .gives::<answers::MessageTaken>(),
        Route::post(
            "/api/v1/runs/{id}/interrupt",
            Need::OnRun(Verb::Control),
            "Have a driven agent stop what it does; the run goes on",
            interrupt,
        )
        .takes::<Nothing>()
        .gives::<answers::MessageTaken>(),
    ]
}

/// A path that was granted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Granted {
    /// Absolute.
    path: String,
}

/// Says something to the run and gives its answer, which is always an object here.
pub(crate) async fn say(
    app: &App,
    caller: &Caller,
    verb: Verb,
    id: &str,
    command: Command,
) -> Result<Json<Anything>, Refusal> {
    let name = if enters(&command) {
        app.entered(caller, verb, id).await?
    } else {
        app.named(caller, verb, id).await?
    };
    if widens(&command) {
        let (caller, name) = (caller.clone(), name.clone());
        app.ask(move |fleet| fleet.may_approve(&caller, &name)).await?;
    }
    let state = app.state.clone();
    let answer = app
        .ask(move |_| ask(&state, &name, &command).map_err(not_living))
        .await?;
    Ok(Json(Anything(match answer {
        Value::Object(members) => members,
        Value::Null => Map::new(),
        other => Map::from_iter([("result".to_owned(), other)]),
    })))
}

/// Whether a command gives the run more than its policy does, as a yes to a question would.
fn widens(command: &Command) -> bool {
    matches!(
        command,
        // What is taken back may be a refusal.
        Command::Allow { .. } | Command::Grant { .. } | Command::Revoke { .. }
    )
}

/// Whether a command acts inside the run. To take something from it, or to make it stop, is not that.
fn enters(command: &Command) -> bool {
    match command {
        Command::Allow { .. }
        | Command::Grant { .. }
        | Command::Revoke { .. }
        | Command::Say { .. }
        | Command::Attach { .. }
        | Command::Exec { .. }
        | Command::Dial { .. }
        | Command::Reload {} => true,
        Command::Deny { .. }
        | Command::RevokeSecret { .. }
        | Command::Withdraw { .. }
        | Command::Status {}
        | Command::Watch { .. }
        | Command::Finish {}
        | Command::Stop { .. }
        | Command::Kill {}
        | Command::Interrupt {}
        | Command::Pause {}
        | Command::Resume { .. } => false,
    }
}

/// A run that does not live is there all the same: it is only in no state to be spoken to.
fn not_living(faults: Vec<Fault>) -> Refusal {
    match faults.first() {
        Some(fault) if fault.code == Code::AuditMissing => {
            Refusal::new(Code::ApiConflict, fault.what.clone(), fault.why.clone())
        }
        Some(_) | None => faults.into(),
    }
}

async fn status(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<Anything>, Refusal> {
    let Json(Anything(mut told)) = say(&app, &caller, Verb::Read, &id, Command::Status {}).await?;
    // The command line may hold the prompt.
    if app.entered(&caller, Verb::Read, &id).await.is_err() {
        told.remove("argv");
    }
    let name = app.named(&caller, Verb::Read, &id).await?;
    let may = app.ask(move |fleet| Ok::<_, Refusal>(fleet.may_read_questions(&caller, &name)));
    if !may.await? {
        question_view::status(&mut told);
    }
    Ok(Json(Anything(told)))
}

async fn grants(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<Anything>, Refusal> {
    let Json(Anything(mut status)) = say(&app, &caller, Verb::Read, &id, Command::Status {}).await?;
    let items = status.remove("grants").unwrap_or(Value::Array(Vec::new()));
    Ok(Json(Anything(Map::from_iter([("items".to_owned(), items)]))))
}

fn path(text: String) -> Result<AbsPath, Refusal> {
    AbsPath::try_from(text).map_err(|error| Refusal::bad(format!("path: {error}")))
}

async fn grant(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(wish): Body<Granting>,
) -> Result<Json<Anything>, Refusal> {
    let access = match wish.access.as_str() {
        "read-only" => Access::ReadOnly,
        "read-write" => Access::ReadWrite,
        _ => return Err(Refusal::bad("access: read-only or read-write")),
    };
    let way = match wish.way.as_deref() {
        None | Some("mount") => GrantWay::Mount,
        Some("broker") => GrantWay::Broker,
        Some(_) => return Err(Refusal::bad("way: mount or broker")),
    };
    let path = path(wish.path)?;
    app.entered(&caller, Verb::Answer, &id).await?;
    let (who, wanted) = (caller.clone(), path.clone());
    app.ask(move |fleet| fleet.may_grant(&who, &wanted)).await?;
    let command = Command::Grant {
        path,
        access,
        way,
        seconds: wish.seconds,
        by: Some(caller.described()),
    };
    say(&app, &caller, Verb::Answer, &id, command).await
}

async fn withdraw(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(granted): Params<Granted>,
) -> Result<Json<Anything>, Refusal> {
    let command = Command::Withdraw {
        path: path(granted.path)?,
        by: Some(caller.described()),
    };
    say(&app, &caller, Verb::Answer, &id, command).await
}

async fn rule(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(rule): Body<Ruling>,
) -> Result<Json<Anything>, Refusal> {
    let scope = match rule.scope.as_deref() {
        None | Some("session") => Scope::Session,
        Some("once") => Scope::Once,
        Some(_) => return Err(Refusal::bad("scope: once or session")),
    };
    let target = rule.target;
    // Taking a rule back may take back somebody's refusal.
    if matches!(rule.verb.as_str(), "allow" | "revoke") {
        app.entered(&caller, Verb::Answer, &id).await?;
        let (who, wanted) = (caller.clone(), target.clone());
        app.ask(move |fleet| fleet.may_allow(&who, &wanted)).await?;
    }
    let command = match rule.verb.as_str() {
        "allow" => Command::Allow {
            target,
            scope,
            hash: None,
            by: Some(caller.described()),
        },
        "deny" => Command::Deny {
            target,
            hash: None,
            by: Some(caller.described()),
        },
        "revoke" => Command::Revoke {
            target,
            by: Some(caller.described()),
        },
        _ => return Err(Refusal::bad("verb: allow, deny or revoke")),
    };
    say(&app, &caller, Verb::Answer, &id, command).await
}

async fn speak(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(Saying { text }): Body<Saying>,
) -> Result<Json<Anything>, Refusal> {
    say(&app, &caller, Verb::Control, &id, Command::Say { text }).await
}

async fn interrupt(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(_): Body<Nothing>,
) -> Result<Json<Anything>, Refusal> {
    say(&app, &caller, Verb::Control, &id, Command::Interrupt {}).await
}
