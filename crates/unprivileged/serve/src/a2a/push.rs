//! Telling somebody elsewhere about a task: only at addresses that the operator allows, the same events in the same order
//! as to every other reader, until the task ends.
//!
//! **Trust:** the receiver is named by a caller and allowed by the operator; its answer is not read beyond the status. The
//! credentials are the caller's, for that receiver; they are kept in the daemon's own store and told to nobody.
use super::asked::{Params, given_id, number, text};
use super::calls::{At, Call};
use super::modes::Modes;
use super::send::random;
use super::settings::Settings;
use super::stream::{Step, TaskStream, filter};
use super::task::standing;
use super::wrong::{Kind, Wrong};
use crate::app::App;
use crate::errors::Told;
use crate::routes::events::Feed;
use crate::webhook::{PATIENCE, PAUSES};
use bastle_contract::RunId;
use bastle_control::fleet::{Fleet, Receiver, Verb};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// A receiver that was checked.
pub(super) struct Wanted {
    id: Option<String>,
    pub(super) config: Value,
}

/// Under which the media types that a receiver takes are kept; told to nobody.
const MODES: &str = "acceptedOutputModes";

impl Wanted {
    /// Told in these media types only.
    pub(super) fn in_modes(mut self, modes: &Modes) -> Self {
        if !modes.words().is_empty() {
            self.config[MODES] = json!(modes.words());
        }
        self
    }
}

fn supported(settings: &Settings) -> Result<(), Wrong> {
    match settings.push_targets.is_empty() {
        true => Err(Wrong::new(
            Kind::PushUnsupported,
            "push notifications are off: no receiver is configured",
        )),
        false => Ok(()),
    }
}

/// Reads a receiver; one that the operator does not allow is refused.
pub(super) fn read(settings: &Settings, config: &Params) -> Result<Wanted, Wrong> {
    supported(settings)?;
    let url = text(config, "url")?.ok_or_else(|| Wrong::field("url", "is missing"))?;
    if settings.allowed(url).is_none() {
        return Err(Wrong::field(
            "url",
            "the operator of this daemon does not allow this address",
        ));
    }
    let mut kept = json!({ "url": url });
    let visible = |text: &&str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if let Some(token) = text(config, "token")? {
        let token = Some(token)
            .filter(visible)
            .ok_or_else(|| Wrong::field("token", "visible characters"))?;
        kept["token"] = json!(token);
    }
    match config.get("authentication") {
        None | Some(Value::Null) => {}
        Some(Value::Object(authentication)) => {
            let scheme = text(authentication, "scheme")?.filter(visible);
            let scheme = scheme.ok_or_else(|| Wrong::field("authentication.scheme", "is missing"))?;
            kept["authentication"] = json!({ "scheme": scheme });
            if let Some(secret) = text(authentication, "credentials")? {
                let plain = secret.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
                if !plain {
                    return Err(Wrong::field("authentication.credentials", "visible characters"));
                }
                kept["authentication"]["credentials"] = json!(secret);
            }
        }
        Some(_) => return Err(Wrong::field("authentication", "an object")),
    }
    let id = text(config, "id")?.map(|id| given_id("id", id)).transpose()?;
    Ok(Wanted { id, config: kept })
}

/// Keeps a receiver and begins to tell it.
pub(super) async fn keep(call: &Call, run: &RunId, wanted: Wanted, since: u64) -> Result<Value, Wrong> {
    let id = match wanted.id {
        Some(id) => id,
        None => random()?,
    };
    let receiver = Receiver {
        run: run.clone(),
        id,
        caller: call.who.0.id.clone(),
        config: wanted.config,
        since,
    };
    let kept = receiver.clone();
    call.ask(move |fleet| fleet.receiver_put(&kept)).await?;
    let told = shown(call, &receiver);
    follow(&call.app, receiver);
    Ok(told)
}

