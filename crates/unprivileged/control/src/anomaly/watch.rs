//! What is followed of one living run: a clock that only goes forward, counters in windows, hosts, bytes.
use std::collections::BTreeSet;

/// Parts of a window: what is older than the window goes away part by part.
const PARTS: u64 = 16;
/// Hosts of one run that are followed.
pub(super) const MAX_HOSTS: usize = 256;
/// Disorder between events that is no jump of the clock, in milliseconds.
const DISORDER: u64 = 2000;

/// One run.
#[derive(Debug)]
pub(super) struct Watch {
    /// Number of the last event that was looked at.
    pub(super) seq: u64,
    /// Time of the last event as it stood there.
    raw: Option<u64>,
    /// Milliseconds since the first event, jumps backward taken out.
    now: u64,
    /// One counter per rule.
    pub(super) windows: Vec<Window>,
    pub(super) hosts: BTreeSet<String>,
    /// Whether more hosts came than are followed.
    pub(super) overflowed: bool,
    pub(super) bytes_out: u64,
    /// Whether something grave was found.
    pub(super) grave: bool,
    /// When it was last heard of, by the count of all events.
    pub(super) used: u64,
}

/// A counter of what happened within a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    parts: [(u64, u64); PARTS as usize],
    /// How often it was passed in this run.
    pub(super) fired: u32,
}

impl Watch {
    pub(super) fn new(rules: usize) -> Self {
        Self {
            seq: 0,
            raw: None,
            now: 0,
            windows: vec![Window::default(); rules],
            hosts: BTreeSet::new(),
            overflowed: false,
            bytes_out: 0,
            grave: false,
            used: 0,
        }
    }

    /// Takes the time of an event. A clock that was set back says nothing about how long it has been: what was counted
    /// is forgotten rather than taken for a burst. A clock that was set forward empties the windows by itself.
    pub(super) fn tick(&mut self, raw: u64) {
        if let Some(before) = self.raw {
            if raw >= before {
                self.now = self.now.saturating_add(raw - before);
            } else if before - raw > DISORDER {
                self.windows.iter_mut().for_each(Window::forget);
            } else {
                // The later time stays the mark, so that the same moment is not counted twice.
                return;
            }
        }
        self.raw = Some(raw);
    }

    /// Counts `amount` by rule `index` and gives the sum within its window.
    pub(super) fn count(&mut self, index: usize, window_seconds: u64, amount: u64) -> u64 {
        let part = (window_seconds.saturating_mul(1000) / PARTS).max(1);
        // From 1, so that an unused part is older than every used one.
        let at = self.now / part + 1;
        self.windows
            .get_mut(index)
            .map_or(0, |window| window.count(at, amount))
    }
}

impl Window {
    fn count(&mut self, at: u64, amount: u64) -> u64 {
        let slot = &mut self.parts[usize::try_from(at % PARTS).unwrap_or(0)];
        if slot.0 != at {
            *slot = (at, 0);
        }
        slot.1 = slot.1.saturating_add(amount);
        let fresh = self
            .parts
            .iter()
            .filter(|(of, _)| *of > 0 && *of + PARTS > at && *of <= at);
        fresh.fold(0u64, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Begins anew.
    pub(super) fn forget(&mut self) {
        self.parts = Default::default();
    }
}
