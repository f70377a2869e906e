//! Which daemon a verb speaks to, and speaking to it.
//!
//! `--host` before `BASTLE_HOST` before `BASTLE_CONTEXT` before the context in use; without any of them the daemon of
//! this user on this machine, then the system's.
//! **Trust:** the daemon is one the user chose. What it answers may quote agents and is shown escaped.
pub(crate) mod contexts;
pub(crate) mod place;

use crate::commands::source::state_dir;
use crate::render::clean;
use bastle_contract::{Code, Fault};
use bastle_control::fleet::Declared;
use bastle_serve::client::{Client, Events};
use contexts::Contexts;
use place::{Host, read_token};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Most pages of one list: a daemon that always names a next one is wrong.
const MOST_PAGES: usize = 1000;
/// Where the system's daemon listens.
const SYSTEM_SOCKET: &str = "/run/bastle/bastle.sock";

/// A daemon that answers.
pub(crate) struct Daemon {
    client: Client,
    host: Host,
}

/// Where to look for the daemon.
struct Wanted {
    host: Host,
    token_file: Option<PathBuf>,
    named: bool,
}

/// By what a daemon recognises this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A token that the person named.
    Token,
    /// The user, on the local socket.
    User,
}

static HOST_FLAG: OnceLock<String> = OnceLock::new();

/// Takes the value of `--host`, once, before any verb runs.
pub(crate) fn choose(host: Option<String>) {
    if let Some(host) = host {
        HOST_FLAG.get_or_init(|| host);
    }
}

/// Whether a daemon was named, by flag, variable or context: verbs that also work without one then go through it.
pub(crate) fn is_named() -> Result<bool, Fault> {
    Ok(wanted()?.named)
}

/// Whether the daemon is on another machine.
pub(crate) fn is_elsewhere() -> Result<bool, Fault> {
    Ok(!wanted()?.host.is_local())
}

