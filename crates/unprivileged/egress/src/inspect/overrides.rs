//! Ways in which a request names another method or path than its own. Where methods or paths decide, it is refused.
//!
//! **Trust:** reads the agent's request. Frameworks differ in which of these they follow, so each counts. A form is
//! looked through while it passes and is cut off before its end reaches the server: half a form is not carried out.
use super::body::BodyError;
use super::canonical::{CanonicalRequest, Media};
use super::operation::Begun;

/// Fields that some server or framework takes for the real method or path.
const FIELDS: [&str; 10] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-method",
    "x-original-method",
    "x-forwarded-method",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-forwarded-uri",
];
/// Parameters of a query or form, with dots, dashes and spaces folded to `_` as PHP does.
const PARAMETERS: [&str; 8] = [
    "_method",
    "__method",
    "_http_method",
    "$httpmethod",
    "x_http_method_override",
    "x_http_method",
    "x_method_override",
    "http_method_override",
];
/// Longest parameter name that is compared, before decoding: every byte of the longest as an escape.
const MAX_KEY: usize = 96;
/// A form up to this length is looked through before anything is sent.
const SCANNED_FIRST: usize = 64 * 1024;
/// Why it is refused.
pub(super) const REASON: &str =
    "it names another method or path than its own (method override), which rules could not judge";

/// Whether the head of a request names another method or path.
pub(super) fn in_head(request: &CanonicalRequest) -> bool {
    let field = request.headers.keys().any(|name| {
        let name = name.as_str();
        FIELDS.contains(&name) || (name.contains("method") && name.contains("override"))
    });
    let pairs = request.query.as_deref().unwrap_or_default().split(['&', ';']);
    field
        || pairs
            .map(|pair| pair.split('=').next().unwrap_or_default())
            .any(|key| is_parameter(key.as_bytes()))
}

/// Whether the beginning of a form does; gives what the rest is looked through with.
pub(super) async fn in_form(
    request: &CanonicalRequest,
    body: &mut Begun,
) -> Result<Option<FormScan>, Overridden> {
    let Some(mut scan) = FormScan::new(request.media) else {
        return Ok(None);
    };
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
    scan.reset();
    Ok(Some(scan))
}

/// Why a form is refused.
pub(super) enum Overridden {
    /// It names another method.
    Yes,
    /// It cannot be read.
    Body(BodyError),
}

/// Looks through a form for parameters that name a method.
#[derive(Clone, Debug)]
pub(super) struct FormScan {
    kind: Kind,
    held: Vec<u8>,
    in_key: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Encoded,
    Multipart,
}

impl FormScan {
    /// For a body of this type; `None`: it is no form.
    pub(super) fn new(media: Media) -> Option<Self> {
        let kind = match media {
            Media::Form => Kind::Encoded,
            Media::Multipart => Kind::Multipart,
            Media::Absent | Media::Json | Media::Other | Media::Ambiguous => return None,
        };
        Some(Self {
            kind,
            held: Vec::new(),
            in_key: true,
        })
    }

    fn reset(&mut self) {
        self.held.clear();
        self.in_key = true;
    }

    /// Whether such a parameter ends in `bytes`.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> bool {
        match self.kind {
            Kind::Encoded => bytes.iter().any(|byte| self.encoded(*byte)),
            Kind::Multipart => self.multipart(bytes),
        }
    }

    /// Whether what was held back is one.
    fn finish(&mut self) -> bool {
        self.kind == Kind::Multipart && self.multipart(b"\r\n")
    }

    fn encoded(&mut self, byte: u8) -> bool {
        match byte {
            b'&' | b';' => self.reset(),
            b'=' if self.in_key => {
                self.in_key = false;
                return is_parameter(&self.held);
            }
            _ if self.in_key && self.held.len() <= MAX_KEY => self.held.push(byte),
            _ => {}
        }
        false
    }

    fn multipart(&mut self, bytes: &[u8]) -> bool {
        const NAME: &[u8] = b"name";
        self.held.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(rest) = self.held.get(at..) {
            let Some(word) = rest.get(..NAME.len()) else { break };
            if !word.eq_ignore_ascii_case(NAME) {
                at += 1;
                continue;
            }
            // The value ends within the line; a name longer than any of ours is none of them.
            let line = rest.get(..MAX_KEY + 16).unwrap_or(rest);
            let end = line.iter().position(|b| matches!(b, b'\r' | b'\n'));
            if end.is_none() && line.len() < MAX_KEY + 16 {
                break;
            }
            let line = line.get(..end.unwrap_or(line.len())).unwrap_or_default();
            if named(line.get(NAME.len()..).unwrap_or_default()) {
                return true;
            }
            at += 1;
        }
        self.held.drain(..at.min(self.held.len()));
        false
    }
}

