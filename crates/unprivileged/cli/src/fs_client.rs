//! `bastle-fs`: the client of the file broker, inside the sandbox. The same binary under another name.
//!
//! **Trust:** runs as the agent, with the agent's rights; it protects nothing. It speaks plain HTTP over one socket.
use bastle_contract::grants::{BROKER_SOCKET, MAX_BROKER_FILE};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const USAGE: &str = "\
Files that a person granted to this run while it lives.

Usage:
  bastle-fs ls             list them
  bastle-fs cat NAME       print one
  bastle-fs put NAME       replace one with standard input

The same over HTTP: curl --unix-socket /run/bastle/fs.sock http://local/v1/files
Exit codes: 0 done, 1 failed or refused, 2 usage, 3 no such file.";

/// How long the broker may be silent.
const PATIENCE: Duration = Duration::from_secs(150);

/// Runs it with the words after its name; returns the exit code.
#[must_use]
pub fn fs_client(words: &[OsString]) -> u8 {
    let words: Vec<_> = words.iter().map(|word| word.to_str()).collect();
    let done = match words.as_slice() {
        [Some("ls")] => list(),
        [Some("cat"), Some(name)] => cat(name),
        [Some("put"), Some(name)] => put(name),
        [Some("help" | "--help" | "-h")] => {
            println!("{USAGE}");
            return 0;
        }
        _ => {
            eprintln!("{USAGE}");
            return 2;
        }
    };
    match done {
        Ok(()) => 0,
        Err(Failed::Refused(status, why)) => {
            eprintln!("bastle-fs: {why}");
            if status == 404 { 3 } else { 1 }
        }
        Err(Failed::Io(error)) => {
            eprintln!("bastle-fs: {error}");
            1
        }
    }
}

enum Failed {
    Refused(u16, String),
    Io(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn list() -> Result<(), Failed> {
    let body = ask("GET", "", &[])?;
    let document: serde_json::Value = serde_json::from_slice(&body).map_err(io::Error::other)?;
    let mut out = io::stdout().lock();
    for file in document["files"].as_array().into_iter().flatten() {
        let access = if file["access"] == "read-write" {
            "rw"
        } else {
            "ro"
        };
        let size = file["size"]
            .as_u64()
            .map_or_else(|| "-".to_owned(), |size| size.to_string());
        writeln!(
            out,
            "{access} {size:>10} {}",
            file["name"].as_str().unwrap_or_default()
        )?;
    }
    out.flush()?;
    Ok(())
}

fn cat(name: &str) -> Result<(), Failed> {
    let body = ask("GET", &encoded(name), &[])?;
    let mut out = io::stdout().lock();
    out.write_all(&body)?;
    out.flush()?;
    Ok(())
}

fn put(name: &str) -> Result<(), Failed> {
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(MAX_BROKER_FILE + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BROKER_FILE {
        return Err(Failed::Refused(
            413,
            format!("a file has at most {MAX_BROKER_FILE} bytes"),
        ));
    }
    ask("PUT", &encoded(name), &bytes).map(|_| ())
}

/// One request, one answer.
fn ask(method: &str, name: &str, body: &[u8]) -> Result<Vec<u8>, Failed> {
    let mut stream = UnixStream::connect(BROKER_SOCKET)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = match method {
        "PUT" => format!("Content-Length: {}\r\n", body.len()),
        _ => String::new(),
    };
    stream
        .write_all(format!("{method} /v1/files{name} HTTP/1.1\r\nHost: local\r\n{length}\r\n").as_bytes())?;
    // One that refuses answers before it has read everything.
    let sent = stream.write_all(body);
    let mut answer = Vec::new();
    stream
        .take(MAX_BROKER_FILE + 64 * 1024)
        .read_to_end(&mut answer)?;
    if answer.is_empty() {
        sent?;
    }
    understood(&answer)
}

/// The body of a whole answer, or why there is none.
fn understood(answer: &[u8]) -> Result<Vec<u8>, Failed> {
    let cut = || {
        Failed::Io(io::Error::other(
            "the answer was cut short; the grant may be over",
        ))
    };
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or_else(cut)?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let body = &answer[end + 4..];
    let status: u16 = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(cut)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    if length.is_some_and(|length| length != body.len()) {
        return Err(cut());
    }
    if (200..300).contains(&status) {
        return Ok(body.to_vec());
    }
    let why = serde_json::from_slice::<serde_json::Value>(body).ok();
    let why = why.and_then(|why| why["error"].as_str().map(str::to_owned));
    Err(Failed::Refused(
        status,
        why.unwrap_or_else(|| format!("status {status}")),
    ))
}

/// A name as a part of a request's target.
fn encoded(name: &str) -> String {
    let mut text = String::from("/");
    for byte in name.trim_start_matches('/').bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_cut_short_is_no_answer() {
        assert!(understood(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_ok());
        assert!(understood(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell").is_err());
        assert!(understood(b"HTTP/1.1 200 OK\r\nContent-Le").is_err());
        assert!(understood(b"").is_err());
        assert!(matches!(
            understood(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 13\r\n\r\n{\"error\":\"x\"}"),
            Err(Failed::Refused(403, why)) if why == "x"
        ));
    }

    #[test]
    fn a_name_with_spaces_line_ends_and_percent_signs_travels_whole() {
        assert_eq!(encoded("/a b\n%é"), "/a%20b%0A%25%C3%A9");
    }
}
