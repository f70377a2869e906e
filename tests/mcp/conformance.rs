//! Those scenarios of the protocol's own suite that need no fixtures, against the real `/mcp` of a real daemon.
use crate::daemon::{Daemon, Token};
use crate::suite;
use crate::support::{Limit, run, skip};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// With the revision in which each is spoken.
const SCENARIOS: [(&str, &str); 9] = [
    ("tools-list", "2026-07-28"),
    ("resources-list", "2026-07-28"),
    ("prompts-list", "2026-07-28"),
    ("dns-rebinding-protection", "2026-07-28"),
    ("http-header-validation", "2026-07-28"),
    ("server-initialize", "2025-11-25"),
    ("ping", "2025-11-25"),
    ("tools-list", "2025-11-25"),
    ("server-session-lifecycle", "2025-11-25"),
];

/// The suite cannot carry a token: a relay that adds one to every request, and is the daemon in every other respect.
fn relay(daemon: SocketAddr, token: Token) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let bearer = token.0.clone();
            // A client that leaves early is its own affair.
            std::thread::spawn(move || drop(pass(stream, daemon, own, &bearer)));
        }
    });
    own
}

fn pass(mut from: TcpStream, daemon: SocketAddr, own: SocketAddr, bearer: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(from.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let lower = line.to_ascii_lowercase();
        if line == "\r\n" {
            head.push_str(&format!(
                "authorization: Bearer {bearer}\r\nconnection: close\r\n\r\n"
            ));
            break;
        }
        if let Some(size) = lower.strip_prefix("content-length:") {
            length = size.trim().parse().unwrap_or(0);
        }
        if lower.starts_with("host:") || lower.starts_with("origin:") {
            head.push_str(&line.replace(&format!(":{}", own.port()), &format!(":{}", daemon.port())));
        } else if !lower.starts_with("connection:") && !lower.starts_with("authorization:") {
            head.push_str(&line);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut to = TcpStream::connect(daemon)?;
    to.write_all(head.as_bytes())?;
    to.write_all(&body)?;
    std::io::copy(&mut to, &mut from)?;
    from.shutdown(std::net::Shutdown::Both)
}

#[test]
fn the_real_address_passes_what_needs_no_fixtures() {
    let suite = match suite::installed() {
        Ok(suite) => suite,
        Err(why) => return skip("the_real_address_passes_what_needs_no_fixtures", &why),
    };
    let daemon = Daemon::start(&[]);
    let run_name = daemon.spawn("true");
    daemon.until(&run_name, &["completed"]);
    let own = relay(daemon.address, daemon.role("admin"));
    let dir = tempfile::tempdir().unwrap();
    for (scenario, revision) in SCENARIOS {
        let words = ["--scenario", scenario, "--spec-version", revision, "--force"];
        let mut command = suite.against(&format!("http://{own}/mcp"), &words);
        command.current_dir(dir.path());
        let ended = run(&mut command, b"", Limit(Duration::from_secs(120)));
        assert_eq!(
            ended.code, 0,
            "{scenario} {revision}: {}\n{}",
            ended.stdout, ended.stderr
        );
    }
}
