//! The resolver face and the addresses it gives.
use crate::dns;
use crate::testing::{Egress, echo, egress, read_all, table};
use crate::transparent;
use bastle_contract::Code;
use bastle_contract::egress::Face;
use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new();
    message.set_id(77).set_recursion_desired(true);
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.set_edns(Edns::new());
    message
}

async fn raw(egress: &Egress, packet: &[u8]) -> Option<Vec<u8>> {
    raw_within(egress, packet, crate::testing::HANG).await
}

/// That nothing comes can only be seen after a while.
async fn unanswered(egress: &Egress, packet: &[u8]) -> bool {
    let moment = std::time::Duration::from_millis(500);
    raw_within(egress, packet, moment).await.is_none()
}

async fn raw_within(egress: &Egress, packet: &[u8], wait: std::time::Duration) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(packet, egress.dns).await.unwrap();
    let mut buffer = vec![0; 2_048];
    let waited = tokio::time::timeout(wait, socket.recv(&mut buffer)).await;
    let n = waited.ok()?.unwrap();
    buffer.truncate(n);
    Some(buffer)
}

/// The independent decoder reads our answers.
async fn ask(egress: &Egress, name: &str, kind: RecordType) -> Message {
    let packet = question(name, kind).to_vec().unwrap();
    let answer = raw(egress, &packet).await.unwrap();
    assert!(answer.len() <= 512, "every client takes it");
    let answer = Message::from_vec(&answer).unwrap();
    assert_eq!(
        (answer.id(), answer.queries()[0].name().to_ascii()),
        (77, name.to_owned())
    );
    answer
}

fn address(message: &Message) -> Option<Ipv4Addr> {
    message.answers().iter().find_map(|record| match record.data() {
        RData::A(a) => Some(a.0),
        _ => None,
    })
}

#[tokio::test]
async fn an_allowed_name_gets_an_address_of_its_own_and_a_denied_one_does_not_exist() {
    let egress = egress(table(r#"{"allow": ["a.example", "*.b.example"]}"#, &[])).await;
    let a = ask(&egress, "a.example.", RecordType::A).await;
    let first = address(&a).unwrap();
    assert_eq!(first.octets()[0..2], [198, 18]);
    assert_eq!(a.answers()[0].ttl(), 5);
    assert_eq!(
        address(&ask(&egress, "A.EXAMPLE.", RecordType::A).await),
        Some(first),
        "one name, one address"
    );
    assert_ne!(
        address(&ask(&egress, "x.b.example.", RecordType::A).await),
        Some(first)
    );
    for kind in [
        RecordType::AAAA,
        RecordType::TXT,
        RecordType::MX,
        RecordType::HTTPS,
        RecordType::ANY,
    ] {
        let other = ask(&egress, "a.example.", kind).await;
        assert_eq!(
            (other.response_code(), other.answers().len()),
            (ResponseCode::NoError, 0),
            "{kind}"
        );
    }
    for (denied, kind) in [
        ("evil.example.", RecordType::A),
        ("c2VjcmV0.evil.example.", RecordType::TXT),
        ("b.example.", RecordType::AAAA),
        ("canary.bastle.invalid.", RecordType::A),
        ("localhost.evil.example.", RecordType::A),
    ] {
        let answer = ask(&egress, denied, kind).await;
        assert_eq!(
            (answer.response_code(), answer.answers().len()),
            (ResponseCode::NXDomain, 0),
            "{denied}"
        );
    }
    let denial = egress.denial().await;
    assert_eq!(
        (denial.face, denial.port, denial.host.as_str()),
        (Face::Dns, 0, "evil.example")
    );
}

#[tokio::test]
async fn a_denied_lookup_carries_the_denials_name_for_clients_that_can_read_it() {
    let egress = egress(table("{}", &[])).await;
    let packet = question("evil.example.", RecordType::A).to_vec().unwrap();
    let answer = raw(&egress, &packet).await.unwrap();
    let denial = egress.denial().await;
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains(&denial.id), "{text}");
    // Option 15, its length, info code 15.
    let option = answer.windows(2).rposition(|w| w == [0, 15]).unwrap();
    assert_eq!(&answer[option - 4..option - 2], &[0, 15]);
}

#[tokio::test]
async fn malformed_packets_are_answered_as_such_or_dropped() {
    let egress = egress(table(r#"{"allow": ["a.example"]}"#, &[])).await;
    let good = question("a.example.", RecordType::A).to_vec().unwrap();
    assert!(raw(&egress, &good).await.is_some());
    assert!(unanswered(&egress, b"").await);
    assert!(unanswered(&egress, &good[..11]).await);
    let mut response = good.clone();
    response[2] |= 0x80;
    assert!(
        unanswered(&egress, &response).await,
        "an answer is never answered"
    );
    let rcode = |answer: Option<Vec<u8>>| answer.unwrap()[3] & 15;
    let mut two = good.clone();
    two[5] = 2;
    assert_eq!(rcode(raw(&egress, &two).await), 1);
    let mut pointer = good.clone();
    pointer[12] = 0xc0;
    assert_eq!(rcode(raw(&egress, &pointer).await), 1);
    let mut update = good.clone();
    update[2] |= 5 << 3;
    assert_eq!(rcode(raw(&egress, &update).await), 4);
    let large = [&good[..], &[0; 1_300]].concat();
    assert_eq!(rcode(raw(&egress, &large).await), 1);
    assert_eq!(rcode(raw(&egress, &good[..20]).await), 1);
}

/// A connection that arrives at `destination`, as the route inside a sandbox would bring it.
async fn arriving(egress: &Egress, destination: SocketAddr) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let handshake = egress.handshakes.take().await;
    tokio::spawn(transparent::serve_to(
        Arc::clone(&egress.state),
        stream,
        destination,
        handshake,
    ));
    client
}

#[tokio::test]
async fn a_connection_to_a_looked_up_address_reaches_that_name_and_no_other_address_leads_anywhere() {
    let server = echo(b"hello").await;
    let port = server.address.port();
    let net = format!(
        r#"{{"allow": [{{"rule": "a.example:{port}", "opaque": true}}], "addresses": ["127.0.0.1/32"]}}"#
    );
    let egress = egress(table(&net, &[("a.example", "127.0.0.1")])).await;
    let synthetic = address(&ask(&egress, "a.example.", RecordType::A).await).unwrap();
    let mut stream = arriving(&egress, SocketAddr::from((synthetic, port))).await;
    stream.write_all(b"!").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_all(&mut stream).await, "hello!");
    let allowed = egress.decisions()[0].clone();
    assert_eq!(
        (allowed.face, allowed.host.as_str()),
        (Face::Transparent, "a.example")
    );
    for (destination, first) in [
        (SocketAddr::from(([198, 18, 77, 77], port)), &b"\x16\x03\x01"[..]),
        (SocketAddr::from(([127, 0, 0, 1], port)), b"\x16\x03\x01"),
        (SocketAddr::from((synthetic, 9)), b"\x16\x03\x01"),
    ] {
        let mut stream = arriving(&egress, destination).await;
        stream.write_all(first).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert_eq!(answer.as_bytes(), [0x15, 3, 3, 0, 2, 2, 49], "{destination}");
    }
    let mut plain = arriving(&egress, SocketAddr::from((synthetic, 80))).await;
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await
        .unwrap();
    let answer = read_all(&mut plain).await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("X-Bastle-Denied: d_"),
        "{answer}"
    );
    assert_eq!(egress.denial().await.code, Some(Code::NetLiteral));
}

