//! A WebSocket of stream frames as a socket: whoever holds the socket speaks as to a living run itself.
use super::target::{self, Target};
use bastle_contract::stream::StreamReader;
use bastle_contract::{Code, Fault};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderName, HeaderValue};
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};

/// How long the daemon may take to open it.
const PATIENCE: Duration = Duration::from_secs(30);

type Socket = tokio_tungstenite::WebSocketStream<Box<dyn target::Duplex>>;

/// Opens it; a thread carries the bytes until one side ends.
pub(super) fn open(
    to: &Target,
    identity: &[(HeaderName, Option<&HeaderValue>)],
    path: &str,
    first: Option<&Value>,
) -> Result<UnixStream, Vec<Fault>> {
    let (ours, theirs) = UnixStream::pair().map_err(|error| system(&error))?;
    ours.set_nonblocking(true).map_err(|error| system(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| system(&error))?;
    let socket = runtime.block_on(async {
        tokio::time::timeout(PATIENCE, shake_hands(to, identity, path, first))
            .await
            .unwrap_or_else(|_| Err(vec![super::late(to)]))
    })?;
    std::thread::Builder::new()
        .name("attached".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                if let Ok(local) = tokio::net::UnixStream::from_std(ours) {
                    carry(socket, local).await;
                }
            });
        })
        .map_err(|error| system(&error))?;
    Ok(theirs)
}

async fn shake_hands(
    to: &Target,
    identity: &[(HeaderName, Option<&HeaderValue>)],
    path: &str,
    first: Option<&Value>,
) -> Result<Socket, Vec<Fault>> {
    let unreadable = |error: &dyn std::fmt::Display| {
        vec![Fault::new(
            Code::UsageArgument,
            "the request cannot be written",
            error.to_string(),
        )]
    };
    let mut request = format!("ws://{}{path}", to.host())
        .into_client_request()
        .map_err(|error| unreadable(&error))?;
    for (name, value) in identity {
        if let Some(value) = value {
            request.headers_mut().insert(name, (*value).clone());
        }
    }
    let stream = to.connect().await.map_err(super::one)?;
    let (mut socket, _) =
        tokio_tungstenite::client_async(request, stream)
            .await
            .map_err(|error| match error {
                tungstenite::Error::Http(response) => {
                    let status = response.status();
                    super::refusal(status, response.body().as_deref().unwrap_or_default())
                }
                other => super::one(super::unexpected(&other.to_string())),
            })?;
    if let Some(first) = first {
        let text = Message::text(first.to_string());
        socket
            .send(text)
            .await
            .map_err(|error| super::one(super::unexpected(&error.to_string())))?;
    }
    Ok(socket)
}

/// Bytes both ways until one side ends. Every message to the daemon is one whole frame.
async fn carry(socket: Socket, local: tokio::net::UnixStream) {
    let (mut to_daemon, mut from_daemon) = socket.split();
    let (mut from_user, mut to_user) = local.into_split();
    let down = async {
        while let Some(Ok(message)) = from_daemon.next().await {
            match message {
                Message::Binary(bytes) => {
                    if to_user.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                Message::Close(_) => break,
                // Pings are answered by the library.
                Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    };
    let up = async {
        let mut reader = StreamReader::default();
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(count @ 1..) = from_user.read(&mut buffer).await {
            reader.push(&buffer[..count]);
            while let Ok(Some(frame)) = reader.next_frame() {
                let bytes = bastle_contract::stream::frames(frame.kind, &frame.payload);
                if to_daemon.send(Message::Binary(Bytes::from(bytes))).await.is_err() {
                    return;
                }
            }
        }
        drop(to_daemon.close().await);
        // The other direction goes on until the daemon has said its last.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = down => {}
        () = up => {}
    }
}

fn system(error: &std::io::Error) -> Vec<Fault> {
    vec![Fault::new(
        Code::ApiUnreachable,
        "cannot open a stream to the daemon",
        error.to_string(),
    )]
}
