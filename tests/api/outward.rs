//! Webhooks: signed, to the address that was written down, and nowhere a redirect leads.
use crate::daemon::Daemon;
use crate::http::HANG;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Takes one request and answers; its head and body.
pub(crate) fn receive(listener: &TcpListener, answer: &str) -> (String, Vec<u8>) {
    let (mut stream, _) = listener.accept().expect("it is told");
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).expect("a request");
        all.extend_from_slice(&buffer[..count]);
        if let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&all[..end]).to_ascii_lowercase();
            let length: usize = head
                .split("content-length: ")
                .nth(1)
                .unwrap()
                .lines()
                .next()
                .unwrap()
                .parse()
                .unwrap();
            if all.len() >= end + 4 + length {
                stream.write_all(answer.as_bytes()).unwrap();
                return (head, all[end + 4..].to_vec());
            }
        }
        assert!(count > 0, "it ended early");
    }
}

#[test]
fn a_webhook_gets_events_that_are_signed_and_a_redirect_is_not_followed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (secret, config) = (dir.path().join("secret"), dir.path().join("serve.json"));
    std::fs::write(&secret, "0123456789abcdef0123\n").unwrap();
    let settings = serde_json::json!({ "webhooks": [{
        "url": format!("http://{}/hook", listener.local_addr().unwrap()), "secret_file": secret, "kinds": ["ended"],
    }]});
    std::fs::write(&config, settings.to_string()).unwrap();
    let daemon = Daemon::start(&["--config", config.to_str().unwrap()]);
    let name = daemon.spawn("true");
    let moved = format!(
        "HTTP/1.1 307 Moved\r\nlocation: http://{}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        elsewhere.local_addr().unwrap()
    );
    receive(&listener, &moved);
    // Not taken, so it comes again.
    let (head, body) = receive(&listener, "HTTP/1.1 204 OK\r\nconnection: close\r\n\r\n");
    assert!(elsewhere.accept().is_err(), "a redirect was followed");
    let event: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&event["subject"], &event["type"]),
        (&name.into(), &"dev.bastle.run.ended.v1".into())
    );
    let signature = head
        .split("bastle-signature: ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    let (time, given) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let mut openssl = Command::new("openssl")
        .args(["dgst", "-sha256", "-hmac", "0123456789abcdef0123"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl is there");
    let signed = [time.as_bytes(), b".", &body].concat();
    openssl.stdin.take().unwrap().write_all(&signed).unwrap();
    let told = openssl.wait_with_output().unwrap();
    assert!(
        String::from_utf8_lossy(&told.stdout).contains(given),
        "{signature}"
    );
}
