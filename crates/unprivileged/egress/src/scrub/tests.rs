//! What is taken out of streams, and that nothing else is.
use super::*;
use proptest::prelude::*;
use std::sync::Arc;

const VALUE: &str = "ghp_Real/Secret+Value\"42";
const PHANTOM: &str = "phantom_0001";

const URL_SAFE: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn json(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in value {
        match byte {
            b'"' | b'\\' | b'/' => out.extend([b'\\', *byte]),
            _ => out.push(*byte),
        }
    }
    out
}

fn percent(value: &[u8], digits: &[u8; 16]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in value {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(*byte);
        } else {
            out.push(b'%');
            out.extend(hex(&[*byte], digits));
        }
    }
    out
}

fn needles() -> Arc<Needles> {
    Arc::new(Needles::new([(VALUE, PHANTOM)].into_iter()))
}

fn stream(text: &[u8], step: usize) -> Vec<u8> {
    let mut scrubber = Scrubber::new(needles());
    let mut out = Vec::new();
    for piece in text.chunks(step) {
        out.extend(scrubber.feed(piece));
    }
    out.extend(scrubber.finish());
    out
}

#[test]
fn a_reflected_value_never_passes_wherever_the_stream_is_cut() {
    let text = format!("token={VALUE}; again {VALUE}{VALUE} end ghp_Rea");
    for step in 1..text.len() {
        let clean = String::from_utf8(stream(text.as_bytes(), step)).unwrap();
        assert_eq!(
            clean,
            format!("token={PHANTOM}; again {PHANTOM}{PHANTOM} end ghp_Rea"),
            "step {step}"
        );
    }
}

#[test]
fn every_usual_encoding_of_the_value_is_found() {
    let value = VALUE.as_bytes();
    let mut forms = vec![
        json(value),
        percent(value, b"0123456789ABCDEF"),
        hex(value, b"0123456789abcdef"),
        hex(value, b"0123456789ABCDEF"),
    ];
    for before in ["", "x", "xx", "user:", "x-access-token:"] {
        let basic = format!("{before}{VALUE}\n");
        forms.push(base64_padded(basic.as_bytes()).into_bytes());
        forms.push(base64(basic.as_bytes(), URL_SAFE));
    }
    for form in forms {
        let clean = needles().scrub(&form);
        let clean = clean.unwrap_or_else(|| panic!("{:?} passed", String::from_utf8_lossy(&form)));
        assert!(String::from_utf8_lossy(&clean).contains(PHANTOM));
    }
}

#[test]
fn a_stream_is_held_back_only_while_a_value_may_be_beginning() {
    let mut scrubber = Scrubber::new(needles());
    assert_eq!(scrubber.feed(b"data: hello\n\n"), b"data: hello\n\n");
    assert_eq!(scrubber.feed(b"data: ghp_R"), b"data: ");
    assert_eq!(scrubber.feed(b"!"), b"ghp_R!");
    assert_eq!(scrubber.hits(), 0);
}

#[test]
fn of_two_secrets_where_one_begins_the_other_no_rest_is_left_behind() {
    let both = [("secret-one", "P1"), ("secret-one-and-more", "P2")];
    let needles = Arc::new(Needles::new(both.into_iter()));
    for step in 1..25 {
        let mut scrubber = Scrubber::new(Arc::clone(&needles));
        let mut out = Vec::new();
        for piece in b"a secret-one-and-more b secret-one".chunks(step) {
            out.extend(scrubber.feed(piece));
        }
        out.extend(scrubber.finish());
        assert_eq!(out, b"a P2 b P1", "step {step}");
    }
}

#[test]
fn base64_is_read_back_as_it_was_written() {
    for text in ["", "a", "ab", "abc", "user:\u{ff}\u{fe}"] {
        assert_eq!(
            unbase64(&base64_padded(text.as_bytes())),
            Some(text.as_bytes().to_vec())
        );
    }
    assert_eq!(unbase64("a b"), None);
}

/// Ways in which a server may repeat a value.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Json,
    JsonTwice,
    Unicode,
    Percent,
    PercentTwice,
    Html,
    Hex,
    HexColons,
    Base64,
    Base64Wrapped,
    Base64InJson,
    UrlSafe,
    Utf16,
    Folded,
    Events,
    EventsOfOne,
    NamedEvents,
}

fn lines(text: &[u8], width: usize, between: &[u8]) -> Vec<u8> {
    text.chunks(width).collect::<Vec<_>>().join(between)
}

