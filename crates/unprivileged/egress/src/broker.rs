//! The file broker: HTTP/1.1 on a socket inside the sandbox, for single files that a person granted.
//!
//! **Trust:** its own process, fenced like egress before it reads a byte of the agent: no file system, no programs. It
//! decides nothing. Each request becomes one question to control, which looks the name up, records the access and hands
//! over a sealed copy, or takes one; no descriptor of a file of the host is ever here.
use crate::http1::{Answer, Framing, Head, HeadError, Persist, RequestReader, Target};
use bastle_contract::grants::{FileOp, FromBroker, MAX_BROKER_FILE, MAX_BROKER_NAME, ToBroker};
use bastle_contract::{WIRE_VERSION, seal, socket};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};

/// Connections at once; more wait in the kernel's backlog, and behind it the agent itself waits.
const MOST_CONNECTIONS: usize = 64;
/// Files in memory at once, on their way in or out.
const MOST_FILES: usize = 4;
/// From the first byte of a request to the last byte of its answer.
const WHOLE: Duration = Duration::from_secs(120);
/// Piece in which a file is sent: so much at most is sent after its grant was withdrawn.
const PIECE: usize = 16 * 1024;
/// Where everything is.
const FILES: &str = "/v1/files";

/// Serves until control closes the socket; returns the exit code of the process.
#[must_use]
pub fn serve_files(control: OwnedFd) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let served = runtime.and_then(|runtime| runtime.block_on(run(control)));
    u8::from(served.is_err())
}

/// A frame of control's and what came along.
type Word = (ToBroker, Vec<OwnedFd>);

/// What all connections share.
struct Broker {
    line: UnixStream,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Word>>>,
    withdrawn: Mutex<HashSet<u64>>,
    files: Semaphore,
}

/// Why a request ends without what it asked for.
struct Refused {
    status: u16,
    why: String,
}

fn refused(status: u16, why: impl Into<String>) -> Refused {
    Refused {
        status,
        why: why.into(),
    }
}

impl From<HeadError> for Refused {
    fn from(error: HeadError) -> Self {
        refused(error.status(), error.to_string())
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        refused(500, error.to_string())
    }
}

async fn run(control: OwnedFd) -> io::Result<()> {
    let control = std::os::unix::net::UnixStream::from(control);
    control.set_nonblocking(true)?;
    let broker = Arc::new(Broker {
        line: UnixStream::from_std(control)?,
        next: AtomicU64::new(1),
        waiting: Mutex::default(),
        withdrawn: Mutex::default(),
        files: Semaphore::new(MOST_FILES),
    });
    let listener = match broker.hear().await? {
        Some((
            ToBroker::Serve {
                version: WIRE_VERSION,
            },
            mut descriptors,
        )) => descriptors.pop(),
        Some(_) | None => None,
    };
    let listener = listener.ok_or_else(|| io::Error::other("no listener came"))?;
    let listener = UnixListener::from_std(listener.into())?;
    tokio::select! {
        accepted = accept(&listener, &broker) => accepted,
        heard = broker.follow() => heard,
    }
}

async fn accept(listener: &UnixListener, broker: &Arc<Broker>) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let permit = Arc::clone(&room)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        let broker = Arc::clone(broker);
        tokio::spawn(async move {
            // One that takes too long, or is gone, is dropped with all it holds.
            let ended = tokio::time::timeout(WHOLE, broker.connection(stream)).await;
            drop((ended, permit));
        });
    }
}

impl Broker {
    async fn hear(&self) -> io::Result<Option<Word>> {
        let receive = || socket::receive(self.line.as_fd());
        self.line.async_io(Interest::READABLE, receive).await
    }

    /// Hands answers to those who wait for them, until control is gone.
    async fn follow(&self) -> io::Result<()> {
        while let Some((frame, descriptors)) = self.hear().await? {
            let ask = match &frame {
                ToBroker::Withdrawn { grant } => {
                    lock(&self.withdrawn).insert(*grant);
                    continue;
                }
                ToBroker::Serve { .. } => continue,
                ToBroker::Listed { ask, .. }
                | ToBroker::Read { ask, .. }
                | ToBroker::Written { ask }
                | ToBroker::Refused { ask, .. } => *ask,
            };
            if let Some(waiting) = lock(&self.waiting).remove(&ask) {
                // Whoever asked may be gone.
                drop(waiting.send((frame, descriptors)));
            }
        }
        Ok(())
    }