/// Whether `="…"` after a `name` in a multipart head is one of the parameters.
fn named(after: &[u8]) -> bool {
    let after = after.trim_ascii_start();
    let extended = after.strip_prefix(b"*");
    let Some(value) = extended.unwrap_or(after).trim_ascii_start().strip_prefix(b"=") else {
        return false;
    };
    let value = value.trim_ascii_start();
    let quoted = value.first().copied().filter(|b| matches!(b, b'"' | b'\''));
    let text: Vec<u8> = match quoted {
        Some(mark) if extended.is_none() => value
            .iter()
            .skip(1)
            .copied()
            .filter(|b| *b != b'\\')
            .take_while(|b| *b != mark)
            .collect(),
        _ => value
            .iter()
            .copied()
            .take_while(|b| !matches!(b, b';' | b' ' | b'"'))
            .collect(),
    };
    let text = match extended {
        // RFC 8187: character set, language and text, separated by apostrophes.
        Some(_) => text.rsplit(|b| *b == b'\'').next().unwrap_or_default().to_vec(),
        None => text,
    };
    is_parameter(&text)
}

/// Whether a parameter is one that some server takes for the method.
fn is_parameter(key: &[u8]) -> bool {
    if key.len() > MAX_KEY {
        return false;
    }
    let mut folded = String::new();
    let mut at = 0;
    while let Some(byte) = key.get(at) {
        let digit = |i: usize| key.get(at + i).and_then(|b| char::from(*b).to_digit(16));
        let byte = match (byte, digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                at += 3;
                u8::try_from(high * 16 + low).unwrap_or_default()
            }
            _ => {
                at += 1;
                *byte
            }
        };
        match byte {
            // `_method[]` is an array of that name.
            b'[' => break,
            b' ' | b'+' | b'\t' if folded.is_empty() => {}
            b' ' | b'+' | b'.' | b'-' => folded.push('_'),
            _ => folded.push(char::from(byte.to_ascii_lowercase())),
        }
    }
    PARAMETERS.contains(&folded.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(media: Media, body: &[u8], step: usize) -> bool {
        let mut scan = FormScan::new(media).unwrap();
        body.chunks(step).any(|piece| scan.feed(piece)) || scan.finish()
    }

    #[test]
    fn a_form_that_names_a_method_is_found_however_it_is_written_and_cut() {
        for body in [
            &b"_method=DELETE"[..],
            b"a=b&_method=DELETE",
            b"a=b;%5Fmethod=DELETE&c=d",
            b"a=b&_METHOD=DELETE",
            b"a=b&+_method[]=DELETE",
            b"a=b&.method=DELETE",
            b"a=b&X-HTTP-Method-Override=DELETE",
        ] {
            for step in [1, 3, 100] {
                assert!(
                    found(Media::Form, body, step),
                    "{:?}",
                    String::from_utf8_lossy(body)
                );
            }
        }
        for body in [&b"method=x&a_method=y"[..], b"a=_method", b"a=b&_methods=c", b""] {
            assert!(
                !found(Media::Form, body, 2),
                "{:?}",
                String::from_utf8_lossy(body)
            );
        }
    }

    #[test]
    fn a_multipart_form_that_names_a_method_is_found_and_others_pass() {
        let part = |name: &str| {
            format!("--x\r\nContent-Disposition: form-data; {name}\r\n\r\nDELETE\r\n--x--\r\n").into_bytes()
        };
        for name in [
            "name=\"_method\"",
            "NAME=_method",
            "name='_method'",
            "name*=utf-8''%5Fmethod",
            "name=\"\\_method\"",
        ] {
            for step in [1, 7, 1000] {
                assert!(found(Media::Multipart, &part(name), step), "{name}");
            }
        }
        for name in [
            "name=\"file\"; filename=\"_method\"",
            "name=\"my_method\"",
            "filename=\"a\"",
        ] {
            let control = name.contains("filename=\"_method\"");
            assert_eq!(found(Media::Multipart, &part(name), 5), control, "{name}");
        }
        let long = vec![b'n'; 200_000];
        assert!(!found(Media::Multipart, &long, 1000));
    }
}