#[tokio::test]
async fn plain_requests_inside_must_name_the_host_of_the_connection() {
    let egress = egress(table(r#"{"allow": ["a.example", "b.example"]}"#, &[])).await;
    let synthetic = address(&ask(&egress, "a.example.", RecordType::A).await).unwrap();
    for host in ["b.example", "a.example:81", "a.example.b.example"] {
        let mut stream = arriving(&egress, SocketAddr::from((synthetic, 80))).await;
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 421 "), "{host}: {answer}");
    }
    assert_eq!(egress.denial().await.code, Some(Code::NetMismatch));
    let mut nested = arriving(&egress, SocketAddr::from((synthetic, 80))).await;
    nested
        .write_all(b"CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n")
        .await
        .unwrap();
    assert!(read_all(&mut nested).await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn over_tcp_the_same_answers_come_and_a_query_beyond_the_limit_ends_the_connection() {
    let egress = egress(table(r#"{"allow": ["a.example"]}"#, &[])).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let handshake = egress.handshakes.take().await;
    tokio::spawn(dns::serve_tcp(Arc::clone(&egress.state), stream, handshake));
    for (name, code) in [
        ("a.example.", ResponseCode::NoError),
        ("b.example.", ResponseCode::NXDomain),
    ] {
        let packet = question(name, RecordType::A).to_vec().unwrap();
        client
            .write_u16(u16::try_from(packet.len()).unwrap())
            .await
            .unwrap();
        client.write_all(&packet).await.unwrap();
        let mut answer = vec![0; client.read_u16().await.unwrap().into()];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(
            Message::from_vec(&answer).unwrap().response_code(),
            code,
            "{name}"
        );
    }
    client.write_u16(u16::MAX).await.unwrap();
    client.write_all(&[0; 4_000]).await.unwrap();
    assert_eq!(client.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn egress_itself_is_found_by_tools_that_know_no_proxy() {
    let egress = egress(table("{}", &[])).await;
    let own = address(&ask(&egress, "bastle.local.", RecordType::A).await).unwrap();
    let mut stream = arriving(&egress, SocketAddr::from((own, 80))).await;
    let request = b"GET /v1/policy HTTP/1.1\r\nHost: bastle.local\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("calm-otter"),
        "{answer}"
    );
    assert!(egress.decisions().is_empty());
}
