//! Bodies on their way: counted, bounded, looked through for phantoms on the way out and for values on the way back.
//!
//! **Trust:** carries the bytes of both sides. Holds one piece at a time, and what was read to judge the request.
use super::decode::Decoder;
use super::ledger::Ledger;
use super::overrides::BodyScan;
use super::pool::Return;
use super::turn::{self, BackgroundScan};
use crate::budget::Flow;
use crate::canary::Watch;
use crate::memory::Held;
use crate::scrub::{Needles, Scrubber};
use crate::state::State;
use bastle_contract::egress::BudgetKind;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::sync::{Notify, mpsc};

/// Why a body ended before its end.
pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// Any body.
pub(super) type AnyBody = UnsyncBoxBody<Bytes, BodyError>;

/// A body of our own.
pub(super) fn whole(bytes: impl Into<Bytes>) -> AnyBody {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A piece of a body that is read elsewhere. A body that stops without `End` was cut off, and says so.
pub(super) enum Piece {
    Data(Bytes),
    End,
}

/// A body that another task reads from its connection.
pub(super) struct Fed {
    pieces: mpsc::Receiver<Piece>,
    left: Option<u64>,
    wanted: Arc<Notify>,
    state: FedState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FedState {
    Untouched,
    Reading,
    Ended,
}

impl Fed {
    /// A body of this length, if it is known, the way to fill it, and a signal for when somebody wants it.
    pub(super) fn new(length: Option<u64>) -> (Self, mpsc::Sender<Piece>, Arc<Notify>) {
        let (fill, pieces) = mpsc::channel(1);
        let wanted = Arc::new(Notify::new());
        let body = Self {
            pieces,
            left: length,
            wanted: Arc::clone(&wanted),
            state: if length == Some(0) {
                FedState::Ended
            } else {
                FedState::Untouched
            },
        };
        (body, fill, wanted)
    }
}

impl Body for Fed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.state {
            FedState::Ended => return Poll::Ready(None),
            FedState::Untouched => {
                self.state = FedState::Reading;
                self.wanted.notify_one();
            }
            FedState::Reading => {}
        }
        Poll::Ready(match ready!(self.pieces.poll_recv(context)) {
            Some(Piece::Data(bytes)) => {
                self.left = self.left.map(|left| left.saturating_sub(bytes.len() as u64));
                Some(Ok(Frame::data(bytes)))
            }
            Some(Piece::End) => {
                self.state = FedState::Ended;
                None
            }
            None => Some(Err("the request body was cut off".into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.state == FedState::Ended
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// What passed, and what stopped it.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    /// The request was sent to its end.
    pub(super) whole: AtomicBool,
    pub(super) stopped: OnceLock<Stopped>,
}

/// Why we ended a body ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    TooLarge,
    Phantom,
    /// A form or JSON that names another method.
    Override,
    /// The decoy credential.
    Canary,
    Budget,
    /// A request to a model whose answer would come by another request.
    Background,
    /// The client did not finish it, or not as it announced.
    Cut,
}

/// A request body on its way out.
pub(super) struct Sent {
    pub(super) read: VecDeque<Bytes>,
    pub(super) rest: Option<AnyBody>,
    pub(super) length: Option<u64>,
    pub(super) most: Option<u64>,
    pub(super) scan: Option<Scrubber>,
    pub(super) form: Option<BodyScan>,
    pub(super) watch: Option<Watch>,
    pub(super) background: Option<BackgroundScan>,
    pub(super) tally: Arc<Tally>,
    pub(super) state: Arc<State>,
    /// The room that `read` takes.
    pub(super) held: Held,
}

impl Sent {
    fn pass(&mut self, bytes: Bytes) -> Result<Frame<Bytes>, BodyError> {
        let stop = |why: Stopped, text: &'static str| {
            // The first reason is the one that is told.
            self.tally.stopped.get_or_init(|| why);
            Err::<Frame<Bytes>, BodyError>(text.into())
        };
        let amount = bytes.len() as u64;
        let sent = self.tally.sent.fetch_add(amount, Ordering::Relaxed) + amount;
        if self.most.is_some_and(|most| sent > most) {
            return stop(Stopped::TooLarge, "the body is larger than the rule allows");
        }
        if let Some(scan) = &mut self.scan {
            drop(scan.feed(&bytes));
            if scan.hits() > 0 {
                return stop(
                    Stopped::Phantom,
                    "the body holds the placeholder of a secret for another host",
                );
            }
        }
        if self.form.as_mut().is_some_and(|form| form.feed(&bytes)) {
            return stop(Stopped::Override, "the body names another method");
        }
        if self.watch.as_mut().is_some_and(|watch| watch.feed(&bytes)) {
            return stop(Stopped::Canary, "the body holds the decoy credential");
        }
        if self.background.as_mut().is_some_and(|scan| scan.feed(&bytes)) {
            return stop(Stopped::Background, turn::LATER);
        }
        match self.state.budget.spend(BudgetKind::BytesOut, amount) {
            Flow::Go | Flow::Wait => Ok(Frame::data(bytes)),
            Flow::Stop => stop(Stopped::Budget, "a budget is used up"),
        }
    }

    /// Whether nothing more is to be sent; with a known length the end is not always asked for.
    fn is_sent(&self, last: Option<&Result<Frame<Bytes>, BodyError>>) -> bool {
        match last {
            None => true,
            Some(Err(_)) => false,
            Some(Ok(_)) => {
                let sent = self.tally.sent.load(Ordering::Relaxed);
                self.is_end_stream() || self.length.is_some_and(|length| sent >= length)
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(bytes) = self.read.pop_front() {
            if self.read.is_empty() {
                self.held.release();
            }
            return Poll::Ready(Some(self.pass(bytes)));
        }
        loop {
            let Some(rest) = self.rest.as_mut() else {
                return Poll::Ready(None);
            };
            match ready!(Pin::new(rest).poll_frame(context)) {
                // Trailers are dropped: nobody upstream may take one for a header.
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(self.pass(bytes)));
                    }
                }
                Some(Err(error)) => {
                    self.tally.stopped.get_or_init(|| Stopped::Cut);
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    self.rest = None;
                    return Poll::Ready(None);
                }
            }
        }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let next = ready!(self.poll_next(context));
        if self.is_sent(next.as_ref()) {
            self.tally.whole.store(true, Ordering::Relaxed);
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// A response body on its way back.
pub(super) struct Received {
    pub(super) inner: Incoming,
    /// Undoes its content coding.
    pub(super) decoder: Option<Decoder>,
    pub(super) scrub: Option<Scrubber>,
    pub(super) needles: Arc<Needles>,
    pub(super) ledger: Ledger,
    pub(super) give_back: Option<Return>,
    /// Wait for what was held back before them.
    pub(super) trailers: Option<HeaderMap>,
    pub(super) ended: bool,
}

impl Received {
    fn take(&mut self, bytes: Bytes) -> Result<Option<Bytes>, BodyError> {
        let bytes = match &mut self.decoder {
            None => bytes,
            Some(decoder) => decoder.feed(&bytes)?.into(),
        };
        self.ledger.received(&bytes)?;
        Ok(match &mut self.scrub {
            None => Some(bytes),
            Some(scrub) => Some(scrub.feed(&bytes).into()),
        }
        .filter(|clean: &Bytes| !clean.is_empty()))
    }

    /// What was held back, at the end.
    fn finish(&mut self) -> Result<Option<Bytes>, BodyError> {
        self.ended = true;
        let rest = match &mut self.decoder {
            None => Vec::new(),
            Some(decoder) => decoder.finish()?,
        };
        let mut last: Vec<u8> = match self.take_decoded(&rest)? {
            Some(bytes) => bytes.to_vec(),
            None => Vec::new(),
        };
        self.ledger.ended();
        if let Some(give_back) = self.give_back.take() {
            give_back.now();
        }
        last.extend(self.scrub.as_mut().map(Scrubber::finish).unwrap_or_default());
        Ok((!last.is_empty()).then(|| last.into()))
    }

    fn take_decoded(&mut self, bytes: &[u8]) -> Result<Option<Bytes>, BodyError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        self.ledger.received(bytes)?;
        Ok(Some(match &mut self.scrub {
            None => Bytes::copy_from_slice(bytes),
            Some(scrub) => scrub.feed(bytes).into(),
        }))
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while !self.ended {
            match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => match self.take(bytes) {
                        Ok(None) => {}
                        Ok(Some(clean)) => return Poll::Ready(Some(Ok(Frame::data(clean)))),
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    },
                    Err(frame) => {
                        if let Ok(mut trailers) = frame.into_trailers() {
                            scrub_headers(&self.needles, &mut trailers);
                            self.trailers = Some(trailers);
                        }
                    }
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => match self.finish() {
                    Ok(None) => {}
                    Ok(Some(held)) => return Poll::Ready(Some(Ok(Frame::data(held)))),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
            }
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let plain = self.scrub.is_none() && self.decoder.is_none() && self.trailers.is_none();
        (self.ended && self.trailers.is_none()) || (plain && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        if self.scrub.is_some() || self.decoder.is_some() {
            SizeHint::new()
        } else {
            self.inner.size_hint()
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if self.inner.is_end_stream() {
            self.ledger.ended();
            if let Some(give_back) = self.give_back.take() {
                give_back.now();
            }
        }
    }
}

/// Takes values out of headers and trailers. A field whose name holds one is left out.
pub(super) fn scrub_headers(needles: &Needles, headers: &mut HeaderMap) {
    if needles.is_empty() {
        return;
    }
    let named: Vec<HeaderName> = headers
        .keys()
        .filter(|name| needles.found_in_name(name.as_str().as_bytes()))
        .cloned()
        .collect();
    for name in named {
        headers.remove(name);
    }
    for value in headers.values_mut() {
        if let Some(clean) = needles.scrub(value.as_bytes()) {
            *value = HeaderValue::from_bytes(&clean).unwrap_or_else(|_| HeaderValue::from_static("scrubbed"));
        }
    }
}
