//! Base64 with padding, as the protocol carries bytes and odd names.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as text.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let word =
            part.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for place in 0..4 {
            if place > part.len() {
                out.push('=');
            } else {
                let index = (word >> (18 - 6 * place)) & 63;
                out.push(char::from(LETTERS[usize::try_from(index).unwrap_or(0)]));
            }
        }
    }
    out
}

/// Text as bytes; `None` when it is no such text.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(4) {
        return None;
    }
    let body = text.trim_end_matches('=').as_bytes();
    if bytes.len() - body.len() > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len() / 4 * 3);
    for part in body.chunks(4) {
        let mut word = 0u32;
        for letter in part {
            let index = LETTERS.iter().position(|known| known == letter)?;
            word = word << 6 | u32::try_from(index).ok()?;
        }
        word <<= 6 * (4 - part.len());
        let whole = word.to_be_bytes();
        out.extend_from_slice(&whole[1..part.len()]);
    }
    // Bits behind the last byte are zero, or one value would have several texts.
    (encode(&out) == text).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_standard_hold() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), plain.as_bytes());
        }
        for bad in ["Z", "Zg=", "Zg===", "====", "Zm9v\n", "Z-==", "Zh==", "Zm9="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn no_text_breaks_it(text in ".{0,80}") {
            drop(decode(&text));
        }
    }
}
