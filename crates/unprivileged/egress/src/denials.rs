//! Counts denials: identical ones collapse, and a client that tries in a loop is slowed down.
//!
//! **Trust:** keys come from the agent, so the table is bounded; what falls out of it is reported first.
use crate::denial::{Asked, Grounds, Pace};
use crate::limits::{DENIAL_PAUSE, LOOP_COUNT, LOOP_WINDOW, MAX_DELAYED, MAX_DENIALS};
use bastle_contract::Code;
use bastle_contract::egress::{NetDecision, NetVerdict};
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
        table
            .entries
            .values_mut()
            .filter_map(|entry| entry.report_if_due(now))
            .collect()
    }

    /// Whether repetitions wait to be reported.
    pub(crate) fn has_pending(&self) -> bool {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.entries.values().any(|entry| entry.unreported > 0)
    }

    /// Every repetition not yet reported, for the end of a run.
    pub(crate) fn drain(&self) -> Vec<NetDecision> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.entries.values_mut().filter_map(Entry::report).collect()
    }
}

impl Table {
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
mod tests {
    use super::*;
    use bastle_contract::egress::Face;
    use std::time::Duration;

    fn asked(host: &str) -> Asked {
        Asked::raw(Face::Connect, host, 443)
    }

    fn grounds() -> Grounds {
        Grounds::own(Code::NetDenied, "no rule")
    }

    #[test]
    fn the_first_denial_is_reported_at_once_and_repetitions_are_counted_exactly() {
        let denials = Denials::new(7);
        let start = Instant::now();
        let first = denials.note(&asked("a.example"), &grounds(), start);
        assert_eq!(
            (first.reports.len(), first.reports[0].count, first.pace),
            (1, 1, Pace::Usual)
        );
        for _ in 0..9 {
            let again = denials.note(&asked("a.example"), &grounds(), start);
            assert_eq!((again.reports.len(), &again.decision.id), (0, &first.decision.id));
        }
        assert!(denials.due(start + Duration::from_millis(900)).is_empty());
        let due = denials.due(start + Duration::from_secs(1));
        assert_eq!(due.iter().map(|d| d.count).collect::<Vec<_>>(), [9]);
        assert!(denials.drain().is_empty());
    }

    #[test]
    fn more_than_twenty_identical_denials_in_a_minute_are_a_loop_and_others_are_not() {
        let denials = Denials::new(0);
        let start = Instant::now();
        let paces: Vec<Pace> = (0..25)
            .map(|_| denials.note(&asked("a.example"), &grounds(), start).pace)
            .collect();
        assert_eq!(paces.iter().position(|pace| *pace == Pace::Looping), Some(20));
        for (host, later) in [("b.example", 0), ("a.example", 61)] {
            let noted = denials.note(&asked(host), &grounds(), start + Duration::from_secs(later));
            assert_eq!(noted.pace, Pace::Usual, "{host}");
        }
    }

    #[test]
    fn a_flood_of_different_denials_does_not_grow_the_table_and_loses_no_count() {
        let denials = Denials::new(0);
        let now = Instant::now();
        let mut counted = 0;
        for round in 0..3_000 {
            for _ in 0..2 {
                let noted = denials.note(&asked(&format!("h{round}.example")), &grounds(), now);
                counted += noted.reports.iter().map(|d| d.count).sum::<u32>();
            }
        }
        assert_eq!(denials.table.lock().unwrap().entries.len(), MAX_DENIALS);
        counted += denials.drain().iter().map(|d| d.count).sum::<u32>();
        assert_eq!(counted, 6_000);
    }

    #[test]
    fn two_denials_never_share_a_name() {
        let denials = Denials::new(u32::MAX - 5);
        let ids: std::collections::HashSet<String> = (0..20_000)
            .map(|n| {
                denials
                    .note(&asked(&format!("h{n}.example")), &grounds(), Instant::now())
                    .decision
                    .id
            })
            .collect();
        assert_eq!(ids.len(), 20_000);
    }
}
