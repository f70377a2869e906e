//! An agent that is spoken to in its own protocol, behind the streams of a kept run.
use bastle_agents::{AgentDriver, DriverKind, Session, TurnEnd};
use bastle_contract::runs::{DRIVERS, RawSpec};
use bastle_contract::{Code, Fault};
use serde_json::Value;
use std::collections::BTreeMap;
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
            last: None,
            leaving: None,
            dismissed: false,
        };
        Ok(Some((driven, first)))
    }
}
