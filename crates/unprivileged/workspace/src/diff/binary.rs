//! Contents that are not text, as git writes them into a patch: `GIT binary patch` with both sides, so that `git apply`
//! checks what it finds, makes the new bytes exactly, and takes them back with `-R`.
//!
//! **Trust:** names nothing and quotes nothing; what is written is base 85 of compressed bytes.
use crate::git::ObjectFormat;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// Bytes that one line holds.
const LINE: usize = 52;
/// git's alphabet (base85.c): no quote, backslash, comma, dot, slash, colon or bracket.
const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// The `index` line and both sides; `None` is a side that is not there. `mode` stands where it does not change.
pub(super) fn binary(
    out: &mut Vec<u8>,
    (old, new): (Option<&[u8]>, Option<&[u8]>),
    mode: Option<&str>,
    format: ObjectFormat,
) -> io::Result<()> {
    let name =
        |side: Option<&[u8]>| side.map_or_else(|| "0".repeat(format.digits()), |side| blob(side, format));
    let mode = mode.map_or_else(String::new, |mode| format!(" {mode}"));
    writeln!(out, "index {}..{}{mode}", name(old), name(new))?;
    out.extend_from_slice(b"GIT binary patch\n");
    for side in [new, old] {
        literal(out, side.unwrap_or_default())?;
    }
    Ok(())
}

/// The name that git gives to a blob of these bytes.
fn blob(bytes: &[u8], format: ObjectFormat) -> String {
    let header = format!("blob {}\0", bytes.len());
    let digest = match format {
        ObjectFormat::Sha1 => {
            let mut hasher = Sha1::default();
            sha1::Digest::update(&mut hasher, header.as_bytes());
            sha1::Digest::update(&mut hasher, bytes);
            sha1::Digest::finalize(hasher).to_vec()
        }
        ObjectFormat::Sha256 => {
            let mut hasher = Sha256::new();
            hasher.update(header.as_bytes());
            hasher.update(bytes);
            hasher.finalize().to_vec()
        }
    };
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        if write!(text, "{byte:02x}").is_err() {
            text.clear();
        }
        text
    })
}

fn literal(out: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    let packed = encoder.finish()?;
    writeln!(out, "literal {}", bytes.len())?;
    for line in packed.chunks(LINE) {
        // `A` to `Z` say 1 to 26 bytes, `a` to `z` 27 to 52.
        let length = u8::try_from(line.len()).unwrap_or(0);
        out.push(if length <= 26 {
            b'A' + length.saturating_sub(1)
        } else {
            b'a' + length - 27
        });
        for group in line.chunks(4) {
            let mut word = [0_u8; 4];
            word[..group.len()].copy_from_slice(group);
            let mut rest = u32::from_be_bytes(word);
            let mut digits = [0_u8; 5];
            for digit in digits.iter_mut().rev() {
                *digit = ALPHABET[usize::try_from(rest % 85).unwrap_or(0)];
                rest /= 85;
            }
            out.extend_from_slice(&digits);
        }
        out.push(b'\n');
    }
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_named_as_git_names_them() {
        assert_eq!(
            blob(b"hello\n", ObjectFormat::Sha1),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
        assert_eq!(
            blob(b"hello\n", ObjectFormat::Sha256),
            "2cf8d83d9ee29543b34a87727421fdecb7e3f3a183d337639025de576db9ebb4"
        );
    }
}
