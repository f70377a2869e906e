//! Kinds of denials, and which of them are listed one by one.
//!
//! **Trust:** the agent chooses how many there are. The number of kinds is that of faces times codes; for each the first
//! ones are listed whatever came before, and beyond them all kinds share one rate and one total.
use bastle_contract::Code;
use bastle_contract::egress::{Face, NetDecision};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Denials of each kind that are always listed.
const FIRST: u32 = 20;
/// Denials that may be listed beyond those at once, as a person looks through a screen or two of them.
const BURST: u32 = 400;
/// And how many more in a second.
const PER_SECOND: u32 = 5;
/// And in all: about 10 MiB of a log.
const MAX_LISTED: u32 = 10_000;
/// How often the others are told.
const PAUSE: Duration = Duration::from_secs(10);

type Kind = (Face, Option<Code>);

/// The kinds of one run.
#[derive(Debug)]
pub(super) struct Classes {
    kinds: HashMap<Kind, Class>,
    tokens: u32,
    filled: Instant,
    listed: u32,
}

#[derive(Debug, Default)]
struct Class {
    listed: u32,
    /// The record of those that are not listed, once there are any.
    sum: Option<NetDecision>,
    reported: Option<Instant>,
}

impl Classes {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            kinds: HashMap::new(),
            tokens: BURST,
            filled: now,
            listed: 0,
        }
    }

    /// Whether one more of this kind is listed by itself.
    pub(super) fn lists(&mut self, face: Face, code: Option<Code>, now: Instant) -> bool {
        let class = self.kinds.entry((face, code)).or_default();
        if class.listed < FIRST {
            class.listed += 1;
            return true;
        }
        let seconds = u32::try_from(now.saturating_duration_since(self.filled).as_secs()).unwrap_or(u32::MAX);
        if seconds > 0 {
            self.tokens = self
                .tokens
                .saturating_add(seconds.saturating_mul(PER_SECOND))
                .min(BURST);
            self.filled = now;
        }
        if self.tokens == 0 || self.listed >= MAX_LISTED {
            return false;
        }
        self.tokens -= 1;
        self.listed += 1;
        class.listed += 1;
        true
    }

    /// The id under which a kind is counted.
    pub(super) fn id(&self, face: Face, code: Option<Code>) -> Option<String> {
        let sum = self.kinds.get(&(face, code))?.sum.as_ref()?;
        Some(sum.id.clone())
    }

    /// Counts one that is not listed.
    pub(super) fn count(&mut self, face: Face, decision: &NetDecision, id: String) -> String {
        let class = self.kinds.entry((face, decision.code)).or_default();
        let sum = class.sum.get_or_insert_with(|| NetDecision {
            id,
            host: "(others)".to_owned(),
            port: 0,
            method: None,
            path: None,
            operation: None,
            rule: None,
            reason: format!(
                "too many of this kind: counted, not listed one by one; the first was: {}",
                decision.reason
            ),
            count: 0,
            help: Vec::new(),
            ..decision.clone()
        });
        sum.count = sum.count.saturating_add(1);
        sum.id.clone()
    }

    /// Whether some wait to be told.
    pub(super) fn has_pending(&self) -> bool {
        self.kinds
            .values()
            .any(|class| class.sum.as_ref().is_some_and(|sum| sum.count > 0))
    }

    /// Sums that have waited long enough; the first one of a kind waits for nothing.
    pub(super) fn due(&mut self, now: Instant) -> Vec<NetDecision> {
        let waited = |class: &Class| {
            class
                .reported
                .is_none_or(|before| now.saturating_duration_since(before) >= PAUSE)
        };
        let kinds = self.kinds.values_mut().filter(|class| waited(class));
        kinds.filter_map(|class| class.take(now)).collect()
    }

    /// Every sum, for the end of a run.
    pub(super) fn drain(&mut self) -> Vec<NetDecision> {
        let now = Instant::now();
        self.kinds
            .values_mut()
            .filter_map(|class| class.take(now))
            .collect()
    }
}

impl Class {
    fn take(&mut self, now: Instant) -> Option<NetDecision> {
        let sum = self.sum.as_mut().filter(|sum| sum.count > 0)?;
        let told = sum.clone();
        sum.count = 0;
        self.reported = Some(now);
        Some(told)
    }
}
