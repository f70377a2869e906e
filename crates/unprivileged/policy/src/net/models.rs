//! Which requests a model answers: built-in data, and what policy layers declare.
//!
//! **Trust:** declarations come from merging: an untrusted layer can add endpoints (more is counted), never take a host
//! out of counting or set a price. Hosts, methods and paths of the questions come from the agent; where a spelling is
//! doubtful the request counts.
use super::{GIT_HOSTS, NetPolicy, NetRequest};
use crate::host::{Host, HostPattern};
use crate::names::glob;
use crate::urlpath::path_matches;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;

const BUILT_IN: &str = include_str!("models.json");

/// How often percent-escapes are undone: a proxy, a gateway and the server may each do it once.
const MAX_DECODES: usize = 4;

/// The shape of a model API; decides which paths count, and whether answers tell what they used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelApi {
    /// Chat Completions.
    OpenaiChat,
    /// Completions.
    OpenaiCompletions,
    /// Responses.
    OpenaiResponses,
    /// Realtime, over a WebSocket.
    OpenaiRealtime,
    /// Messages.
    AnthropicMessages,
    /// generateContent, also of Vertex AI.
    Gemini,
    /// Bedrock Runtime.
    Bedrock,
    /// `/api/chat`.
    OllamaChat,
    /// `/api/generate`.
    OllamaGenerate,
    /// `/completion`.
    LlamaCpp,
    /// `/generate`.
    TextGeneration,
    /// Cohere's own.
    CohereChat,
    /// Batches and assistants: answers that cannot be counted.
    Deferred,
}

/// What one token costs as a policy states it, in billionths of a dollar: a dollar for a million tokens is 1 000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// Tokens in.
    pub input: u64,
    /// Tokens out.
    pub output: u64,
    /// Tokens read from a cache.
    pub cache_read: u64,
    /// Tokens written to a cache.
    pub cache_write: u64,
}

/// What a policy declares about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Declared {
    /// A model answers there, in any of the known shapes.
    Any,
    /// A model answers there in this shape.
    Api(ModelApi),
    /// No model answers there: it is not read for counting.
    None,
}

/// One entry of `net.models`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEndpoint {
    /// The host.
    pub host: HostPattern,
    /// Its port; `None`: every one.
    pub port: Option<u16>,
    /// Paths; empty: those of the API.
    pub paths: Vec<String>,
    /// What answers.
    pub api: Declared,
    /// What its tokens cost, whatever the model is called.
    pub price: Option<ModelPrice>,
}

/// A request that a model answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelCall {
    /// Whether its answer tells what it used.
    pub counted: bool,
    /// The price that policy states.
    pub price: Option<ModelPrice>,
}

/// A request to a model's host that is none of the known calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlistedCall {
    /// Not at a model's host, or it only reads.
    None,
    /// A path at which nothing is generated.
    Management,
    /// A write: a model may answer it, and its answer may tell nothing.
    Write(ModelCall),
    /// A WebSocket: what passes inside is in a form that nobody declared.
    WebSocket,
}

/// What a host is to budgets of turns, tokens and cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRole {
    /// Models answer there: data or policy says so.
    Model,
    /// Policy says that no model answers there.
    NotModel,
    /// Neither the catalogue nor policy says what the host is.
    Unknown,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Table {
    #[expect(dead_code, reason = "for readers of the file")]
    note: String,
    #[expect(dead_code, reason = "for readers of the file")]
    date: String,
    apis: Vec<Api>,
    management: Vec<String>,
    hosts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Api {
    api: ModelApi,
    any_host: bool,
    counted: bool,
    priced: bool,
    paths: Vec<String>,
    #[expect(dead_code, reason = "for readers of the file")]
    reference: String,
}

/// The built-in data. A test keeps it readable; unreadable it would count nothing, so then every host is a model's.
fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        serde_json::from_str(BUILT_IN).unwrap_or_else(|_| Table {
            note: String::new(),
            date: String::new(),
            apis: Vec::new(),
            management: Vec::new(),
            hosts: vec!["*".to_owned()],
        })
    })
}

