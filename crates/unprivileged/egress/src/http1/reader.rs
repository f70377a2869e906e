//! Reads request after request from one connection, within its deadlines.
//!
//! **Trust:** reads the agent's bytes. Holds at most one head and one piece of body.
use super::body::{BodyDecoder, Decoded};
use super::head::{Framing, Head, HeadError, parse_head, parse_request_line};
use crate::limits::{BODY_PAUSE, HEAD_DEADLINE, KEEP_ALIVE, MAX_HEAD, MAX_REQUEST_LINE, PIECE};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout, timeout_at};

/// The reading half of a connection that carries HTTP/1 requests.
#[derive(Debug)]
pub(crate) struct RequestReader<R> {
    inner: R,
    buffer: BytesMut,
    body: BodyDecoder,
    first: bool,
}

impl<R: AsyncRead + Unpin> RequestReader<R> {
    /// Reads from `inner`.
    pub(crate) fn new(inner: R) -> Self {
        Self::with_prefix(inner, &[])
    }

    /// Reads `prefix`, then from `inner`.
    pub(crate) fn with_prefix(inner: R, prefix: &[u8]) -> Self {
        Self {
            inner,
            buffer: BytesMut::from(prefix),
            body: BodyDecoder::new(Framing::None),
            first: true,
        }
    }

    /// The connection and what was read beyond the last head and body.
    pub(crate) fn into_parts(self) -> (R, Bytes) {
        (self.inner, self.buffer.freeze())
    }

    /// The connection itself, e.g. after an upgrade. What was read ahead is [`RequestReader::take_buffered`].
    pub(crate) fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// What was read beyond the last head and body.
    pub(crate) fn take_buffered(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }

    /// Whether the body of the last head was read to its end, so that another head can follow.
    pub(crate) fn body_done(&self) -> bool {
        self.body.is_done()
    }

    /// The next head; `None` when the peer closed between two requests (or rested too long after the first).
    pub(crate) async fn head(&mut self) -> Result<Option<Head>, HeadError> {
        if !self.body.is_done() {
            return Err(HeadError::Malformed("the body before was not read"));
        }
        if self.buffer.is_empty() {
            // A connection at rest keeps no buffer.
            self.buffer = BytesMut::new();
            let rest = if self.first { HEAD_DEADLINE } else { KEEP_ALIVE };
            match timeout(rest, self.fill()).await {
                Ok(Ok(0)) => return Ok(None),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) if self.first => return Err(HeadError::Slow),
                Err(_) => return Ok(None),
            }
        }
        self.first = false;
        let deadline = Instant::now() + HEAD_DEADLINE;
        let mut searched = 0;
        let end = loop {
            if let Some(end) = head_end(&self.buffer, &mut searched)? {
                break end;
            }
            match timeout_at(deadline, self.fill()).await {
                Ok(Ok(0)) => return Err(HeadError::Gone),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(HeadError::Slow),
            }
        };
        let head = parse_head(&self.buffer.split_to(end))?;
        self.body = BodyDecoder::new(head.body);
        Ok(Some(head))
    }

    /// The next piece of the last head's body; `None` at its end.
    pub(crate) async fn body(&mut self) -> Result<Option<Bytes>, HeadError> {
        loop {
            match self.body.decode(&mut self.buffer, PIECE)? {
                Decoded::Piece(piece) => return Ok(Some(piece)),
                Decoded::End => return Ok(None),
                Decoded::More => match timeout(BODY_PAUSE, self.fill()).await {
                    Ok(Ok(0)) => return Err(HeadError::Gone),
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return Err(error),
                    Err(_) => return Err(HeadError::Slow),
                },
            }
        }
    }

    async fn fill(&mut self) -> Result<usize, HeadError> {
        self.buffer.reserve(4_096);
        let mut limited = (&mut self.inner).take(PIECE as u64);
        limited
            .read_buf(&mut self.buffer)
            .await
            .map_err(|_| HeadError::Gone)
    }
}

/// Where the head ends. Looks only at bytes it has not looked at, so that a slow writer costs no quadratic time, and
/// refuses a bare line end at once: waiting for more would only help whoever smuggles.
fn head_end(buffer: &[u8], searched: &mut usize) -> Result<Option<usize>, HeadError> {
    let mut at = *searched;
    while at < buffer.len() {
        match (buffer[at], buffer.get(at + 1)) {
            (b'\r', Some(b'\n')) if at >= 2 && buffer[at - 2..at] == *b"\r\n" => return Ok(Some(at + 2)),
            (b'\r', Some(b'\n')) if at == 0 => {
                return Err(HeadError::Malformed("an empty line instead of a request"));
            }
            (b'\r', Some(b'\n')) => {
                // The first line tells whether this is a request at all: other protocols would wait for an answer.
                if !buffer[..at].contains(&b'\n') {
                    parse_request_line(&buffer[..at])?;
                }
                at += 2;
            }
            (b'\r', None) => break,
            (b'\r' | b'\n', _) => return Err(HeadError::Malformed("a bare CR or LF")),
            (0, _) => return Err(HeadError::Malformed("a NUL byte")),
            _ => at += 1,
        }
    }
    *searched = at;
    let in_first_line = !buffer[..at].contains(&b'\n');
    if at > MAX_HEAD || (in_first_line && at > MAX_REQUEST_LINE) {
        return Err(HeadError::TooLarge);
    }
    Ok(None)
}
