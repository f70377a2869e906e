//! How much of requests is held in memory at once, over all connections of a run.
//!
//! **Trust:** the agent decides how many requests it sends and how long they are. One account bounds what is read ahead of
//! all of them together; whoever finds no room waits a moment and is then refused, which gives its own room back.
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one unit of account.
const UNIT: usize = 16 * 1024;
/// Most that is held of bodies that are read before they are judged: eight of the largest, or thousands of usual ones.
pub(crate) const MAX_HELD: usize = 64 * 1024 * 1024;
/// How long a request waits for room.
const PATIENCE: Duration = Duration::from_secs(10);
/// Packs that are inflated at once; each takes several times its length.
const MAX_ANALYSES: usize = 4;

/// The account of one run.
#[derive(Debug)]
pub(crate) struct Memory {
    units: Arc<Semaphore>,
    patience: Duration,
    /// Work that takes much memory for a short time.
    pub(crate) analyses: Semaphore,
}

/// What one request holds. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    units: Arc<Semaphore>,
    patience: Duration,
    permit: Option<OwnedSemaphorePermit>,
}

/// There was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run holds too much of its requests in memory at once")]
pub(crate) struct Full;

impl Memory {
    /// All of it free.
    pub(crate) fn new() -> Self {
        Self::with(MAX_HELD, PATIENCE)
    }

    fn with(bytes: usize, patience: Duration) -> Self {
        Self {
            units: Arc::new(Semaphore::new(bytes / UNIT)),
            patience,
            analyses: Semaphore::new(MAX_ANALYSES),
        }
    }

    /// An account of its own for one request, with nothing in it.
    pub(crate) fn account(&self) -> Held {
        Held {
            units: Arc::clone(&self.units),
            patience: self.patience,
            permit: None,
        }
    }
}

impl Held {
    /// Makes room for `bytes` in all.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> Result<(), Full> {
        let has = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(UNIT).saturating_sub(has);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).map_err(|_| Full)?;
        let more = Arc::clone(&self.units).acquire_many_owned(missing);
        match tokio::time::timeout(self.patience, more).await {
            Ok(Ok(more)) => match &mut self.permit {
                Some(permit) => permit.merge(more),
                none => *none = Some(more),
            },
            Ok(Err(_)) | Err(_) => return Err(Full),
        }
        Ok(())
    }

    /// Gives everything back: what was held has been sent.
    pub(crate) fn release(&mut self) {
        self.permit = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_requests_together_hold_no_more_than_the_account_has() {
        let memory = Memory::with(4 * UNIT, Duration::from_millis(1));
        let mut first = memory.account();
        first.grow_to(3 * UNIT).await.unwrap();
        first.grow_to(UNIT).await.unwrap();
        let mut second = memory.account();
        assert_eq!(second.grow_to(2 * UNIT).await, Err(Full));
        second.grow_to(UNIT).await.unwrap();
        assert_eq!(memory.units.available_permits(), 0);
        first.release();
        second.grow_to(4 * UNIT).await.unwrap();
        drop(second);
        assert_eq!(memory.units.available_permits(), 4);
    }
}
