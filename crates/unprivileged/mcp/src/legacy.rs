//! 2025-11-25 and 2025-06-18: `initialize`, then a session, and questions back to the client as requests of our own.
use crate::desk::{Desk, Session};
use crate::face::{Call, Face, Out, Outcome};
use crate::modern::{asked, declared};
use crate::words::{Era, LEGACY, Request, RpcError};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

/// Rounds of questions within one request.
const MOST_ROUNDS: usize = 8;

/// The session that an `initialize` asks for.
pub(crate) fn agree(request: &Request) -> Result<Session, RpcError> {
    let asked = request
        .text("protocolVersion")
        .map_err(|error| error.status(400))?;
    // A client that speaks another one may end the conversation; it is told which is meant.
    let version = LEGACY
        .into_iter()
        .find(|known| *known == asked)
        .unwrap_or(LEGACY[0]);
    let capabilities = request
        .object("capabilities")
        .map_err(|error| error.status(400))?;
    Ok(Session {
        version,
        capabilities,
    })
}

impl<F: Face> Desk<F> {
    /// The answer to `initialize`.
    pub(crate) fn welcome(&self, session: &Session) -> Value {
        let about = self.face.about();
        let mut capabilities = about.capabilities;
        // `resources/subscribe` of these revisions needs a stream from the server that is not served here; changes are
        // told by `subscriptions/listen` of the newer one.
        if let Some(resources) = capabilities.get_mut("resources").and_then(Value::as_object_mut) {
            resources.remove("subscribe");
        }
        json!({
            "protocolVersion": session.version,
            "capabilities": capabilities,
            "serverInfo": { "name": about.name, "title": about.title, "version": about.version },
            "instructions": about.instructions,
        })
    }

    /// Answers a request within a session.
    pub(crate) async fn legacy(
        &self,
        request: &Request,
        session: &Session,
        caller: F::Caller,
        sender: mpsc::Sender<Value>,
    ) -> Result<Value, RpcError> {
        match request.method.as_str() {
            "ping" => return Ok(json!({})),
            "logging/setLevel" => return self.set_level(request),
            _ => {}
        }
        let asked = asked(request).map_err(|mut error| {
            // The older revisions answer 200 whatever the error is.
            error.status = 200;
            error
        })?;
        let era = Era::Legacy(session.version);
        let key = self.face.key(&caller);
        let mut call = Call {
            caller,
            era,
            capabilities: session.capabilities.clone(),
            inputs: Map::new(),
            state: None,
            out: Out::of(sender, request.meta(), era),
        };
        for _ in 0..MOST_ROUNDS {
            match self.face.serve(asked.clone(), &call).await? {
                Outcome::Done(result) => return Ok(Value::Object(result)),
                Outcome::Ask { requests, state } => {
                    for (name, wish) in requests {
                        declared(&call, &wish).map_err(|error| error.status(200))?;
                        let answer = self.ask_back(&key, &call.out, &wish).await?;
                        call.inputs.insert(name, answer);
                    }
                    call.state = state;
                }
            }
        }
        Err(RpcError::internal("too many questions in one request"))
    }

    fn set_level(&self, request: &Request) -> Result<Value, RpcError> {
        if self.face.about().capabilities["logging"].is_null() {
            return Err(RpcError::method("logging/setLevel").status(200));
        }
        request.text("level").map(|_| json!({}))
    }

    async fn ask_back(&self, key: &str, out: &Out, wish: &Value) -> Result<Value, RpcError> {
        let mut asking = self.ask(key)?;
        let mut message = json!({ "jsonrpc": "2.0", "id": asking.id, "method": wish["method"] });
        if let Some(params) = wish.get("params") {
            message["params"] = params.clone();
        }
        if out.sender.send(message).await.is_err() {
            return Err(RpcError::internal("nobody is there to be asked"));
        }
        match tokio::time::timeout(self.limits.answer, &mut asking.answer).await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(error))) => {
                let why = error["message"].as_str().unwrap_or("no reason");
                Err(RpcError::internal(format!(
                    "the client did not answer: {}",
                    crate::words::plain(why)
                )))
            }
            Ok(Err(_)) | Err(_) => Err(RpcError::internal("nobody answered in time")),
        }
    }
}