/// Where this user's own daemon listens.
pub(crate) fn own_socket() -> Result<PathBuf, Fault> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    Ok(match runtime {
        Some(runtime) => runtime.join("bastle/bastle.sock"),
        None => state_dir()?.join("live/bastle.sock"),
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn wanted() -> Result<Wanted, Fault> {
    let token_file = variable("BASTLE_TOKEN_FILE").map(PathBuf::from);
    if let Some(host) = HOST_FLAG.get().cloned().or_else(|| variable("BASTLE_HOST")) {
        return Ok(Wanted {
            host: Host::parse(&host)?,
            token_file,
            named: true,
        });
    }
    let contexts = Contexts::load()?;
    let name = variable("BASTLE_CONTEXT").unwrap_or_else(|| contexts.current().to_owned());
    if let Some(named) = contexts.find(&name)? {
        return Ok(Wanted {
            host: named.host.clone(),
            token_file: token_file.or_else(|| named.token_file.clone()),
            named: true,
        });
    }
    let own = own_socket()?;
    let system = PathBuf::from(SYSTEM_SOCKET);
    let socket = if !own.exists() && system.exists() {
        system
    } else {
        own
    };
    Ok(Wanted {
        host: Host::socket(socket),
        token_file,
        named: false,
    })
}

impl Daemon {
    /// The daemon that is meant. Whether it answers is found out by asking.
    pub(crate) fn open() -> Result<Self, Fault> {
        Self::connect(|_| None)
    }

    /// The daemon that is meant, for a program: `declare` says what it is, knowing whether a token was named.
    pub(crate) fn connect(declare: impl FnOnce(Credential) -> Option<Declared>) -> Result<Self, Fault> {
        let wanted = wanted()?;
        let token = wanted.token_file.as_deref().map(read_token).transpose()?;
        let credential = match &token {
            Some(_) => Credential::Token,
            None => Credential::User,
        };
        let declared = declare(credential);
        let client = Client::connect_as(wanted.host.target().clone(), token.as_deref(), declared.as_ref())?;
        Ok(Self {
            client,
            host: wanted.host,
        })
    }

    /// The daemon, where one was named or one answers here; verbs go on without it otherwise.
    pub(crate) fn if_there() -> Result<Option<Self>, Vec<Fault>> {
        let daemon = Self::open().map_err(|fault| vec![fault])?;
        if is_named().map_err(|fault| vec![fault])? {
            return Ok(Some(daemon));
        }
        match daemon.get("/api/v1/version") {
            Ok(_) => Ok(Some(daemon)),
            Err(faults) if faults.iter().any(|fault| fault.code == Code::ApiUnreachable) => Ok(None),
            Err(faults) => Err(faults),
        }
    }

    /// Its address.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// The client itself.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Reads something.
    pub(crate) fn get(&self, path: &str) -> Result<Value, Vec<Fault>> {
        self.client.get(path)
    }

    /// Asks for something to be done.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Vec<Fault>> {
        self.client.post(path, body)
    }

    /// Puts something in its place.
    pub(crate) fn put(&self, path: &str, body: &Value) -> Result<Value, Vec<Fault>> {
        self.client.put(path, body)
    }

    /// Removes something.
    pub(crate) fn delete(&self, path: &str) -> Result<Value, Vec<Fault>> {
        self.client.delete(path)
    }

    /// Events after `since`, or from now on, as they come; `filter` is a query such as `batch=…`.
    pub(crate) fn events(&self, since: Option<u64>, filter: &str) -> Result<Events, Vec<Fault>> {
        let since = since.map(|number| format!("&since={number}")).unwrap_or_default();
        self.client.stream(&format!("/api/v1/events?{filter}{since}"))
    }

    /// A list: the items of every page.
    pub(crate) fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Vec<Fault>> {
        let mut items = Vec::new();
        let mut next: Option<String> = None;
        let join = if path.contains('?') { '&' } else { '?' };
        let name = if path.starts_with("/api/v1/runs") {
            "cursor"
        } else {
            "after"
        };
        for _ in 0..MOST_PAGES {
            let page = match &next {
                Some(cursor) => self.get(&format!("{path}{join}{name}={}", part(cursor)))?,
                None => self.get(path)?,
            };
            let (list, cursor) = match page {
                Value::Object(mut page) => (
                    page.remove("items").unwrap_or_default(),
                    page.remove("next")
                        .and_then(|next| next.as_str().map(str::to_owned)),
                ),
                list => (list, None),
            };
            items.extend(self.read::<Vec<T>>(list).map_err(|fault| vec![fault])?);
            next = cursor;
            if next.is_none() {
                break;
            }
        }
        Ok(items)
    }

    /// An answer as a value of its type.
    pub(crate) fn read<T: DeserializeOwned>(&self, value: Value) -> Result<T, Fault> {
        serde_json::from_value(value).map_err(|error| {
            Fault::new(
                Code::ApiAnswer,
                format!("the answer of {} is not understood", self.host),
                error.to_string(),
            )
            .help("bastle daemon status")
        })
    }
}

/// Waits where nothing tells when to look again: at a daemon that went, or at sockets without one.
pub(crate) fn rest(time: std::time::Duration) {
    let time = rustix::event::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    match rustix::event::poll(&mut [], Some(&time)) {
        Ok(_) | Err(_) => {}
    }
}

/// A word as one part of an address.
pub(crate) fn part(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    // A part of dots alone would lead elsewhere.
    if out.chars().all(|c| c == '.') {
        return "%2E".repeat(out.len());
    }
    out
}

/// A word of the user's, short enough to be quoted.
pub(crate) fn short(text: &str) -> String {
    clean(&text.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_leads_to_another_address() {
        assert_eq!(part("calm-otter_1.a~"), "calm-otter_1.a~");
        assert_eq!(part("../x?y#z/ %é"), "..%2Fx%3Fy%23z%2F%20%25%C3%A9");
        assert_eq!((part(".."), part(".")), ("%2E%2E".to_owned(), "%2E".to_owned()));
    }
}