impl ModelApi {
    /// Every API that usage is read from.
    pub const ALL: [Self; 13] = [
        Self::OpenaiChat,
        Self::OpenaiCompletions,
        Self::OpenaiResponses,
        Self::OpenaiRealtime,
        Self::AnthropicMessages,
        Self::Gemini,
        Self::Bedrock,
        Self::OllamaChat,
        Self::OllamaGenerate,
        Self::LlamaCpp,
        Self::TextGeneration,
        Self::CohereChat,
        Self::Deferred,
    ];

    /// The word in a policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiCompletions => "openai-completions",
            Self::OpenaiResponses => "openai-responses",
            Self::OpenaiRealtime => "openai-realtime",
            Self::AnthropicMessages => "anthropic-messages",
            Self::Gemini => "gemini",
            Self::Bedrock => "bedrock",
            Self::OllamaChat => "ollama-chat",
            Self::OllamaGenerate => "ollama-generate",
            Self::LlamaCpp => "llama-cpp",
            Self::TextGeneration => "text-generation",
            Self::CohereChat => "cohere-chat",
            Self::Deferred => "deferred",
        }
    }

    /// Whether a price can be known for it: of servers that anybody runs none can.
    pub(super) fn is_unpriced(self) -> bool {
        self.data().is_some_and(|data| !data.priced && data.counted)
    }

    fn data(self) -> Option<&'static Api> {
        table().apis.iter().find(|data| data.api == self)
    }
}

impl Declared {
    /// The word in a policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Api(api) => api.name(),
            Self::None => "none",
        }
    }

    /// From its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "any" => Some(Self::Any),
            "none" => Some(Self::None),
            _ => ModelApi::ALL
                .into_iter()
                .find(|api| api.name() == word)
                .map(Self::Api),
        }
    }
}

impl ModelEndpoint {
    fn is_at(&self, host: &Host, port: u16) -> bool {
        self.host.matches(host) && self.port.is_none_or(|own| own == port || port == 0)
    }

    fn call(&self, path: &str) -> Option<ModelCall> {
        let hit = |counted| ModelCall {
            counted,
            price: self.price,
        };
        // Whatever shape or pattern is declared, deferred answers of the same server cannot be counted either.
        let deferred = table().apis.iter().any(|data| !data.counted && data.names(path));
        let own = self
            .paths
            .iter()
            .find(|pattern| path_matches(&pattern.to_ascii_lowercase(), path));
        if let Some(own) = own {
            let counted = match self.api {
                Declared::Api(api) => api.data().is_none_or(|data| data.counted),
                Declared::Any | Declared::None => true,
            };
            return Some(hit(counted && !(deferred && own.contains('*'))));
        }
        if deferred && self.api != Declared::None {
            return Some(hit(false));
        }
        let data = |data: &&Api| match self.api {
            Declared::Api(api) => self.paths.is_empty() && data.api == api,
            Declared::Any => self.paths.is_empty(),
            Declared::None => false,
        };
        let found = table().apis.iter().filter(data).find(|data| data.names(path))?;
        Some(hit(found.counted))
    }
}

impl fmt::Display for ModelEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write!(f, " {}", self.api.name())
    }
}

impl Api {
    fn names(&self, path: &str) -> bool {
        self.paths.iter().any(|pattern| path_matches(pattern, path))
    }
}

impl NetPolicy {
    /// Whether turns, tokens or cost have a limit.
    #[must_use]
    pub fn counts_models(&self) -> bool {
        self.budget.cost_micro_usd.is_some() || self.budget.tokens.is_some() || self.budget.turns.is_some()
    }

