//! Tokens.
use super::runs::run_id;
use super::{Body, Params, PathOf, Route};
use crate::app::App;
use crate::dto::{CreatedToken, MakeToken, Nothing, TokenForm, TokensForm, plain};
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bastle_control::fleet::{PrincipalKind, Role, TokenWish, Verb};
use std::collections::BTreeSet;
use std::time::Duration;

/// Longest life of a token that ends by itself: ten years.
const MOST_SECONDS: u64 = 315_360_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/tokens",
            Need::OnAll(Verb::Administer),
            "List tokens",
            list,
        )
        .params::<Nothing>()
        .gives::<TokensForm>(),
        Route::post(
            "/api/v1/tokens",
            Need::OnAll(Verb::Administer),
            "Make a token",
            create,
        )
        .takes::<MakeToken>()
        .gives::<CreatedToken>()
        .status(201),
        Route::delete(
            "/api/v1/tokens/{id}",
            Need::OnAll(Verb::Administer),
            "Take a token back",
            revoke,
        )
        .params::<Nothing>()
        .gives::<TokenForm>(),
    ]
}

async fn list(State(app): State<App>, Params(_): Params<Nothing>) -> Result<Json<TokensForm>, Refusal> {
    let all = app.ask(|fleet| fleet.tokens()).await?;
    Ok(Json(TokensForm {
        items: all.into_iter().map(TokenForm::from).collect(),
    }))
}

async fn create(
    State(app): State<App>,
    Who(caller, _): Who,
    Body(asked): Body<MakeToken>,
) -> Result<(StatusCode, Json<CreatedToken>), Refusal> {
    let wish = wish(asked)?;
    let (token, secret) = app.ask(move |fleet| fleet.token_create(&caller, wish)).await?;
    let made = CreatedToken {
        token: token.into(),
        secret,
    };
    Ok((StatusCode::CREATED, Json(made)))
}

fn wish(asked: MakeToken) -> Result<TokenWish, Refusal> {
    let role = Role::ALL
        .into_iter()
        .find(|role| role.word() == asked.role)
        .ok_or_else(|| Refusal::bad(format!("role: {} is none", plain(&asked.role))))?;
    let lasts = match asked.expires_s {
        None => None,
        Some(seconds @ 1..=MOST_SECONDS) => Some(Duration::from_secs(seconds)),
        Some(_) => return Err(Refusal::bad(format!("expires_s: between 1 and {MOST_SECONDS}"))),
    };
    if asked.note.len() > 256 || asked.note.chars().any(char::is_control) {
        return Err(Refusal::bad("note: at most 256 bytes on one line"));
    }
    let prefix_is_name = asked.prefix.as_deref().is_none_or(|prefix| {
        !prefix.is_empty()
            && prefix.len() <= 64
            && prefix
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    });
    if !prefix_is_name {
        return Err(Refusal::bad("prefix: the beginning of names of runs"));
    }
    let run = asked.run.as_deref().map(run_id).transpose()?;
    if run.is_some() != (role == Role::Run) {
        return Err(Refusal::bad(
            "run: a token of the role run belongs to one, others to none",
        ));
    }
    let verbs = asked
        .verbs
        .map(|words| {
            words
                .iter()
                .map(|word| verb(word))
                .collect::<Result<BTreeSet<Verb>, _>>()
        })
        .transpose()?;
    let kind = match asked.kind.as_deref() {
        None | Some("person") => PrincipalKind::TokenPerson,
        Some("program") => PrincipalKind::Program,
        Some(_) => return Err(Refusal::bad("kind: person or program")),
    };
    let ceiling = asked.ceiling.unwrap_or_default().read()?;
    Ok(TokenWish {
        kind,
        lasts,
        prefix: asked.prefix,
        verbs,
        run,
        ceiling,
        ..TokenWish::new(role, asked.note)
    })
}

fn verb(word: &str) -> Result<Verb, Refusal> {
    Ok(match word {
        "read" => Verb::Read,
        "spawn" => Verb::Spawn,
        "control" => Verb::Control,
        "remove" => Verb::Remove,
        "answer" => Verb::Answer,
        "administer" => Verb::Administer,
        other => return Err(Refusal::bad(format!("verbs: {} is none", plain(other)))),
    })
}

async fn revoke(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<TokenForm>, Refusal> {
    let token = app.ask(move |fleet| fleet.token_revoke(&caller, &id)).await?;
    Ok(Json(token.into()))
}

pub(super) fn fuzz(body: &[u8]) {
    let asked = crate::json::parse::<MakeToken>(body).ok();
    super::fuzz_ceiling(asked.and_then(|asked| wish(asked).ok()).map(|wish| wish.ceiling));
}