/// As it is told: without the secret.
fn shown(call: &Call, receiver: &Receiver) -> Value {
    let mut value = receiver.config.clone();
    if let Some(members) = value.as_object_mut() {
        members.remove(MODES);
    }
    // The receiver's own secrets go to the receiver alone; whoever reads the task does not learn them.
    if let Some(members) = value.as_object_mut() {
        members.remove("token");
    }
    if let Some(authentication) = value.get_mut("authentication").and_then(Value::as_object_mut) {
        authentication.remove("credentials");
    }
    value["id"] = json!(receiver.id);
    value["taskId"] = json!(receiver.run);
    if let At::Worker(run) = &call.at {
        value["tenant"] = json!(run);
    }
    value
}

async fn task_of(call: &Call, verb: Verb, params: &Params) -> Result<RunId, Wrong> {
    supported(&call.app.a2a.settings())?;
    let task = text(params, "taskId")?.ok_or_else(|| Wrong::field("taskId", "is missing"))?;
    call.run(verb, task).await
}

async fn all(call: &Call, run: &RunId) -> Result<Vec<Receiver>, Wrong> {
    let run = run.clone();
    call.ask(move |fleet| fleet.receivers(Some(&run))).await
}

pub(super) async fn create(call: &Call, params: &Params) -> Result<Value, Wrong> {
    let run = task_of(call, Verb::Control, params).await?;
    // A receiver is told what the agent says and makes.
    call.entered(Verb::Control, run.as_str()).await?;
    let wanted = read(&call.app.a2a.settings(), params)?;
    let since = call.newest().await?;
    keep(call, &run, wanted, since).await
}

pub(super) async fn one(call: &Call, params: &Params) -> Result<Value, Wrong> {
    let run = task_of(call, Verb::Read, params).await?;
    let id = text(params, "id")?.ok_or_else(|| Wrong::field("id", "is missing"))?;
    let found = all(call, &run).await?.into_iter().find(|one| one.id == id);
    let found = found.ok_or_else(|| Wrong::new(Kind::TaskNotFound, "the task tells nobody of this id"))?;
    Ok(shown(call, &found))
}

pub(super) async fn list(call: &Call, params: &Params) -> Result<Value, Wrong> {
    let run = task_of(call, Verb::Read, params).await?;
    // There are never more than fit one page.
    match number(params, "pageSize")? {
        None | Some(0..=100) => {}
        Some(_) => return Err(Wrong::field("pageSize", "between 1 and 100")),
    }
    if text(params, "pageToken")?.is_some() {
        return Err(Wrong::field("pageToken", "was not given for this list"));
    }
    let found = all(call, &run).await?;
    let configs: Vec<Value> = found.iter().map(|one| shown(call, one)).collect();
    Ok(json!({ "configs": configs, "nextPageToken": "" }))
}

pub(super) async fn remove(call: &Call, params: &Params) -> Result<Value, Wrong> {
    let run = task_of(call, Verb::Control, params).await?;
    let id = text(params, "id")?
        .ok_or_else(|| Wrong::field("id", "is missing"))?
        .to_owned();
    call.ask(move |fleet| fleet.receiver_remove(&run, &id)).await?;
    Ok(json!({}))
}

/// Goes on telling whom a daemon before this one told.
pub(crate) fn resume(app: &App) {
    let app = app.clone();
    tokio::spawn(async move {
        let known = app.ask(|fleet| fleet.receivers(None)).await.unwrap_or_default();
        for receiver in known {
            follow(&app, receiver);
        }
    });
}

