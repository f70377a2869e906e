//! What must hold of everything that this face takes from a caller, whatever the bytes are.
use super::asked::{Message, Params, flag, history, number, object, spelled, text};
use super::calls::{Op, at_once, version};
use super::modes::Modes;
use super::settings::Settings;
use super::wrong::Wrong;
use super::{push, rest, rpc};
use crate::json;
use axum::http::{HeaderMap, Uri};
use serde_json::{Map, Value, json};

const TARGET: &str = "https://hooks.example/a2a/";
const OPS: [Op; 4] = [Op::Send, Op::List, Op::Get, Op::PushCreate];

/// Bytes as a call of JSON-RPC, as a body of HTTP+JSON, and as an address.
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut id = Value::Null;
    match rpc::envelope(bytes, &mut id) {
        Ok((method, params)) => {
            assert!(
                id.as_str().is_some_and(|id| id.len() <= 256) || id.is_number(),
                "an id that cannot be told: {id}"
            );
            if let Some(op) = Op::of(&method) {
                told(take(op, params));
            }
        }
        Err(wrong) => told(Err(wrong)),
    }
    if let Ok(Value::Object(members)) = json::value(bytes) {
        for op in OPS {
            told(take(op, members.clone()));
        }
    }
    if let Ok(uri) = Uri::try_from(bytes) {
        told(version(&HeaderMap::new(), &uri));
        told(rest::query(&uri).and_then(|params| take(Op::List, params)));
    }
}

/// A refusal says why, in both bindings, without anything that acts on a terminal.
fn told(taken: Result<(), Wrong>) {
    let Err(wrong) = taken else {
        return;
    };
    let (rpc, rest) = (wrong.rpc(&Value::Null), wrong.rest());
    assert_eq!(rpc["error"]["message"], rest["error"]["message"]);
    let words = rest["error"]["message"].as_str().unwrap_or_default();
    assert!(!words.is_empty(), "refused without a reason");
    assert!(!words.chars().any(char::is_control), "{words:?}");
    assert!(words.len() <= 64 * 1024, "a refusal of {} bytes", words.len());
}

fn take(op: Op, params: Params) -> Result<(), Wrong> {
    let params = spelled(params)?;
    let again = spelled(params.clone());
    assert_eq!(again.ok().as_ref(), Some(&params), "spelling it twice changed it");
    match op {
        Op::Send | Op::Stream => {
            let configuration = object(&params, "configuration")?;
            history(&configuration)?;
            at_once(&params)?;
            assert!(Modes::read(&configuration)?.words().len() <= 64);
            if let Some(Value::Object(config)) = configuration.get("taskPushNotificationConfig") {
                receiver(config)?;
            }
            message(&Message::read(&params)?);
        }
        Op::PushCreate | Op::PushGet | Op::PushList | Op::PushDelete => receiver(&params)?,
        Op::Get | Op::List | Op::Cancel | Op::Subscribe | Op::Card => {
            history(&params)?;
            for name in ["id", "tenant", "contextId", "status", "pageToken"] {
                assert!(text(&params, name)?.is_none_or(|text| text.len() <= 4096));
            }
            let size = number(&params, "pageSize")?;
            assert!(size.is_none_or(|size| i32::try_from(size).is_ok()));
            flag(&params, "includeArtifacts")?;
        }
    }
    Ok(())
}

/// A message that was taken is bounded, says something, and reads the same from the record.
fn message(message: &Message) {
    assert!(message.text.len() <= 256 * 1024, "{} bytes", message.text.len());
    assert!(!message.text.contains('\0'), "a NUL was taken");
    assert!(!message.text.trim().is_empty() || !message.answers.is_empty());
    assert!(!message.id.is_empty() && message.id.len() <= 128);
    assert!(
        message.raw["parts"]
            .as_array()
            .is_some_and(|parts| parts.len() <= 64)
    );
    let kept = Map::from_iter([("message".to_owned(), message.raw.clone())]);
    let again = Message::read(&kept).ok();
    assert_eq!(
        again.map(|again| (again.text, again.answers.len())),
        Some((message.text.clone(), message.answers.len())),
        "what is kept reads otherwise"
    );
}

/// Nobody is told who was not allowed, and nothing that is kept breaks a header.
fn receiver(config: &Params) -> Result<(), Wrong> {
    let nobody = push::read(&Settings::default(), config);
    assert!(nobody.is_err(), "a receiver where none is allowed");
    let settings = Settings {
        push_targets: vec![TARGET.to_owned()],
        ..Settings::default()
    };
    let kept = push::read(&settings, config)?.config;
    let word = |pointer: &str| kept.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    assert!(word("/url").starts_with(TARGET), "{kept}");
    for place in [
        "/url",
        "/token",
        "/authentication/scheme",
        "/authentication/credentials",
    ] {
        let plain = word(place).bytes().all(|byte| (b' '..0x7f).contains(&byte));
        assert!(plain, "{place}: {kept}");
    }
    assert_ne!(kept, json!({}));
    Ok(())
}
