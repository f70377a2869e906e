//! State that a client carries for us between two requests: sealed, bound to whoever it was given to and to what they
//! asked, and good for a short time.
//!
//! **Trust:** a client may keep, change, mix up or pass on what it was given; none of that may mean anything. The state can
//! be read by the client: nothing secret goes into it.
use crate::base64;
use crate::words::RpcError;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::{digest, hmac};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Longest sealed state that is looked at.
const MOST: usize = 64 * 1024;
/// How long a state is good.
const GOOD: Duration = Duration::from_secs(600);

/// The key, made at the start: what another process sealed is nothing here.
pub(crate) struct Seal {
    key: hmac::Key,
    since: Instant,
}

impl Seal {
    pub(crate) fn new() -> Result<Self, RpcError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| RpcError::internal("no random numbers can be had"))?;
        Ok(Self {
            key,
            since: Instant::now(),
        })
    }

    /// Seals `state` for this caller and this question.
    pub(crate) fn close(&self, caller: &str, question: &str, state: &Value) -> String {
        let until = (self.since.elapsed() + GOOD).as_secs();
        let inside = json!({ "state": state, "until": until }).to_string();
        let tag = self.tag(caller, question, inside.as_bytes());
        format!(
            "{}.{}",
            base64::encode(inside.as_bytes()),
            base64::encode(tag.as_ref())
        )
    }

    /// What was sealed, if it was by us, for this caller and this question, and not long ago.
    pub(crate) fn open(&self, caller: &str, question: &str, sealed: &str) -> Result<Value, RpcError> {
        let wrong = || RpcError::params("requestState: not what was given for this request").status(400);
        if sealed.len() > MOST {
            return Err(wrong());
        }
        let (inside, tag) = sealed.split_once('.').ok_or_else(wrong)?;
        let inside = base64::decode(inside).ok_or_else(wrong)?;
        let tag = base64::decode(tag).ok_or_else(wrong)?;
        hmac::verify(&self.key, &message(caller, question, &inside), &tag).map_err(|_| wrong())?;
        let mut inside: Value = serde_json::from_slice(&inside).map_err(|_| wrong())?;
        let until = inside["until"].as_u64().ok_or_else(wrong)?;
        if self.since.elapsed().as_secs() > until {
            return Err(
                RpcError::params("requestState: it has expired; ask again from the beginning").status(400),
            );
        }
        Ok(inside["state"].take())
    }

    fn tag(&self, caller: &str, question: &str, inside: &[u8]) -> hmac::Tag {
        hmac::sign(&self.key, &message(caller, question, inside))
    }
}

fn message(caller: &str, question: &str, inside: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [caller.as_bytes(), question.as_bytes(), inside] {
        // Lengths first: no two different triples give the same bytes.
        bytes.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// What a request is about, whatever order its members are in: the method and the parameters that do not change when it
/// is asked again.
pub(crate) fn question(method: &str, params: &Map<String, Value>) -> String {
    let mut text = method.to_owned();
    for name in ["name", "uri", "arguments"] {
        text.push('\n');
        if let Some(value) = params.get(name) {
            write(value, &mut text);
        }
    }
    base64::encode(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in sorted {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push_str(&value.to_string())
        }
    }
}

/// A name that nobody can guess.
pub(crate) fn name() -> Result<String, RpcError> {
    let mut bytes = [0u8; 24];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| RpcError::internal("no random numbers can be had"))?;
    // Visible letters only, as a header takes them.
    Ok(base64::encode(&bytes).replace('+', "-").replace('/', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_opens_only_for_whom_and_for_what_it_was_sealed() {
        let seal = Seal::new().unwrap();
        let params = json!({ "name": "approve", "arguments": { "a": 1, "b": 2 } });
        let about = question("tools/call", params.as_object().unwrap());
        let sealed = seal.close("alice", &about, &json!({ "id": 7 }));
        assert_eq!(seal.open("alice", &about, &sealed).unwrap(), json!({ "id": 7 }));
        let turned = json!({ "arguments": { "b": 2, "a": 1 }, "name": "approve", "_meta": {} });
        assert_eq!(question("tools/call", turned.as_object().unwrap()), about);

        let other = json!({ "name": "approve", "arguments": { "a": 1, "b": 3 } });
        let other = question("tools/call", other.as_object().unwrap());
        assert!(seal.open("bob", &about, &sealed).is_err(), "another caller");
        assert!(seal.open("alice", &other, &sealed).is_err(), "another question");
        assert!(
            Seal::new().unwrap().open("alice", &about, &sealed).is_err(),
            "another key"
        );
        for at in 0..sealed.len() {
            let mut bent = sealed.clone().into_bytes();
            bent[at] ^= 1;
            if let Ok(bent) = String::from_utf8(bent) {
                assert!(seal.open("alice", &about, &bent).is_err(), "bent at {at}");
            }
        }
        for bad in ["", ".", "x", "e30=.e30=", &"A".repeat(MOST + 4)] {
            assert!(seal.open("alice", &about, bad).is_err());
        }
    }
}
