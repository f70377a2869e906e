//! The agent protocol A2A 1.0: every run is a task, every run is an agent, and one door starts new ones.
//!
//! Served by the daemon, outside every sandbox. It reaches runs through the same calls as the REST interface and has no
//! rights of its own: the same tokens, roles and limits stand before it.
//! **Trust:** everything a caller sends is untrusted; everything an agent said is shown as data.
mod artifacts;
mod asked;
mod calls;
mod card;
mod fuzz;
mod listing;
mod live;
mod modes;
mod plain;
mod push;
mod rest;
mod rpc;
mod send;
mod settings;
mod signing;
mod stream;
mod task;
mod wrong;

pub(crate) use fuzz::fuzz;
pub(crate) use push::resume;
pub(crate) use settings::Settings;

use crate::errors::{Refusal, Told};
use crate::guard::{Need, Who};
use crate::routes::Route;
use crate::routes::runs::told;
use aws_lc_rs::{hmac, rand};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bastle_contract::Fault;
use bastle_control::fleet::Verb;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use wrong::Wrong;

/// What the face keeps beside the fleet.
pub(crate) struct Face {
    /// Replaced as a whole when the settings are read again.
    settings: RwLock<Arc<Settings>>,
    /// Signs the tokens of pages, so that nobody makes one up. A restarted daemon has another.
    pages: hmac::Key,
    /// Receivers that somebody tells already.
    told: Mutex<BTreeSet<(String, String)>>,
    /// Tasks whose output somebody is told as it comes.
    watched: live::Watched,
    signer: signing::Signer,
}

impl Face {
    /// With the key of this state directory.
    pub(crate) fn new(settings: Settings, state: &Path) -> Result<Self, Fault> {
        let mut secret = [0; 32];
        // Without randomness tokens of pages are guessable, and they give nothing that may not be read anyway.
        if rand::fill(&mut secret).is_err() {
            eprintln!("bastle: no randomness for the tokens of pages");
        }
        Ok(Self {
            settings: RwLock::new(Arc::new(settings)),
            pages: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            told: Mutex::new(BTreeSet::new()),
            watched: live::Watched::default(),
            signer: signing::Signer::load(state)?,
        })
    }

    /// The settings of this moment.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Other settings hold for every request and for whatever is told from now on.
    pub(crate) fn change(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

/// The calls of one address, for the door, for a worker, and for a worker named as a tenant of the door.
macro_rules! calls {
    ($base:literal) => {{
        use calls::Op;
        let need = Need::Within(Verb::Read);
        let serve = |op: fn(&str) -> Option<Op>| {
            move |app, who, path, request| rest::serve(op, (app, who), path, request)
        };
        vec![
            Route::post(
                concat!($base, "/message:send"),
                need,
                "Say something to an agent",
                serve(|_| Some(Op::Send)),
            ),
            Route::post(
                concat!($base, "/message:stream"),
                need,
                "Say something and watch",
                serve(|_| Some(Op::Stream)),
            ),
            Route::get(concat!($base, "/tasks"), need, "Tasks", serve(|_| Some(Op::List))),
            Route::get(
                concat!($base, "/tasks/{task}"),
                need,
                "One task",
                serve(rest::reading),
            ),
            Route::post(
                concat!($base, "/tasks/{task}"),
                need,
                "Act on one task",
                serve(rest::acting),
            ),
            Route::get(
                concat!($base, "/tasks/{task}/pushNotificationConfigs"),
                need,
                "Who is told",
                serve(|_| Some(Op::PushList)),
            ),
            Route::post(
                concat!($base, "/tasks/{task}/pushNotificationConfigs"),
                need,
                "Tell somebody",
                serve(|_| Some(Op::PushCreate)),
            ),
            Route::get(
                concat!($base, "/tasks/{task}/pushNotificationConfigs/{config}"),
                need,
                "One who is told",
                serve(|_| Some(Op::PushGet)),
            ),
            Route::delete(
                concat!($base, "/tasks/{task}/pushNotificationConfigs/{config}"),
                need,
                "Tell somebody no more",
                serve(|_| Some(Op::PushDelete)),
            ),
            Route::get(
                concat!($base, "/extendedAgentCard"),
                need,
                "What is told to known callers",
                serve(|_| Some(Op::Card)),
            ),
        ]
    }};
}

/// Every route of it.
pub(crate) fn routes() -> Vec<Route> {
    let mut all = calls!("/a2a");
    all.extend(calls!("/a2a/workers/{run}"));
    all.extend(calls!("/a2a/{tenant}"));
    let need = Need::Within(Verb::Read);
    for path in [
        "/a2a/jsonrpc",
        "/a2a/jsonrpc/",
        "/a2a/workers/{run}/jsonrpc",
        "/a2a/workers/{run}/jsonrpc/",
    ] {
        all.push(Route::post(path, need, "The same calls as JSON-RPC", rpc::serve));
    }
    for path in ["/.well-known/agent-card.json", "/a2a/.well-known/agent-card.json"] {
        all.push(Route::get(path, Need::Nothing, "Who the door is", card::door));
    }
    let keys = "What signatures of cards are verified with";
    all.push(Route::get(signing::KEYS, Need::Nothing, keys, card::keys));
    all.extend(plain::routes());
    all
}

/// Refusals of the guards in the words of the protocol. The plain addresses keep ours.
pub(crate) async fn in_its_words(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let ours = [
        "/stream",
        "/files",
        "/files/content",
        "agent-card.json",
        "jwks.json",
    ]
    .iter()
    .any(|end| path.ends_with(end));
    let Some(faults) = crate::errors::untold(&response).filter(|_| !ours) else {
        return response;
    };
    let told = response
        .extensions()
        .get::<Who>()
        .map_or(Told::Outside, |who| told(&who.0));
    let wrong = Wrong::of(&Refusal::from(faults), told);
    let told = match path.trim_end_matches('/').ends_with("/jsonrpc") {
        true => rpc::refused(&serde_json::Value::Null, &wrong),
        false => rest::refused("application/json", &wrong),
    };
    let (mut parts, body) = told.into_response().into_parts();
    let (old, _) = response.into_parts();
    // When to come again, and how to be recognised.
    for (name, value) in old.headers {
        if let Some(name) =
            name.filter(|name| !parts.headers.contains_key(name) && name.as_str() != "content-length")
        {
            parts.headers.insert(name, value);
        }
    }
    Response::from_parts(parts, body)
}
