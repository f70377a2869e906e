//! JSON-RPC as agents speak it: requests of ours that wait for an answer, requests of theirs that wait for ours.
use crate::reading;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Requests of one side that wait at once; more are refused.
const MOST_WAITING: usize = 256;

/// Whether messages carry the version: Codex leaves it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `"jsonrpc":"2.0"`.
    Versioned,
    /// Without.
    Bare,
}

/// One message of the other side.
#[derive(Debug, PartialEq)]
pub(crate) enum Message {
    /// It asks; the id is answered with.
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    /// It tells.
    Told { method: String, params: Value },
    /// It answers a request of ours of this kind.
    Answered {
        asked: &'static str,
        result: Result<Value, String>,
    },
    /// None of these.
    Odd,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Rpc {
    dialect: Dialect,
    next: u64,
    waiting: BTreeMap<u64, &'static str>,
}

impl Rpc {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            next: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// A request of ours; its answer comes back under its method.
    pub(crate) fn ask(&mut self, method: &'static str, params: &Value) -> Vec<u8> {
        let id = self.next;
        self.next += 1;
        // An agent that never answers does not make us remember for ever.
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.pop_first();
        }
        self.waiting.insert(id, method);
        self.message(json!({ "id": id, "method": method, "params": params }))
    }

    /// Something that is told.
    pub(crate) fn tell(&self, method: &str, params: &Value) -> Vec<u8> {
        self.message(json!({ "method": method, "params": params }))
    }

    /// Our answer to a request of theirs.
    pub(crate) fn answer(&self, id: &Value, result: &Value) -> Vec<u8> {
        self.message(json!({ "id": id, "result": result }))
    }

    /// Our refusal of a request that is not ours to serve.
    pub(crate) fn refuse(&self, id: &Value) -> Vec<u8> {
        self.message(json!({ "id": id, "error": { "code": -32601, "message": "not available here" } }))
    }

    /// Our refusal of a request that is no good.
    pub(crate) fn refuse_as(&self, id: &Value, why: &str) -> Vec<u8> {
        self.message(json!({ "id": id, "error": { "code": -32600, "message": why } }))
    }

    fn message(&self, mut value: Value) -> Vec<u8> {
        if self.dialect == Dialect::Versioned {
            value["jsonrpc"] = Value::from("2.0");
        }
        reading::line(&value)
    }

    /// Reads a message where our own requests have names instead of numbers: an answer is for the caller to place.
    pub(crate) fn read_named(&mut self, value: &Value) -> Message {
        match self.read(value) {
            Message::Answered { .. } => Message::Odd,
            other => other,
        }
    }

    /// Reads a message.
    pub(crate) fn read(&mut self, value: &Value) -> Message {
        let method = reading::id(value, "/method");
        let id = value.get("id").filter(|id| is_id(id)).cloned();
        let params = value.get("params").cloned().unwrap_or(Value::Null);
        match (method, id) {
            (Some(method), Some(id)) => Message::Request { id, method, params },
            (Some(method), None) => Message::Told { method, params },
            (None, Some(id)) => {
                let asked = id.as_u64().and_then(|id| self.waiting.remove(&id));
                let Some(asked) = asked else { return Message::Odd };
                let result = match (value.get("result"), value.get("error")) {
                    (Some(result), None) => Ok(result.clone()),
                    (_, Some(error)) => Err(reading::text(error, "/message").unwrap_or_default()),
                    (None, None) => Ok(Value::Null),
                };
                Message::Answered { asked, result }
            }
            (None, None) => Message::Odd,
        }
    }
}

/// What can be an id: a number or a short text.
fn is_id(value: &Value) -> bool {
    value.is_u64() || value.is_i64() || value.as_str().is_some_and(|text| text.len() <= 256)
}
