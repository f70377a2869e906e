//! An agent that is spoken to in its own protocol, behind the streams of a kept run.
use bastle_agents::{AgentDriver, DriverKind, Session, TurnEnd};
use bastle_contract::runs::{DRIVERS, RawSpec};
use bastle_contract::{Code, Fault};
use bastle_policy::Effective;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The conversation with the agent of a run.
pub(crate) struct Driven {
    pub(crate) driver: Box<dyn AgentDriver>,
    pub(crate) after: After,
    /// Permission requests that wait for a person: question → request of the agent.
    pub(crate) waiting: BTreeMap<String, String>,
    /// Numbers of questions that were given out.
    pub(crate) asked: u64,
    /// Bytes of what the agent said that became events.
    pub(crate) told: usize,
    /// Whether it was told that what it does not read is not answered.
    pub(crate) deaf: bool,
    /// It has nothing to do and waits for what it is told.
    pub(crate) idle: bool,
    /// Where it works, for rules about paths.
    pub(crate) cwd: String,
    /// The rules of the run, known once it is planned.
    pub(crate) policy: Option<Effective>,
    /// What a person allowed for the rest of the run.
    pub(crate) remembered: BTreeSet<[u8; 32]>,
    /// What is told and recorded before it starts.
    pub(crate) notes: Vec<String>,
    /// When an agent is ended whose budget is used up.
    pub(crate) spent: Option<Instant>,
    /// How its last turn ended.
    pub(crate) last: Option<TurnEnd>,
    /// When an agent whose input was closed is ended, should it not go by itself.
    pub(crate) leaving: Option<Instant>,
    /// It had done its work and did not go by itself.
    pub(crate) dismissed: bool,
}

/// What follows the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The input is closed: the agent has nothing more to do.
    End,
    /// It waits for what else is said to it, until the run is stopped.
    Stay,
}

impl Driven {
    /// The driver that a request names, and what is written to the agent first.
    pub(crate) fn of(spec: &RawSpec, cwd: &str) -> Result<Option<(Self, Vec<u8>)>, Fault> {
        let Some(word) = &spec.driver else {
            return Ok(None);
        };
        let fault = |why: String| {
            Fault::new(
                Code::UsageArgument,
                format!("the agent cannot be driven as {word:?}"),
                why,
            )
            .help(format!("drivers: {}", DRIVERS.join(", ")))
        };
        let kind: DriverKind = serde_json::from_value(Value::String(word.clone()))
            .map_err(|_| fault("there is no such driver".to_owned()))?;
        if spec.tty.is_some() {
            return Err(fault(
                "a protocol is spoken over pipes, not over a terminal".to_owned(),
            ));
        }
        let mut driver = bastle_agents::driver(kind);
        let session = Session {
            cwd: cwd.to_owned(),
            model: spec.model.clone(),
        };
        let mut first = driver.start(&session);
        if let Some(words) = &spec.input {
            first.extend(driver.prompt(words).map_err(|error| fault(error.to_string()))?);
        }
        let driven = Self {
            driver,
            after: if spec.open_input { After::Stay } else { After::End },
            waiting: BTreeMap::new(),
            asked: 0,
            told: 0,
            deaf: false,
            idle: spec.input.is_none(),
            cwd: cwd.to_owned(),
            policy: None,
            remembered: BTreeSet::new(),
            notes: notes(spec, kind),
            spent: None,
            last: None,
            leaving: None,
            dismissed: false,
        };
        Ok(Some((driven, first)))
    }
}

/// What the request says, and what this driver does.
fn notes(spec: &RawSpec, kind: DriverKind) -> Vec<String> {
    let mut notes = spec.notes.clone();
    if kind == DriverKind::Codex && !notes.iter().any(|note| note.contains("own sandbox")) {
        let text = "codex's own sandbox is switched off: it cannot be built inside the fence, which holds in its place";
        notes.push(text.to_owned());
    }
    notes
}
