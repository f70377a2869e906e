//! The SOCKS face.
use crate::testing::{Egress, echo, egress, table};
use bastle_contract::Code;
use bastle_contract::egress::Face;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn greeted(egress: &Egress) -> TcpStream {
    let mut stream = TcpStream::connect(egress.socks).await.unwrap();
    stream.write_all(&[5, 2, 0, 2]).await.unwrap();
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await.unwrap();
    assert_eq!(chosen, [5, 0]);
    stream
}

async fn replied(stream: &mut TcpStream, request: &[u8]) -> u8 {
    stream.write_all(request).await.unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!((reply[0], reply[2]), (5, 0));
    reply[1]
}

fn by_name(name: &str, port: u16) -> Vec<u8> {
    let mut request = vec![5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
    request.extend_from_slice(name.as_bytes());
    request.extend_from_slice(&port.to_be_bytes());
    request
}

#[tokio::test]
async fn socks_obeys_the_same_rules_and_says_not_allowed() {
    let server = echo(b"hello").await;
    let port = server.address.port();
    let net = format!(
        r#"{{"allow": [{{"rule": "a.example:{port}", "opaque": true}}], "addresses": ["127.0.0.1/32"]}}"#
    );
    let egress = egress(table(&net, &[("a.example", "127.0.0.1")])).await;
    let mut stream = greeted(&egress).await;
    assert_eq!(replied(&mut stream, &by_name("A.example", port)).await, 0);
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
    for (request, reply) in [
        (by_name("b.example", port), 2),
        (by_name("a.example", port ^ 1), 2),
        (by_name("a.example", 0), 2),
        (by_name("a .example", port), 2),
        ([&[5, 1, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat(), 2),
        (
            [&[5, 1, 0, 1, 198, 18, 0, 9][..], &port.to_be_bytes()].concat(),
            2,
        ),
        (
            [&[5, 1, 0, 4][..], &[0; 15], &[1], &port.to_be_bytes()].concat(),
            2,
        ),
        (vec![5, 2, 0, 1, 1, 2, 3, 4, 0, 80], 7),
        (vec![5, 3, 0, 1, 1, 2, 3, 4, 0, 80], 7),
        (vec![5, 1, 0, 9, 1, 2, 3, 4, 0, 80], 8),
    ] {
        let mut stream = greeted(&egress).await;
        assert_eq!(replied(&mut stream, &request).await, reply, "{request:?}");
    }
    // A client that looked the name up itself sends our own address for it.
    let host = bastle_policy::Host::new("a.example").unwrap();
    let own = egress
        .state
        .names
        .address(&host, std::time::Instant::now())
        .unwrap();
    let mut stream = greeted(&egress).await;
    let request = [&[5, 1, 0, 1][..], &own.octets(), &port.to_be_bytes()].concat();
    assert_eq!(replied(&mut stream, &request).await, 0);
    let denial = egress.denial().await;
    assert_eq!(
        (denial.face, denial.code, denial.host.as_str()),
        (Face::Socks, Some(Code::NetDenied), "b.example")
    );
}

#[tokio::test]
async fn a_client_that_insists_on_a_password_or_speaks_something_else_is_refused() {
    let egress = egress(table("{}", &[])).await;
    for (greeting, answer) in [
        (&[5, 1, 2][..], &[5, 0xff][..]),
        (&[4, 1, 0, 80, 1, 2, 3, 4, 0], &[]),
        (b"GET / HTTP/1.1\r\n\r\n", &[]),
    ] {
        let mut stream = TcpStream::connect(egress.socks).await.unwrap();
        stream.write_all(greeting).await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, answer, "{greeting:?}");
    }
    assert_eq!(egress.denial().await.code, Some(Code::NetProtocol));
}
