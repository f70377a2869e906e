//! Questions of runs, and answers to them.
use super::runs::{limit, run_id};
use super::{Body, Params, PathOf, Route};
use crate::app::App;
use crate::dto::{Answering, ApprovalForm, ApprovalsForm, Nothing, Which1, plain};
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use crate::question_view;
use axum::Json;
use axum::extract::State;
use bastle_contract::Code;
use bastle_control::fleet::{Approval, ApprovalQuery, ApprovalState, Caller, Verb, Verdict};
use bastle_control::live::Scope;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/approvals",
            Need::Within(Verb::Read),
            "List questions",
            list,
        )
        .params::<Which1>()
        .gives::<ApprovalsForm>(),
        Route::get(
            "/api/v1/approvals/{id}",
            Need::Within(Verb::Read),
            "One question",
            one,
        )
        .params::<Nothing>()
        .gives::<ApprovalForm>(),
        Route::post(
            "/api/v1/approvals/{id}/approve",
            Need::Within(Verb::Answer),
            "Answer a question with yes",
            approve,
        )
        .takes::<Answering>()
        .gives::<ApprovalForm>(),
        Route::post(
            "/api/v1/approvals/{id}/deny",
            Need::Within(Verb::Answer),
            "Answer a question with no",
            deny,
        )
        .takes::<Answering>()
        .gives::<ApprovalForm>(),
    ]
}

async fn list(
    State(app): State<App>,
    Who(caller, _): Who,
    Params(asked): Params<Which1>,
) -> Result<Json<ApprovalsForm>, Refusal> {
    let state = match asked.state.as_deref() {
        None => None,
        Some("open") => Some(ApprovalState::Open),
        Some("approved") => Some(ApprovalState::Approved),
        Some("denied") => Some(ApprovalState::Denied),
        Some("expired") => Some(ApprovalState::Expired),
        Some("stale") => Some(ApprovalState::Stale),
        Some(other) => return Err(Refusal::bad(format!("state: {} is none", plain(other)))),
    };
    let query = ApprovalQuery {
        state,
        run: asked.run.as_deref().map(run_id).transpose()?,
        after: match asked.after {
            Some(after) => number(&after)?,
            None => 0,
        },
        limit: limit(asked.limit)?,
    };
    let all = app
        .ask(move |fleet| {
            let mut all = fleet.approvals(&query)?;
            all.retain(|one| caller.may_on(Verb::Read, &one.run));
            question_view::approvals(fleet, &caller, &mut all);
            Ok::<_, Refusal>(all)
        })
        .await?;
    Ok(Json(ApprovalsForm {
        items: all.into_iter().map(ApprovalForm::from).collect(),
    }))
}

fn number(text: &str) -> Result<u64, Refusal> {
    text.parse()
        .map_err(|_| Refusal::bad(format!("{} is no number of a question", plain(text))))
}

/// The question, if its run is one of the caller's.
async fn find(app: &App, caller: &Caller, id: &str) -> Result<Approval, Refusal> {
    let missing = || Refusal::new(Code::ApprovalMissing, "there is no such question", "");
    let id: u64 = id.parse().map_err(|_| missing())?;
    let found = match app.ask(move |fleet| fleet.approval(id)).await {
        Ok(found) => found,
        // The same words as for a question of somebody else's run.
        Err(refusal)
            if refusal
                .faults
                .iter()
                .all(|fault| fault.code == Code::ApprovalMissing) =>
        {
            return Err(missing());
        }
        Err(refusal) => return Err(refusal),
    };
    if caller.may_on(Verb::Read, &found.run) {
        Ok(found)
    } else {
        Err(missing())
    }
}

async fn one(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<ApprovalForm>, Refusal> {
    let found = find(&app, &caller, &id).await?;
    let told = app
        .ask(move |fleet| {
            let mut told = [found];
            question_view::approvals(fleet, &caller, &mut told);
            Ok::<_, Refusal>(told)
        })
        .await?;
    let [told] = told;
    Ok(Json(told.into()))
}

async fn approve(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(how): Body<Answering>,
) -> Result<Json<ApprovalForm>, Refusal> {
    answer(&app, caller, &id, Verdict::Approve, how).await
}

async fn deny(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(how): Body<Answering>,
) -> Result<Json<ApprovalForm>, Refusal> {
    answer(&app, caller, &id, Verdict::Deny, how).await
}

pub(crate) async fn answer(
    app: &App,
    caller: Caller,
    id: &str,
    verdict: Verdict,
    how: Answering,
) -> Result<Json<ApprovalForm>, Refusal> {
    let scope = match how.scope.as_deref() {
        None | Some("once") => Scope::Once,
        Some("session") => Scope::Session,
        Some(_) => return Err(Refusal::bad("scope: once or session")),
    };
    if how.message.as_ref().is_some_and(|message| message.len() > 4096) {
        return Err(Refusal::bad("message: at most 4096 bytes"));
    }
    let found = find(app, &caller, id).await?;
    if !caller.may_on(Verb::Answer, &found.run) {
        return Err(Refusal::new(
            Code::ApiForbidden,
            "this token does not allow that",
            "",
        ));
    }
    let done = app
        .ask(move |fleet| {
            fleet.answer(
                &caller,
                found.id,
                how.hash.as_deref(),
                verdict,
                scope,
                how.message.as_deref(),
            )
        })
        .await?;
    Ok(Json(done.into()))
}
