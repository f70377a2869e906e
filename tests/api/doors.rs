//! The ways in: TLS, sockets that systemd made, a group.
use crate::daemon::Daemon;
use crate::http::{HANG, exchange, request, unix};
use crate::support::{Ended, Limit, bastle, eventually, run, skip};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn certificate(at: &Path) {
    let mut openssl = Command::new("openssl");
    openssl
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        ])
        .arg("-keyout")
        .arg(at.join("key.pem"))
        .arg("-out")
        .arg(at.join("cert.pem"));
    assert_eq!(
        run(&mut openssl, b"", Limit::HANG).code,
        0,
        "a certificate is made"
    );
}

fn curl(trusted: &Path, url: &str) -> Ended {
    let mut curl = Command::new("curl");
    curl.args(["-s", "--max-time", "30", "--cacert"])
        .arg(trusted)
        .arg(url);
    run(&mut curl, b"", Limit::HANG)
}

#[test]
fn with_a_certificate_only_tls_is_spoken_and_a_new_one_holds_after_sighup() {
    let dir = tempfile::tempdir().unwrap();
    certificate(dir.path());
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let first = dir.path().join("first.pem");
    std::fs::copy(&cert, &first).unwrap();
    let daemon = Daemon::start(&[
        "--tls-cert",
        cert.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
    ]);
    let url = format!("https://localhost:{}/healthz", daemon.address.port());
    assert_eq!(curl(&first, &url).stdout, "{\"status\":\"ok\"}");
    let plain = curl(&first, &url.replace("https", "http"));
    assert_ne!(plain.code, 0, "no plain words on the same port: {}", plain.stdout);
    certificate(dir.path());
    assert_ne!(curl(&cert, &url).code, 0, "the old one is still shown");
    daemon.signal(Signal::HUP);
    assert!(
        eventually(Limit::HANG, || curl(&cert, &url).code == 0),
        "the new one is shown"
    );
    std::fs::write(&key, "no key").unwrap();
    daemon.signal(Signal::HUP);
    assert_eq!(curl(&cert, &url).code, 0, "a bad one leaves the good one");
}

/// Killed when dropped.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_socket_that_systemd_made_is_served_and_readiness_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let notices = UnixDatagram::bind(at("notify")).unwrap();
    notices.set_read_timeout(Some(HANG)).unwrap();
    // The shell stands in for systemd: it hands a listening socket over as descriptor 3, under its own number.
    let listener = UnixListener::bind(at("handed.sock")).unwrap();
    let daemon = Command::new("sh")
        .args([
            "-c",
            "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve --no-listen 3<&0 </dev/null",
        ])
        .arg(bastle())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", dir.path())
        .env("XDG_STATE_HOME", at("state"))
        .env("XDG_RUNTIME_DIR", at("run"))
        .env("NOTIFY_SOCKET", at("notify"))
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
        .spawn()
        .unwrap();
    let daemon = Reaped(daemon);
    let mut word = [0; 64];
    let count = notices.recv(&mut word).expect("it says that it is ready");
    assert_eq!(&word[..count], b"READY=1");
    let answer = exchange(
        &mut unix(&at("handed.sock")),
        &request("GET", "/api/v1/whoami", &[("host", "x")], b""),
    );
    assert_eq!((answer.status, &answer.json()["role"]), (200, &"admin".into()));
    assert!(!at("run/bastle/bastle.sock").exists(), "no second socket is made");
    rustix::process::kill_process(rustix::process::Pid::from_child(&daemon.0), Signal::TERM).unwrap();
    let count = notices.recv(&mut word).expect("it says that it ends");
    assert_eq!(&word[..count], b"STOPPING=1");
    assert!(at("handed.sock").exists(), "what systemd made stays");
}

#[test]
fn a_member_of_the_group_reaches_the_socket_but_needs_a_token() {
    if !rustix::process::geteuid().is_root() {
        skip(
            "a_member_of_the_group_reaches_the_socket_but_needs_a_token",
            "takes another uid, so it needs root",
        );
        return;
    }
    let daemon = Daemon::start(&["--group", "nogroup"]);
    for place in [daemon.root.clone(), daemon.root.join("run")] {
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let ask = |gid: u32, token: Option<&str>| {
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "--max-time",
            "30",
            "-w",
            "%{http_code}",
            "-o",
            "/dev/null",
            "--unix-socket",
        ])
        .arg(&daemon.socket)
        .uid(60_001)
        .gid(gid);
        if let Some(token) = token {
            curl.args(["-H", &format!("Authorization: Bearer {token}")]);
        }
        run(curl.arg("http://localhost/api/v1/runs"), b"", Limit::HANG).stdout
    };
    let viewer = daemon.role("viewer");
    assert_eq!(ask(65_534, None), "401");
    assert_eq!(ask(65_534, Some(&viewer.0)), "200");
    assert_eq!(ask(60_001, Some(&viewer.0)), "000", "nobody else can connect");
}
