//! A WebSocket after its upgrade: bytes pass both ways and are counted.
//!
//! **Trust:** a rule allowed it for this host and path. What is inside the frames is not looked at.
use super::ledger::Ledger;
use bastle_contract::egress::BudgetKind;
use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Piece in which bytes pass.
const PIECE: usize = 16 * 1024;

/// Relays until either side ends or a budget does. `early` came from the client already.
pub(super) async fn relay<R, W>(
    client_read: &mut R,
    client_write: &mut W,
    early: Bytes,
    server: Upgraded,
    ledger: &Ledger,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut server_read, mut server_write) = tokio::io::split(TokioIo::new(server));
    let out = async {
        server_write.write_all(&early).await?;
        ledger
            .count(BudgetKind::BytesOut, early.len() as u64)
            .map_err(io::Error::other)?;
        drop(early);
        copy(client_read, &mut server_write, ledger, BudgetKind::BytesOut).await
    };
    let back = copy(&mut server_read, client_write, ledger, BudgetKind::BytesIn);
    // The protocol ends in a frame of its own; when one direction is closed nothing of use follows in the other.
    let ended: io::Result<()> = tokio::select! {
        ended = out => ended,
        ended = back => ended,
    };
    // How it ended changes nothing: both sides are closed, and the account is written.
    drop(ended);
}

async fn copy<R, W>(from: &mut R, to: &mut W, ledger: &Ledger, kind: BudgetKind) -> io::Result<()>
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
        ledger.count(kind, n as u64).map_err(io::Error::other)?;
        to.write_all(buffer.get(..n).unwrap_or_default()).await?;
        to.flush().await?;
    }
}
