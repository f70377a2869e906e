//! Tells control what was decided, in order, and waits for the record where an effect must not come first.
//!
//! **Trust:** control is trusted. The queue towards it is bounded: when control is slow, the faces wait.
use crate::limits::{ASK_DEADLINE, GATHER, MAX_ASKS, MAX_QUEUED, MAX_REPLIES, RECORD_DEADLINE};
use bastle_contract::egress::{FromEgress, NetDecision};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use tokio::sync::{mpsc, oneshot, watch};

/// Nobody can record any more, so nothing may happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the decision could not be recorded")]
pub(crate) struct Lost;

/// What a person said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It may go on.
    Yes,
    /// It may not, or nobody answered.
    No,
}

impl From<bool> for Said {
    fn from(allow: bool) -> Self {
        if allow { Self::Yes } else { Self::No }
    }
}

/// The sending side, shared by all faces.
#[derive(Debug)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<FromEgress>,
    urgent: mpsc::Sender<FromEgress>,
    numbers: Mutex<u64>,
    recorded: watch::Sender<u64>,
    asks: Mutex<Asks>,
    hurry: Arc<OnceLock<Thread>>,
}

#[derive(Debug, Default)]
struct Asks {
    next: u64,
    waiting: HashMap<u64, oneshot::Sender<Said>>,
}

/// The receiving side: what goes to control. Urgent frames are answers and budget marks; they overtake.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: mpsc::Receiver<FromEgress>,
    urgent: mpsc::Receiver<FromEgress>,
    hurry: Arc<OnceLock<Thread>>,
}

impl Outbox {
    /// The next frame; `None` when nobody can send any more.
    pub(crate) async fn next(&mut self) -> Option<FromEgress> {
        tokio::select! {
            biased;
            Some(frame) = self.urgent.recv() => Some(frame),
            Some(frame) = self.queue.recv() => Some(frame),
            else => None,
        }
    }

    /// Lets frames gather for a moment, so that one write takes many; returns at once when somebody waits for a record.
    /// For a thread of its own, always the same.
    pub(crate) fn gather(&self) {
        self.hurry.get_or_init(std::thread::current);
        std::thread::park_timeout(GATHER);
    }

    /// A frame that is already there.
    pub(crate) fn ready(&mut self) -> Option<FromEgress> {
        self.urgent.try_recv().or_else(|_| self.queue.try_recv()).ok()
    }
}

impl Recorder {
    /// Both sides.
    pub(crate) fn new() -> (Self, Outbox) {
        let (queue, queue_end) = mpsc::channel(MAX_QUEUED);
        let (urgent, urgent_end) = mpsc::channel(MAX_REPLIES);
        let hurry = Arc::new(OnceLock::new());
        let recorder = Self {
            hurry: Arc::clone(&hurry),
            queue,
            urgent,
            numbers: Mutex::new(0),
            recorded: watch::Sender::new(0),
            asks: Mutex::default(),
        };
        (
            recorder,
            Outbox {
                queue: queue_end,
                urgent: urgent_end,
                hurry,
            },
        )
    }

    /// Sends a frame that is not a decision; waits while the queue is full.
    pub(crate) async fn tell(&self, frame: FromEgress) -> Result<(), Lost> {
        self.queue.send(frame).await.map_err(|_| Lost)
    }

    /// Sends an answer to control, or a mark, without waiting. They are few by construction; if control does not even
    /// take these, it is lost and the link will say so.
    pub(crate) fn tell_now(&self, frame: FromEgress) -> Result<(), Lost> {
        self.urgent.try_send(frame).map_err(|_| Lost)
    }

