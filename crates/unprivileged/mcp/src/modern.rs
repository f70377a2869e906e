//! 2026-07-28: every request says which revision it speaks and what its client can do; nothing is kept in between.
use crate::desk::Desk;
use crate::face::{Asked, Call, Face, Out, Outcome};
use crate::seal;
use crate::words::{
    CAPABILITIES_KEY, Era, LEGACY, MODERN, Request, RpcError, SERVER_KEY, SUBSCRIPTION_KEY, VERSION_KEY,
};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

/// How long lists that never change within a version may be kept, and those that change.
const LONG_MS: u64 = 3_600_000;
const SHORT_MS: u64 = 0;

/// What a request must say about itself.
pub(crate) fn check(request: &Request) -> Result<Map<String, Value>, RpcError> {
    let bad = |why: &str| RpcError::params(why).status(400);
    let meta = request.meta().ok_or_else(|| bad("params._meta: an object"))?;
    match meta.get(VERSION_KEY) {
        Some(Value::String(version)) if version == MODERN => {}
        Some(Value::String(version)) => return Err(RpcError::version(version)),
        Some(_) | None => return Err(bad("params._meta: the revision of the protocol is missing")),
    }
    match meta.get(CAPABILITIES_KEY) {
        Some(Value::Object(capabilities)) => Ok(capabilities.clone()),
        Some(_) | None => Err(bad("params._meta: what the client can do is missing")),
    }
}

impl<F: Face> Desk<F> {
    /// Answers a request that was checked.
    pub(crate) async fn modern(
        &self,
        request: &Request,
        capabilities: Map<String, Value>,
        caller: F::Caller,
        sender: mpsc::Sender<Value>,
    ) -> Result<Value, RpcError> {
        let out = Out::of(sender, request.meta(), Era::Modern);
        match request.method.as_str() {
            "server/discover" => return Ok(self.discover()),
            "subscriptions/listen" => return self.stream(request, caller, out).await,
            "resources/subscribe" | "resources/unsubscribe" => return Err(RpcError::method(&request.method)),
            _ => {}
        }
        let asked = asked(request)?;
        let about = seal::question(&request.method, &request.params);
        let key = self.face.key(&caller);
        let state = match request.params.get("requestState") {
            None => None,
            Some(Value::String(sealed)) => Some(self.seal.open(&key, &about, sealed)?),
            Some(_) => return Err(RpcError::params("requestState: text").status(400)),
        };
        let call = Call {
            caller,
            era: Era::Modern,
            capabilities,
            inputs: request.object("inputResponses")?,
            state,
            out,
        };
        let cached = lifetime(&asked);
        let mut result = match self.face.serve(asked, &call).await? {
            Outcome::Done(result) => Value::Object(result),
            Outcome::Ask { requests, state } => {
                for (_, wish) in &requests {
                    declared(&call, wish)?;
                }
                let mut result = json!({ "resultType": "input_required" });
                if !requests.is_empty() {
                    result["inputRequests"] = Value::Object(requests);
                }
                let state = state.unwrap_or(Value::Null);
                result["requestState"] = self.seal.close(&key, &about, &state).into();
                return Ok(result);
            }
        };
        result["resultType"] = "complete".into();
        if let Some((ttl, scope)) = cached {
            result["ttlMs"] = ttl.into();
            result["cacheScope"] = scope.into();
        }
        Ok(result)
    }

    fn discover(&self) -> Value {
        let about = self.face.about();
        let mut versions = vec![MODERN];
        versions.extend(LEGACY);
        json!({
            "resultType": "complete",
            "supportedVersions": versions,
            "capabilities": about.capabilities,
            "instructions": about.instructions,
            "ttlMs": LONG_MS,
            "cacheScope": "private",
            "_meta": { SERVER_KEY: { "name": about.name, "title": about.title, "version": about.version } },
        })
    }

    /// A stream of notifications: what it holds is said first, and it ends with a result when there is no more to tell.
    async fn stream(&self, request: &Request, caller: F::Caller, mut out: Out) -> Result<Value, RpcError> {
        let Some(Value::Object(filter)) = request.params.get("notifications") else {
            return Err(RpcError::params("params.notifications: an object").status(400));
        };
        let wanted = self.honoured(filter)?;
        out.stream = Some(request.id.clone());
        let told = json!({ "notifications": wanted.words() });
        out.tell("notifications/subscriptions/acknowledged", told).await;
        self.face.listen(wanted, caller, out).await;
        Ok(json!({ "resultType": "complete", "_meta": { SUBSCRIPTION_KEY: request.id } }))
    }
}

/// Nothing is asked of a client that it did not say it can do.
pub(crate) fn declared<C>(call: &Call<C>, wish: &Value) -> Result<(), RpcError> {
    let needed = match wish["method"].as_str() {
        Some("elicitation/create") => "elicitation",
        Some("sampling/createMessage") => "sampling",
        Some("roots/list") => "roots",
        Some(_) | None => return Err(RpcError::internal("a question that no client knows")),
    };
    if call.declares(needed) {
        Ok(())
    } else {
        Err(RpcError::capability(needed))
    }
}

/// How long an answer may be kept, and by whom: what is about runs, not at all.
fn lifetime(asked: &Asked) -> Option<(u64, &'static str)> {
    match asked {
        Asked::Tools | Asked::Prompts | Asked::Templates => Some((LONG_MS, "private")),
        Asked::Resources(_) | Asked::Read { .. } => Some((SHORT_MS, "private")),
        Asked::Call { .. }
        | Asked::Prompt { .. }
        | Asked::Complete(_)
        | Asked::Subscribe(_)
        | Asked::Unsubscribe(_) => None,
    }
}

/// What the request asks of a face.
pub(crate) fn asked(request: &Request) -> Result<Asked, RpcError> {
    let cursor = match request.params.get("cursor") {
        None | Some(Value::Null) => None,
        Some(Value::String(cursor)) if cursor.len() <= 1024 => Some(cursor.clone()),
        Some(_) => return Err(RpcError::params("params.cursor: short text")),
    };
    let asked = match request.method.as_str() {
        "resources/list" => return Ok(Asked::Resources(cursor)),
        "tools/list" => Asked::Tools,
        "resources/templates/list" => Asked::Templates,
        "prompts/list" => Asked::Prompts,
        "tools/call" => Asked::Call {
            name: request.text("name")?,
            arguments: request.object("arguments")?,
        },
        "resources/read" => Asked::Read {
            uri: request.text("uri")?,
        },
        "prompts/get" => Asked::Prompt {
            name: request.text("name")?,
            arguments: request.object("arguments")?,
        },
        "completion/complete" => Asked::Complete(request.params.clone()),
        "resources/subscribe" => Asked::Subscribe(request.text("uri")?),
        "resources/unsubscribe" => Asked::Unsubscribe(request.text("uri")?),
        other => return Err(RpcError::method(other)),
    };
    match cursor {
        // These lists are given whole.
        Some(_) => Err(RpcError::params("params.cursor: none was given")),
        None => Ok(asked),
    }
}
