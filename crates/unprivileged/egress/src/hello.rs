//! The ClientHello: which name a TLS client asks for, read before anything is passed on.
//!
//! **Trust:** reads the agent's bytes; bounded, total, keeps nothing.
//!
//! Encrypted ClientHello: the outer name is what an observer sees and what servers without the key answer to; it must
//! equal the tunnel's host like any other. What the inner name is cannot be known without terminating TLS, and clients
//! send the extension with random content to everybody. So the extension alone refuses nothing; a rule that needs
//! certainty about the inner name terminates TLS, where the extension has no effect.
use crate::limits::{HEAD_DEADLINE, MAX_CLIENT_HELLO};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What a ClientHello says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The one name, as sent.
    pub sni: Option<String>,
    /// Protocols offered inside.
    pub alpn: Vec<Vec<u8>>,
    /// Whether there is an encrypted ClientHello.
    pub ech: bool,
}

/// Why there is no ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HelloError {
    /// The first bytes are not a TLS handshake.
    #[error("the first bytes are not TLS")]
    NotTls,
    /// It is one, but malformed.
    #[error("the TLS handshake is malformed")]
    Malformed,
    /// It is larger than any real one.
    #[error("the TLS handshake is too large")]
    TooLarge,
    /// It did not come in time.
    #[error("the TLS handshake did not arrive in time")]
    Slow,
    /// The connection ended first.
    #[error("the connection ended before its first bytes were complete")]
    Gone,
}

/// Content type of handshake records.
const HANDSHAKE: u8 = 0x16;
/// Handshake type of the ClientHello.
const CLIENT_HELLO: u8 = 1;
/// Largest record, by the standard.
const MAX_RECORD: usize = 1 << 14;
/// Extension numbers.
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const ECH: u16 = 0xfe0d;

/// Reads until the ClientHello is complete. The bytes read are in `buffer`, to be passed on.
pub(crate) async fn read_hello<R: AsyncRead + Unpin>(
    reader: &mut R,
    buffer: &mut BytesMut,
) -> Result<Hello, HelloError> {
    let reading = async {
        loop {
            if let Some(hello) = parse_hello(buffer)? {
                return Ok(hello);
            }
            read_more(reader, buffer).await?;
        }
    };
    tokio::time::timeout(HEAD_DEADLINE, reading)
        .await
        .unwrap_or(Err(HelloError::Slow))
}

/// Reads until there is at least one byte, so that it can be told what the client speaks.
pub(crate) async fn read_first<R: AsyncRead + Unpin>(
    reader: &mut R,
    buffer: &mut BytesMut,
) -> Result<u8, HelloError> {
    let reading = async {
        loop {
            match buffer.first() {
                Some(&first) => return Ok(first),
                None => read_more(reader, buffer).await?,
            }
        }
    };
    tokio::time::timeout(HEAD_DEADLINE, reading)
        .await
        .unwrap_or(Err(HelloError::Slow))
}

async fn read_more<R: AsyncRead + Unpin>(reader: &mut R, buffer: &mut BytesMut) -> Result<(), HelloError> {
    buffer.reserve(2_048);
    let mut limited = reader.take(2_048);
    match limited.read_buf(buffer).await {
        Ok(0) | Err(_) => Err(HelloError::Gone),
        Ok(_) => Ok(()),
    }
}

/// The alert by which a TLS client learns that access was denied.
pub(crate) const ACCESS_DENIED: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 49];

/// Whether a first byte can begin a TLS connection.
pub(crate) fn is_tls(first: u8) -> bool {
    first == HANDSHAKE
}

