//! A model that says what a test tells it to say, in the four ways models are spoken to: Anthropic's messages, OpenAI's
//! responses, OpenAI's chat completions and Google's contents. It speaks TLS under a name of its own and remembers every request.
//!
//! What asks it comes from an agent behind egress: requests are bounded in size and number.
mod http;
mod wire;

use crate::agent::Agent;
use crate::scene::PATIENCE;
use crate::support::eventually;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Its name; the name server of the tests knows it.
pub(crate) const HOST: &str = "model.lab.test";
/// The credential that it takes. Nobody inside a fence may ever see it.
pub(crate) const KEY: &str = "sk-lab-2c7d19e4b8f05a63d1c94e7b20f86a5d";
/// Requests that it answers: a test that needs more runs in circles.
const MOST: usize = 300;
/// How long an answer is held back at most.
const HELD: Duration = Duration::from_secs(300);

/// One answer of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    /// What it says.
    words: String,
    /// What it has the agent do.
    calls: Vec<Call>,
    held: bool,
}

/// Something that an agent is told to do, with the tool it has for that.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// A command of the shell.
    Shell(String),
    /// A file with these contents.
    Write(String, String),
    /// A tool by its name.
    Tool(String, Value),
}

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// What for.
    pub(crate) path: String,
    /// Its headers, names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    /// Its body.
    pub(crate) body: Value,
    /// Whether it is of the conversation: titles and the like offer no tools.
    pub(crate) offers_tools: bool,
}

/// The server. It ends with the process.
pub(crate) struct Model {
    /// Its port.
    pub(crate) port: u16,
    /// The certificate of the authority that vouches for it.
    pub(crate) authority: String,
    shared: Arc<Shared>,
}

struct Shared {
    agent: Agent,
    script: Vec<Turn>,
    seen: Mutex<Seen>,
    change: Condvar,
}

#[derive(Default)]
struct Seen {
    requests: Vec<Request>,
    /// How many of them are of the conversation.
    turns: usize,
    released: BTreeSet<usize>,
}

impl Turn {
    /// Says something and ends its turn.
    pub(crate) fn says(words: &str) -> Self {
        Self {
            words: words.to_owned(),
            ..Self::default()
        }
    }

    /// Has the agent do something.
    pub(crate) fn does(call: Call) -> Self {
        Self {
            calls: vec![call],
            ..Self::default()
        }
    }

    /// Has the agent run a command.
    pub(crate) fn runs(command: &str) -> Self {
        Self::does(Call::Shell(command.to_owned()))
    }

    /// Held back until the test lets it go.
    pub(crate) fn held(self) -> Self {
        Self { held: true, ..self }
    }
}

impl Request {
    /// A header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// What tools gave back so far, oldest first.
    pub(crate) fn results(&self) -> Vec<String> {
        wire::results(&self.body)
    }
}

impl Model {
    /// Starts it for an agent. After the last turn of the script it says that it is done.
    pub(crate) fn start(agent: Agent, script: Vec<Turn>) -> Self {
        let (config, authority) = identity();
        Self::serving(agent, script, Some(config), authority)
    }

    /// The same in the clear, for an agent outside of any fence.
    pub(crate) fn plain(agent: Agent, script: Vec<Turn>) -> Self {
        Self::serving(agent, script, None, String::new())
    }

    fn serving(
        agent: Agent,
        script: Vec<Turn>,
        config: Option<Arc<ServerConfig>>,
        authority: String,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has free ports");
        let port = listener.local_addr().expect("is bound").port();
        let shared = Arc::new(Shared {
            agent,
            script,
            seen: Mutex::default(),
            change: Condvar::new(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, shared) = (config.clone(), Arc::clone(&serving));
                std::thread::spawn(move || {
                    if let Err(error) = shared.serve(config, stream) {
                        eprintln!("the model lost a connection: {error}");
                    }
                });
            }
        });
        Self {
            port,
            authority,
            shared,
        }
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.seen().requests.clone()
    }

    /// The requests of the conversation so far.
    pub(crate) fn turns(&self) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.offers_tools);
        requests
    }

    /// Waits until the conversation has this many requests.
    #[track_caller]
    pub(crate) fn asked(&self, turns: usize) {
        let reached = eventually(PATIENCE, || self.shared.seen().turns >= turns);
        let paths: Vec<String> = self.requests().into_iter().map(|request| request.path).collect();
        assert!(reached, "the model was not asked {turns} times: {paths:?}");
    }

    /// Lets the answer to the request with this number go, counted from one.
    pub(crate) fn release(&self, turn: usize) {
        self.shared.seen().released.insert(turn);
        self.shared.change.notify_all();
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("nobody panics with it")
    }

    fn serve(&self, config: Option<Arc<ServerConfig>>, stream: TcpStream) -> Result<(), String> {
        let mut peer = http::Peer::new(config, stream)?;
        while let Some(asked) = peer.request()? {
            let Some((kind, body)) = self.answer(&asked) else {
                return peer.respond(404, "text/plain", b"the model knows no such thing\n");
            };
            peer.respond(200, kind, &body)?;
        }
        Ok(())
    }

    /// The answer, and what it is.
    fn answer(&self, asked: &http::Asked) -> Option<(&'static str, Vec<u8>)> {
        let path = asked.path.split('?').next().unwrap_or_default();
        let body: Value = serde_json::from_slice(&asked.body).unwrap_or(Value::Null);
        let offers_tools =
            self.agent == Agent::Aider || body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let request = Request {
            path: path.to_owned(),
            headers: asked.headers.clone(),
            body,
            offers_tools,
        };
        let manner = wire::Manner::of(&request);
        let number = {
            let mut seen = self.seen();
            if seen.requests.len() >= MOST {
                return None;
            }
            seen.requests.push(request.clone());
            if manner.is_some() && offers_tools {
                seen.turns += 1;
            }
            seen.turns
        };
        let Some(manner) = manner else {
            return wire::aside(path);
        };
        let turn = match offers_tools {
            true => self
                .script
                .get(number - 1)
                .cloned()
                .unwrap_or(Turn::says("Done.")),
            false => Turn::says("A title"),
        };
        if turn.held {
            self.wait_for(number);
        }
        let calls = turn.calls.iter().map(|call| self.agent.call(call)).collect();
        Some(manner.render(number, &turn.words, calls, &request.body))
    }

    fn wait_for(&self, turn: usize) {
        let seen = self.seen();
        let waits = |seen: &mut Seen| !seen.released.contains(&turn);
        let waited = self.change.wait_timeout_while(seen, HELD, waits);
        drop(waited.expect("nobody panics with it"));
    }
}

/// An authority of this process, and what a server under it needs.
fn identity() -> (Arc<ServerConfig>, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names are good names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key can be made");
    let authority = params.self_signed(&key).expect("can be signed").pem();
    let leaf_key = KeyPair::generate().expect("a key can be made");
    let leaf = CertificateParams::new(vec![HOST.to_owned()])
        .expect("a good name")
        .signed_by(&leaf_key, &Issuer::from_params(&params, &key))
        .expect("can be signed");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], private)
        .expect("key and certificate belong together");
    (Arc::new(config), authority)
}
