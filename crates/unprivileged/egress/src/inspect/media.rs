//! What a body says it is: `Content-Type`, read once for every decision.
//!
//! **Trust:** reads the agent's fields. What two servers could take for different types is [`Media::Ambiguous`].
use crate::header_name;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Character sets in which every ASCII character is its own byte, so that a name in a body is what it looks like.
const LEGIBLE: [&str; 4] = ["utf-8", "utf8", "us-ascii", "iso-8859-1"];

/// What a body says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    /// There is no `Content-Type`.
    Absent,
    /// JSON in UTF-8.
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `multipart/…`.
    Multipart,
    /// Anything else, JSON in another character set included.
    Other,
    /// Several types, or one that is no type.
    Ambiguous,
}

impl Media {
    /// Reads `Content-Type`.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut values = header_name::fields(headers, CONTENT_TYPE.as_str());
        let value = match (values.next(), values.next()) {
            (None, _) => return Self::Absent,
            // Another spelling of the name is this field to some servers and none to others.
            (Some((name, value)), None) if name == CONTENT_TYPE => value.to_str().unwrap_or_default(),
            (Some(_), _) => return Self::Ambiguous,
        };
        let mut parts = value.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        // A comma joins two values of the field, and some readers end the type at a blank; which part counts is each
        // server's own choice.
        if !is_type(&essence) || value.contains(',') {
            return Self::Ambiguous;
        }
        let mut charset = None;
        for part in parts.filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Self::Ambiguous;
            };
            if name.trim().eq_ignore_ascii_case("charset")
                && charset.replace(value.trim().trim_matches('"')).is_some()
            {
                return Self::Ambiguous;
            }
        }
        let utf8 = charset
            .is_none_or(|name| name.eq_ignore_ascii_case("utf-8") || name.eq_ignore_ascii_case("utf8"));
        let json = matches!(
            essence.as_str(),
            "application/json" | "application/json-rpc" | "application/jsonrequest"
        ) || (essence.starts_with("application/") && essence.ends_with("+json"));
        match essence.as_str() {
            _ if json && utf8 => Self::Json,
            "application/x-www-form-urlencoded" => Self::Form,
            _ if essence.starts_with("multipart/") => Self::Multipart,
            _ => Self::Other,
        }
    }
}

/// `TYPE/SUBTYPE`, both tokens (RFC 9110, 8.3.1).
fn is_type(essence: &str) -> bool {
    let token = |text: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        !text.is_empty() && text.bytes().all(plain)
    };
    essence
        .split_once('/')
        .is_some_and(|(kind, subtype)| token(kind) && token(subtype))
}

/// How much `Content-Type` speaks of JSON: some frameworks look for the word anywhere in the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Json {
    /// The type does not claim JSON.
    Unmentioned,
    /// Somewhere: the body may be something else.
    Mentioned,
    /// Its type is a kind of JSON.
    Declared,
}

impl Json {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let stated = stated(headers);
        let essence = stated.split(';').next().unwrap_or_default().trim();
        if essence.ends_with("json") {
            Self::Declared
        } else if stated.contains("json") {
            Self::Mentioned
        } else {
            Self::Unmentioned
        }
    }
}

/// Whether names in a body of this type are ASCII that can be compared. Some readers find `charset=` anywhere in the
/// field, so it may stand there once only, as the parameter that it is.
pub(super) fn is_legible(headers: &HeaderMap) -> bool {
    let stated = stated(headers);
    let mut parts = stated.split(';').filter_map(|part| part.split_once('='));
    let charset = parts.find(|(name, _)| name.trim() == "charset");
    match (stated.matches("charset").count(), charset) {
        (0, _) => true,
        (1, Some((_, value))) => LEGIBLE.contains(&value.trim().trim_matches('"')),
        (_, _) => false,
    }
}

/// All values of `Content-Type` in lower case. What is not ASCII stays as a character that is in no known word.
fn stated(headers: &HeaderMap) -> String {
    let values = header_name::fields(headers, CONTENT_TYPE.as_str());
    let texts: Vec<String> = values
        .map(|(_, value)| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase())
        .collect();
    texts.join(", ")
}