    /// Numbers a decision and sends it; where it is held, returns only when it is on disk.
    pub(crate) async fn decided(&self, decision: NetDecision) -> Result<u64, Lost> {
        let held = decision.held;
        let seq = self.enqueue(decision, FromEgress::Decided).await?;
        if held {
            if let Some(writer) = self.hurry.get() {
                writer.unpark();
            }
            let mut recorded = self.recorded.subscribe();
            let wait = recorded.wait_for(|upto| *upto >= seq);
            match tokio::time::timeout(RECORD_DEADLINE, wait).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return Err(Lost),
            }
        }
        Ok(seq)
    }

    /// Asks a person. No answer is no.
    pub(crate) async fn ask(&self, decision: NetDecision) -> Result<Said, Lost> {
        let (answer, answered) = oneshot::channel();
        let ask = {
            let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
            asks.waiting.retain(|_, waiting| !waiting.is_closed());
            if asks.waiting.len() >= MAX_ASKS {
                return Ok(Said::No);
            }
            asks.next += 1;
            let ask = asks.next;
            asks.waiting.insert(ask, answer);
            ask
        };
        self.enqueue(decision, |decision| FromEgress::Ask { ask, decision })
            .await?;
        match tokio::time::timeout(ASK_DEADLINE, answered).await {
            Ok(Ok(said)) => Ok(said),
            Ok(Err(_)) | Err(_) => Ok(Said::No),
        }
    }

    /// Control has everything up to `upto` on disk.
    pub(crate) fn recorded(&self, upto: u64) {
        self.recorded.send_if_modified(|known| {
            let newer = upto > *known;
            *known = (*known).max(upto);
            newer
        });
    }

    /// Control has the answer to a question.
    pub(crate) fn answer(&self, ask: u64, said: Said) {
        let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = asks.waiting.remove(&ask) {
            // Whoever asked may have gone; then the answer has no effect, which is what it should have.
            let _unheard = waiting.send(said).is_err();
        }
    }

    /// Numbers follow the order of the queue: a record of one covers all before it.
    async fn enqueue(
        &self,
        mut decision: NetDecision,
        frame: impl FnOnce(NetDecision) -> FromEgress,
    ) -> Result<u64, Lost> {
        let place = self.queue.reserve().await.map_err(|_| Lost)?;
        let mut last = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        decision.seq = *last;
        place.send(frame(decision));
        Ok(*last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::denial::{Asked, Grounds};
    use bastle_contract::egress::{Face, NetVerdict};
    use std::time::Duration;

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Held {
        Yes,
        No,
    }

    fn decision(held: Held) -> NetDecision {
        let asked = Asked::raw(Face::Connect, "a.example", 443);
        NetDecision {
            held: held == Held::Yes,
            ..asked.decision(NetVerdict::Allowed, &Grounds::default())
        }
    }

    #[tokio::test]
    async fn a_held_effect_does_not_happen_before_its_record_is_on_disk() {
        let (recorder, mut outbox) = Recorder::new();
        let recorder = Arc::new(recorder);
        let held = tokio::spawn({
            let recorder = Arc::clone(&recorder);
            async move { recorder.decided(decision(Held::Yes)).await }
        });
        assert!(matches!(outbox.next().await, Some(FromEgress::Decided(d)) if d.seq == 1 && d.held));
        recorder.recorded(0);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!held.is_finished());
        recorder.recorded(1);
        assert_eq!(held.await.unwrap(), Ok(1));
    }

    #[tokio::test]
    async fn faces_wait_when_control_is_slow_and_nothing_piles_up() {
        let (recorder, mut outbox) = Recorder::new();
        for _ in 0..MAX_QUEUED {
            recorder.decided(decision(Held::No)).await.unwrap();
        }
        let late =
            tokio::time::timeout(Duration::from_millis(20), recorder.decided(decision(Held::No))).await;
        assert!(late.is_err());
        assert!(recorder.tell_now(FromEgress::Reloaded { cut: 0 }).is_ok());
        assert!(matches!(outbox.next().await, Some(FromEgress::Reloaded { .. })));
        drop(outbox);
        assert_eq!(recorder.decided(decision(Held::No)).await, Err(Lost));
    }

    #[tokio::test]
    async fn numbers_follow_the_order_of_the_queue() {
        let (recorder, mut outbox) = Recorder::new();
        let recorder = Arc::new(recorder);
        for _ in 0..50 {
            let recorder = Arc::clone(&recorder);
            tokio::spawn(async move { recorder.decided(decision(Held::No)).await });
        }
        for number in 1..=50 {
            assert!(matches!(outbox.next().await, Some(FromEgress::Decided(d)) if d.seq == number));
        }
    }

    #[tokio::test]
    async fn an_unanswered_question_is_a_no() {
        let (recorder, mut outbox) = Recorder::new();
        let recorder = Arc::new(recorder);
        for (said, other) in [(Said::Yes, Said::No), (Said::No, Said::Yes)] {
            let asking = tokio::spawn({
                let recorder = Arc::clone(&recorder);
                async move { recorder.ask(decision(Held::No)).await }
            });
            let Some(FromEgress::Ask { ask, .. }) = outbox.next().await else {
                panic!()
            };
            recorder.answer(ask + 1_000, Said::Yes);
            recorder.answer(ask, said);
            recorder.answer(ask, other);
            assert_eq!(asking.await.unwrap(), Ok(said));
        }
    }
}
