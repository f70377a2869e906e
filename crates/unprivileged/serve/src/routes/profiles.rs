//! Profiles.
use super::meta::{OK, Status};
use super::{Body, Params, PathOf, Route};
use crate::app::App;
use crate::dto::{Nothing, ProfileForm, ProfilesForm, PutProfile};
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use axum::Json;
use axum::extract::State;
use bastle_control::fleet::Verb;
use serde_json::Value;

const PROFILE: &str = "/api/v1/profiles/{name}";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/profiles",
            Need::Within(Verb::Read),
            "List profiles",
            list,
        )
        .params::<Nothing>()
        .gives::<ProfilesForm>(),
        Route::get(PROFILE, Need::Within(Verb::Read), "One profile", one)
            .params::<Nothing>()
            .gives::<ProfileForm>(),
        Route::put(PROFILE, Need::OnAll(Verb::Administer), "Keep a profile", put)
            .takes::<PutProfile>()
            .gives::<ProfileForm>(),
        Route::delete(PROFILE, Need::OnAll(Verb::Administer), "Remove a profile", remove)
            .params::<Nothing>()
            .gives::<Status>(),
    ]
}

async fn list(State(app): State<App>, Params(_): Params<Nothing>) -> Result<Json<ProfilesForm>, Refusal> {
    let all = app.ask(|fleet| fleet.profiles()).await?;
    Ok(Json(ProfilesForm {
        items: all.into_iter().map(ProfileForm::from).collect(),
    }))
}

async fn one(
    State(app): State<App>,
    PathOf(name): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<ProfileForm>, Refusal> {
    let profile = app.ask(move |fleet| fleet.profile(&name)).await?;
    Ok(Json(profile.into()))
}

async fn put(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(name): PathOf<String>,
    Body(body): Body<PutProfile>,
) -> Result<Json<ProfileForm>, Refusal> {
    let document = Value::Object(body.document.into_iter().collect());
    let kept = app
        .ask(move |fleet| fleet.profile_put(&caller, &name, &document))
        .await?;
    Ok(Json(kept.into()))
}

async fn remove(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(name): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<Status>, Refusal> {
    app.ask(move |fleet| fleet.profile_remove(&caller, &name)).await?;
    Ok(OK)
}
