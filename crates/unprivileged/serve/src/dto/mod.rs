//! The forms of requests and answers: what goes over the wire and nothing else. Requests refuse fields they do not know.
pub(crate) mod answers;
mod ceiling;
mod fleet;
mod runs;
mod words;

pub(crate) use ceiling::Ceiling;
pub(crate) use fleet::{
    ApprovalForm, ApprovalsForm, BatchForm, BatchesForm, CreatedToken, HealthForm, ProfileForm, ProfilesForm,
    StatsForm, TokenForm, TokensForm,
};
pub(crate) use runs::{ActedList, BatchReportForm, EventForm, EventsForm, RunForm, RunsForm};
pub(crate) use words::{
    Answering, Applying, CanI, Choosing, Granting, ListEvents, ListRuns, LogView, Logs, MakeToken, Nothing,
    PolicySource, PutProfile, Ranged, Removing, RollingBack, Ruling, Saying, Snapshotting, SpawnOne,
    Spawning, StopAgents, StopMany, Stopping, Which1,
};

use crate::errors::{Told, without_paths};
use bastle_contract::Fault;
use serde::Serialize;
use utoipa::ToSchema;

/// A refusal, as RFC 9457 has it, with our code and what helps.
#[derive(Serialize, ToSchema)]
pub(crate) struct Problem {
    /// `urn:bastle:error:CODE`.
    #[serde(rename = "type")]
    kind: String,
    /// The code in a few words.
    title: String,
    /// The status of the answer.
    status: u16,
    /// What was refused, and why.
    detail: String,
    /// The address that was asked.
    instance: String,
    /// Stable code, `bastle explain CODE`.
    code: String,
    /// Commands and settings that help.
    help: Vec<String>,
    /// Every reason, the first one being `detail`.
    faults: Vec<FaultForm>,
}

/// One reason.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct FaultForm {
    /// Stable code.
    code: String,
    /// What failed.
    what: String,
    /// Why.
    why: String,
    /// What to do.
    help: Vec<String>,
}

impl FaultForm {
    /// A fault as this caller may see it.
    pub(crate) fn of(fault: &Fault, told: Told) -> Self {
        let text = |text: &str| match told {
            Told::All => text.to_owned(),
            Told::Outside => without_paths(text),
        };
        Self {
            code: fault.code.to_string(),
            what: text(&fault.what),
            why: text(&fault.why),
            help: fault.help.iter().map(|help| text(help)).collect(),
        }
    }
}

/// Now, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// A time as RFC 3339 writes it.
pub(crate) fn time(ms: u64) -> String {
    i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .map_or_else(String::new, |time| format!("{time:.3}"))
}

/// Text of a request in a message of ours: short, without anything that acts on a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_with_milliseconds_and_an_impossible_one_is_none() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_790_000_000_123), "2026-09-21T14:13:20.123Z");
        assert_eq!(time(u64::MAX), "");
    }
}
