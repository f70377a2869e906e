//! Where requests are taken: how many at once, which sessions there are, and who waits for which answer.
//!
//! **Trust:** a session, a question that waits and a sealed state belong to the caller they were made for; for anybody else
//! they do not exist.
use crate::face::{Face, Wanted};
use crate::limits::Limits;
use crate::seal::{self, Seal};
use crate::words::RpcError;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// A face, with everything that is kept for its clients.
pub struct Desk<F: Face> {
    pub(crate) face: F,
    pub(crate) limits: Limits,
    pub(crate) seal: Seal,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    sessions: HashMap<String, Held>,
    waiting: HashMap<String, Waiting>,
    at_work: HashMap<String, usize>,
}

struct Held {
    caller: String,
    session: Arc<Session>,
    used: Instant,
}

/// What was agreed upon with a client of an older revision.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) version: &'static str,
    pub(crate) capabilities: Map<String, Value>,
}

struct Waiting {
    caller: String,
    answer: oneshot::Sender<Result<Value, Value>>,
}

/// A request under way; dropped, it is over.
pub(crate) struct AtWork<F: Face> {
    desk: Arc<Desk<F>>,
    caller: String,
}

/// A question that was asked back; dropped, nobody waits any more.
pub(crate) struct Asking<'a, F: Face> {
    desk: &'a Desk<F>,
    pub(crate) id: String,
    pub(crate) answer: oneshot::Receiver<Result<Value, Value>>,
}

impl<F: Face> Desk<F> {
    /// A desk for this face.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(face: F, limits: Limits) -> Result<Self, RpcError> {
        Ok(Self {
            face,
            limits,
            seal: Seal::new()?,
            kept: Mutex::new(Kept::default()),
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // What is kept are plain maps: whole after any panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request, if there is room.
    pub(crate) fn begin(self: &Arc<Self>, caller: &str) -> Result<AtWork<F>, RpcError> {
        let mut kept = self.kept();
        let all: usize = kept.at_work.values().sum();
        let own = kept.at_work.get(caller).copied().unwrap_or(0);
        if all >= self.limits.in_all || own >= self.limits.per_caller {
            return Err(RpcError::busy());
        }
        kept.at_work.insert(caller.to_owned(), own + 1);
        Ok(AtWork {
            desk: Arc::clone(self),
            caller: caller.to_owned(),
        })
    }

    /// Keeps a session and gives its name.
    pub(crate) fn open(&self, caller: &str, session: Session) -> Result<String, RpcError> {
        let name = seal::name()?;
        let now = Instant::now();
        let idle = self.limits.idle;
        let mut kept = self.kept();
        kept.sessions
            .retain(|_, held| now.duration_since(held.used) < idle);
        let (most_own, most) = self.limits.sessions;
        let own = kept
            .sessions
            .values()
            .filter(|held| held.caller == caller)
            .count();
        if own >= most_own {
            // Clients come and go without a word: the caller's oldest makes room, never somebody else's.
            let oldest = kept.sessions.iter().filter(|(_, held)| held.caller == caller);
            if let Some(oldest) = oldest
                .min_by_key(|(_, held)| held.used)
                .map(|(name, _)| name.clone())
            {
                kept.sessions.remove(&oldest);
            }
        } else if kept.sessions.len() >= most {
            return Err(RpcError::busy());
        }
        let held = Held {
            caller: caller.to_owned(),
            session: Arc::new(session),
            used: now,
        };
        kept.sessions.insert(name.clone(), held);
        Ok(name)
    }

    /// The session of this name, if it is the caller's.
    pub(crate) fn session(&self, caller: &str, name: &str) -> Option<Arc<Session>> {
        let mut kept = self.kept();
        let held = kept.sessions.get_mut(name).filter(|held| held.caller == caller)?;
        if held.used.elapsed() >= self.limits.idle {
            return None;
        }
        held.used = Instant::now();
        Some(Arc::clone(&held.session))
    }

    /// Ends a session.
    pub(crate) fn close(&self, caller: &str, name: &str) -> bool {
        let mut kept = self.kept();
        let own = kept.sessions.get(name).is_some_and(|held| held.caller == caller);
        own && kept.sessions.remove(name).is_some()
    }

    /// Begins to wait for an answer of the caller.
    pub(crate) fn ask(&self, caller: &str) -> Result<Asking<'_, F>, RpcError> {
        let id = seal::name()?;
        let (answer, receiver) = oneshot::channel();
        let waiting = Waiting {
            caller: caller.to_owned(),
            answer,
        };
        self.kept().waiting.insert(id.clone(), waiting);
        Ok(Asking {
            desk: self,
            id,
            answer: receiver,
        })
    }

    /// An answer came. One that nobody waits for is nothing.
    pub(crate) fn answered(&self, caller: &str, id: &str, outcome: Result<Value, Value>) -> bool {
        let mut kept = self.kept();
        if kept
            .waiting
            .get(id)
            .is_none_or(|waiting| waiting.caller != caller)
        {
            return false;
        }
        let Some(waiting) = kept.waiting.remove(id) else {
            return false;
        };
        waiting.answer.send(outcome).is_ok()
    }

    /// What of the wishes the face can tell.
    pub(crate) fn honoured(&self, filter: &Map<String, Value>) -> Result<Wanted, RpcError> {
        let able = self.face.about().capabilities;
        let changes = |what: &str, word: &str| able[what][word] == Value::Bool(true);
        let wish = |name: &str| filter.get(name) == Some(&Value::Bool(true));
        let mut wanted = Wanted {
            tools: wish("toolsListChanged") && changes("tools", "listChanged"),
            prompts: wish("promptsListChanged") && changes("prompts", "listChanged"),
            resources: wish("resourcesListChanged") && changes("resources", "listChanged"),
            uris: Vec::new(),
        };
        match filter.get("resourceSubscriptions") {
            None => {}
            Some(Value::Array(uris)) if uris.len() <= 16 => {
                for uri in uris {
                    let uri = uri.as_str().filter(|uri| uri.len() <= 1024);
                    let uri = uri.ok_or_else(|| RpcError::params("resourceSubscriptions: short texts"))?;
                    if changes("resources", "subscribe") {
                        wanted.uris.push(uri.to_owned());
                    }
                }
            }
            Some(_) => return Err(RpcError::params("resourceSubscriptions: at most 16 addresses")),
        }
        Ok(wanted)
    }
}

impl Wanted {
    /// As the protocol writes it.
    pub(crate) fn words(&self) -> Value {
        let mut words = json!({});
        for (name, wanted) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if wanted {
                words[name] = true.into();
            }
        }
        if !self.uris.is_empty() {
            words["resourceSubscriptions"] = self.uris.clone().into();
        }
        words
    }
}

impl<F: Face> Drop for AtWork<F> {
    fn drop(&mut self) {
        let mut kept = self.desk.kept();
        if let Some(own) = kept.at_work.get_mut(&self.caller) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                kept.at_work.remove(&self.caller);
            }
        }
    }
}

impl<F: Face> Drop for Asking<'_, F> {
    fn drop(&mut self) {
        self.desk.kept().waiting.remove(&self.id);
    }
}
