//! How many streams somebody may hold open: each costs a task and a descriptor.
use super::rate::lock;
use crate::errors::Refusal;
use bastle_contract::Code;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Streams of one caller at once.
const MOST_EACH: usize = 64;
/// Streams of all together.
const MOST: usize = 512;

/// The open streams by caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    open: Arc<Mutex<HashMap<String, usize>>>,
}

/// One of them; given back when dropped.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    id: String,
    open: Arc<Mutex<HashMap<String, usize>>>,
}

impl Streams {
    /// One more for this caller.
    pub(crate) fn open(&self, id: &str) -> Result<StreamSlot, Refusal> {
        let mut open = lock(&self.open);
        let all: usize = open.values().sum();
        let own = open.entry(id.to_owned()).or_default();
        if *own >= MOST_EACH || all >= MOST {
            return Err(Refusal::new(Code::ApiRate, "too many open streams", "").retry_after(5));
        }
        *own += 1;
        Ok(StreamSlot {
            id: id.to_owned(),
            open: Arc::clone(&self.open),
        })
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        lock(&self.open).values().sum()
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        if let Some(own) = open.get_mut(&self.id) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_cannot_hold_all_streams_and_a_closed_one_is_free_again() {
        let streams = Streams::default();
        let mut held: Vec<_> = (0..MOST_EACH).map(|_| streams.open("a").unwrap()).collect();
        assert!(streams.open("a").is_err());
        assert!(streams.open("b").is_ok());
        held.pop();
        assert!(streams.open("a").is_ok());
        drop(held);
        assert_eq!(streams.count(), 0);
    }
}
