//! Slow, silent and flooding peers.
use crate::limits::MAX_TUNNELS;
use crate::testing::{HANG, echo, egress, read_all, table};
use bastle_contract::Code;
use bastle_contract::egress::{FromEgress, NetVerdict};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_slow_head_is_ended_at_its_deadline_and_others_are_served_meanwhile() {
    let egress = egress(table("{}", &[])).await;
    let start = Instant::now();
    let mut slow = TcpStream::connect(egress.http).await.unwrap();
    let mut silent = TcpStream::connect(egress.http).await.unwrap();
    slow.write_all(b"GET http://a.ex").await.unwrap();
    let (mut read, mut write) = slow.into_split();
    let dripping = tokio::spawn(async move {
        while write.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    assert!(
        egress
            .say(b"CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 403 ")
    );
    let mut answer = Vec::new();
    // A reset after the answer is no failure.
    drop(read.read_to_end(&mut answer).await);
    assert!(
        answer.starts_with(b"HTTP/1.1 408 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    let mut nothing = Vec::new();
    silent.read_to_end(&mut nothing).await.unwrap();
    assert!(
        nothing.starts_with(b"HTTP/1.1 408 "),
        "{}",
        String::from_utf8_lossy(&nothing)
    );
    assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
    dripping.abort();
}

#[tokio::test]
async fn heads_beyond_the_limits_are_refused_without_growing() {
    let egress = egress(table("{}", &[])).await;
    let line = format!(
        "GET http://a.example/{} HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "x".repeat(1 << 20)
    );
    let many = format!(
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{}\r\n",
        (0..191).map(|n| format!("X{n}: y\r\n")).collect::<String>()
    );
    let large = format!(
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nX: {}\r\n\r\n",
        "y".repeat(70_000)
    );
    for request in [line, many, large] {
        let mut stream = TcpStream::connect(egress.http).await.unwrap();
        // The answer may come before everything was sent.
        drop(stream.write_all(request.as_bytes()).await);
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tunnels_are_held_and_more_than_the_limit_are_refused() {
    // Client, face, dialled and server ends are all in this process.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: files.maximum,
        maximum: files.maximum,
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let server = echo(b"").await;
    let port = server.address.port();
    let net = format!(
        r#"{{"allow": [{{"rule": "a.example:{port}", "opaque": true}}], "addresses": ["127.0.0.1/32"]}}"#
    );
    let egress = egress(table(&net, &[("a.example", "127.0.0.1")])).await;
    let mut held = Vec::new();
    for _ in 0..MAX_TUNNELS {
        held.push(egress.tunnel(&format!("a.example:{port}")).await);
    }
    assert!(egress.state.tunnels.count() >= 1_000);
    let request = format!("CONNECT a.example:{port} HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n");
    let answer = egress.say(request.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains(Code::NetLimit.info().code),
        "{answer}"
    );
    for stream in &mut held {
        stream.write_all(b"x").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
    }
    held.truncate(10);
    let again = async {
        while !egress.say(request.as_bytes()).await.starts_with("HTTP/1.1 200 ") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(HANG, again).await.expect("places come back");
}

#[tokio::test]
async fn of_a_thousand_requests_each_is_recorded_exactly_once() {
    let server = echo(b"x").await;
    let port = server.address.port();
    let net = format!(
        r#"{{"allow": [{{"rule": "a.example:{port}", "opaque": true}}], "addresses": ["127.0.0.1/32"]}}"#
    );
    let egress = egress(table(&net, &[("a.example", "127.0.0.1")])).await;
    for n in 0..250 {
        let mut stream = egress.tunnel(&format!("a.example:{port}")).await;
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        for host in [
            format!("d{n}.example"),
            format!("s{}.example", n % 20),
            "q.example".to_owned(),
        ] {
            // Path and query never matter for a tunnel; nothing of them may show up either.
            let mut stream = TcpStream::connect(egress.http).await.unwrap();
            let request = format!(
                "CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer hidden\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            if host != "q.example" || n < 20 {
                assert!(read_all(&mut stream).await.starts_with("HTTP/1.1 403 "));
            }
        }
    }
    let decided = |frames: &[FromEgress], verdict| {
        let count = |frame: &FromEgress| match frame {
            FromEgress::Decided(decision) if decision.verdict == verdict => decision.count,
            _ => 0,
        };
        frames.iter().map(count).sum::<u32>()
    };
    egress
        .wait_until(|frames| {
            let closed = frames.iter().filter(|f| matches!(f, FromEgress::Closed(_)));
            let all = decided(frames, NetVerdict::Denied) == 750
                && decided(frames, NetVerdict::Allowed) == 250
                && closed.count() == 250;
            all.then_some(())
        })
        .await;
    assert!(!format!("{:?}", egress.frames()).contains("hidden"));
}