    /// What a host is to budgets.
    #[must_use]
    pub fn host_role(&self, host: &Host, port: u16) -> HostRole {
        let mut declared = self
            .models
            .iter()
            .filter(|entry| entry.is_at(host, port))
            .peekable();
        if declared.peek().is_some() {
            // A second declaration that says "model" wins over one that says "none".
            return if declared.all(|entry| entry.api == Declared::None) {
                HostRole::NotModel
            } else {
                HostRole::Model
            };
        }
        let name = host.as_str().as_bytes();
        if table().hosts.iter().any(|pattern| glob(pattern.as_bytes(), name)) {
            HostRole::Model
        } else if GIT_HOSTS.contains(&host.as_str()) {
            HostRole::NotModel
        } else {
            HostRole::Unknown
        }
    }

    /// Whether this request is one that a model answers. The spelling of the path is undone first: case, escapes,
    /// repeated and trailing slashes, dot segments and path parameters do not matter, so that none hides a request.
    #[must_use]
    pub fn model_call(&self, request: &NetRequest<'_>) -> Option<ModelCall> {
        let NetRequest {
            method,
            host,
            port,
            path,
            websocket,
            ..
        } = *request;
        let reads = ["GET", "HEAD", "OPTIONS", "DELETE"]
            .iter()
            .any(|word| method.eq_ignore_ascii_case(word));
        if reads && !websocket {
            return None;
        }
        let path = counting_path(path);
        let at = || self.models.iter().filter(|entry| entry.is_at(host, port));
        let price = at().find_map(|entry| entry.price);
        let with_price = |call: ModelCall| ModelCall {
            price: call.price.or(price),
            ..call
        };
        if let Some(call) = at().find_map(|entry| entry.call(&path)) {
            return Some(with_price(call));
        }
        let role = self.host_role(host, port);
        if role == HostRole::NotModel {
            return None;
        }
        let fitting = |data: &&Api| (data.any_host || role == HostRole::Model) && data.names(&path);
        let found: Vec<&Api> = table().apis.iter().filter(fitting).collect();
        let first = found.first()?;
        Some(with_price(ModelCall {
            counted: first.counted && found.iter().all(|data| data.counted),
            price: None,
        }))
    }

    /// What a request is that [`Self::model_call`] does not know.
    #[must_use]
    pub fn unlisted_call(&self, request: &NetRequest<'_>) -> UnlistedCall {
        let NetRequest { host, port, .. } = *request;
        match self.host_role(host, port) {
            HostRole::Model => {}
            HostRole::NotModel | HostRole::Unknown => return UnlistedCall::None,
        }
        if request.websocket {
            return UnlistedCall::WebSocket;
        }
        let method = request.method;
        if ["GET", "HEAD", "OPTIONS"]
            .iter()
            .any(|word| method.eq_ignore_ascii_case(word))
        {
            return UnlistedCall::None;
        }
        let path = counting_path(request.path);
        if table()
            .management
            .iter()
            .any(|pattern| path_matches(pattern, &path))
        {
            return UnlistedCall::Management;
        }
        let mut entries = self.models.iter().filter(|entry| entry.is_at(host, port));
        UnlistedCall::Write(ModelCall {
            counted: true,
            price: entries.find_map(|entry| entry.price),
        })
    }
}

/// One spelling for all that servers may read alike: the more spellings fall together, the more is counted.
fn counting_path(path: &str) -> String {
    let mut text = path.split(['?', '#']).next().unwrap_or_default().to_owned();
    for _ in 0..MAX_DECODES {
        let decoded = undo_escapes(&text);
        if decoded == text {
            break;
        }
        text = decoded;
    }
    let mut segments: Vec<String> = Vec::new();
    for segment in text.split(['/', '\\']) {
        let segment = segment.split([';', '?', '#']).next().unwrap_or_default();
        let segment = segment.trim_matches(|c: char| c.is_whitespace() || c.is_control());
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            _ => segments.push(segment.to_lowercase()),
        }
    }
    format!("/{}", segments.join("/"))
}

fn undo_escapes(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digit = |offset: usize| {
            let byte = bytes.get(at + offset)?;
            u8::try_from(char::from(*byte).to_digit(16)?).ok()
        };
        match (byte, digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high * 16 + low);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests;
