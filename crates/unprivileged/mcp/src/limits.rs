//! How much of everything a desk takes.
use std::time::Duration;

/// The bounds of a desk.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests under way of one caller; streams of notifications count too.
    pub per_caller: usize,
    /// Requests under way of all callers.
    pub in_all: usize,
    /// Sessions of the older revisions, of one caller and of all.
    pub sessions: (usize, usize),
    /// How long a session may be idle.
    pub idle: Duration,
    /// How long one request may take, streams of notifications apart.
    pub longest: Duration,
    /// How long somebody may take to answer a question.
    pub answer: Duration,
    /// Largest message on a pipe.
    pub line: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_caller: 32,
            in_all: 256,
            sessions: (64, 1024),
            idle: Duration::from_secs(3600),
            longest: Duration::from_secs(900),
            answer: Duration::from_secs(300),
            line: 4 * 1024 * 1024,
        }
    }
}
