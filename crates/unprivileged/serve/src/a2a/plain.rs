//! The plain addresses of a worker beside the protocol: its card, what it prints as it prints it, and its files.
//!
//! **Trust:** what a worker prints is the agent's; it is told as JSON text, so that no line of it becomes one of ours.
use super::card;
use crate::app::App;
use crate::errors::Refusal;
use crate::guard::{Need, Recheck, StreamSlot, Who};
use crate::routes::{Params, PathOf, Route, files};
use crate::transcript;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, header};
use bastle_contract::stream::StreamKind;
use bastle_contract::{Code, RunId};
use bastle_control::fleet::{Fleet, Verb};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes that are told at once.
const MOST: usize = 64 * 1024;
/// How often it is looked whether more was printed, and how often a quiet stream says that it lives.
const LOOK: Duration = Duration::from_millis(100);
const PULSE: Duration = Duration::from_secs(5);

pub(super) fn routes() -> Vec<Route> {
    let need = Need::OnRun(Verb::Read);
    vec![
        Route::get(
            "/a2a/workers/{run}/.well-known/agent-card.json",
            need,
            "Who a worker is",
            card::worker,
        ),
        Route::get(
            "/a2a/workers/{run}/stream",
            need,
            "What a worker says or prints, as it does",
            stream,
        ),
        Route::get(
            "/a2a/workers/{run}/files",
            need,
            "List a directory of a worker's tree",
            files::list,
        ),
        Route::get(
            "/a2a/workers/{run}/files/content",
            need,
            "Content of a file of a worker's tree",
            files::content,
        ),
    ]
}

/// From where on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    since: Option<u64>,
}

struct Output {
    app: App,
    run: RunId,
    at: u64,
    token: Recheck,
    told: Instant,
    over: bool,
    _slot: StreamSlot,
}

async fn stream(
    State(app): State<App>,
    who: Who,
    PathOf(id): PathOf<String>,
    Params(asked): Params<From>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let run = app.entered(&who.0, Verb::Read, &id).await?;
    let resume = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.parse().ok());
    let output = Output {
        _slot: app.streams.open(&who.0.id)?,
        at: asked.since.or(resume).unwrap_or(0),
        run,
        token: Recheck::new(app.clone(), who.1),
        told: Instant::now(),
        over: false,
        app,
    };
    let frames = futures_util::stream::unfold(output, |mut output| async move {
        let frame = output.next().await?;
        Some((Ok::<_, Infallible>(frame), output))
    });
    Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream")
        .header("x-accel-buffering", "no")
        .body(Body::from_stream(frames))
        .map_err(|error| {
            Refusal::new(
                Code::ApiInternal,
                "the answer cannot be written",
                error.to_string(),
            )
        })
}

impl Output {
    async fn next(&mut self) -> Option<Bytes> {
        let mut closing = self.app.closing.clone();
        loop {
            if self.over || *closing.borrow() || !self.token.held_lately().await {
                return None;
            }
            let (run, at) = (self.run.clone(), self.at);
            let (text, at, over) = self.app.ask(move |fleet| read(fleet, &run, at)).await.ok()?;
            self.at = at;
            self.over = over;
            if !text.is_empty() {
                self.told = Instant::now();
                return Some(Bytes::from(text));
            }
            if self.told.elapsed() >= PULSE {
                self.told = Instant::now();
                return Some(Bytes::from_static(b": still here\n\n"));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = closing.changed() => {}
            }
        }
    }
}

/// What was printed after a place, and whether nothing more comes.
fn read(fleet: &Fleet, run: &RunId, since: u64) -> Result<(String, u64, bool), Refusal> {
    // Looked at before the output is read: what was printed before the end is there then.
    let ended = fleet.run(run)?.state.is_final();
    let nowhere = |_| Refusal::bad("since: no record begins there");
    let mut text = String::new();
    if transcript::speaks_a_protocol(fleet, run)? {
        let part = transcript::read(fleet, run, since, MOST)?;
        for piece in &part.pieces {
            let data = json!({ "stream": "output", "text": piece.text });
            text.push_str(&format!("id: {}\nevent: output\ndata: {data}\n\n", piece.seq));
        }
        return Ok((text, part.next, ended && part.whole));
    }
    // A run that has not begun has printed nothing.
    let Ok(mut reader) = fleet.output(run) else {
        return Ok((text, since, ended));
    };
    reader.seek(since).map_err(nowhere)?;
    while text.len() < MOST {
        let Some(record) = reader.next_record().map_err(nowhere)? else {
            return Ok((text, reader.at(), ended));
        };
        let stream = match record.kind {
            StreamKind::Errors => "errors",
            _ => "output",
        };
        let data = json!({ "stream": stream, "text": String::from_utf8_lossy(&record.bytes) });
        text.push_str(&format!("id: {}\nevent: {stream}\ndata: {data}\n\n", reader.at()));
    }
    Ok((text, reader.at(), false))
}
