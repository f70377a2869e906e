//! Messages of JSON-RPC as this protocol uses them, the revisions, and the errors with their numbers.
//!
//! **Trust:** whoever wrote the message is unknown. Ids are kept only when they are short; nothing is looked up by them
//! across callers.
use serde_json::{Map, Value, json};

/// The revision without sessions.
pub const MODERN: &str = "2026-07-28";
/// The revisions that begin with `initialize`, newest first.
pub const LEGACY: [&str; 2] = ["2025-11-25", "2025-06-18"];
/// Longest id and longest name of a method.
const MOST_ID: usize = 256;

/// Where a modern request says which revision it speaks.
pub(crate) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// Where it says what its client can do.
pub(crate) const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// Where it says which log messages it wants.
pub(crate) const LOG_KEY: &str = "io.modelcontextprotocol/logLevel";
/// Where notifications of a stream name it.
pub(crate) const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";
/// Where results say who answers.
pub(crate) const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Which of the two ways of speaking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Every request says everything itself.
    Modern,
    /// `initialize`, then a session; the revision that was agreed upon.
    Legacy(&'static str),
}

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    /// The number of the protocol.
    pub code: i64,
    /// In words.
    pub message: String,
    /// What helps a program.
    pub data: Option<Value>,
    /// The status over HTTP.
    pub status: u16,
}

impl RpcError {
    /// With a number and words; over HTTP the answer as such went well.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            status: 200,
        }
    }

    /// With what helps a program.
    #[must_use]
    pub fn data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// With another status over HTTP.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// No JSON at all.
    #[must_use]
    pub fn parse(why: &str) -> Self {
        Self::new(-32700, format!("this is no JSON that is taken: {}", plain(why))).status(400)
    }

    /// No message of the protocol.
    #[must_use]
    pub fn request(why: &str) -> Self {
        Self::new(-32600, why).status(400)
    }

    /// A method that is not served.
    #[must_use]
    pub fn method(name: &str) -> Self {
        Self::new(-32601, format!("there is no method {}", plain(name))).status(404)
    }

    /// Parameters that are not understood.
    #[must_use]
    pub fn params(why: impl Into<String>) -> Self {
        Self::new(-32602, why)
    }

    /// Something failed inside.
    #[must_use]
    pub fn internal(why: impl Into<String>) -> Self {
        Self::new(-32603, why)
    }

    /// A resource that is not there: the older revisions have a number of its own for it.
    #[must_use]
    pub fn no_resource(era: Era, uri: &str) -> Self {
        let code = match era {
            Era::Modern => -32602,
            Era::Legacy(_) => -32002,
        };
        Self::new(code, "there is no such resource").data(json!({ "uri": plain(uri) }))
    }

    /// The client did not say that it can do this.
    #[must_use]
    pub fn capability(needed: &str) -> Self {
        Self::new(-32021, format!("the client must be able to do: {needed}"))
            .data(json!({ "requiredCapabilities": { needed: {} } }))
            .status(400)
    }

    /// A header and the body disagree, or the header is missing.
    pub(crate) fn header(why: impl Into<String>) -> Self {
        Self::new(-32020, why).status(400)
    }

    /// A revision that is not served.
    pub(crate) fn version(asked: &str) -> Self {
        let mut supported = vec![MODERN];
        supported.extend(LEGACY);
        Self::new(-32022, "this revision of the protocol is not served")
            .data(json!({ "supported": supported, "requested": plain(asked) }))
            .status(400)
    }

    /// More at once than is served.
    pub(crate) fn busy() -> Self {
        Self::new(-31_000, "too many requests are under way; ask again later").status(429)
    }

    /// As a message, to the request of this id.
    pub(crate) fn message(&self, id: &Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

/// Text of a message in one of ours: short, without anything that acts on a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// What came.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    /// Something that wants an answer.
    Request(Request),
    /// Something that wants none.
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// An answer to something we asked.
    Response {
        id: String,
        outcome: Result<Value, Value>,
    },
}

/// Something that wants an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Map<String, Value>,
}

impl Request {
    /// What the request says about itself.
    pub(crate) fn meta(&self) -> Option<&Map<String, Value>> {
        self.params.get("_meta").and_then(Value::as_object)
    }

