//! Peers that take more than their share.
use crate::daemon::Daemon;
use crate::http::tcp;
use crate::support::{Limit, eventually};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn two_thousand_half_open_connections_are_bounded_and_others_are_served() {
    let daemon = Daemon::start(&[]);
    let viewer = daemon.role("viewer");
    let before = (daemon.descriptors(), daemon.status("VmRSS"));
    let mut half = Vec::new();
    for at in 0..2000 {
        let mut stream = TcpStream::connect(daemon.address).expect("it accepts");
        // Half of them begin a request and stop.
        if at % 2 == 0 {
            drop(stream.write_all(b"GET /api/v1/runs HTTP/1.1\r\nho"));
        }
        half.push(stream);
        if at % 500 == 0 {
            assert_eq!(
                daemon.with(&viewer, "GET", "/api/v1/runs", None).status,
                200,
                "at {at}"
            );
        }
    }
    assert_eq!(daemon.with(&viewer, "GET", "/api/v1/runs", None).status, 200);
    assert_eq!(daemon.own("GET", "/api/v1/health", None).status, 200);
    assert!(
        eventually(Limit::HANG, || daemon.descriptors() < before.0 + 600),
        "{}",
        daemon.descriptors()
    );
    let grown = daemon.status("VmRSS").saturating_sub(before.1);
    assert!(grown < 100 * 1024, "{grown} KiB more");
}

#[test]
fn a_body_without_end_is_refused_before_it_is_held() {
    let daemon = Daemon::start(&[]);
    let admin = daemon.role("admin");
    let before = daemon.status("VmRSS");
    for (path, size) in [("/api/v1/tokens", 3_000_000), ("/api/v1/runs", 50_000_000)] {
        let mut stream = tcp(daemon.address);
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {size}\r\n\r\n",
            daemon.address, admin.0
        );
        stream.write_all(head.as_bytes()).unwrap();
        let block = vec![b' '; 65536];
        let mut sent = 0;
        while sent < size && stream.write_all(&block).is_ok() {
            sent += block.len();
        }
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer).into_owned();
        // A peer that still writes may be cut off before it can read why.
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
            "{answer}"
        );
    }
    let grown = daemon.status("VmRSS").saturating_sub(before);
    assert!(grown < 60 * 1024, "{grown} KiB more");
    assert_eq!(daemon.with(&admin, "GET", "/api/v1/runs", None).status, 200);
}

#[test]
fn whoever_asks_too_often_is_told_to_wait_and_another_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("serve.json");
    std::fs::write(&config, "{\"requests_per_second\":2}").unwrap();
    let daemon = Daemon::start(&["--config", config.to_str().unwrap()]);
    let (greedy, other) = (daemon.role("viewer"), daemon.role("viewer"));
    let mut stream = tcp(daemon.address);
    let one = format!(
        "GET /api/v1/version HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        daemon.address, greedy.0
    );
    // All at once on one connection: the answers tell.
    let many = one.repeat(500);
    let writer = {
        let mut stream = stream.try_clone().unwrap();
        std::thread::spawn(move || drop(stream.write_all(many.as_bytes())))
    };
    let mut text = String::new();
    let mut buffer = [0; 65536];
    while !text.contains("HTTP/1.1 429") {
        let count = stream.read(&mut buffer).expect("answers come");
        assert!(count > 0, "none was refused");
        text = String::from_utf8_lossy(&buffer[..count]).into_owned();
    }
    assert_eq!(daemon.with(&other, "GET", "/api/v1/runs", None).status, 200);
    drop(stream.shutdown(std::net::Shutdown::Both));
    writer.join().unwrap();
}

#[test]
fn a_second_daemon_and_an_address_in_the_open_are_refused() {
    use crate::support::{bastle, run};
    use std::process::Command;
    let daemon = Daemon::start(&[]);
    let second = |state: &str, words: &[&str]| {
        let mut command = Command::new(bastle());
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", daemon.root.join("home"))
            .env("XDG_STATE_HOME", daemon.root.join(state))
            .arg("serve")
            .args(words);
        run(&mut command, b"", Limit::HANG)
    };
    let socket = daemon.root.join("run/second.sock");
    let socket = socket.to_str().unwrap();
    let theirs = ["--no-listen", "--socket", daemon.socket.to_str().unwrap()];
    let taken = second("other", &theirs);
    assert_eq!(taken.code, 1, "{}", taken.stderr);
    assert!(taken.stderr.contains("BST-API-016"), "{}", taken.stderr);
    let state = second("state", &["--no-listen", "--socket", socket]);
    assert_eq!(state.code, 1, "{}", state.stderr);
    assert!(state.stderr.contains("BST-STA-002"), "{}", state.stderr);
    let open = second("other", &["--listen", "0.0.0.0:0", "--socket", socket]);
    assert_eq!(open.code, 1, "{}", open.stderr);
    assert!(open.stderr.contains("--insecure-plain-http"), "{}", open.stderr);
    assert_eq!(daemon.own("GET", "/api/v1/health", None).status, 200);
}
