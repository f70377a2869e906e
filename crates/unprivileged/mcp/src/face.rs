//! What is offered, as the one who offers it sees it: questions come in one form whichever revision they were asked in.
//!
//! **Trust:** the caller is whoever the transport recognised; names, addresses and arguments are untrusted.
use crate::words::{Era, LOG_KEY, RpcError};
use serde_json::{Map, Value, json};
use std::future::Future;
use tokio::sync::mpsc;

/// How a face presents itself.
#[derive(Clone, Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What a model should know before it uses the tools.
    pub instructions: &'static str,
    /// What it can do, as the protocol writes it.
    pub capabilities: Value,
}

/// What is asked of a face.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// Which tools there are.
    Tools,
    /// Which resources there are, from a cursor of the answer before.
    Resources(Option<String>),
    /// Which patterns of resources there are.
    Templates,
    /// Which prompts there are.
    Prompts,
    /// To use a tool.
    Call {
        /// Its name.
        name: String,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
    /// To read a resource.
    Read {
        /// Its address.
        uri: String,
    },
    /// To fill in a prompt.
    Prompt {
        /// Its name.
        name: String,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
    /// To complete an argument; the parameters as they came.
    Complete(Map<String, Value>),
    /// To be told when a resource changes (older revisions).
    Subscribe(String),
    /// Not to be told any more (older revisions).
    Unsubscribe(String),
}

/// What a face answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The result.
    Done(Map<String, Value>),
    /// Somebody must answer these first, by name; the question comes again with `Call::inputs`.
    Ask {
        /// Requests as the protocol writes them: `{"method": …, "params": …}`.
        requests: Map<String, Value>,
        /// What the face wants to know then; nobody else can change it.
        state: Option<Value>,
    },
}

/// A result that is an object.
#[must_use]
pub fn done(result: Value) -> Outcome {
    match result {
        Value::Object(members) => Outcome::Done(members),
        other => Outcome::Done(Map::from_iter([("result".to_owned(), other)])),
    }
}

/// What somebody wants to be told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Changes of the list of tools.
    pub tools: bool,
    /// Changes of the list of prompts.
    pub prompts: bool,
    /// Changes of the list of resources.
    pub resources: bool,
    /// Changes of these resources.
    pub uris: Vec<String>,
}

/// One question, and the way back to whoever asked.
pub struct Call<C> {
    /// Who asks.
    pub caller: C,
    /// In which way.
    pub era: Era,
    /// What the client can do, in its own words.
    pub capabilities: Map<String, Value>,
    /// Answers to what was asked back, by name. Untrusted.
    pub inputs: Map<String, Value>,
    /// What the face wanted to know again.
    pub state: Option<Value>,
    /// Where words in between go.
    pub out: Out,
}

impl<C> Call<C> {
    /// Whether the client can do this.
    #[must_use]
    pub fn declares(&self, capability: &str) -> bool {
        self.capabilities
            .get(capability)
            .is_some_and(|value| !value.is_null() && *value != Value::Bool(false))
    }
}

/// The way to whoever asked, while the answer is not there yet.
#[derive(Clone, Debug)]
pub struct Out {
    pub(crate) sender: mpsc::Sender<Value>,
    pub(crate) token: Option<Value>,
    pub(crate) logs: bool,
    pub(crate) stream: Option<Value>,
}

impl Out {
    pub(crate) fn of(sender: mpsc::Sender<Value>, meta: Option<&Map<String, Value>>, era: Era) -> Self {
        let token = meta.and_then(|meta| meta.get("progressToken")).cloned();
        let token = token.filter(|token| token.is_string() || token.is_i64() || token.is_u64());
        Self {
            sender,
            token,
            logs: match era {
                Era::Modern => meta.is_some_and(|meta| meta.contains_key(LOG_KEY)),
                Era::Legacy(_) => true,
            },
            stream: None,
        }
    }

    /// Whether anybody wants to know how far it is.
    #[must_use]
    pub fn wants_progress(&self) -> bool {
        self.token.is_some()
    }

    /// Says how far it is; `done` must grow.
    pub async fn progress(&self, done: u64, total: Option<u64>, message: &str) {
        let Some(token) = &self.token else {
            return;
        };
        let mut params = json!({ "progressToken": token, "progress": done, "message": message });
        if let Some(total) = total {
            params["total"] = total.into();
        }
        self.tell("notifications/progress", params).await;
    }

    /// Says something for a log, where it is wanted.
    pub async fn log(&self, level: &str, logger: &str, data: Value) {
        if self.logs {
            let params = json!({ "level": level, "logger": logger, "data": data });
            self.tell("notifications/message", params).await;
        }
    }

    /// Sends a notification. Where nobody hears any more it is lost, and the work is about to be dropped.
    pub async fn tell(&self, method: &str, mut params: Value) {
        if let Some(stream) = &self.stream {
            params["_meta"] = json!({ crate::words::SUBSCRIPTION_KEY: stream });
        }
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        drop(self.sender.send(message).await);
    }
}

/// Somebody who offers tools, resources and prompts.
pub trait Face: Send + Sync + 'static {
    /// Whoever asks, as the transport recognised them.
    type Caller: Clone + Send + Sync + 'static;

    /// Who this is.
    fn about(&self) -> About;

    /// What tells two callers apart: sessions and sealed states belong to it.
    fn key(&self, caller: &Self::Caller) -> String;

    /// Reads bytes as JSON; a stricter parser may be put here.
    ///
    /// # Errors
    /// When the bytes are no JSON that is taken.
    fn parse(&self, bytes: &[u8]) -> Result<Value, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// Answers a question.
    fn serve(
        &self,
        asked: Asked,
        call: &Call<Self::Caller>,
    ) -> impl Future<Output = Result<Outcome, RpcError>> + Send;

    /// Tells changes by [`Out::tell`] until there is nothing more to tell; then the stream is closed in order.
    fn listen(&self, wanted: Wanted, caller: Self::Caller, out: Out) -> impl Future<Output = ()> + Send {
        let _ = (wanted, caller, out);
        std::future::pending()
    }
}
