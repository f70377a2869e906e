//! The beginning of a request body, read to judge the request and sent on afterwards exactly as it came.
//!
//! **Trust:** reads the agent's body. What all requests of a run hold together is bounded by one account; small pieces
//! are joined, because each of them alone would cost many times its length.
use super::body::{AnyBody, BodyError};
use crate::limits::{BODY_PAUSE, PIECE};
use crate::memory::{Full, Held, Memory};
use bastle_contract::Code;
use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use std::collections::VecDeque;

/// The beginning of a body.
pub(super) struct Begun {
    /// Pieces of the body in the order in which they came.
    pub(super) read: VecDeque<Bytes>,
    /// Its length.
    pub(super) length: usize,
    /// What was not; `None` at the end.
    pub(super) rest: Option<AnyBody>,
    /// The room it takes.
    pub(super) held: Held,
    /// Bytes that are kept; what is thrown away while it is read takes no room.
    kept: usize,
}

impl Begun {
    /// Nothing read yet.
    pub(super) fn new(body: AnyBody, memory: &Memory) -> Self {
        Self {
            read: VecDeque::new(),
            length: 0,
            rest: (!body.is_end_stream()).then_some(body),
            held: memory.account(),
            kept: 0,
        }
    }

    /// Reads on until more than `most` bytes are there or the body ends.
    pub(super) async fn read_to(&mut self, most: usize) -> Result<(), BodyError> {
        while self.length <= most && self.more().await? {}
        Ok(())
    }

    /// Reads one more piece; `false` at the end.
    pub(super) async fn more(&mut self) -> Result<bool, BodyError> {
        if self.rest.is_none() {
            return Ok(false);
        }
        if self.read.is_empty() {
            self.kept = 0;
        }
        // Room first: what was read could not be put back.
        self.held.grow_to(self.kept + PIECE).await?;
        let Some(body) = self.rest.as_mut() else {
            return Ok(false);
        };
        let frame = tokio::time::timeout(BODY_PAUSE, body.frame()).await?;
        match frame.transpose()? {
            None => {
                self.rest = None;
                return Ok(false);
            }
            Some(frame) => {
                if let Ok(bytes) = frame.into_data() {
                    self.length += bytes.len();
                    self.kept += bytes.len();
                    self.keep(bytes);
                }
            }
        }
        Ok(true)
    }

    /// Appends to the last piece while both are small.
    fn keep(&mut self, bytes: Bytes) {
        let joins = |last: &Bytes| last.len() + bytes.len() <= PIECE;
        match self.read.pop_back() {
            Some(last) if joins(&last) => {
                let mut whole = last.try_into_mut().unwrap_or_else(|shared| {
                    let mut own = BytesMut::with_capacity(PIECE);
                    own.extend_from_slice(&shared);
                    own
                });
                whole.extend_from_slice(&bytes);
                self.read.push_back(whole.freeze());
            }
            Some(last) => self.read.extend([last, bytes]),
            None => self.read.push_back(bytes),
        }
    }

    /// What was read from the byte number `at` on. Takes no longer for what was read before.
    pub(super) fn since(&self, at: usize) -> Vec<&[u8]> {
        let mut new = Vec::new();
        let mut begins = self.length;
        for piece in self.read.iter().rev() {
            if begins <= at {
                break;
            }
            begins = begins.saturating_sub(piece.len());
            new.push(piece.get(at.saturating_sub(begins)..).unwrap_or_default());
        }
        new.reverse();
        new
    }

    /// What was read, in one piece.
    pub(super) fn joined(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.length);
        for piece in &self.read {
            all.extend_from_slice(piece);
        }
        all
    }

    /// The whole body, where it was read to its end.
    pub(super) fn whole(&self) -> Option<Vec<u8>> {
        self.rest.is_none().then(|| self.joined())
    }
}

/// The code that says why a body could not be read.
pub(super) fn code_of(error: &BodyError) -> Code {
    if error.is::<Full>() {
        Code::NetLimit
    } else {
        Code::NetProtocol
    }
}

#[cfg(test)]
mod tests {
    use super::super::body::Fed;
    use super::super::body::Piece;
    use super::*;
    use proptest::prelude::*;

    fn begun(pieces: Vec<Vec<u8>>) -> (Begun, tokio::task::JoinHandle<()>) {
        let (body, fill, _) = Fed::new(None);
        let feeding = tokio::spawn(async move {
            for piece in pieces {
                if fill.send(Piece::Data(piece.into())).await.is_err() {
                    return;
                }
            }
            drop(fill.send(Piece::End).await);
        });
        (Begun::new(body.boxed_unsync(), &Memory::new()), feeding)
    }

    #[tokio::test]
    async fn a_body_in_pieces_of_one_byte_is_kept_in_few() {
        let (mut begun, feeding) = begun(vec![vec![7]; 100_000]);
        let mut seen = 0;
        while begun.more().await.unwrap() {
            assert_eq!(begun.since(seen).concat(), [7]);
            seen = begun.length;
        }
        assert_eq!((begun.length, begun.whole().unwrap().len()), (100_000, 100_000));
        assert!(begun.read.len() <= 100_000 / PIECE + 1, "{}", begun.read.len());
        feeding.await.unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn joining_pieces_changes_no_byte(sizes in proptest::collection::vec(0usize..40_000, 0..12)) {
            let pieces: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, size)| vec![n as u8; *size]).collect();
            let expected = pieces.concat();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let read = runtime.block_on(async {
                let (mut begun, feeding) = begun(pieces);
                begun.read_to(usize::MAX - 1).await.unwrap();
                feeding.await.unwrap();
                begun.joined()
            });
            prop_assert_eq!(read, expected);
        }
    }
}
