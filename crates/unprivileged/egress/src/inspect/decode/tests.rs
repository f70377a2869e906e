//! Every coding is undone, however it arrives; what grows without bound or ends early is an error.
use super::*;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

/// Brotli without compression: a stored block (RFC 7932, 9.2), then an empty last one.
fn brotli(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in text.chunks(60_000) {
        let length = u32::try_from(piece.len() - 1).unwrap();
        let bits = if out.is_empty() {
            // A window of 16 bits, not the last, four digits, the length, stored.
            length << 4 | 1 << 20
        } else {
            length << 3 | 1 << 19
        };
        out.extend(&bits.to_le_bytes()[..3]);
        out.extend(piece);
    }
    out.push(3);
    out
}

fn encoded(coding: Coding, text: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Brotli => brotli(text),
        Coding::Zstd => ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest),
    }
}

fn decoded(coding: Coding, bytes: &[u8], step: usize) -> io::Result<Vec<u8>> {
    let mut decoder = Decoder::new(coding);
    let mut out = Vec::new();
    for piece in bytes.chunks(step) {
        out.extend(decoder.feed(piece)?);
    }
    out.extend(decoder.finish()?);
    Ok(out)
}

const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

#[test]
fn every_coding_is_undone_in_pieces_and_a_cut_one_is_an_error() {
    let text: Vec<u8> = (0..200_000u32)
        .flat_map(|n| (n % 251).to_string().into_bytes())
        .collect();
    for coding in ALL {
        let bytes = encoded(coding, &text);
        for step in [1, 1_000, bytes.len()] {
            assert_eq!(decoded(coding, &bytes, step).unwrap(), text, "{coding:?} {step}");
        }
        let cut = decoded(coding, &bytes[..bytes.len() / 2], 1_000);
        assert!(cut.is_err(), "{coding:?}");
        assert_eq!(decoded(coding, b"", 1).unwrap(), b"", "{coding:?}");
        assert!(
            decoded(coding, b"this is not compressed at all", 3).is_err(),
            "{coding:?}"
        );
    }
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
    raw.write_all(&text).unwrap();
    assert_eq!(decoded(Coding::Deflate, &raw.finish().unwrap(), 7).unwrap(), text);
}

#[test]
fn a_small_answer_does_not_become_a_large_one() {
    let zeros = vec![0u8; 24 * 1024 * 1024];
    for coding in [Coding::Gzip, Coding::Deflate] {
        let bytes = encoded(coding, &zeros);
        assert!(bytes.len() < 64 * 1024, "{coding:?} {}", bytes.len());
        assert!(decoded(coding, &bytes, 16 * 1024).is_err(), "{coding:?}");
    }
    // Frame header with a window of 128 KiB, then runs of 128 KiB in four bytes each.
    let mut zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    for _ in 0..100 {
        zstd.extend(&(131_072u32 << 3 | 2).to_le_bytes()[..3]);
        zstd.push(b'x');
    }
    assert!(decoded(Coding::Zstd, &zstd, 16 * 1024).is_err());
}

#[test]
fn an_unknown_or_a_double_coding_is_told() {
    let coded = |values: &[&str]| {
        let mut headers = http::HeaderMap::new();
        for value in values {
            headers.append("content-encoding", value.parse().unwrap());
        }
        Coded::of(&headers)
    };
    assert_eq!(coded(&[]), Coded::Plain);
    assert_eq!(coded(&["identity"]), Coded::Plain);
    assert_eq!(coded(&["GZIP"]), Coded::With(Coding::Gzip));
    for odd in [
        &["gzip, br"][..],
        &["gzip", "gzip"],
        &["compress"],
        &["sdch"],
        &["gzip;q=1"],
        &["aes128gcm"],
    ] {
        assert_eq!(coded(odd), Coded::Unknown, "{odd:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), which in 0usize..4, step in 1usize..50) {
        drop(decoded(ALL[which], &bytes, step));
        let mut broken = encoded(ALL[which], b"some text that is compressed, compressed, compressed");
        for (at, byte) in bytes.iter().enumerate().take(4) {
            let place = usize::from(*byte) % broken.len();
            broken[place] ^= u8::try_from(at + 1).unwrap();
        }
        drop(decoded(ALL[which], &broken, step));
    }
}
