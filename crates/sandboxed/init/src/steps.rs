//! How long each step of building took: part of what init reports, so that slowness has an address.
use std::time::Instant;

/// A clock that is read at the end of each step.
pub(crate) struct Steps {
    last: Instant,
    taken: Vec<(String, u64)>,
}

impl Steps {
    /// Starts counting.
    pub(crate) fn start() -> Self {
        Self {
            last: Instant::now(),
            taken: Vec::with_capacity(8),
        }
    }

    /// What went before does not count: it was done while nobody waited.
    pub(crate) fn restart(&mut self) {
        self.last = Instant::now();
    }

    /// The step that just ended.
    pub(crate) fn done(&mut self, name: &str) {
        let now = Instant::now();
        let micros = u64::try_from(now.duration_since(self.last).as_micros()).unwrap_or(u64::MAX);
        self.taken.push((name.to_owned(), micros));
        self.last = now;
    }

    /// The step that just ended, of which another process took these parts.
    pub(crate) fn add(&mut self, name: &str, parts: &[(String, u64)]) {
        self.done(name);
        let elsewhere: u64 = parts.iter().map(|(_, micros)| micros).sum();
        if let Some((_, micros)) = self.taken.last_mut() {
            *micros = micros.saturating_sub(elsewhere);
        }
        self.taken.extend_from_slice(parts);
    }

    /// All steps so far.
    pub(crate) fn taken(self) -> Vec<(String, u64)> {
        self.taken
    }
}
