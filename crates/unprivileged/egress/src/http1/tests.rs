//! The strict parser: what it takes has one reading, and no bytes make it panic.
use super::body::{BodyDecoder, Decoded};
use super::head::{Framing, Head, HeadError, Target, Version, parse_authority, parse_head};
use super::{Answer, Persist, RequestReader};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

fn head(text: &str) -> Result<Head, HeadError> {
    parse_head(text.as_bytes())
}

fn decoded(framing: Framing, bytes: &[u8], step: usize) -> Result<(Vec<u8>, usize), HeadError> {
    let mut decoder = BodyDecoder::new(framing);
    let (mut buffer, mut body) = (BytesMut::new(), Vec::new());
    let mut given = 0;
    loop {
        match decoder.decode(&mut buffer, 7)? {
            Decoded::Piece(piece) => body.extend_from_slice(&piece),
            Decoded::End => return Ok((body, given - buffer.len())),
            Decoded::More if given == bytes.len() => return Err(HeadError::Gone),
            Decoded::More => {
                let next = (given + step).min(bytes.len());
                buffer.extend_from_slice(&bytes[given..next]);
                given = next;
            }
        }
    }
}

#[test]
fn a_plain_request_is_read_as_it_was_written() {
    let read = head(
        "PATCH http://A.example:8080?q HTTP/1.1\r\nHost: a.EXAMPLE.:8080\r\nx-Y:\t v \r\nContent-Length: 12\r\n\r\n",
    );
    let read = read.unwrap();
    assert_eq!(
        read.target,
        Target::Absolute {
            authority: parse_authority("A.example:8080").unwrap(),
            path: "/?q".to_owned()
        }
    );
    assert_eq!(
        (read.method.as_str(), read.version, read.body),
        ("PATCH", Version::Http11, Framing::Length(12))
    );
    assert_eq!(read.headers["x-y"], "v");
    assert_eq!(head("GET / HTTP/1.0\r\n\r\n").unwrap().host, None);
    assert_eq!(
        head("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().target,
        Target::Asterisk
    );
}

#[test]
fn heads_with_two_readings_are_refused() {
    for bad in [
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\tHTTP/1.1\r\nHost: a\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET /\r\n\r\n",
        "get / HTTP/1.1\r\nHost: a\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\0: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\x0b\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nmore",
        "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\n",
        "CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:0 HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT http://a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a:444\r\n\r\n",
    ] {
        assert!(head(bad).is_err(), "{bad:?} became {:?}", head(bad));
    }
}

#[test]
fn chunks_are_read_strictly() {
    let good = b"5;ext=\"x\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\nX: y\r\n\r\nNEXT";
    for step in [1, 3, 1_000] {
        let (body, used) = decoded(Framing::Chunked, good, step).unwrap();
        assert_eq!(
            (body.as_slice(), &good[used..]),
            (&b"hello0123456789"[..], &b"NEXT"[..])
        );
    }
    let long = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(300));
    for bad in [
        "0x5\r\nhello\r\n0\r\n\r\n",
        "1_0\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "000000005\r\nhello\r\n0\r\n\r\n",
        "100000000\r\nhello\r\n0\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\n folded\r\n\r\n",
        "0\r\n\n",
        long.as_str(),
    ] {
        for step in [1, 1_000] {
            let read = decoded(Framing::Chunked, bad.as_bytes(), step);
            assert!(
                matches!(read, Err(HeadError::Malformed(_) | HeadError::TooLarge)),
                "{bad:?}: {read:?}"
            );
        }
    }
    let trailers = format!("0\r\n{}\r\n", "X: yyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(400));
    assert_eq!(
        decoded(Framing::Chunked, trailers.as_bytes(), 1_000),
        Err(HeadError::TooLarge)
    );
}

#[tokio::test]
async fn requests_follow_each_other_and_nothing_of_one_reaches_the_next() {
    let bytes =
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nGET GET /b HTTP/1.1\r\nHost: a\r\n\r\ntail";
    let mut reader = RequestReader::with_prefix(&bytes[20..], &bytes[..20]);
    let first = reader.head().await.unwrap().unwrap();
    assert_eq!(first.target, Target::Origin("/a".to_owned()));
    assert!(
        reader.head().await.is_err(),
        "a body that was not read is not a head"
    );
    assert_eq!(reader.body().await, Ok(Some(Bytes::from_static(b"GET "))));
    assert_eq!(reader.body().await, Ok(None));
    let second = reader.head().await.unwrap().unwrap();
    assert_eq!(second.target, Target::Origin("/b".to_owned()));
    assert_eq!(reader.body().await, Ok(None));
    assert_eq!(reader.into_parts().1, Bytes::from_static(b"tail"));
}

#[tokio::test]
async fn a_body_that_ends_early_is_not_a_body() {
    let mut reader = RequestReader::new(&b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"[..]);
    reader.head().await.unwrap().unwrap();
    assert_eq!(reader.body().await, Ok(Some(Bytes::from_static(b"abc"))));
    assert_eq!(reader.body().await, Err(HeadError::Gone));
    let mut cut = RequestReader::new(&b"GET / HTTP/1.1\r\nHost:"[..]);
    assert_eq!(cut.head().await, Err(HeadError::Gone));
    let mut other = RequestReader::new(&b"SSH-2.0-x\r\n"[..]);
    assert!(
        matches!(other.head().await, Err(HeadError::Malformed(_))),
        "known at the first line"
    );
}

#[test]
fn our_own_answers_cannot_be_split() {
    let bytes = Answer::json(403, b"{}".to_vec())
        .field("X-A", "a\r\nSet-Cookie: b")
        .bytes(Persist::Close);
    let text = String::from_utf8(bytes).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 403 Forbidden\r\n") && !text.contains("\nSet-Cookie"),
        "{text}"
    );
    assert!(
        text.ends_with("Content-Length: 2\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{}"),
        "{text}"
    );
}

fn written(head: &Head) -> Vec<u8> {
    let target = match &head.target {
        Target::Connect(a) => format!("{}:{}", a.host, a.port.unwrap()),
        Target::Absolute { authority, path } => match authority.port {
            Some(port) => format!("http://{}:{port}{path}", authority.host),
            None => format!("http://{}{path}", authority.host),
        },
        Target::Origin(path) => path.clone(),
        Target::Asterisk => "*".to_owned(),
    };
    let version = match head.version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
    };
    let mut bytes = format!("{} {target} {version}\r\n", head.method).into_bytes();
    for (name, value) in &head.headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Pieces of requests, good and bad, in any order: nearer to the border than random bytes.
fn nearly_a_request() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "GET ",
        "POST ",
        "CONNECT ",
        "/",
        "/a?b",
        "http://a.example",
        "a.example:443",
        " HTTP/1.1",
        " HTTP/1.0",
        "\r\n",
        "\n",
        "\r",
        " ",
        "\t",
        "Host: a.example",
        "Host: b",
        "Content-Length: 5",
        "Content-Length: 05",
        "Transfer-Encoding: chunked",
        "X: y",
        ":",
        "\0",
        "\u{80}",
        "5",
        ";x",
        "\r\n\r\n",
        "0",
        "hello",
    ]);
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn whatever_is_taken_means_the_same_when_written_anew(bytes in nearly_a_request()) {
        if let Ok(read) = parse_head(&bytes) {
            prop_assert_eq!(parse_head(&written(&read)), Ok(read));
        }
    }

    #[test]
    fn a_head_has_at_most_one_framing_whatever_its_fields(lengths in 0_usize..3, codings in 0_usize..3) {
        let fields = "Content-Length: 5\r\n".repeat(lengths) + &"Transfer-Encoding: chunked\r\n".repeat(codings);
        let read = head(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        prop_assert_eq!(read.is_ok(), lengths + codings <= 1);
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzzing::fuzz_request_head(&bytes);
        crate::fuzzing::fuzz_request_body(&bytes);
        crate::fuzzing::fuzz_client_hello(&bytes);
        crate::fuzzing::fuzz_dns_query(&bytes);
        crate::fuzzing::fuzz_dns_answer(&bytes);
        crate::fuzzing::fuzz_socks(&bytes);
        crate::fuzzing::fuzz_proxy_answer(&bytes);
        crate::fuzzing::fuzz_canonical_request(&bytes);
        crate::fuzzing::fuzz_scrub(&bytes);
    }

    #[test]
    fn a_body_is_the_same_however_it_arrives(bytes in nearly_a_request(), step in 1_usize..9) {
        let whole = decoded(Framing::Chunked, &bytes, usize::MAX / 2);
        let pieces = decoded(Framing::Chunked, &bytes, step);
        prop_assert_eq!(whole.is_ok(), pieces.is_ok());
        if let (Ok((whole, _)), Ok((pieces, _))) = (whole, pieces) {
            prop_assert_eq!(whole, pieces);
        }
    }
}
