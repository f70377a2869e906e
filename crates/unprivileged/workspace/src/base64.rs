//! Base64 for names that are not UTF-8, in the stored JSON.
//!
//! **Trust:** decodes stored text; anything but the one canonical spelling is refused.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// With padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = 0_u32;
        for i in 0..3 {
            group = group << 8 | u32::from(chunk.get(i).copied().unwrap_or(0));
        }
        for i in 0..4 {
            if i <= chunk.len() {
                let six = (group >> (18 - 6 * i)) & 63;
                text.push(char::from(ALPHABET[six as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// `None` unless the text is what [`encode`] gives for some bytes.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.as_bytes().chunks(4) {
        let mut group = 0_u32;
        for symbol in chunk {
            let six = match symbol {
                b'=' => 0,
                symbol => u32::try_from(ALPHABET.iter().position(|a| a == symbol)?).ok()?,
            };
            group = group << 6 | six;
        }
        let padding = chunk.iter().filter(|b| **b == b'=').count();
        let [_, first, second, third] = group.to_be_bytes();
        bytes.extend_from_slice([first, second, third].get(..3_usize.checked_sub(padding)?)?);
    }
    // Padding in the middle, missing symbols and stray low bits all spell differently from the canonical text.
    (encode(&bytes) == text).then_some(bytes)
}
