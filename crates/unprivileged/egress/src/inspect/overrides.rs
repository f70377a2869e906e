//! Ways in which a request names another method or path than its own. Where methods or paths decide, it is refused.
//!
//! **Trust:** reads the agent's request. Frameworks differ in which of these they follow, so each counts. A form or JSON
//! is looked through while it passes and is cut off before its end reaches the server: half of it is not carried out.
mod form;
mod json;
mod parameter;

use super::body::BodyError;
use super::canonical::{CanonicalRequest, Media};
use super::media::{Json, is_legible};
use super::operation::Begun;
use crate::header_name;
use form::FormScan;
use http::HeaderMap;
use json::{JsonScan, Malformed};
use parameter::{is_method, may_name_method, names_method};

/// What the name of a field ends in that some server takes for the real method or path …
const ENDS: [&str; 6] = ["method", "verb", "url", "uri", "path", "prefix"];
/// … where it also holds one of these (`X-Original-URL`, `X-Envoy-Original-Path`, `X-HTTP-Method-Override`).
const MARKS: [&str; 5] = ["original", "rewrite", "override", "forwarded", "unencoded"];
/// Fields that say it otherwise.
const FIELDS: [&str; 2] = ["x-http-method", "x-method"];
/// Parts of fields that name another path besides the one of the request: stores copy or move what lies there.
const SOURCES: [&str; 4] = ["copy-source", "copy-from", "rename-source", "move-source"];
/// A body up to this length is looked through before anything is sent.
const SCANNED_FIRST: usize = 64 * 1024;
/// Why it is refused.
pub(super) const REASON: &str =
    "it names another method or path than its own (method override), which rules could not judge";
const AMBIGUOUS: &str =
    "its Content-Type can be read in more than one way, so it could hide a method override";
const CODED: &str =
    "its form or JSON is compressed, which could hide a method override; send it uncompressed";
const ILLEGIBLE: &str =
    "its form or JSON is in a character set that could hide a method override; send it in UTF-8";

/// Whether the head of a request names another method or path.
pub(super) fn in_head(request: &CanonicalRequest) -> bool {
    let field = request.headers.keys().any(|name| is_field(name.as_str()));
    let mut pairs = request.query.as_deref().unwrap_or_default().split(['&', ';']);
    field
        || pairs.any(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            names_method(key.as_bytes()) || (may_name_method(key.as_bytes()) && is_method(value.as_bytes()))
        })
}

/// Whether some server takes a field of this name for the method or path.
fn is_field(name: &str) -> bool {
    let name = header_name::folded(name);
    let holds = |words: &[&str]| words.iter().any(|word| name.contains(word));
    FIELDS.contains(&name.as_str())
        || (name.contains("method") && name.contains("override"))
        || (ENDS.iter().any(|end| name.ends_with(end)) && holds(&MARKS))
        || holds(&SOURCES)
        || name.starts_with("destination-")
}

/// Whether the beginning of a body does; gives what the rest is looked through with.
pub(super) async fn in_body(
    request: &CanonicalRequest,
    body: &mut Begun,
) -> Result<Option<BodyScan>, Overridden> {
    if request.media == Media::Other && Json::of(&request.headers) == Json::Unmentioned {
        return Ok(None);
    }
    body.read_to(0).await.map_err(Overridden::Body)?;
    // Without a body it does not matter what it would be.
    if body.length == 0 {
        return Ok(None);
    }
    let mut scan = BodyScan::new(request)?;
    body.read_to(SCANNED_FIRST).await.map_err(Overridden::Body)?;
    let mut probe = scan.clone();
    let joined = body.joined();
    if probe.feed(&joined) || (body.rest.is_none() && probe.finish()) {
        return Err(Overridden::Yes);
    }
    if body.rest.is_none() {
        return Ok(None);
    }
    // The whole body passes it again on its way out, what was read already included.
    scan.passes();
    Ok(Some(scan))
}