fn spelled(value: &str, before: &str, way: Way, width: usize) -> Vec<u8> {
    let bytes = value.as_bytes();
    let whole = format!("{before}{value}tail");
    let each = |form: fn(u8) -> String| bytes.iter().map(|b| form(*b)).collect::<String>().into_bytes();
    match way {
        Way::Plain => bytes.to_vec(),
        Way::Json => json(bytes),
        Way::JsonTwice => serde_json::to_vec(&serde_json::to_string(value).unwrap()).unwrap(),
        Way::Unicode => each(|b| format!("\\u{b:04x}")),
        Way::Percent => each(|b| format!("%{b:02x}")),
        Way::PercentTwice => each(|b| format!("%25{b:02X}")),
        Way::Html => each(|b| format!("&#x{b:x};")),
        Way::Hex => hex(bytes, b"0123456789ABCDEF"),
        Way::HexColons => each(|b| format!("{b:02x}:")),
        Way::Base64 => base64(whole.as_bytes(), STANDARD),
        Way::Base64Wrapped => lines(&base64(whole.as_bytes(), STANDARD), width, b"\r\n"),
        Way::Base64InJson => lines(&json(&base64(whole.as_bytes(), STANDARD)), width.max(2), b"\\n"),
        Way::UrlSafe => base64(whole.as_bytes(), URL_SAFE),
        Way::Utf16 => whole.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        Way::Folded => lines(bytes, width, b"\r\n\t"),
        Way::Events => lines(bytes, width, b"\n\ndata: "),
        Way::EventsOfOne => lines(bytes, 1, b"\r\n\r\ndata:"),
        Way::NamedEvents => lines(bytes, width, b"\n\nevent: delta\nid: 7\ndata: "),
    }
}

/// Everything that could be read out of `text`: breaks, escapes and encodings undone, case kept.
fn readings(text: &[u8]) -> Vec<Vec<u8>> {
    let kept = |drop: &[&str]| {
        let mut text = String::from_utf8_lossy(text).into_owned();
        for part in drop {
            text = text.replace(part, "");
        }
        text
    };
    let joined = kept(&["event: delta", "id: 7", "data: ", "data:", "\r", "\n", "\t", "\0"]);
    let unescaped = joined.replace("\\n", "").replace('\\', "");
    let mut all = vec![joined.clone().into_bytes(), unescaped.clone().into_bytes()];
    for shift in 0..4 {
        all.extend(unescaped.get(shift..).and_then(unbase64));
    }
    all
}

fn ways() -> impl Strategy<Value = Way> {
    prop::sample::select(vec![
        Way::Plain,
        Way::Json,
        Way::JsonTwice,
        Way::Unicode,
        Way::Percent,
        Way::PercentTwice,
        Way::Html,
        Way::Hex,
        Way::HexColons,
        Way::Base64,
        Way::Base64Wrapped,
        Way::Base64InJson,
        Way::UrlSafe,
        Way::Utf16,
        Way::Folded,
        Way::Events,
        Way::EventsOfOne,
        Way::NamedEvents,
    ])
}

#[test]
fn an_event_that_ends_like_a_value_begins_is_not_held_back() {
    let mut scrubber = Scrubber::new(needles());
    assert_eq!(scrubber.feed(b"data: singing\n\n"), b"data: singing\n\n");
    let rest = scrubber.feed(b"data: birds\n\n");
    assert_eq!(rest, b"data: birds\n\n");
    assert_eq!(scrubber.hits(), 0);
}

#[test]
fn a_name_with_a_value_in_it_is_found_whatever_its_case() {
    let name = format!("x-{}-seen", "ghp_RealSecretValue42".to_ascii_lowercase());
    let needles = Needles::new([("ghp_RealSecretValue42", "P")].into_iter());
    assert!(needles.found_in_name(name.as_bytes()));
    assert!(!needles.found_in_name(b"x-request-id"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn however_a_value_is_spelled_and_cut_it_does_not_pass(
        value in "[A-Za-z][A-Za-z0-9_/+=.\"-]{11,40}", before in "[a-z:]{0,4}", way in ways(),
        width in 1usize..20, cut in 1usize..40,
    ) {
        let needles = Arc::new(Needles::new([(value.as_str(), "PHANTOM")].into_iter()));
        let text = [b"<<".to_vec(), spelled(&value, &before, way, width), b">> end".to_vec()].concat();
        let mut scrubber = Scrubber::new(needles);
        let mut out = Vec::new();
        for piece in text.chunks(cut) {
            out.extend(scrubber.feed(piece));
        }
        out.extend(scrubber.finish());
        prop_assert!(scrubber.hits() > 0, "{way:?} passed: {}", String::from_utf8_lossy(&out));
        prop_assert!(out.ends_with(b">> end"), "the rest is there");
        for reading in readings(&out) {
            let reading = String::from_utf8_lossy(&reading).into_owned();
            prop_assert!(!reading.contains(&value), "{way:?}: {reading}");
        }
    }

    #[test]
    fn cutting_changes_nothing_and_clean_text_is_untouched(
        text in "[ghp_Real/S+\"42 ]{0,80}", cut in 1usize..30, plant in any::<bool>()
    ) {
        let text = if plant { format!("{text}{VALUE}{text}") } else { text };
        let whole = stream(text.as_bytes(), 1000);
        prop_assert_eq!(&stream(text.as_bytes(), cut), &whole);
        prop_assert!(!String::from_utf8_lossy(&whole).contains(VALUE));
        if !text.contains(VALUE) && !plant {
            prop_assert_eq!(whole, text.as_bytes());
        }
    }
}
