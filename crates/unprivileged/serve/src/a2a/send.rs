//! Messages: to the door they start a worker, to a task they steer it or answer its question.
use super::asked::{Answer, AnswerWord, Message, Params, history, object};
use super::calls::{At, Call, answered, at_once};
use super::modes::Modes;
use super::push;
use super::stream::TaskStream;
use super::task::{SPAWN, standing};
use super::wrong::{Kind, Wrong};
use crate::dto::Answering;
use crate::json;
use crate::routes::{approvals, live, spawn};
use aws_lc_rs::{digest, rand};
use bastle_contract::{Code, RunId};
use bastle_control::fleet::{MessageClaim, RunRequest, SpawnRequest, Verb, Verdict};
use bastle_control::live::Command;
use serde_json::{Map, Value, json};

/// What became of a message.
struct Reached {
    run: RunId,
    /// Newest event before it.
    since: u64,
    /// A kind of event that tells that it arrived.
    heard: Option<&'static str>,
}

/// Says something and waits until the task stands still, unless the caller wants the answer at once.
pub(super) async fn send(call: &Call, params: &Params) -> Result<Value, Wrong> {
    let configuration = object(params, "configuration")?;
    let history = history(&configuration)?;
    let at_once = at_once(params)?;
    let modes = Modes::read(&configuration)?;
    let reached = reach(call, params, &configuration, &modes).await?;
    if !at_once {
        call.wait(&reached.run, reached.since, reached.heard).await?;
    }
    Ok(answered(&modes.task(call.task(&reached.run, history).await?)))
}

/// Says something and tells what happens.
pub(super) async fn stream(call: &Call, params: &Params) -> Result<TaskStream, Wrong> {
    let configuration = object(params, "configuration")?;
    let history = history(&configuration)?;
    let modes = Modes::read(&configuration)?;
    let reached = reach(call, params, &configuration, &modes).await?;
    call.watch(reached.run, reached.since, (history, modes)).await
}

async fn reach(
    call: &Call,
    params: &Params,
    configuration: &Params,
    modes: &Modes,
) -> Result<Reached, Wrong> {
    let message = Message::read(params)?;
    // Refused before anything is done for the message.
    let receiver = match configuration.get("taskPushNotificationConfig") {
        None | Some(Value::Null) => None,
        Some(Value::Object(config)) => Some(push::read(&call.app.a2a.settings(), config)?),
        Some(_) => {
            return Err(Wrong::field(
                "configuration.taskPushNotificationConfig",
                "an object",
            ));
        }
    };
    let since = call.newest().await?;
    let target = target(call, &message).await?;
    let (run, heard) = deliver(call, params, &message, target).await?;
    if let Some(receiver) = receiver {
        push::keep(call, &run, receiver.in_modes(modes), since).await?;
    }
    Ok(Reached { run, since, heard })
}

/// Brings a message to its task once. Sent again it is answered as before; another message under its id is refused.
async fn deliver(
    call: &Call,
    params: &Params,
    message: &Message,
    target: Option<RunId>,
) -> Result<(RunId, Option<&'static str>), Wrong> {
    let (caller, id) = (call.who.0.id.clone(), message.id.clone());
    let digest = content(message, target.as_ref())?;
    let claimed = {
        let (caller, id) = (caller.clone(), id.clone());
        let claimed = call
            .app
            .ask(move |fleet| fleet.message_claim(&caller, &id, &digest))
            .await;
        claimed.map_err(|refusal| match refusal.faults.first() {
            Some(fault) if fault.code == Code::RunKey => {
                Wrong::field("message.messageId", "was used for another message")
            }
            Some(_) | None => call.wrong(&refusal),
        })?
    };
    match (claimed, &target) {
        (MessageClaim::Delivered(run), _) => {
            return Ok((call.run(Verb::Read, run.as_str()).await?, None));
        }
        (MessageClaim::InFlight, Some(_)) => {
            return Err(Wrong::field("message.messageId", "this message is on its way"));
        }
        // Starting twice is starting once: the request has a key of its own.
        (MessageClaim::InFlight, None) | (MessageClaim::New, _) => {}
    }
    let done = match target {
        Some(run) => speak(call, &run, message).await.map(|heard| (run, heard)),
        None => start(call, params, message).await.map(|run| (run, None)),
    };
    let reached = done.as_ref().ok().map(|(run, _)| run.clone());
    call.ask(move |fleet| fleet.message_settle(&caller, &id, reached.as_ref()))
        .await?;
    done
}

