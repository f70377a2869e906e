//! The decoy is seen however it is spelled, and nothing else is taken for it.
use super::*;
use crate::scrub::base64_padded;
use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

const VALUE: &str = "q7RkX2mWc9Tz4LhYpB6vNd3GfJs8EoAu1iKxQwVt";

fn canary() -> Canary {
    let canary = Canary::default();
    canary.arm(&[VALUE.to_owned()]);
    canary
}

fn backwards() -> String {
    VALUE.chars().rev().collect()
}

fn percent() -> String {
    VALUE.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn field(value: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(
        HeaderName::from_static("x-data"),
        HeaderValue::from_str(value).unwrap(),
    );
    fields
}

#[test]
fn every_usual_spelling_is_seen_in_address_field_and_body() {
    let canary = canary();
    let spellings = [
        VALUE.to_owned(),
        format!("key={VALUE}&x=1"),
        backwards(),
        percent(),
        String::from_utf8(hex(VALUE.as_bytes())).unwrap(),
        String::from_utf8(hex(backwards().as_bytes()))
            .unwrap()
            .to_uppercase(),
        base64_padded(format!("secret: {VALUE}\n").as_bytes()),
        base64_padded(format!("a{VALUE}").as_bytes()),
        base64_padded(backwards().as_bytes()),
        format!("Bearer {VALUE}"),
    ];
    for text in &spellings {
        let path = format!("/{text}");
        assert_eq!(
            canary.in_request("a.com", (&path, None), &HeaderMap::new()),
            Some(Seen::Address),
            "{text}"
        );
        assert_eq!(
            canary.in_request("a.com", ("/", Some(text)), &HeaderMap::new()),
            Some(Seen::Address),
            "{text}"
        );
        assert_eq!(
            canary.in_request("a.com", ("/", None), &field(text)),
            Some(Seen::Field),
            "{text}"
        );
        assert!(
            canary.in_body(format!("{{\"x\": \"{text}\"}}").as_bytes()),
            "{text}"
        );
    }
    let basic = format!(
        "Basic {}",
        base64_padded(format!("user:{}", percent()).as_bytes())
    );
    assert_eq!(
        canary.in_request("a.com", ("/", None), &field(&basic)),
        Some(Seen::Field)
    );
}

#[test]
fn a_host_name_that_carries_it_is_seen_whole_or_spread_over_labels() {
    let canary = canary();
    let coded = String::from_utf8(hex(VALUE.as_bytes())).unwrap();
    let (first, second) = coded.split_at(50);
    let letters = String::from_utf8(base32(VALUE.as_bytes())).unwrap();
    for name in [
        format!("{}.evil.org", VALUE.to_lowercase()),
        format!("{first}.{second}.evil.org"),
        format!(
            "{}.{}.evil.org",
            &VALUE[..20].to_lowercase(),
            &VALUE[20..].to_lowercase()
        ),
        format!("x-{letters}.evil.org"),
    ] {
        assert!(canary.in_name(&name), "{name}");
        assert_eq!(
            canary.in_request(&name, ("/", None), &HeaderMap::new()),
            Some(Seen::Name)
        );
    }
    assert!(!canary.in_name("api.github.com"));
    assert!(!canary.in_name(&format!("{}.evil.org", &VALUE[..39].to_lowercase())));
}

#[test]
fn without_a_decoy_nothing_is_seen_and_nothing_is_looked_through() {
    let none = Canary::default();
    none.arm(&[]);
    assert!(!none.is_armed() && none.watch(0).is_none());
    assert!(!none.in_body(VALUE.as_bytes()) && !none.in_name(VALUE));
    assert_eq!(none.in_request(VALUE, (VALUE, Some(VALUE)), &field(VALUE)), None);
}

#[test]
fn a_body_is_looked_through_to_its_bound_and_no_further() {
    let canary = canary();
    let late = format!("{}{VALUE}", "x".repeat(SCANNED));
    assert!(!canary.in_body(late.as_bytes()));
    let mut watch = canary.watch(0).unwrap();
    assert!(late.as_bytes().chunks(1000).all(|piece| !watch.feed(piece)));
    assert!(canary.watch(SCANNED).is_none());
    let just = format!("{}{VALUE}", "x".repeat(SCANNED - VALUE.len()));
    assert!(canary.in_body(just.as_bytes()));
}

proptest! {
    #[test]
    fn a_value_cut_anywhere_is_seen_where_it_ends(before in ".{0,80}", sizes in prop::collection::vec(1usize..30, 1..20)) {
        let canary = canary();
        let mut watch = canary.watch(0).unwrap();
        let text = format!("{before}{VALUE}");
        let (mut rest, mut found) = (text.as_bytes(), false);
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, more) = rest.split_at((*size).min(rest.len()));
            rest = more;
            found |= watch.feed(piece);
            prop_assert!(watch.tail.len() <= 2 * VALUE.len());
        }
        prop_assert!(found);
    }

    #[test]
    fn nothing_else_is_taken_for_it_and_no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), name in ".{0,60}") {
        let canary = canary();
        prop_assert!(!canary.in_body(&bytes));
        prop_assert!(!canary.in_name(&name));
        prop_assert_eq!(canary.in_request(&name, (&name, Some(&name)), &HeaderMap::new()), None);
        prop_assert!(!canary.watch(0).unwrap().feed(&bytes));
    }
}
