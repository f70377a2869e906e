//! One form of a request for every decision, whichever version of HTTP it came in. What is sent is written from it.
//!
//! **Trust:** reads the agent's request. What two servers could read differently is refused here, or marked in
//! [`CanonicalPath::form`] for hosts whose rules look at paths.
use super::headers::{Upgrade, is_read, names_fit, upgrade};
pub(super) use super::media::Media;
use super::{Scheme, Site};
use bastle_contract::Code;
use bastle_policy::{CanonicalPath, PathDemand};
use http::{HeaderMap, Method};

/// A request as it was parsed, before anything is known about it.
pub(super) struct Parsed {
    /// Method, as sent.
    pub(super) method: Method,
    /// Path and query, or `*`.
    pub(super) path: String,
    /// Query, without its question mark.
    pub(super) query: Option<String>,
    /// The scheme in the request itself (HTTP/2).
    pub(super) scheme: Option<String>,
    /// The authority in the request itself, besides any Host field.
    pub(super) authority: Option<String>,
    /// Header fields, as sent.
    pub(super) headers: HeaderMap,
    /// Length of the body, where it is known.
    pub(super) length: Option<u64>,
    /// Whether this connection could become a WebSocket.
    pub(super) can_upgrade: bool,
}

/// A request with exactly one reading. Its host and port are those of the connection ([`Site`]).
#[derive(Clone, Debug)]
pub(super) struct CanonicalRequest {
    /// Method: a token without lower-case letters.
    pub(super) method: Method,
    /// Canonical path, or `*`.
    pub(super) path: String,
    /// Query, without its question mark; `Some("")` where there is a question mark alone.
    pub(super) query: Option<String>,
    /// What the body says it is.
    pub(super) media: Media,
    /// Fields, with names in lower case.
    pub(super) headers: HeaderMap,
    /// Length of the body, where it is known.
    pub(super) length: Option<u64>,
    canonical: CanonicalPath,
}

/// What no rule can allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) code: Code,
    pub(super) status: u16,
    pub(super) reason: &'static str,
}

fn malformed<T>(status: u16, reason: &'static str) -> Result<T, Malformed> {
    Err(Malformed {
        code: Code::NetProtocol,
        status,
        reason,
    })
}

impl CanonicalRequest {
    /// Checks a parsed request against its connection.
    pub(super) fn new(site: &Site, parsed: Parsed) -> Result<Self, Malformed> {
        if !names_fit(site, parsed.authority.as_deref(), &parsed.headers) {
            return Err(Malformed {
                code: Code::NetMismatch,
                status: 421,
                reason: "the Host of the request is not the host of the connection",
            });
        }
        let scheme = match site.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        if parsed.scheme.as_deref().is_some_and(|own| own != scheme) {
            return malformed(400, "the scheme of the request is not that of the connection");
        }
        method_fits(&parsed)?;
        let visible = |text: &str| text.bytes().all(|b| (0x21..=0x7e).contains(&b) && b != b'#');
        if !visible(&parsed.path) || !parsed.query.as_deref().is_none_or(visible) {
            return malformed(400, "a byte in the request target that has no place there");
        }
        let whole_server = parsed.path == "*" && parsed.method == Method::OPTIONS;
        if !whole_server && !parsed.path.starts_with('/') {
            return malformed(400, "the path does not begin with a slash");
        }
        let canonical = CanonicalPath::new(&parsed.path);
        Ok(Self {
            path: canonical.text.clone(),
            canonical,
            media: Media::of(&parsed.headers),
            method: parsed.method,
            query: parsed.query,
            headers: parsed.headers,
            length: parsed.length,
        })
    }

    /// Why this path cannot be judged where `demand` holds.
    pub(super) fn refused_path(&self, demand: PathDemand) -> Option<&'static str> {
        self.canonical.refused(demand)
    }

    /// Whether its method only reads.
    pub(super) fn reads(&self) -> bool {
        is_read(&self.method)
    }

    /// Path and query as they are sent.
    pub(super) fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

/// Methods that are never passed on, spellings that servers fold, and upgrades.
fn method_fits(parsed: &Parsed) -> Result<(), Malformed> {
    let method = parsed.method.as_str();
    // TRACE sends a request back to whoever asked, the injected credential with it.
    if ["TRACE", "TRACK", "CONNECT"]
        .iter()
        .any(|bad| method.eq_ignore_ascii_case(bad))
    {
        return malformed(405, "this method is never passed on");
    }
    // Methods are compared by case; a lower-case spelling is another method, which some servers take for the same.
    if method.len() > 32 || method.bytes().any(|b| b.is_ascii_lowercase()) {
        return malformed(400, "a method in lower case, or longer than any");
    }
    match upgrade(&parsed.headers) {
        Upgrade::None => Ok(()),
        Upgrade::WebSocket if parsed.can_upgrade && method == "GET" => Ok(()),
        Upgrade::WebSocket => malformed(400, "a WebSocket begins with GET over HTTP/1.1"),
        Upgrade::Other => malformed(400, "the only upgrade that is passed on is a WebSocket"),
    }
}

/// Entry for fuzzing: the form of what is sent is what was judged.
pub(crate) fn fuzz_canonical(bytes: &[u8]) {
    super::overrides::fuzz_scans(bytes);
    let Ok(head) = crate::http1::parse_head(bytes) else {
        return;
    };
    let crate::http1::Target::Origin(target) = &head.target else {
        return;
    };
    let (path, _) = target.split_once('?').unwrap_or((target, ""));
    let once = CanonicalPath::new(path);
    assert_eq!(CanonicalPath::new(&once.text), once, "not stable");
    if once.refused(PathDemand::Plain).is_none() {
        let dots = once.text.split('/').any(|part| matches!(part, "." | ".."));
        assert!(!dots && !once.text.contains("//") && !once.text.contains('\\'));
    }
    super::overrides::fuzz_names(&head.headers);
    // Any fields give an answer; which one is the tests' business.
    match Media::of(&head.headers) {
        Media::Absent | Media::Json | Media::Form | Media::Multipart | Media::Other | Media::Ambiguous => {}
    }
}

#[cfg(test)]
mod tests;
