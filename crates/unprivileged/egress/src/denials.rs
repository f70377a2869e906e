//! Counts denials: identical ones collapse, floods of different ones are sampled, and a client that tries in a loop is
//! slowed down.
//!
//! **Trust:** keys come from the agent, so the table is bounded; what falls out of it is reported first. The first ones of
//! each kind are always listed one by one; of a flood some are, and all the others are counted by kind.
mod classes;

use crate::denial::{Asked, Grounds, Pace};
use crate::limits::{DENIAL_PAUSE, LOOP_COUNT, LOOP_WINDOW, MAX_DELAYED, MAX_DENIALS};
use bastle_contract::Code;
use bastle_contract::egress::{Face, NetDecision, NetVerdict};
use classes::Classes;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::{Notify, Semaphore};

/// The denials of one run.
#[derive(Debug)]
pub(crate) struct Denials {
    table: Mutex<Table>,
    /// Places for answers that are delayed.
    pub delayed: Semaphore,
    /// Signalled when repetitions wait to be reported.
    pub pending: Notify,
}

#[derive(Debug)]
struct Table {
    entries: HashMap<(Asked, Option<Code>), Entry>,
    classes: Classes,
    made: u32,
    offset: u32,
}

#[derive(Debug)]
struct Entry {
    decision: NetDecision,
    reported: Instant,
    unreported: u32,
    window: Instant,
    in_window: u32,
}

/// What follows from one more denial.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The denial, with its id; its count is 1.
    pub decision: NetDecision,
    /// What is to be reported now, this one included.
    pub reports: Vec<NetDecision>,
    /// How fast it comes back.
    pub pace: Pace,
}

impl Denials {
    /// None yet. `offset` makes ids of different runs differ.
    pub(crate) fn new(offset: u32) -> Self {
        Self {
            table: Mutex::new(Table {
                entries: HashMap::new(),
                classes: Classes::new(Instant::now()),
                made: 0,
                offset,
            }),
            delayed: Semaphore::new(MAX_DELAYED),
            pending: Notify::new(),
        }
    }

    /// Counts one denial at `now`.
    pub(crate) fn note(&self, asked: &Asked, grounds: &Grounds, now: Instant) -> Noted {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (asked.clone(), grounds.code);
        if let Some(entry) = table.entries.get_mut(&key) {
            let noted = entry.again(now);
            if noted.reports.is_empty() {
                self.pending.notify_one();
            }
            return noted;
        }
        if !table.classes.lists(asked.face(), grounds.code, now) {
            let mut decision = asked.decision(NetVerdict::Denied, grounds);
            decision.id = table.count_in_class(asked.face(), &decision);
            self.pending.notify_one();
            return Noted {
                decision,
                reports: Vec::new(),
                pace: Pace::Flooding,
            };
        }
        let mut reports = Vec::new();
        if table.entries.len() >= MAX_DENIALS {
            reports.extend(table.evict());
        }
        let mut decision = asked.decision(NetVerdict::Denied, grounds);
        decision.id = table.next_id();
        let entry = Entry {
            decision: decision.clone(),
            reported: now,
            unreported: 0,
            window: now,
            in_window: 1,
        };
        table.entries.insert(key, entry);
        reports.push(decision.clone());
        Noted {
            decision,
            reports,
            pace: Pace::Usual,
        }
    }

    /// Repetitions that have waited long enough.
    pub(crate) fn due(&self, now: Instant) -> Vec<NetDecision> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due: Vec<NetDecision> = table
            .entries
            .values_mut()
            .filter_map(|entry| entry.report_if_due(now))
            .collect();
        due.extend(table.classes.due(now));
        due
    }

    /// Whether repetitions wait to be reported.
    pub(crate) fn has_pending(&self) -> bool {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.classes.has_pending() || table.entries.values().any(|entry| entry.unreported > 0)
    }

    /// Every repetition not yet reported, for the end of a run.
    pub(crate) fn drain(&self) -> Vec<NetDecision> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest: Vec<NetDecision> = table.entries.values_mut().filter_map(Entry::report).collect();
        rest.extend(table.classes.drain());
        rest
    }
}

impl Table {
    /// Counts a denial that is not listed; gives the id under which its kind is.
    fn count_in_class(&mut self, face: Face, decision: &NetDecision) -> String {
        match self.classes.id(face, decision.code) {
            Some(id) => self.classes.count(face, decision, id),
            None => {
                let id = self.next_id();
                self.classes.count(face, decision, id)
            }
        }
    }

    /// The entry that was reported longest ago makes room; its repetitions are not lost.
    fn evict(&mut self) -> Option<NetDecision> {
        let oldest = self
            .entries
            .iter()
            .min_by_key(|(_, entry)| entry.reported)
            .map(|(key, _)| key.clone())?;
        self.entries.remove(&oldest)?.report()
    }

    /// `d_` and five characters. A counter times an odd factor, modulo 32^5: no repetition within 33 million denials,
    /// and two neighbours do not look alike.
    fn next_id(&mut self) -> String {
        const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        self.made = self.made.wrapping_add(1);
        let mut number = self.made.wrapping_add(self.offset).wrapping_mul(0x9e37_79b1) % (1 << 25);
        let mut id = String::from("d_");
        for _ in 0..5 {
            id.push(char::from(ALPHABET[(number % 32) as usize]));
            number /= 32;
        }
        id
    }
}

impl Entry {
    fn again(&mut self, now: Instant) -> Noted {
        if now.duration_since(self.window) > LOOP_WINDOW {
            (self.window, self.in_window) = (now, 0);
        }
        self.in_window = self.in_window.saturating_add(1);
        self.unreported = self.unreported.saturating_add(1);
        Noted {
            decision: self.decision.clone(),
            reports: self.report_if_due(now).into_iter().collect(),
            pace: if self.in_window > LOOP_COUNT {
                Pace::Looping
            } else {
                Pace::Usual
            },
        }
    }

    fn report_if_due(&mut self, now: Instant) -> Option<NetDecision> {
        if now.duration_since(self.reported) < DENIAL_PAUSE {
            return None;
        }
        let report = self.report()?;
        self.reported = now;
        Some(report)
    }

    fn report(&mut self) -> Option<NetDecision> {
        let count = std::mem::take(&mut self.unreported);
        (count > 0).then(|| NetDecision {
            count,
            ..self.decision.clone()
        })
    }
}

#[cfg(test)]
mod tests;
