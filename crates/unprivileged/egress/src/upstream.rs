//! A company proxy on the way out: the tunnel to it, and through it.
//!
//! **Trust:** the proxy is named by a trusted layer; its answer is read within limits and believed only in its status.
//! The name goes to it only after it was allowed. It looks the name up itself, so addresses cannot be checked here.
use crate::dial::Refused;
use crate::limits::{DIAL_DEADLINE, MAX_PROXY_HEAD};
use crate::via::Via;
use bastle_contract::Code;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Asks the proxy on `stream` for a tunnel; gives what the server said already.
pub(crate) async fn tunnel<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    via: &Via,
) -> Result<Bytes, Refused> {
    let gone = || Refused::new(Code::NetUpstream, "the company proxy closed the connection");
    let authority = via.authority();
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    let exchange = async {
        stream.write_all(request.as_bytes()).await.map_err(|_| gone())?;
        let mut buffer = BytesMut::new();
        loop {
            if let Some(end) = find_end(&buffer) {
                let head = buffer.split_to(end);
                return match status(&head) {
                    Some(200..=299) => Ok(buffer.freeze()),
                    Some(status) => Err(Refused::new(
                        Code::NetUpstream,
                        format!("the company proxy answered {status}"),
                    )),
                    None => Err(Refused::new(
                        Code::NetUpstream,
                        "the company proxy's answer is not HTTP",
                    )),
                };
            }
            if buffer.len() > MAX_PROXY_HEAD {
                return Err(Refused::new(
                    Code::NetUpstream,
                    "the company proxy's answer is too large",
                ));
            }
            if stream.read_buf(&mut buffer).await.map_err(|_| gone())? == 0 {
                return Err(gone());
            }
        }
    };
    tokio::time::timeout(DIAL_DEADLINE, exchange)
        .await
        .unwrap_or_else(|_| {
            Err(Refused::new(
                Code::NetUpstream,
                "the company proxy did not answer in time",
            ))
        })
}

fn find_end(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map(|at| at + 4)
}

/// The status of an answer's first line.
pub(crate) fn status(head: &[u8]) -> Option<u16> {
    let rest = head
        .strip_prefix(b"HTTP/1.1 ")
        .or_else(|| head.strip_prefix(b"HTTP/1.0 "))?;
    let digits = rest.get(..3)?;
    let after = rest.get(3)?;
    let plain = digits.iter().all(u8::is_ascii_digit) && matches!(after, b' ' | b'\r');
    plain.then(|| {
        digits
            .iter()
            .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
    })
}
