//! A living run over WebSocket: what it prints, its input, further commands in it. Messages are frames of
//! `bastle_contract::stream`, one each, and are carried to and from the run's own socket.
//!
//! **Trust:** both sides are untrusted here. Frames of a client are parsed and only those that a client may send go on;
//! a client that does not read stops being written to, and the run's keeper bounds what it holds for us.
use super::events::upgraded;
use super::{Params, PathOf, Route};
use crate::app::App;
use crate::dto::Nothing;
use crate::errors::{self, Refusal};
use crate::guard::{Need, Recheck, StreamSlot, Who};
use crate::json;
use crate::routes::runs::told;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::Response;
use bastle_contract::runs::TtySize;
use bastle_contract::stream::{StreamFrame, StreamKind, StreamReader, frames};
use bastle_contract::{AbsPath, Argv, Code, EnvName, Fault, RunId};
use bastle_control::fleet::{Caller, Verb};
use bastle_control::live::Command;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use utoipa::IntoParams;

/// How long the run may take to answer, and the client to say what it wants.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest answer of a run before frames begin.
const MOST_LINE: usize = 256 * 1024;
/// How often the client is asked whether it is there, and how long it may be silent.
const PULSE: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_secs(60);
/// How long the client may take to close after us.
const LINGER: Duration = Duration::from_secs(5);
/// Why a client is cut off that was let in.
const LOST: &str = "the token does not hold any more";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/runs/{id}/attach",
            Need::OnRun(Verb::Read),
            "Attach to a living run",
            attach,
        )
        .params::<Attaching>()
        .upgrades(),
        Route::get(
            "/api/v1/runs/{id}/exec",
            Need::OnRun(Verb::Control),
            "Run a further command in a living run; the first message is its JSON",
            exec,
        )
        .params::<Nothing>()
        .upgrades(),
    ]
}

/// How to attach.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Attaching {
    /// Place in the output to begin at; only what comes when it is left out.
    since: Option<u64>,
    /// Whether what is sent goes to the run's input.
    #[serde(default)]
    input: bool,
}

/// A further command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Executing {
    argv: Argv,
    #[serde(default)]
    env: Vec<(EnvName, String)>,
    #[serde(default)]
    cwd: Option<AbsPath>,
    #[serde(default)]
    tty: Option<TtySize>,
}

/// What a run answers before frames begin.
#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    faults: Vec<Fault>,
}

async fn attach(
    State(app): State<App>,
    Who(caller, secret): Who,
    PathOf(id): PathOf<String>,
    Params(how): Params<Attaching>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let upgrade = upgraded(upgrade)?;
    // Whoever writes to the agent controls it.
    let verb = if how.input { Verb::Control } else { Verb::Read };
    let name = app.entered(&caller, verb, &id).await?;
    let slot = app.streams.open(&caller.id)?;
    let command = Command::Attach {
        since: how.since,
        input: how.input,
    };
    let (run, begun) = begin(&app, name, &command).await?;
    let token = Recheck::new(app.clone(), secret);
    Ok(upgrade.on_upgrade(move |socket| carry(app, socket, (run, begun), (token, slot))))
}

async fn exec(
    State(app): State<App>,
    Who(caller, secret): Who,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let upgrade = upgraded(upgrade)?;
    let name = app.entered(&caller, Verb::Control, &id).await?;
    let slot = app.streams.open(&caller.id)?;
    let token = Recheck::new(app.clone(), secret);
    Ok(upgrade.on_upgrade(move |mut socket| async move {
        match executed(&app, name, &mut socket, &token).await {
            Ok(run) => carry(app, socket, run, (token, slot)).await,
            Err(refusal) => refuse(socket, &caller, &refusal).await,
        }
    }))
}