    /// Asks control, and waits for its answer.
    async fn ask(&self, op: FileOp, name: String, content: Option<OwnedFd>) -> Result<Word, Refused> {
        let ask = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        lock(&self.waiting).insert(ask, sender);
        let frame = FromBroker::Ask { ask, op, name };
        let descriptors: Vec<_> = content.as_ref().map(AsFd::as_fd).into_iter().collect();
        let send = || socket::send(self.line.as_fd(), &frame, &descriptors);
        self.line.async_io(Interest::WRITABLE, send).await?;
        match answer.await {
            Ok((ToBroker::Refused { status, why, .. }, _)) => Err(Refused { status, why }),
            Ok(answer) => Ok(answer),
            Err(_) => Err(refused(500, "the run is over")),
        }
    }

    /// One request, one answer, then the connection is closed.
    async fn connection(&self, mut stream: UnixStream) -> io::Result<()> {
        let (reading, mut writing) = stream.split();
        let mut reader = RequestReader::new(reading);
        let head = match reader.head().await {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(()),
            Err(error) => return refuse(&mut writing, error.into()).await,
        };
        let done = match wanted(&head) {
            Ok(Wanted::List) => self.list(&mut writing).await,
            Ok(Wanted::Read(name)) => self.read(&mut writing, name).await,
            Ok(Wanted::Write(name, length)) => {
                if head.headers.get(http::header::EXPECT).is_some() {
                    writing.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                }
                self.write(&mut writing, &mut reader, name, length).await
            }
            Err(refused) => Err(refused),
        };
        match done {
            Ok(()) => Ok(()),
            Err(refused) => refuse(&mut writing, refused).await,
        }
    }

    async fn list(&self, writing: &mut Writing<'_>) -> Result<(), Refused> {
        let (answer, _) = self.ask(FileOp::List, String::new(), None).await?;
        let ToBroker::Listed { files, .. } = answer else {
            return Err(refused(500, "an unexpected answer"));
        };
        let body = serde_json::json!({ "schema": "bastle.files/v1", "files": files });
        let answer = Answer::json(200, body.to_string().into_bytes());
        writing.write_all(&answer.bytes(Persist::Close)).await?;
        Ok(())
    }

    async fn read(&self, writing: &mut Writing<'_>, name: String) -> Result<(), Refused> {
        let _room = self.room().await?;
        let (answer, mut descriptors) = self.ask(FileOp::Read, name, None).await?;
        let (ToBroker::Read { grant, .. }, Some(copy)) = (answer, descriptors.pop()) else {
            return Err(refused(500, "an unexpected answer"));
        };
        let size = rustix::fs::fstat(&copy).map_err(io::Error::from)?.st_size;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        );
        writing.write_all(head.as_bytes()).await?;
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        loop {
            if lock(&self.withdrawn).contains(&grant) {
                // The answer has begun: that it ends early is all that can still be said.
                return Ok(());
            }
            let count = rustix::io::pread(&copy, &mut piece, at).map_err(io::Error::from)?;
            if count == 0 {
                return Ok(());
            }
            // A peer that does not read, or is gone, gets no second answer.
            if writing.write_all(&piece[..count]).await.is_err() {
                return Ok(());
            }
            at += count as u64;
        }
    }

    async fn write<R: tokio::io::AsyncRead + Unpin>(
        &self,
        writing: &mut Writing<'_>,
        reader: &mut RequestReader<R>,
        name: String,
        length: u64,
    ) -> Result<(), Refused> {
        let _room = self.room().await?;
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        while let Some(piece) = reader.body().await? {
            bytes.extend_from_slice(&piece);
        }
        let content = seal("bastle-file", &bytes)?;
        drop(bytes);
        self.ask(FileOp::Write, name, Some(content)).await?;
        let answer = b"HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
        writing.write_all(answer).await?;
        Ok(())
    }

    async fn room(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Refused> {
        self.files
            .acquire()
            .await
            .map_err(|error| refused(500, error.to_string()))
    }
}

type Writing<'a> = tokio::net::unix::WriteHalf<'a>;

async fn refuse(writing: &mut Writing<'_>, refused: Refused) -> io::Result<()> {
    let body = serde_json::json!({ "error": refused.why })
        .to_string()
        .into_bytes();
    let mut answer = Answer::json(refused.status, body);
    if refused.status == 405 {
        answer = answer.field("Allow", "GET, PUT");
    }
    writing.write_all(&answer.bytes(Persist::Close)).await
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    List,
    Read(String),
    Write(String, u64),
}