/// The ClientHello at the front of `bytes`; `None` while it is incomplete.
pub(crate) fn parse_hello(bytes: &[u8]) -> Result<Option<Hello>, HelloError> {
    let mut message = BytesMut::new();
    let mut rest = bytes;
    loop {
        match record(rest)? {
            Some((payload, after)) => {
                message.extend_from_slice(payload);
                rest = after;
            }
            None if bytes.len() > MAX_CLIENT_HELLO => return Err(HelloError::TooLarge),
            None => return Ok(None),
        }
        if message.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
            return Err(HelloError::Malformed);
        }
        let Some(length) = message
            .get(1..4)
            .map(|l| usize::from(l[0]) << 16 | usize::from(l[1]) << 8 | usize::from(l[2]))
        else {
            continue;
        };
        if length > MAX_CLIENT_HELLO {
            return Err(HelloError::TooLarge);
        }
        if let Some(body) = message.get(4..4 + length) {
            // A message behind the ClientHello in the same record would be read by the server and not by us.
            if message.len() > 4 + length {
                return Err(HelloError::Malformed);
            }
            return parse_body(&Bytes::copy_from_slice(body)).map(Some);
        }
    }
}

/// The payload of a record, and what follows it.
type Cut<'a> = (&'a [u8], &'a [u8]);

/// The first record, once it is complete.
fn record(bytes: &[u8]) -> Result<Option<Cut<'_>>, HelloError> {
    match bytes.first() {
        None => return Ok(None),
        Some(&HANDSHAKE) => {}
        Some(_) => return Err(HelloError::NotTls),
    }
    if bytes.get(1).is_some_and(|&major| major != 3) {
        return Err(HelloError::NotTls);
    }
    let Some(header) = bytes.get(..5) else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if length == 0 || length > MAX_RECORD {
        return Err(HelloError::Malformed);
    }
    Ok(bytes
        .get(5..5 + length)
        .map(|payload| (payload, &bytes[5 + length..])))
}

/// Reads numbers and lengths from the front of a slice; nothing of it can fail but by saying so.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], HelloError> {
        if n > self.0.len() {
            return Err(HelloError::Malformed);
        }
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<usize, HelloError> {
        self.take(1).map(|b| usize::from(b[0]))
    }

    fn u16(&mut self) -> Result<u16, HelloError> {
        self.take(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    fn vec8(&mut self) -> Result<Self, HelloError> {
        let n = self.u8()?;
        self.take(n).map(Self)
    }

    fn vec16(&mut self) -> Result<Self, HelloError> {
        let n = usize::from(self.u16()?);
        self.take(n).map(Self)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn parse_body(body: &[u8]) -> Result<Hello, HelloError> {
    let mut fields = Fields(body);
    // Version and random.
    fields.take(2 + 32)?;
    // Session id, cipher suites, compression methods.
    fields.vec8()?;
    fields.vec16()?;
    fields.vec8()?;
    let mut hello = Hello::default();
    if fields.is_empty() {
        return Ok(hello);
    }
    let mut extensions = fields.vec16()?;
    if !fields.is_empty() {
        return Err(HelloError::Malformed);
    }
    let mut seen = Vec::new();
    while !extensions.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.vec16()?;
        // A doubled extension is forbidden, and a server might take the other one.
        if seen.contains(&kind) {
            return Err(HelloError::Malformed);
        }
        seen.push(kind);
        match kind {
            SERVER_NAME => hello.sni = Some(parse_server_name(content)?),
            ALPN => hello.alpn = parse_alpn(content)?,
            ECH => hello.ech = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// Exactly one name of the one type there is.
fn parse_server_name(mut content: Fields<'_>) -> Result<String, HelloError> {
    let mut list = content.vec16()?;
    let kind = list.u8()?;
    let name = list.vec16()?;
    if kind != 0 || !list.is_empty() || !content.is_empty() || name.is_empty() || !name.0.is_ascii() {
        return Err(HelloError::Malformed);
    }
    String::from_utf8(name.0.to_vec()).map_err(|_| HelloError::Malformed)
}

fn parse_alpn(mut content: Fields<'_>) -> Result<Vec<Vec<u8>>, HelloError> {
    let mut list = content.vec16()?;
    let mut protocols = Vec::new();
    while !list.is_empty() {
        protocols.push(list.vec8()?.0.to_vec());
    }
    Ok(protocols)
}

#[cfg(test)]
mod tests;
