//! What is taken out of streams, and that nothing else is.
use super::*;
use proptest::prelude::*;
use std::sync::Arc;

const VALUE: &str = "ghp_Real/Secret+Value\"42";
const PHANTOM: &str = "phantom_0001";

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

proptest! {
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
