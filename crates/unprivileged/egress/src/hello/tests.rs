//! ClientHellos, real ones and bent ones.
use super::*;
use crate::tls::provider;
use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::sync::Arc;

/// What a real client says to `name`.
fn real(name: &str, alpn: &[&[u8]]) -> Vec<u8> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// The same handshake in records of `size` bytes.
fn in_records(hello: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in hello[5..].chunks(size) {
        bytes.extend_from_slice(&[0x16, 3, 1]);
        bytes.extend_from_slice(&u16::try_from(piece.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(piece);
    }
    bytes
}

/// A ClientHello with exactly these extensions.
fn made(extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, content) in extensions {
        list.extend_from_slice(&kind.to_be_bytes());
        list.extend_from_slice(&u16::try_from(content.len()).unwrap().to_be_bytes());
        list.extend_from_slice(content);
    }
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 1, 1, 0]);
    body.extend_from_slice(&u16::try_from(list.len()).unwrap().to_be_bytes());
    body.extend_from_slice(&list);
    let mut message = vec![1, 0];
    message.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    message.extend_from_slice(&body);
    let mut bytes = vec![0x16, 3, 1];
    bytes.extend_from_slice(&u16::try_from(message.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(&message);
    bytes
}

fn sni(name: &str) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&[0, length + 3, 0, 0, length][..], name.as_bytes()].concat()
}

#[test]
fn a_real_handshake_tells_its_name_however_it_is_cut() {
    let hello = real("fine.example", &[b"h2", b"http/1.1"]);
    let expected = Hello {
        sni: Some("fine.example".to_owned()),
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        ech: false,
    };
    assert_eq!(parse_hello(&hello), Ok(Some(expected.clone())));
    for size in [1, 2, 5, 100] {
        assert_eq!(
            parse_hello(&in_records(&hello, size)),
            Ok(Some(expected.clone())),
            "{size}"
        );
    }
    for end in 0..hello.len() {
        assert_eq!(parse_hello(&hello[..end]), Ok(None), "{end}");
    }
    assert_eq!(
        parse_hello(&[&hello[..], b"\x17\x03\x03\x00\x01x"].concat()),
        Ok(Some(expected)),
        "what follows is not ours"
    );
    assert_eq!(parse_hello(&real("127.0.0.1", &[])).unwrap().unwrap().sni, None);
}

#[test]
fn a_handshake_that_two_readers_could_read_differently_is_refused() {
    let good = sni("fine.example");
    assert_eq!(
        parse_hello(&made(&[(0, &good)])).unwrap().unwrap().sni.as_deref(),
        Some("fine.example")
    );
    let two_names = [&[0, 12, 0, 0, 3][..], b"a.b", &[0, 0, 3], b"c.d"].concat();
    let longer = [&good[..], b"x"].concat();
    for (bad, extensions) in [
        ("twice", vec![(0, &good[..]), (0, &good[..])]),
        ("two names", vec![(0, &two_names[..])]),
        ("other type", vec![(0, &[0, 4, 1, 0, 1, b'a'][..])]),
        ("empty name", vec![(0, &[0, 3, 0, 0, 0][..])]),
        ("bytes behind", vec![(0, &longer[..])]),
        ("not ascii", vec![(0, &[0, 4, 0, 0, 1, 0xff][..])]),
        ("bad alpn", vec![(16, &[0, 2, 5, b'h'][..])]),
    ] {
        assert_eq!(
            parse_hello(&made(&extensions)),
            Err(HelloError::Malformed),
            "{bad}"
        );
    }
    let mut message_behind = made(&[(0, &good)]);
    message_behind.extend_from_slice(b"\x02");
    let length = u16::from_be_bytes([message_behind[3], message_behind[4]]) + 1;
    message_behind[3..5].copy_from_slice(&length.to_be_bytes());
    assert_eq!(parse_hello(&message_behind), Err(HelloError::Malformed));
}

#[test]
fn the_encrypted_kind_is_seen_and_its_outer_name_read() {
    let hello = parse_hello(&made(&[(0xfe0d, &[0; 8]), (0, &sni("outer.example"))]))
        .unwrap()
        .unwrap();
    assert!(hello.ech);
    assert_eq!(hello.sni.as_deref(), Some("outer.example"));
}

#[test]
fn other_protocols_and_endless_handshakes_are_refused() {
    for other in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"SSH-2.0-x",
        b"\x05\x01\x00",
        b"\x80\x2e\x01\x03\x01",
        b"\x16\x02\x00",
    ] {
        assert_eq!(parse_hello(other), Err(HelloError::NotTls), "{other:?}");
    }
    assert_eq!(
        parse_hello(b"\x16\x03\x01\x00\x04\x01\xff\xff\xff"),
        Err(HelloError::TooLarge)
    );
    assert_eq!(
        parse_hello(b"\x16\x03\x01\x00\x00"),
        Err(HelloError::Malformed),
        "an empty record never ends"
    );
    assert_eq!(
        parse_hello(b"\x16\x03\x01\x00\x01\x02"),
        Err(HelloError::Malformed)
    );
    // A byte per record: six bytes on the wire for each.
    let crumbs = in_records(&[&[0; 5][..], &[1, 0, 0x3f, 0xff], &[0; 4_000]].concat(), 1);
    assert_eq!(parse_hello(&crumbs), Err(HelloError::TooLarge));
}

proptest! {
    #[test]
    fn a_damaged_handshake_never_panics_and_never_gains_another_name(at in 0_usize..250, byte: u8) {
        let mut hello = real("fine.example", &[b"h2"]);
        let at = at % hello.len();
        hello[at] = byte;
        if let Ok(Some(read)) = parse_hello(&hello) {
            // One changed byte can change one letter of the name, or hide it; it cannot bring in a longer one.
            prop_assert!(read.sni.is_none_or(|name| name.len() <= "fine.example".len()));
        }
    }
}
