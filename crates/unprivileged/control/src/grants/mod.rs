//! Paths granted to a run that lives: which there are, until when, and what is on its way.
//!
//! **Trust:** orders come from the person through the run's own socket. A mount is made by the spawner, a single file is
//! served by the broker, which gets copies. Every grant, its end and every access is on disk before it takes effect.
mod broker;
pub(crate) mod files;
mod judge;

pub use broker::BROKER_VERB;
pub(crate) use broker::Broker;
pub(crate) use files::Refusal;
pub(crate) use judge::{Judge, Judged};

use bastle_contract::grants::{GrantWay, place_of};
use bastle_contract::{AbsPath, Access, Code, Fault};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most grants of one run at once.
const MOST: usize = 64;

/// The grants of one run.
pub(crate) struct Grants {
    pub(crate) judge: Judge,
    pub(crate) held: Vec<Held>,
    /// Orders for the spawner; the first one is on its way.
    pub(crate) orders: VecDeque<Order>,
    pub(crate) broker: Broker,
    next: u64,
}

/// A path that is granted.
pub(crate) struct Held {
    /// Its number, by which the broker knows it.
    pub(crate) number: u64,
    pub(crate) path: AbsPath,
    pub(crate) access: Access,
    pub(crate) way: GrantWay,
    pub(crate) until: Option<Instant>,
    pub(crate) state: State,
}

/// How far a grant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The spawner is bringing it in.
    Coming,
    /// It is there; whether also under its own path.
    There(Alias),
    /// The spawner is taking it out.
    Going,
}

/// Whether a grant is reached inside under the path it has outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alias {
    /// It is.
    Yes,
    /// Only below the directory of grants.
    No,
}

/// An order for the spawner, and who waits for it.
pub(crate) struct Order {
    pub(crate) path: AbsPath,
    pub(crate) kind: OrderKind,
    pub(crate) peer: Option<u64>,
}

/// What the spawner is to do.
pub(crate) enum OrderKind {
    /// Bring it in.
    Bring(Judged),
    /// Take it out, for this reason; who asked for it.
    Take(&'static str, String),
}

impl Grants {
    pub(crate) fn new(judge: Judge) -> Self {
        Self {
            judge,
            held: Vec::new(),
            orders: VecDeque::new(),
            broker: Broker::default(),
            next: 1,
        }
    }

    /// When the next grant ends by itself.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.held.iter().filter_map(Held::ends).min()
    }

    /// Grants whose time is over.
    pub(crate) fn expired(&self, now: Instant) -> Vec<AbsPath> {
        let over = |held: &&Held| held.ends().is_some_and(|ends| ends <= now);
        self.held
            .iter()
            .filter(over)
            .map(|held| held.path.clone())
            .collect()
    }

    /// Whether another grant can be had beside those there are.
    pub(crate) fn refuse_overlap(&self, path: &AbsPath) -> Result<(), Vec<Fault>> {
        if self.held.len() >= MOST {
            return Err(judge::refused(
                path,
                format!("a run has at most {MOST} grants at once"),
            ));
        }
        let clash = |held: &&Held| path.is_within(&held.path) || held.path.is_within(path);
        match self.held.iter().find(clash) {
            Some(held) => {
                let why = format!("it overlaps with {}, which is granted", held.path);
                let fault = Fault::new(Code::GrantRefused, format!("{path} cannot be granted"), why);
                Err(vec![fault.help(format!("bastle revoke RUN {}", held.path))])
            }
            None => Ok(()),
        }
    }

    /// Notes a grant that is recorded.
    pub(crate) fn hold(&mut self, path: AbsPath, access: Access, way: GrantWay, lasts: Option<Duration>) {
        let state = match way {
            GrantWay::Mount => State::Coming,
            GrantWay::Broker => State::There(Alias::No),
        };
        self.held.push(Held {
            number: self.next,
            path,
            access,
            way,
            until: lasts.map(|lasts| Instant::now() + lasts),
            state,
        });
        self.next += 1;
    }

    pub(crate) fn find(&mut self, path: &AbsPath) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| held.path == *path)
    }

    pub(crate) fn forget(&mut self, path: &AbsPath) -> Option<Held> {
        let at = self.held.iter().position(|held| held.path == *path)?;
        Some(self.held.remove(at))
    }

    /// The file that the agent means: by its path, with or without the first slash, or by a name that only one has.
    pub(crate) fn file(&self, name: &str) -> Option<&Held> {
        let mut files = self.held.iter().filter(|held| held.way == GrantWay::Broker);
        let exact = files
            .clone()
            .find(|held| held.path.as_str().trim_start_matches('/') == name.trim_start_matches('/'));
        exact.or_else(|| {
            let mut fitting = files.by_ref().filter(|held| held.path.name() == name);
            match (fitting.next(), fitting.next()) {
                (Some(only), None) => Some(only),
                _ => None,
            }
        })
    }

    /// For `ps`.
    pub(crate) fn status(&self) -> Vec<Value> {
        self.held.iter().map(Held::shown).collect()
    }
}

impl Held {
    /// When it is to be taken out by the clock. What is on its way in or out waits for the spawner's word first.
    fn ends(&self) -> Option<Instant> {
        match self.state {
            State::There(_) => self.until,
            State::Coming | State::Going => None,
        }
    }

    /// For a person or a program.
    pub(crate) fn shown(&self) -> Value {
        let seconds = self
            .until
            .map(|until| until.saturating_duration_since(Instant::now()).as_secs());
        let inside = match (self.way, self.state) {
            (GrantWay::Mount, State::There(Alias::Yes)) => Some(self.path.to_string()),
            (GrantWay::Mount, _) => place_of(&self.path).ok().map(|place| place.to_string()),
            (GrantWay::Broker, _) => None,
        };
        json!({
            "path": self.path,
            "access": self.access,
            "way": self.way,
            "inside": inside,
            "seconds": seconds,
        })
    }
}

/// This binary as it can be shown inside, for the broker's client there.
pub(crate) fn client() -> Option<AbsPath> {
    use std::os::unix::fs::PermissionsExt;
    let binary = std::fs::read_link("/proc/self/exe").ok()?;
    let real = std::fs::canonicalize(&binary).ok()?;
    let meta = std::fs::metadata(&real).ok()?;
    // Whoever the agent is must be able to execute it; without it plain HTTP over the socket remains.
    let usable = real == binary && meta.is_file() && meta.permissions().mode() & 0o005 == 0o005;
    AbsPath::from_path(&real).ok().filter(|_| usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_on_its_way_is_not_waited_for_by_the_clock() {
        let past = Instant::now();
        let mut held = Held {
            number: 1,
            path: AbsPath::new("/d").unwrap(),
            access: Access::ReadOnly,
            way: GrantWay::Mount,
            until: Some(past),
            state: State::Coming,
        };
        assert_eq!(held.ends(), None);
        held.state = State::There(Alias::No);
        assert_eq!(held.ends(), Some(past), "control: once it is there it ends");
        held.state = State::Going;
        assert_eq!(held.ends(), None);
    }
}
