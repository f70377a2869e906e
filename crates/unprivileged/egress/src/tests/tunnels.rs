//! Tunnels: which names must agree, what passes, what cuts them.
use crate::budget::Attendance;
use crate::record::Said;
use crate::testing::{HANG, echo, egress, egress_asking, read_all, table, table_of};
use crate::tls::provider;
use crate::tunnel::Admission;
use crate::via::Via;
use bastle_contract::Code;
use bastle_contract::egress::{Face, FromEgress, NetVerdict};
use bastle_policy::Host;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A TLS server that echoes, and a client that trusts it.
async fn tls_server(name: &str) -> (SocketAddr, TlsConnector) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(stream).await else {
                    return;
                };
                let mut buffer = vec![0; 16 * 1024];
                while let Ok(n) = tls.read(&mut buffer).await {
                    if n == 0 || tls.write_all(&buffer[..n]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, TlsConnector::from(Arc::new(client)))
}

fn local(rules: &str) -> String {
    format!(r#"{{"allow": [{rules}], "addresses": ["127.0.0.1/32"]}}"#)
}

#[tokio::test]
async fn tls_passes_unseen_when_the_names_agree_and_every_byte_is_counted() {
    let (address, client) = tls_server("fine.example").await;
    let port = address.port();
    let egress = egress(table(
        &local(&format!(r#""fine.example:{port}""#)),
        &[("fine.example", "127.0.0.1")],
    ))
    .await;
    // Case and a trailing dot are one name.
    let stream = egress.tunnel(&format!("FINE.example.:{port}")).await;
    let name = ServerName::try_from("fine.example").unwrap();
    let mut tls = client.connect(name, stream).await.unwrap();
    let payload = vec![7; 300_000];
    let (mut read, mut write) = tokio::io::split(&mut tls);
    let sending = async {
        write.write_all(&payload).await.unwrap();
        write.flush().await.unwrap();
    };
    let mut back = vec![0; payload.len()];
    let (_, got) = tokio::join!(sending, read.read_exact(&mut back));
    got.unwrap();
    assert_eq!(back, payload);
    drop(tls);
    let closed = egress.closed().await;
    assert!(
        closed.bytes_out > 300_000 && closed.bytes_in > 300_000,
        "{closed:?}"
    );
    let decisions = egress.decisions();
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    let decision = &decisions[0];
    assert_eq!(
        (decision.verdict, decision.face, decision.host.as_str()),
        (NetVerdict::Allowed, Face::Connect, "fine.example")
    );
    assert_eq!((decision.seq, decision.address), (closed.seq, Some(address.ip())));
}

#[tokio::test]
async fn a_handshake_that_names_another_host_is_denied_with_an_alert_and_no_byte_passes() {
    let server = echo(b"").await;
    let port = server.address.port();
    let (_, client) = tls_server("other.example").await;
    let egress = egress(table(
        &local(&format!(r#""fine.example:{port}""#)),
        &[("fine.example", "127.0.0.1")],
    ))
    .await;
    let stream = egress.tunnel(&format!("fine.example:{port}")).await;
    let refused = client
        .connect(ServerName::try_from("other.example").unwrap(), stream)
        .await
        .unwrap_err();
    assert!(format!("{refused:?}").contains("AccessDenied"), "{refused:?}");
    assert_eq!(egress.denial().await.code, Some(Code::NetMismatch));
    assert!(server.heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_handshake_without_a_name_is_denied() {
    let server = echo(b"").await;
    let port = server.address.port();
    let (_, client) = tls_server("fine.example").await;
    let egress = egress(table(
        &local(&format!(r#""fine.example:{port}""#)),
        &[("fine.example", "127.0.0.1")],
    ))
    .await;
    let stream = egress.tunnel(&format!("fine.example:{port}")).await;
    // For an address a client sends no name.
    let refused = client
        .connect(ServerName::try_from("127.0.0.1").unwrap(), stream)
        .await
        .unwrap_err();
    assert!(format!("{refused:?}").contains("AccessDenied"), "{refused:?}");
    assert_eq!(egress.denial().await.code, Some(Code::NetMismatch));
    assert!(server.heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn other_protocols_than_tls_do_not_pass_without_an_opaque_rule() {
    let server = echo(b"").await;
    let port = server.address.port();
    for first in [
        "SSH-2.0-OpenSSH_9.9\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x05\x01\x00",
        "\x16\x02\x01\x00\x05hello",
        "hello",
    ] {
        let net = local(&format!(r#""fine.example:{port}""#));
        let egress = egress(table(&net, &[("fine.example", "127.0.0.1")])).await;
        let mut stream = egress.tunnel(&format!("fine.example:{port}")).await;
        stream.write_all(first.as_bytes()).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(!answer.contains("<still open>"), "{first:?}: {answer}");
        assert_eq!(egress.denial().await.code, Some(Code::NetProtocol), "{first:?}");
    }
    assert!(server.heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_opaque_rule_lets_the_server_speak_first_and_keeps_half_closed_connections() {
    let server = echo(b"SSH-2.0-server\r\n").await;
    let port = server.address.port();
    let net = local(&format!(r#"{{"rule": "ssh.example:{port}", "opaque": true}}"#));
    let egress = egress(table(&net, &[("ssh.example", "127.0.0.1")])).await;
    let mut stream = egress.tunnel(&format!("ssh.example:{port}")).await;
    let mut banner = [0; 16];
    stream.read_exact(&mut banner).await.unwrap();
    assert_eq!(&banner, b"SSH-2.0-server\r\n");
    stream.write_all(b"last words").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_all(&mut stream).await, "last words");
    let closed = egress.closed().await;
    assert_eq!((closed.bytes_out, closed.bytes_in), (10, 26));
}

#[tokio::test]
async fn a_reload_cuts_what_is_not_allowed_any_more_and_keeps_the_rest() {
    let server = echo(b"").await;
    let port = server.address.port();
    let hosts = [("a.example", "127.0.0.1"), ("b.example", "127.0.0.1")];
    let rule = |host: &str| format!(r#"{{"rule": "{host}:{port}", "opaque": true}}"#);
    let both = table(
        &local(&format!("{}, {}", rule("a.example"), rule("b.example"))),
        &hosts,
    );
    let egress = egress(both).await;
    let mut a = egress.tunnel(&format!("a.example:{port}")).await;
    let mut b = egress.tunnel(&format!("b.example:{port}")).await;
    for stream in [&mut a, &mut b] {
        stream.write_all(b"x").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
    }
    let mut bad = table(&local(""), &hosts);
    // A table that lets the canary through fails its own test.
    bad.mode = bastle_policy::NetMode::Open;
    bad.tiers.clear();
    if bad.selftest().is_err() {
        assert!(egress.state.reload(bad).is_err());
        a.write_all(b"y").await.unwrap();
        assert_eq!(a.read_u8().await.unwrap(), b'y', "a bad table keeps the old one");
    }
    assert_eq!(
        egress.state.reload(table(&local(&rule("b.example")), &hosts)),
        Ok(1)
    );
    assert_eq!(read_all(&mut a).await, "");
    b.write_all(b"z").await.unwrap();
    assert_eq!(b.read_u8().await.unwrap(), b'z');
    assert!(
        egress
            .say(format!("CONNECT a.example:{port} HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n").as_bytes())
            .await
            .starts_with("HTTP/1.1 403 ")
    );
    // The address alone is enough to cut.
    let nowhere = table(&format!(r#"{{"allow": [{}]}}"#, rule("b.example")), &hosts);
    assert_eq!(egress.state.reload(nowhere), Ok(1));
    assert_eq!(read_all(&mut b).await, "");
}

#[tokio::test]
async fn a_budget_of_bytes_ends_a_tunnel_near_its_limit() {
    let server = echo(b"").await;
    let port = server.address.port();
    let sections = format!(
        r#""net": {}, "budget": {{"bytesOut": "64K"}}"#,
        local(&format!(r#"{{"rule": "a.example:{port}", "opaque": true}}"#))
    );
    let egress = egress(table_of(&sections, &[("a.example", "127.0.0.1")])).await;
    let stream = egress.tunnel(&format!("a.example:{port}")).await;
    let (mut read, mut write) = stream.into_split();
    let flood = tokio::spawn(async move {
        let piece = vec![1; 16 * 1024];
        while write.write_all(&piece).await.is_ok() {}
    });
    let mut sink = Vec::new();
    let ended = tokio::time::timeout(HANG, read.read_to_end(&mut sink)).await;
    assert!(ended.is_ok(), "the tunnel did not end");
    flood.await.unwrap();
    let closed = egress.closed().await;
    assert!(closed.bytes_out >= 64 * 1024, "{closed:?}");
    assert!(
        egress
            .frames()
            .iter()
            .any(|frame| matches!(frame, FromEgress::Budget(_)))
    );
    let answer = egress
        .say(format!("CONNECT a.example:{port} HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n").as_bytes())
        .await;
    assert!(answer.contains(Code::NetBudget.info().code), "{answer}");
}

#[tokio::test]
async fn a_question_without_anybody_there_is_a_denial_and_a_no_stays_a_no() {
    let server = echo(b"").await;
    let port = server.address.port();
    let net = format!(r#"{{"ask": ["a.example:{port}"], "addresses": ["127.0.0.1/32"]}}"#);
    let hosts = [("a.example", "127.0.0.1")];
    let request = format!("CONNECT a.example:{port} HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n");
    let alone = egress(table(&net, &hosts)).await;
    assert!(alone.say(request.as_bytes()).await.starts_with("HTTP/1.1 403 "));
    let refused = egress_asking(table(&net, &hosts), Attendance::Attended, Said::No).await;
    assert!(refused.say(request.as_bytes()).await.starts_with("HTTP/1.1 403 "));
    let allowed = egress_asking(table(&net, &hosts), Attendance::Attended, Said::Yes).await;
    drop(allowed.tunnel(&format!("a.example:{port}")).await);
    assert!(server.heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_company_proxy_gets_the_name_only_after_it_was_allowed() {
    let company = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = company.local_addr().unwrap();
    let net = format!(
        r#"{{"allow": [{{"rule": "a.example:22", "opaque": true}}], "upstream": "http://company.example:{}"}}"#,
        proxy.port()
    );
    let egress = egress(table(&net, &[("company.example", "127.0.0.1")])).await;
    let serving = tokio::spawn(async move {
        let (mut stream, _) = company.accept().await.unwrap();
        let mut head = vec![0; 53];
        stream.read_exact(&mut head).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\nSSH-early")
            .await
            .unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        (String::from_utf8(head).unwrap(), rest)
    });
    let denied = egress
        .say(b"CONNECT secret.example:443 HTTP/1.1\r\nHost: secret.example:443\r\n\r\n")
        .await;
    assert!(denied.starts_with("HTTP/1.1 403 "), "{denied}");
    let mut stream: TcpStream = egress.tunnel("a.example:22").await;
    let mut early = [0; 9];
    stream.read_exact(&mut early).await.unwrap();
    assert_eq!(&early, b"SSH-early");
    stream.write_all(b"bye").await.unwrap();
    stream.shutdown().await.unwrap();
    let (head, rest) = serving.await.unwrap();
    assert_eq!(
        head,
        "CONNECT a.example:22 HTTP/1.1\r\nHost: a.example:22\r\n\r\n"
    );
    assert_eq!(rest, "bye");
    let allowed = egress
        .decisions()
        .into_iter()
        .find(|d| d.verdict == NetVerdict::Allowed)
        .unwrap();
    assert_eq!(allowed.address, None, "behind a proxy the address is not known");
}

#[tokio::test]
async fn a_tunnel_judged_by_the_old_table_and_listed_after_the_new_one_is_cut() {
    let net = local(r#"{"rule": "a.example:22", "opaque": true}"#);
    let egress = egress(table(&net, &[])).await;
    let judged = egress.state.generation().number;
    egress.state.reload(table("{}", &[])).unwrap();
    let via = Via {
        host: Host::new("a.example").unwrap(),
        port: 22,
        face: Face::Connect,
    };
    let place = egress.state.tunnels.place().unwrap();
    let live = egress.state.tunnels.list(place, via, Admission::Pass, None);
    egress.state.recheck(judged, live.tunnel());
    let cut = tokio::time::timeout(HANG, live.until_cut()).await;
    assert!(cut.is_ok());
}

#[tokio::test]
async fn a_tunnel_in_which_nothing_moves_is_ended_and_a_slow_one_is_not() {
    let egress = egress(table("{}", &[])).await;
    let tunnels = &egress.state.tunnels;
    let listed = |host: &str| {
        let host = Host::new(host).unwrap();
        let via = Via {
            host,
            port: 22,
            face: Face::Connect,
        };
        tunnels.list(tunnels.place().unwrap(), via, Admission::Pass, None)
    };
    let (idle, slow) = (listed("idle.example"), listed("slow.example"));
    for look in 0..150_u64 {
        if look % 50 == 0 {
            slow.tunnel()
                .received
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        tunnels.sweep();
    }
    let soon = Duration::from_millis(100);
    assert!(tokio::time::timeout(HANG, idle.until_cut()).await.is_ok());
    assert!(tokio::time::timeout(soon, slow.until_cut()).await.is_err());
}

#[tokio::test]
async fn a_server_that_answers_only_at_the_end_of_the_question_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut question = Vec::new();
        stream.read_to_end(&mut question).await.unwrap();
        stream
            .write_all(format!("heard {}", question.len()).as_bytes())
            .await
            .unwrap();
    });
    let net = local(&format!(r#"{{"rule": "a.example:{port}", "opaque": true}}"#));
    let egress = egress(table(&net, &[("a.example", "127.0.0.1")])).await;
    let mut stream = egress.tunnel(&format!("a.example:{port}")).await;
    stream.write_all(&[1; 100_000]).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_all(&mut stream).await, "heard 100000");
}

#[tokio::test]
async fn a_tunnel_that_must_be_looked_into_from_now_on_is_cut() {
    let server = echo(b"").await;
    let port = server.address.port();
    let hosts = [("a.example", "127.0.0.1")];
    // The second rule gives the run its authority, without which the new table would be refused.
    let rules = |rule: &str| table(&local(&format!(r#"{rule}, "GET other.example/x""#)), &hosts);
    let egress = egress(rules(&format!(
        r#"{{"rule": "a.example:{port}", "opaque": true}}"#
    )))
    .await;
    let mut stream = egress.tunnel(&format!("a.example:{port}")).await;
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    assert_eq!(
        egress
            .state
            .reload(rules(&format!(r#""GET a.example:{port}/y""#))),
        Ok(1)
    );
    assert_eq!(read_all(&mut stream).await, "");
}

#[tokio::test]
async fn a_table_that_needs_an_authority_the_run_does_not_have_is_refused() {
    let egress = egress(table(&local(r#""a.example""#), &[])).await;
    assert!(egress.state.authority.is_none());
    assert!(
        egress
            .state
            .reload(table(&local(r#""GET a.example/x""#), &[]))
            .is_err()
    );
    assert_eq!(egress.state.generation().number, 0);
}