/// Why a body is refused.
pub(super) enum Overridden {
    /// It names another method.
    Yes,
    /// Whether it does cannot be told.
    Hidden(&'static str),
    /// It cannot be read.
    Body(BodyError),
}

/// Looks through a body in every way in which a server could read it.
#[derive(Clone, Debug)]
pub(super) struct BodyScan {
    form: Option<FormScan>,
    json: Option<JsonScan>,
}

impl BodyScan {
    fn new(request: &CanonicalRequest) -> Result<Self, Overridden> {
        let headers = &request.headers;
        let form = match request.media {
            Media::Ambiguous => return Err(Overridden::Hidden(AMBIGUOUS)),
            // Rack takes a body without a type for a form.
            Media::Form | Media::Absent => Some(FormScan::encoded()),
            Media::Multipart => Some(FormScan::multipart()),
            Media::Json | Media::Other => None,
        };
        let json = match (Json::of(headers), request.media) {
            (Json::Declared, _) => Some(Malformed::Refused),
            // Without a type, servers look at the first byte.
            (Json::Mentioned, _) | (Json::Unmentioned, Media::Absent) => Some(Malformed::Passes),
            (Json::Unmentioned, _) => None,
        };
        if !is_uncompressed(headers) {
            return Err(Overridden::Hidden(CODED));
        }
        if !is_legible(headers) {
            return Err(Overridden::Hidden(ILLEGIBLE));
        }
        Ok(Self {
            form,
            json: json.map(JsonScan::new),
        })
    }

    fn passes(&mut self) {
        self.form.iter_mut().for_each(FormScan::passes);
        self.json.iter_mut().for_each(JsonScan::reset);
    }

    /// Whether a name that some server takes for the method ends in `bytes`.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> bool {
        let form = self.form.as_mut().is_some_and(|scan| scan.feed(bytes));
        form || self.json.as_mut().is_some_and(|scan| scan.feed(bytes))
    }

    /// Whether what was held back is one.
    fn finish(&mut self) -> bool {
        self.form.as_mut().is_some_and(FormScan::finish)
    }
}

/// Whether names in the body are not compressed. `aws-chunked` only frames it: object stores write signatures between
/// pieces.
fn is_uncompressed(headers: &HeaderMap) -> bool {
    let plain = |coding: &str| matches!(coding, "" | "identity" | "aws-chunked");
    header_name::fields(headers, "content-encoding").all(|(_, value)| {
        let text = value.to_str().unwrap_or("unknown").to_ascii_lowercase();
        text.split(',').map(str::trim).all(plain)
    })
}

/// Entry for fuzzing: how a body is cut into pieces decides nothing, and JSON is read as a parser reads it.
pub(super) fn fuzz_scans(bytes: &[u8]) {
    let piecewise = |mut scan: FormScan, step: usize| {
        let found = bytes.chunks(step).any(|piece| scan.feed(piece));
        found || scan.finish()
    };
    for scan in [FormScan::encoded(), FormScan::multipart()] {
        let mut passing = scan.clone();
        passing.passes();
        let at_once = piecewise(passing.clone(), 1);
        assert_eq!(at_once, piecewise(passing, bytes.len().max(1)));
        assert!(at_once || !piecewise(scan.clone(), 3));
        assert_eq!(piecewise(scan.clone(), 1), piecewise(scan, bytes.len().max(1)));
    }
    let json = |malformed, step: usize| {
        let mut scan = JsonScan::new(malformed);
        bytes.chunks(step).any(|piece| scan.feed(piece))
    };
    let whole = json(Malformed::Refused, bytes.len().max(1));
    assert_eq!(json(Malformed::Refused, 1), whole);
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) {
        let named =
            |object: &serde_json::Map<_, _>| object.keys().any(|key: &String| names_method(key.as_bytes()));
        assert_eq!(whole, value.as_object().is_some_and(named));
        assert_eq!(json(Malformed::Passes, 3), whole);
    }
}

/// Entry for fuzzing: taken out, a field is there in no spelling.
pub(super) fn fuzz_names(headers: &HeaderMap) {
    for name in headers.keys() {
        let mut left = headers.clone();
        header_name::remove(&mut left, name.as_str());
        assert!(!header_name::contains(&left, &header_name::folded(name.as_str())));
        assert_eq!(
            is_field(name.as_str()),
            is_field(&header_name::folded(name.as_str()))
        );
    }
}

#[cfg(test)]
mod tests;