fn wanted(head: &Head) -> Result<Wanted, Refused> {
    let (Target::Origin(target) | Target::Absolute { path: target, .. }) = &head.target else {
        return Err(refused(400, "the target must be a path"));
    };
    let Some(rest) = target.strip_prefix(FILES) else {
        return Err(refused(404, "everything is below /v1/files"));
    };
    let name = match rest {
        "" | "/" => None,
        rest => match rest.strip_prefix('/') {
            Some(name) => Some(decoded(name)?),
            None => return Err(refused(404, "everything is below /v1/files")),
        },
    };
    match (head.method.as_str(), name, head.body) {
        ("GET", None, Framing::None | Framing::Length(0)) => Ok(Wanted::List),
        ("GET", Some(name), Framing::None | Framing::Length(0)) => Ok(Wanted::Read(name)),
        ("GET", _, Framing::Length(_) | Framing::Chunked) => Err(refused(400, "a GET has no body")),
        ("PUT", Some(name), Framing::Length(length)) if length <= MAX_BROKER_FILE => {
            Ok(Wanted::Write(name, length))
        }
        ("PUT", Some(_), Framing::Length(_)) => Err(refused(
            413,
            format!("a file has at most {MAX_BROKER_FILE} bytes"),
        )),
        ("PUT", Some(_), Framing::None | Framing::Chunked) => {
            Err(refused(411, "say how long it is (Content-Length)"))
        }
        _ => Err(refused(405, "GET lists or reads, PUT writes a file")),
    }
}

/// A name from its spelling in a request: percent-decoded once, UTF-8, no control characters.
fn decoded(text: &str) -> Result<String, Refused> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                match (digit(rest.next()), digit(rest.next())) {
                    (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
                    _ => return Err(refused(400, "a percent sign needs two hexadecimal digits")),
                }
            }
            b'?' | b'#' => return Err(refused(400, "a name has no query; write %3F for a question mark")),
            other => bytes.push(other),
        }
    }
    match String::from_utf8(bytes) {
        Ok(name) if name.len() <= MAX_BROKER_NAME && !name.chars().any(char::is_control) => Ok(name),
        Ok(_) | Err(_) => Err(refused(400, "a name is UTF-8 without control characters")),
    }
}

/// A lock that a panic elsewhere does not spoil: what it guards is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::parse_head;

    fn ask(line: &str, fields: &str) -> Result<Wanted, u16> {
        let text = format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        wanted(&parse_head(text.as_bytes()).unwrap()).map_err(|refused| refused.status)
    }

    #[test]
    fn only_listing_reading_and_writing_are_understood() {
        assert_eq!(ask("GET /v1/files", ""), Ok(Wanted::List));
        assert_eq!(ask("GET /v1/files/", ""), Ok(Wanted::List));
        assert_eq!(
            ask("GET /v1/files/a%20b/%C3%A9", ""),
            Ok(Wanted::Read("a b/é".into()))
        );
        assert_eq!(
            ask("PUT /v1/files/a", "Content-Length: 3\r\n"),
            Ok(Wanted::Write("a".into(), 3))
        );
        for (line, fields, status) in [
            ("DELETE /v1/files/a", "", 405),
            ("POST /v1/files/a", "Content-Length: 3\r\n", 405),
            ("GET /v1/filesx", "", 404),
            ("GET /etc/passwd", "", 404),
            ("GET /v1/files/a%0a", "", 400),
            ("GET /v1/files/a%00b", "", 400),
            ("GET /v1/files/a%zz", "", 400),
            ("GET /v1/files/a%f", "", 400),
            ("GET /v1/files/%ff", "", 400),
            ("GET /v1/files/a?b", "", 400),
            ("PUT /v1/files/a", "", 411),
            ("PUT /v1/files/a", "Transfer-Encoding: chunked\r\n", 411),
            ("PUT /v1/files/a", "Content-Length: 16777217\r\n", 413),
            ("PUT /v1/files", "Content-Length: 1\r\n", 405),
            ("GET /v1/files", "Content-Length: 1\r\n", 400),
        ] {
            assert_eq!(ask(line, fields), Err(status), "{line}");
        }
    }
}
