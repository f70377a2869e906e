//! A request head from its bytes.
//!
//! **Trust:** reads the agent's bytes; total, bounded, no repair.
use crate::limits::{MAX_HEAD, MAX_HEADERS, MAX_REQUEST_LINE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// A request head that has exactly one reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Method, a token, case as sent.
    pub method: Method,
    /// What is asked for.
    pub target: Target,
    /// Version of the client.
    pub version: Version,
    /// Header fields, names in lower case.
    pub headers: HeaderMap,
    /// The Host field, if there is one (there is at most one; HTTP/1.1 has one).
    pub host: Option<Authority>,
    /// How the body is delimited.
    pub body: Framing,
}

/// The four forms of a request target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `CONNECT host:port`.
    Connect(Authority),
    /// `http://host[:port]/path?query`; its authority equals the Host field.
    Absolute {
        /// Host and port.
        authority: Authority,
        /// Path and query, at least `/`.
        path: String,
    },
    /// `/path?query`.
    Origin(String),
    /// `*`.
    Asterisk,
}

/// Host and port as written: only letters, digits, `.`, `-` or a bracketed IPv6 address; not yet canonical.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    /// Host, in the case it was sent.
    pub host: String,
    /// Port, if one was written.
    pub port: Option<u16>,
}

/// Versions that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// Why a request is refused before it is judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    /// More than one reading, or none.
    #[error("{0}")]
    Malformed(&'static str),
    /// Larger than the limits.
    #[error("the request head is too large")]
    TooLarge,
    /// The head or a piece of the body did not come in time.
    #[error("the request did not arrive in time")]
    Slow,
    /// The connection ended or failed inside a request.
    #[error("the connection ended inside a request")]
    Gone,
}

impl HeadError {
    /// The status to answer with.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) | Self::Gone => 400,
            Self::TooLarge => 431,
            Self::Slow => 408,
        }
    }
}

fn bad<T>(why: &'static str) -> Result<T, HeadError> {
    Err(HeadError::Malformed(why))
}

impl Head {
    /// Whether the client wants the connection kept.
    pub(crate) fn keeps_alive(&self) -> bool {
        let says = |word: &str| {
            self.headers
                .get_all(http::header::CONNECTION)
                .iter()
                .any(|value| {
                    value
                        .to_str()
                        .is_ok_and(|text| text.split(',').any(|item| item.trim().eq_ignore_ascii_case(word)))
                })
        };
        match self.version {
            Version::Http11 => !says("close"),
            Version::Http10 => says("keep-alive") && !says("close"),
        }
    }
}

/// A head from exactly its bytes, the empty line included.
pub(crate) fn parse_head(bytes: &[u8]) -> Result<Head, HeadError> {
    if bytes.len() > MAX_HEAD {
        return Err(HeadError::TooLarge);
    }
    let mut lines = Lines { rest: bytes };
    let request = lines.next_line()?;
    if request.len() > MAX_REQUEST_LINE {
        return Err(HeadError::TooLarge);
    }
    let (method, target, version) = parse_request_line(request)?;
    let mut headers = HeaderMap::new();
    loop {
        let line = lines.next_line()?;
        if line.is_empty() {
            break;
        }
        if headers.len() >= MAX_HEADERS {
            return Err(HeadError::TooLarge);
        }
        let (name, value) = parse_field(line)?;
        headers.append(name, value);
    }
    if !lines.rest.is_empty() {
        return bad("bytes after the head");
    }
    finish(method, target, version, headers)
}

/// The checks that need the whole head.
fn finish(method: Method, target: Target, version: Version, headers: HeaderMap) -> Result<Head, HeadError> {
    let host = host_field(&headers)?;
    if version == Version::Http11 && host.is_none() {
        return bad("HTTP/1.1 without a Host field");
    }
    let named = match &target {
        Target::Connect(authority) => Some((authority, 443)),
        Target::Absolute { authority, .. } => Some((authority, 80)),
        Target::Origin(_) | Target::Asterisk => None,
    };
    if let (Some((authority, default)), Some(host)) = (named, &host) {
        // CONNECT lines always carry a port, and clients put it into Host or leave it out.
        let same_port = host.port.is_none() && matches!(target, Target::Connect(_))
            || host.port.unwrap_or(default) == authority.port.unwrap_or(default);
        let same_host = canonical(&host.host) == canonical(&authority.host);
        if !same_host || !same_port {
            return bad("the Host field and the request target name different hosts");
        }
    }
    let body = framing(version, &headers)?;
    if matches!(target, Target::Connect(_)) && body != Framing::None {
        return bad("CONNECT with a body");
    }
    Ok(Head {
        method,
        target,
        version,
        headers,
        host,
        body,
    })
}

/// Only for comparing two spellings; policy makes its own canonical form from the text.
fn canonical(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Lines that end in CR LF; a bare CR or LF is an error, not a separator.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    fn next_line(&mut self) -> Result<&'a [u8], HeadError> {
        let Some(end) = self.rest.iter().position(|&b| b == b'\r' || b == b'\n') else {
            return bad("a line without an end");
        };
        if self.rest.get(end..end + 2) != Some(b"\r\n") {
            return bad("a bare CR or LF");
        }
        let line = &self.rest[..end];
        self.rest = &self.rest[end + 2..];
        Ok(line)
    }
}

pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

pub(super) fn parse_request_line(line: &[u8]) -> Result<(Method, Target, Version), HeadError> {
    let mut words = line.split(|&b| b == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return bad("the request line is not three words");
    };
    let version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        _ => return bad("not HTTP/1.0 or HTTP/1.1"),
    };
    if !is_token(method) || method.len() > 32 {
        return bad("the method is not a token");
    }
    let Ok(method) = Method::from_bytes(method) else {
        return bad("the method is not a token");
    };
    // `http` compares methods by case; a lower-case spelling is another method, which some servers take for the same.
    if method.as_str().bytes().any(|b| b.is_ascii_lowercase()) {
        return bad("a method in lower case");
    }
    Ok((parse_target(&method, target)?, version)).map(|(target, version)| (method, target, version))
}

fn parse_target(method: &Method, target: &[u8]) -> Result<Target, HeadError> {
    if !target.iter().all(|b| (0x21..=0x7e).contains(b) && *b != b'#') {
        return bad("a byte in the request target that has no place there");
    }
    let Ok(text) = std::str::from_utf8(target) else {
        return bad("a byte in the request target that has no place there");
    };
    if method == Method::CONNECT {
        let authority = parse_authority(text)?;
        return match authority.port {
            Some(_) => Ok(Target::Connect(authority)),
            None => bad("CONNECT without a port"),
        };
    }
    if text == "*" {
        return if method == Method::OPTIONS {
            Ok(Target::Asterisk)
        } else {
            bad("* is for OPTIONS only")
        };
    }
    if text.starts_with('/') {
        return Ok(Target::Origin(text.to_owned()));
    }
    let scheme = text.get(..7).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("http://") {
        return bad("the request target is neither a path nor an http:// address");
    }
    let rest = &text[7..];
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    Ok(Target::Absolute {
        authority: parse_authority(authority)?,
        path,
    })
}

/// `host[:port]`. No user, no escapes, no control bytes: each is a way to make two readers see two hosts.
pub(crate) fn parse_authority(text: &str) -> Result<Authority, HeadError> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((inner, after)) = rest.split_once(']') else {
            return bad("a malformed authority");
        };
        if inner.parse::<std::net::Ipv6Addr>().is_err() {
            return bad("a malformed IPv6 address");
        }
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => return bad("a malformed authority"),
        };
        (format!("[{inner}]"), port)
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        if host.is_empty() || host.len() > 255 || !host.bytes().all(plain) {
            return bad("a malformed host");
        }
        (host.to_owned(), port)
    };
    let port = match port {
        None => None,
        Some(digits) if (1..=5).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()) => {
            match digits.parse::<u16>() {
                Ok(0) | Err(_) => return bad("a malformed port"),
                Ok(port) => Some(port),
            }
        }
        Some(_) => return bad("a malformed port"),
    };
    Ok(Authority { host, port })
}

pub(crate) fn parse_field(line: &[u8]) -> Result<(HeaderName, HeaderValue), HeadError> {
    if line.first().is_some_and(|b| matches!(b, b' ' | b'\t')) {
        return bad("a folded header line");
    }
    let Some(colon) = line.iter().position(|&b| b == b':') else {
        return bad("a header line without a colon");
    };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if !is_token(name) {
        return bad("a header name that is not a token");
    }
    let value = value.trim_ascii();
    // `trim_ascii` takes form feeds and the like too; the check below has seen them first.
    if line[colon + 1..]
        .iter()
        .any(|&b| b == 0x7f || (b < 0x20 && b != b'\t'))
    {
        return bad("a control byte in a header value");
    }
    match (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
        (Ok(name), Ok(value)) => Ok((name, value)),
        _ => bad("a malformed header line"),
    }
}

fn host_field(headers: &HeaderMap) -> Result<Option<Authority>, HeadError> {
    let mut fields = headers.get_all(http::header::HOST).iter();
    let (Some(host), None) = (fields.next(), fields.next()) else {
        return if headers.contains_key(http::header::HOST) {
            bad("more than one Host field")
        } else {
            Ok(None)
        };
    };
    match host.to_str() {
        Ok(text) => parse_authority(text).map(Some),
        Err(_) => bad("a malformed host"),
    }
}

fn framing(version: Version, headers: &HeaderMap) -> Result<Framing, HeadError> {
    let mut lengths = headers.get_all(http::header::CONTENT_LENGTH).iter();
    let mut codings = headers.get_all(http::header::TRANSFER_ENCODING).iter();
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(Framing::None),
        (Some(_), Some(_)) => bad("both Content-Length and Transfer-Encoding"),
        (Some(length), None) => {
            if lengths.next().is_some() {
                return bad("more than one Content-Length");
            }
            let digits = length.as_bytes();
            // 18 digits stay below 2^63: no reader overflows.
            if !(1..=18).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
                return bad("a Content-Length that is not plain digits");
            }
            let length = digits
                .iter()
                .fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
            Ok(Framing::Length(length))
        }
        (None, Some(coding)) => {
            if version == Version::Http10 {
                return bad("Transfer-Encoding in HTTP/1.0");
            }
            if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return bad("a Transfer-Encoding other than exactly chunked");
            }
            Ok(Framing::Chunked)
        }
    }
}