/// Digest of what a message says and to whom.
fn content(message: &Message, target: Option<&RunId>) -> Result<[u8; 32], Wrong> {
    let failed = || Wrong::new(Kind::Internal, "the message cannot be written");
    let said = serde_json::to_vec(&(target.map(RunId::as_str), &message.raw)).map_err(|_| failed())?;
    let digest = digest::digest(&digest::SHA256, &said);
    digest.as_ref().try_into().map_err(|_| failed())
}

/// The task that a message is for; none: a new one.
async fn target(call: &Call, message: &Message) -> Result<Option<RunId>, Wrong> {
    match (&message.task, &call.at) {
        (Some(task), _) => call.run(Verb::Read, task).await.map(Some),
        (None, At::Worker(run)) => Ok(Some(run.clone())),
        (None, At::Door) => Ok(None),
    }
}

/// Speaks to a task that is there.
async fn speak(call: &Call, run: &RunId, message: &Message) -> Result<Option<&'static str>, Wrong> {
    let name = run.clone();
    let (context, state) = call
        .ask(move |fleet| {
            let state = standing(fleet, &name)?.state;
            Ok::<_, crate::errors::Refusal>((fleet.conversation(&name)?, state))
        })
        .await?;
    if message.context.as_ref().is_some_and(|named| *named != context) {
        return Err(Wrong::field("message.contextId", "is not that of the task"));
    }
    if state.is_final() {
        return Err(Wrong::new(
            Kind::Unsupported,
            format!("the task has ended: {}", state.word()),
        ));
    }
    let heard = match message.answers.as_slice() {
        [] => {
            call.entered(Verb::Control, run.as_str()).await?;
            let text = message.text.clone();
            live::say(
                &call.app,
                &call.who.0,
                Verb::Control,
                run.as_str(),
                Command::Say { text },
            )
            .await
            .map(drop)
            .map_err(|refusal| call.wrong(&refusal))?;
            Some("said")
        }
        [answer] => {
            reply(call, run, answer, &message.text).await?;
            None
        }
        [_, _, ..] => return Err(Wrong::field("message.parts", "one answer at a time")),
    };
    keep(call, run, &context, message).await?;
    Ok(heard)
}

/// Answers a question of the task, in the caller's name.
async fn reply(call: &Call, run: &RunId, answer: &Answer, words: &str) -> Result<(), Wrong> {
    call.run(Verb::Answer, run.as_str()).await?;
    let id = answer.approval;
    let missing = |_| Wrong::field("approval", "the task asks no such question");
    let asked = call.ask(move |fleet| fleet.approval(id)).await.map_err(missing)?;
    if asked.run != *run {
        return Err(missing(Wrong::no_task("")));
    }
    let verdict = match answer.verdict {
        AnswerWord::Approve => Verdict::Approve,
        AnswerWord::Deny => Verdict::Deny,
    };
    let how = Answering {
        hash: Some(answer.hash.clone()),
        scope: answer.scope.clone(),
        message: Some(words.to_owned()).filter(|words| !words.is_empty()),
    };
    approvals::answer(&call.app, call.who.0.clone(), &id.to_string(), verdict, how)
        .await
        .map(drop)
        .map_err(|refusal| call.wrong(&refusal))
}

/// Keeps what was said, with the task it belongs to.
async fn keep(call: &Call, run: &RunId, context: &str, message: &Message) -> Result<(), Wrong> {
    let mut raw = message.raw.clone();
    raw["taskId"] = json!(run);
    raw["contextId"] = json!(context);
    let (run, came_ms) = (run.clone(), message.came_ms);
    call.ask(move |fleet| fleet.message_add(&run, came_ms, &raw))
        .await
}