async fn executed(
    app: &App,
    name: RunId,
    socket: &mut WebSocket,
    token: &Recheck,
) -> Result<(UnixStream, StreamReader), Refusal> {
    let first = timeout(PATIENCE, socket.recv())
        .await
        .map_err(|_| Refusal::bad("the command did not come in time"))?;
    let Some(Ok(Message::Text(text))) = first else {
        return Err(Refusal::bad("the first message is the command, as JSON text"));
    };
    // The command may come long after the handshake.
    if !token.holds().await {
        return Err(Refusal::new(Code::ApiUnauthorized, LOST, ""));
    }
    let asked: Executing = json::parse(text.as_bytes()).map_err(|wrong| Refusal::bad(wrong.to_string()))?;
    let command = Command::Exec {
        argv: asked.argv,
        env: asked.env,
        cwd: asked.cwd,
        tty: asked.tty,
    };
    begin(app, name, &command).await
}

/// Tells a client that has upgraded already why nothing comes.
async fn refuse(mut socket: WebSocket, caller: &Caller, refusal: &Refusal) {
    let status = refusal
        .faults
        .first()
        .map_or(StatusCode::INTERNAL_SERVER_ERROR, |fault| {
            errors::status_of(fault.code)
        });
    let problem = errors::problem(&refusal.faults, status, told(caller), "");
    drop(socket.send(Message::text(problem.to_string())).await);
    let frame = CloseFrame {
        code: close_code::POLICY,
        reason: "refused".into(),
    };
    drop(socket.send(Message::Close(Some(frame))).await);
}

/// Says the command to the run and hears whether frames follow.
async fn begin(app: &App, name: RunId, command: &Command) -> Result<(UnixStream, StreamReader), Refusal> {
    let silent = |why: String| Refusal::new(Code::FenceLost, "the run did not answer", why);
    let stream = app.ask(move |fleet| fleet.live(&name)).await?;
    stream
        .set_nonblocking(true)
        .map_err(|error| silent(error.to_string()))?;
    let mut stream = UnixStream::from_std(stream).map_err(|error| silent(error.to_string()))?;
    let line = serde_json::to_string(command).map_err(|error| silent(error.to_string()))?;
    let shake = async {
        stream.write_all(format!("{line}\n").as_bytes()).await?;
        let mut held = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let count = stream.read(&mut buffer).await?;
            held.extend_from_slice(&buffer[..count]);
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                return Ok::<_, std::io::Error>((held[..end].to_vec(), held[end + 1..].to_vec()));
            }
            if count == 0 || held.len() > MOST_LINE {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
    };
    let (line, rest) = timeout(PATIENCE, shake)
        .await
        .map_err(|_| silent("it took too long".to_owned()))?
        .map_err(|error| silent(error.to_string()))?;
    let answer: Answer = serde_json::from_slice(&line).map_err(|error| silent(error.to_string()))?;
    if !answer.ok {
        return Err(answer.faults.into());
    }
    let mut reader = StreamReader::default();
    reader.push(&rest);
    Ok((stream, reader))
}

/// Frames both ways until one side ends, or the token of the client does.
async fn carry(
    app: App,
    socket: WebSocket,
    (run, begun): (UnixStream, StreamReader),
    (token, slot): (Recheck, StreamSlot),
) {
    let (mut to_client, mut from_client) = socket.split();
    let (mut from_run, mut to_run) = run.into_split();
    let (heard_at, hears) = watch::channel(Instant::now());
    let mut closing = app.closing.clone();
    let over = tokio::select! {
        () = down(&mut to_client, &mut from_run, begun, hears) => Over::Ended,
        over = up(&mut from_client, &mut to_run, &heard_at, &token) => over,
        () = token.lost() => Over::TokenLost,
        _ = closing.wait_for(|closing| *closing) => Over::Ended,
    };
    // Before the client is told: what it started ends with the connection.
    drop((from_run, to_run));
    if over == Over::TokenLost {
        let frame = CloseFrame {
            code: close_code::POLICY,
            reason: LOST.into(),
        };
        let farewell = async {
            if to_client.send(Message::Close(Some(frame))).await.is_ok() {
                // What it still sends must not meet a closed socket: it would miss our last word.
                while let Some(Ok(_)) = from_client.next().await {}
            }
        };
        drop(timeout(LINGER, farewell).await);
    }
    drop(slot);
}

