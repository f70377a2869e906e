//! Words in columns, and the faults that many parts of the fleet tell.
use super::Caller;
use super::access::{ApprovalState, Role, Verb};
use crate::store::Stop;
use bastle_contract::runs::RunState;
use bastle_contract::{Code, Fault, RunId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

/// Milliseconds since 1970, as the clock on the wall says. For people: whoever sets the clock changes it.
pub(super) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    #[cfg(test)]
    let now = now.saturating_add_signed(JUMP.get());
    now
}

#[cfg(test)]
thread_local! {
    /// By how much somebody has set the clock since this process began.
    pub(super) static JUMP: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

/// Milliseconds since 1970 by what the clock on the wall said when this process began and the time that has passed since,
/// sleep of the machine included. What expires is decided by this: setting the clock lets nothing expire and makes
/// nothing last.
pub(super) fn steady_ms() -> u64 {
    static BEGAN: std::sync::LazyLock<(u64, u64)> = std::sync::LazyLock::new(|| (now_ms(), passed_ms()));
    let (wall, passed) = *BEGAN;
    wall.saturating_add(passed_ms().saturating_sub(passed))
}

fn passed_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec)
        .saturating_mul(1000)
        .saturating_add(part(time.tv_nsec) / 1_000_000)
}

/// For calls whose failure changes nothing: the comment beside each says why.
pub(super) fn either_way<T>(_: rustix::io::Result<T>) {}

/// A state from its word. The database is our own: an unknown word is damage.
pub(super) fn state(word: &str) -> Result<RunState, Stop> {
    RunState::ALL
        .into_iter()
        .find(|state| state.word() == word)
        .ok_or_else(|| damage("state", word))
}

pub(super) fn role(word: &str) -> Result<Role, Stop> {
    Role::ALL
        .into_iter()
        .find(|role| role.word() == word)
        .ok_or_else(|| damage("role", word))
}

pub(super) fn approval_word(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Open => "open",
        ApprovalState::Approved => "approved",
        ApprovalState::Denied => "denied",
        ApprovalState::Expired => "expired",
        ApprovalState::Stale => "stale",
    }
}

pub(super) fn approval_state(word: &str) -> Result<ApprovalState, Stop> {
    [
        ApprovalState::Open,
        ApprovalState::Approved,
        ApprovalState::Denied,
        ApprovalState::Expired,
        ApprovalState::Stale,
    ]
    .into_iter()
    .find(|state| approval_word(*state) == word)
    .ok_or_else(|| damage("state of a question", word))
}

/// A name from a column.
pub(super) fn run_id(text: String) -> Result<RunId, Stop> {
    RunId::try_from(text).map_err(|error| damage("name", &error.to_string()))
}

/// A JSON value from a column.
pub(super) fn json<T: DeserializeOwned>(text: &str) -> Result<T, Stop> {
    serde_json::from_str(text).map_err(|error| damage("document", &error.to_string()))
}

/// A JSON value for a column.
pub(super) fn text(value: &impl Serialize) -> Result<String, Stop> {
    serde_json::to_string(value).map_err(|error| damage("document", &error.to_string()))
}

pub(super) fn verbs(text: Option<String>) -> Result<Option<BTreeSet<Verb>>, Stop> {
    text.map(|text| json(&text)).transpose()
}

fn damage(what: &str, value: &str) -> Stop {
    Stop::Refused(Fault::new(
        Code::StateDamaged,
        format!("the daemon's records hold an unusable {what}"),
        format!("{value:?}"),
    ))
}

/// A `LIKE` pattern for names that begin so.
pub(super) fn beginning(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for c in prefix.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

/// `key` or `key=value`.
pub(super) fn tag(text: &str) -> (&str, Option<&str>) {
    text.split_once('=')
        .map_or((text, None), |(key, value)| (key, Some(value)))
}

pub(super) fn missing(name: &str) -> Fault {
    Fault::new(Code::RunMissing, format!("there is no run {name}"), "").help("bastle ps -a")
}

/// Refuses who may not do this to this run.
pub(super) fn allow_on(caller: &Caller, verb: Verb, run: &RunId) -> Result<(), Fault> {
    if caller.may_on(verb, run) {
        return Ok(());
    }
    Err(not_allowed(caller, verb, &format!("the run {run}")))
}

/// Refuses who may not do this at all.
pub(super) fn allow(caller: &Caller, verb: Verb, what: &str) -> Result<(), Fault> {
    if caller.may(verb) {
        return Ok(());
    }
    Err(not_allowed(caller, verb, what))
}

fn not_allowed(caller: &Caller, verb: Verb, what: &str) -> Fault {
    let word = match verb {
        Verb::Read => "see",
        Verb::Spawn => "start",
        Verb::Control => "control",
        Verb::Remove => "remove",
        Verb::Answer => "answer for",
        Verb::Administer => "administer",
    };
    Fault::new(
        Code::TokenRefused,
        format!("{} may not {word} {what}", caller.id),
        format!("its role is {}", caller.role.word()),
    )
    .help("bastle token create --role ROLE")
}