/// Tells one receiver, in the background, unless somebody does already.
fn follow(app: &App, receiver: Receiver) {
    let key = (receiver.run.as_str().to_owned(), receiver.id.clone());
    let held = || app.a2a.told.lock().unwrap_or_else(PoisonError::into_inner);
    if !held().insert(key.clone()) {
        return;
    }
    let app = app.clone();
    tokio::spawn(async move {
        let mut closing = app.closing.clone();
        tokio::select! {
            () = tell_all(&app, &receiver) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
        let mut told = app.a2a.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.remove(&key);
    });
}

async fn tell_all(app: &App, receiver: &Receiver) {
    let name = receiver.run.clone();
    let since = receiver.since;
    // One whose last word was told before waits for nothing.
    let over = app
        .ask(move |fleet: &Fleet| {
            let over = standing(fleet, &name)?.state.is_final();
            Ok::<_, crate::errors::Refusal>(over && fleet.events(since, &filter(&name), 1)?.is_empty())
        })
        .await;
    if over.unwrap_or(true) {
        return;
    }
    let feed = Feed::own(app.clone(), filter(&receiver.run), since);
    let modes = receiver.config.as_object().map(Modes::read).and_then(Result::ok);
    // What it prints comes to a receiver as a whole, when it ended: one request for each line helps nobody.
    let mut stream = TaskStream::new(app.clone(), feed, receiver.run.clone(), Told::Outside, None)
        .in_modes(modes.unwrap_or_default());
    loop {
        match stream.next().await {
            Step::Told(seq, told) => {
                let Some(now) = still(app, receiver).await else {
                    return;
                };
                if tell(app, now, &told).await == Delivery::Failed {
                    app.metrics.webhook_failures.fetch_add(1, Ordering::Relaxed);
                }
                let (run, id) = (receiver.run.clone(), receiver.id.clone());
                // What is not noted is told again after a restart: better twice than never.
                drop(app.ask(move |fleet| fleet.receiver_told(&run, &id, seq)).await);
            }
            Step::Quiet => {}
            Step::Over => return,
        }
    }
}

/// The receiver as it is now, while whoever asked for it may still read the task.
async fn still(app: &App, receiver: &Receiver) -> Option<Receiver> {
    let (run, id) = (receiver.run.clone(), receiver.id.clone());
    let found = app
        .ask(move |fleet| {
            let found = fleet.receivers(Some(&run))?.into_iter().find(|one| one.id == id);
            let Some(found) = found else {
                return Ok(None);
            };
            let Some(token) = found.caller.strip_prefix("token:") else {
                return Ok(Some(found));
            };
            let holds = fleet.token_holds(token)?;
            Ok::<_, bastle_contract::Fault>(Some(found).filter(|_| holds))
        })
        .await;
    found.ok().flatten()
}

/// What became of one word to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Done,
    Failed,
    /// Whoever asked for it may not read the task any more.
    Stopped,
}

async fn tell(app: &App, receiver: Receiver, told: &Value) -> Delivery {
    let text = |pointer: &str| receiver.config.pointer(pointer).and_then(Value::as_str);
    // The settings may have changed since it was kept.
    let Some(address) = text("/url").and_then(|url| app.a2a.settings().allowed(url)) else {
        return Delivery::Failed;
    };
    let credentials = text("/authentication/scheme").map(|scheme| {
        format!(
            "{scheme} {}",
            text("/authentication/credentials").unwrap_or_default()
        )
    });
    let mut headers = vec![
        ("content-type", "application/a2a+json"),
        ("a2a-version", super::calls::VERSION),
    ];
    if let Some(credentials) = &credentials {
        headers.push(("authorization", credentials.trim_end()));
    }
    if let Some(token) = text("/token") {
        headers.push(("x-a2a-notification-token", token));
    }
    let body = Bytes::from(told.to_string());
    for pause in PAUSES.into_iter().map(Some).chain([None]) {
        let sent = tokio::time::timeout(PATIENCE, address.post(&headers, body.clone())).await;
        if sent.unwrap_or(false) {
            return Delivery::Done;
        }
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        // The token may have ended, or the receiver may have been removed, while it did not answer.
        if still(app, &receiver).await.is_none() {
            return Delivery::Stopped;
        }
    }
    Delivery::Failed
}