/// Why nothing more is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// One side ended, or the daemon does.
    Ended,
    /// The token was revoked or has expired.
    TokenLost,
}

/// What the run says, to the client.
async fn down(
    to_client: &mut SplitSink<WebSocket, Message>,
    from_run: &mut OwnedReadHalf,
    mut begun: StreamReader,
    hears: watch::Receiver<Instant>,
) {
    let mut buffer = vec![0; 32 * 1024];
    let mut pulse = tokio::time::interval(PULSE);
    loop {
        loop {
            match begun.next_frame() {
                Ok(Some(frame)) => {
                    let bytes = frames(frame.kind, &frame.payload);
                    if to_client.send(Message::Binary(Bytes::from(bytes))).await.is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        tokio::select! {
            read = from_run.read(&mut buffer) => match read {
                Ok(count @ 1..) => begun.push(&buffer[..count]),
                Ok(_) | Err(_) => break,
            },
            _ = pulse.tick() => {
                let silent = hears.borrow().elapsed() > SILENCE;
                if silent || to_client.send(Message::Ping(Bytes::new())).await.is_err() {
                    return;
                }
            }
        }
    }
    let frame = CloseFrame {
        code: close_code::NORMAL,
        reason: "".into(),
    };
    drop(to_client.send(Message::Close(Some(frame))).await);
    // The client closes in its turn. Until then what it still sends, a pong for one, must not meet a closed
    // socket: it would take that for the end before it has read our last words.
    tokio::time::sleep(LINGER).await;
}

/// What the client sends, to the run. The token is looked up before each message: a lookup costs microseconds, and what is
/// typed after a revocation must do nothing.
async fn up(
    from_client: &mut SplitStream<WebSocket>,
    to_run: &mut OwnedWriteHalf,
    heard_at: &watch::Sender<Instant>,
    token: &Recheck,
) -> Over {
    let mut listens = true;
    while let Some(Ok(message)) = from_client.next().await {
        heard_at.send_replace(Instant::now());
        match message {
            Message::Binary(bytes) => {
                let Some(bytes) = passed(&bytes) else {
                    return Over::Ended;
                };
                if !token.holds().await {
                    return Over::TokenLost;
                }
                // Once the run has ended nobody listens; its last words are still on their way down.
                listens = listens && to_run.write_all(&bytes).await.is_ok();
            }
            Message::Close(_) => return Over::Ended,
            Message::Text(_) | Message::Ping(_) | Message::Pong(_) => {}
        }
    }
    Over::Ended
}

/// The frames of a message, if each is one that a client may send.
fn passed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut reader = StreamReader::default();
    reader.push(bytes);
    let mut out = Vec::with_capacity(bytes.len());
    while let Some(StreamFrame { kind, payload }) = reader.next_frame().ok()? {
        match kind {
            StreamKind::Input | StreamKind::Resize | StreamKind::Signal => out.extend(frames(kind, &payload)),
            StreamKind::Output | StreamKind::Errors | StreamKind::Ended | StreamKind::Event => return None,
        }
    }
    (out.len() == bytes.len()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_send_what_only_a_run_says_nor_half_a_frame() {
        let input = frames(StreamKind::Input, b"x");
        assert_eq!(passed(&input), Some(input.clone()));
        let two = [input.clone(), frames(StreamKind::Signal, &[2])].concat();
        assert_eq!(passed(&two), Some(two.clone()));
        assert_eq!(passed(&frames(StreamKind::Output, b"x")), None);
        assert_eq!(passed(&frames(StreamKind::Ended, b"{}")), None);
        assert_eq!(passed(&input[..3]), None);
        assert_eq!(passed(b"\xff\xff\xff\xff\xff\xff"), None);
        for cut in 0..two.len() {
            drop(passed(&two[..cut]));
        }
    }
}