/// Starts a worker for a message to the door.
async fn start(call: &Call, params: &Params, message: &Message) -> Result<RunId, Wrong> {
    let caller = &call.who.0;
    if !caller.may(Verb::Spawn) || caller.run.is_some() {
        return Err(Wrong::new(Kind::Forbidden, "this token does not start workers"));
    }
    if !message.answers.is_empty() {
        return Err(Wrong::field("message.taskId", "an answer is for a task"));
    }
    let request = request(call, params, message)?;
    let prefix = caller.prefix.as_deref().map(|own| own.trim_end_matches('-'));
    let wish = SpawnRequest {
        key: Some(key(message, &request)?),
        prefix: Some(prefix.filter(|own| !own.is_empty()).unwrap_or("a2a").to_owned()),
        runs: vec![request],
        ..SpawnRequest::default()
    };
    let report = spawn::start(&call.app, caller.clone(), wish).await;
    let report = report.map_err(|refusal| call.wrong(&refusal))?;
    let name = report.runs.into_iter().find_map(|run| run.name);
    let run = name.ok_or_else(|| Wrong::new(Kind::Internal, "no worker was started"))?;
    let context = match &message.context {
        Some(context) => context.clone(),
        None => format!("ctx-{}", random()?),
    };
    let name = run.clone();
    let context = call
        .ask(move |fleet| {
            fleet.conversation_begin(&name, &context)?;
            fleet.conversation(&name)
        })
        .await?;
    // Sent twice, it is one task and one message.
    if !report.repeated {
        keep(call, &run, &context, message).await?;
    }
    Ok(run)
}

/// What is started: as the settings say, and as the message says in our extension.
fn request(call: &Call, params: &Params, message: &Message) -> Result<RunRequest, Wrong> {
    let settings = call.app.a2a.settings();
    let field = |why: String| Wrong::field(format!("metadata[{SPAWN}]"), why);
    let mut wish = Map::new();
    wish.insert(
        "mode".to_owned(),
        json!(settings.mode.as_deref().unwrap_or("copy")),
    );
    for (name, value) in [("profile", &settings.profile), ("workspace", &settings.workspace)] {
        if let Some(value) = value {
            wish.insert(name.to_owned(), json!(value));
        }
    }
    let around = object(params, "metadata")?;
    for said in [around.get(SPAWN), message.metadata.get(SPAWN)]
        .into_iter()
        .flatten()
    {
        match said {
            Value::Object(said) => wish.extend(said.clone()),
            _ => return Err(field("an object".to_owned())),
        }
    }
    if !wish.contains_key("workspace") {
        return Err(field(
            "no workspace is named, and the settings have none".to_owned(),
        ));
    }
    // Secrets are not told in tasks, and the words are those of the message.
    for name in ["token", "prompt"] {
        if wish.contains_key(name) {
            return Err(field(format!("{name} is not said here")));
        }
    }
    wish.insert("prompt".to_owned(), json!(message.text));
    json::read(Value::Object(wish)).map_err(|wrong| field(wrong.to_string()))
}

/// The same message of the same caller is the same task.
fn key(message: &Message, request: &RunRequest) -> Result<String, Wrong> {
    let failed = |error: serde_json::Error| Wrong::new(Kind::Internal, error.to_string());
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [
        message.id.as_bytes(),
        &serde_json::to_vec(&message.raw).map_err(failed)?,
        &serde_json::to_vec(request).map_err(failed)?,
    ] {
        context.update(&part.len().to_be_bytes());
        context.update(part);
    }
    Ok(format!("a2a-{}", hex(context.finish().as_ref())))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A word that nobody guesses.
pub(super) fn random() -> Result<String, Wrong> {
    let mut bytes = [0; 12];
    rand::fill(&mut bytes).map_err(|_| Wrong::new(Kind::Internal, "no randomness"))?;
    Ok(hex(&bytes))
}
