//! A WebSocket after its upgrade: bytes pass both ways and are counted, and messages of the client with them.
//!
//! **Trust:** a rule allowed it for this host and path. Of the client's frames only their heads are looked at (RFC 6455,
//! 5.2); what a server sends that was given a secret passes [`FrameScrubber`].
use super::frames::FrameScrubber;
use super::ledger::Ledger;
use bastle_contract::egress::BudgetKind;
use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Piece in which bytes pass.
const PIECE: usize = 16 * 1024;

/// Counts the messages in a stream of frames.
#[derive(Debug, Default)]
struct Frames {
    head: Vec<u8>,
    /// Bytes of the payload that are still to come.
    left: u64,
}

impl Frames {
    /// Reads on until the head of a message is complete or the piece ends: how many bytes were taken, and the length of
    /// the message's first frame.
    fn next(&mut self, bytes: &[u8]) -> (usize, Option<u64>) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.left > 0 {
                let here = bytes.len() - at;
                let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(here);
                self.left -= skipped as u64;
                at += skipped;
                continue;
            }
            self.head.push(byte);
            at += 1;
            if let Some(length) = self.payload() {
                // Text or binary; a continuation belongs to what began before, and the rest is control.
                let opcode = self.head.first().copied().unwrap_or_default() & 0x0f;
                self.left = length;
                self.head.clear();
                if matches!(opcode, 1 | 2) {
                    return (at, Some(length));
                }
            }
        }
        (at, None)
    }

    /// The length of the payload once the whole head is there.
    fn payload(&self) -> Option<u64> {
        let second = *self.head.get(1)?;
        let more = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        if self.head.len() < 2 + more + mask {
            return None;
        }
        let digits = self.head.get(2..2 + more)?;
        Some(if more == 0 {
            u64::from(second & 0x7f)
        } else {
            digits
                .iter()
                .fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte))
        })
    }
}

/// Relays until either side ends or a budget does. `early` came from the client already.
pub(super) async fn relay<R, W>(
    client_read: &mut R,
    client_write: &mut W,
    early: Bytes,
    server: Upgraded,
    scrub: Option<FrameScrubber>,
    ledger: &Ledger,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut server_read, mut server_write) = tokio::io::split(TokioIo::new(server));
    let out = async {
        let mut frames = Frames::default();
        pass_on(&early, &mut server_write, ledger, &mut frames).await?;
        drop(early);
        let mut buffer = vec![0u8; PIECE];
        loop {
            let n = client_read.read(&mut buffer).await?;
            if n == 0 {
                return server_write.shutdown().await;
            }
            let piece = buffer.get(..n).unwrap_or_default();
            pass_on(piece, &mut server_write, ledger, &mut frames).await?;
        }
    };
    let back = copy_back(&mut server_read, client_write, ledger, scrub);
    // The protocol ends in a frame of its own; when one direction is closed nothing of use follows in the other.
    let ended: io::Result<()> = tokio::select! {
        ended = out => ended,
        ended = back => ended,
        never = ledger.settles() => match never {},
    };
    // How it ended changes nothing: both sides are closed, and the account is written.
    drop(ended);
}

/// Sends a piece; to a model, each message in it only when there is room for it.
async fn pass_on<W: AsyncWrite + Unpin>(
    piece: &[u8],
    to: &mut W,
    ledger: &Ledger,
    frames: &mut Frames,
) -> io::Result<()> {
    let (mut sent, mut read) = (0, 0);
    while ledger.counts_messages() {
        let (more, message) = frames.next(piece.get(read..).unwrap_or_default());
        read += more;
        let Some(length) = message else { break };
        // All but the last byte of its head: what comes before must reach the server, for whose answer this message
        // may have to wait, and a head that is not complete is no message yet.
        let before = read.saturating_sub(1);
        send(piece.get(sent..before).unwrap_or_default(), to, ledger).await?;
        sent = before;
        ledger.message(length).await.map_err(io::Error::other)?;
    }
    send(piece.get(sent..).unwrap_or_default(), to, ledger).await
}

async fn send<W: AsyncWrite + Unpin>(bytes: &[u8], to: &mut W, ledger: &Ledger) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    ledger
        .passed(BudgetKind::BytesOut, bytes.len() as u64)
        .map_err(io::Error::other)?;
    to.write_all(bytes).await?;
    to.flush().await
}

async fn copy_back<R, W>(
    from: &mut R,
    to: &mut W,
    ledger: &Ledger,
    mut scrub: Option<FrameScrubber>,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0u8; PIECE];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return to.shutdown().await;
        }
        ledger
            .passed(BudgetKind::BytesIn, n as u64)
            .map_err(io::Error::other)?;
        let bytes = buffer.get(..n).unwrap_or_default();
        match &mut scrub {
            None => to.write_all(bytes).await?,
            Some(scrub) => {
                let clean = scrub.feed(bytes).map_err(io::Error::other)?;
                to.write_all(&clean).await?;
            }
        }
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(opcode: u8, length: usize) -> Vec<u8> {
        let mut bytes = vec![0x80 | opcode];
        match u16::try_from(length) {
            Ok(short) if short < 126 => bytes.push(0x80 | short as u8),
            Ok(short) => {
                bytes.push(0x80 | 126);
                bytes.extend_from_slice(&short.to_be_bytes());
            }
            Err(_) => {
                bytes.push(0x80 | 127);
                bytes.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(&[1, 2, 3, 4]);
        bytes.extend(std::iter::repeat_n(0x81, length));
        bytes
    }

    /// The lengths of the messages that begin in a piece.
    fn begun(reader: &mut Frames, piece: &[u8]) -> Vec<u64> {
        let (mut at, mut found) = (0, Vec::new());
        while let (more, Some(length)) = reader.next(&piece[at..]) {
            at += more;
            found.push(length);
        }
        found
    }

    proptest! {
        #[test]
        fn messages_are_counted_however_the_stream_is_cut(
            frames in proptest::collection::vec((0u8..11, prop_oneof![0usize..200, Just(70_000usize)]), 0..12),
            step in 1usize..5000,
        ) {
            let messages = frames.iter().filter(|(opcode, _)| matches!(opcode, 1 | 2));
            let expected: Vec<u64> = messages.map(|(_, length)| *length as u64).collect();
            let bytes: Vec<u8> = frames.iter().flat_map(|(opcode, length)| frame(*opcode, *length)).collect();
            let mut reader = Frames::default();
            let counted: Vec<u64> = bytes.chunks(step).flat_map(|piece| begun(&mut reader, piece)).collect();
            prop_assert_eq!(counted, expected);
        }

        #[test]
        fn no_bytes_panic_or_grow_the_counter(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let mut reader = Frames::default();
            begun(&mut reader, &bytes);
            prop_assert!(reader.head.len() <= 14);
        }
    }
}