    /// The revision that the request names itself.
    pub(crate) fn version(&self) -> Option<&str> {
        self.meta()?.get(VERSION_KEY)?.as_str()
    }

    /// Whether it is spoken in the way without sessions.
    pub(crate) fn is_modern(&self) -> bool {
        self.meta().is_some_and(|meta| meta.contains_key(VERSION_KEY))
    }

    /// A parameter that is text.
    pub(crate) fn text(&self, name: &str) -> Result<String, RpcError> {
        match self.params.get(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) | None => Err(RpcError::params(format!("params.{name}: text"))),
        }
    }

    /// A parameter that is an object, or nothing.
    pub(crate) fn object(&self, name: &str) -> Result<Map<String, Value>, RpcError> {
        match self.params.get(name) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(members)) => Ok(members.clone()),
            Some(_) => Err(RpcError::params(format!("params.{name}: an object"))),
        }
    }
}

/// The id that an answer to this may carry; null where it has none that can be told.
pub(crate) fn id_of(value: &Value) -> Value {
    match value.get("id") {
        Some(id) if good_id(id) => id.clone(),
        Some(_) | None => Value::Null,
    }
}

fn good_id(id: &Value) -> bool {
    match id {
        Value::String(text) => text.len() <= MOST_ID,
        Value::Number(number) => number.is_i64() || number.is_u64(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Reads a message.
pub(crate) fn read(value: Value) -> Result<Message, RpcError> {
    let Value::Object(mut members) = value else {
        return Err(RpcError::request("one message at a time, as an object"));
    };
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(RpcError::request("jsonrpc: \"2.0\""));
    }
    let id = members.remove("id");
    if id.as_ref().is_some_and(|id| !good_id(id)) {
        return Err(RpcError::request("id: a short text or a whole number"));
    }
    let params = match members.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(RpcError::params("params: an object").status(400)),
    };
    match (members.remove("method"), id) {
        (Some(Value::String(method)), id) if method.len() <= MOST_ID => Ok(match id {
            Some(id) => Message::Request(Request { id, method, params }),
            None => Message::Notification { method, params },
        }),
        (None, Some(Value::String(id))) => match (members.remove("result"), members.remove("error")) {
            (Some(result), None) => Ok(Message::Response {
                id,
                outcome: Ok(result),
            }),
            (None, Some(error)) => Ok(Message::Response {
                id,
                outcome: Err(error),
            }),
            (_, _) => Err(RpcError::request("neither a request nor an answer")),
        },
        // We never give a number as an id: nobody waits for such an answer.
        (None, Some(_)) => Err(RpcError::request("an answer to nothing that was asked")),
        (_, _) => Err(RpcError::request("method: a short text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_message_is_refused_and_a_message_is_read() {
        for bad in [
            json!([]),
            json!([{ "jsonrpc": "2.0", "id": 1, "method": "ping" }]),
            json!("ping"),
            json!({ "id": 1, "method": "ping" }),
            json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": 1.5, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": null, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": {}, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": "x".repeat(257), "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": 5 }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "p".repeat(257) }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": [] }),
            json!({ "jsonrpc": "2.0", "id": "a", "result": {}, "error": {} }),
            json!({ "jsonrpc": "2.0", "id": 7, "result": {} }),
            json!({ "jsonrpc": "2.0" }),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
        let good = read(json!({ "jsonrpc": "2.0", "id": "a", "method": "ping" })).unwrap();
        assert!(matches!(good, Message::Request(Request { method, .. }) if method == "ping"));
        let told = read(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).unwrap();
        assert!(matches!(told, Message::Notification { .. }));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z/_.0-9]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let keys = prop_oneof![
                Just("jsonrpc".to_owned()),
                Just("id".to_owned()),
                Just("method".to_owned()),
                Just("params".to_owned()),
                Just("result".to_owned()),
                Just("error".to_owned()),
                "[a-z]{1,6}",
            ];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((keys, inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_json_is_a_message_or_an_error(value in any_json()) {
            if let Ok(Message::Request(request)) = read(value) {
                prop_assert!(good_id(&request.id) && request.method.len() <= MOST_ID);
            }
        }
    }
}
