//! Events as they come: server-sent events and WebSocket, both from the store at the reader's own pace.
//!
//! **Trust:** a reader costs one batch of events, however slow it is: nothing is queued for it. Events hold text of agents.
use super::{Params, Route};
use crate::app::App;
use crate::dto::{EventForm, ListEvents, plain};
use crate::errors::Refusal;
use crate::event_view::EventView;
use crate::guard::{Need, RECHECK, Recheck, StreamSlot, Who};
use axum::body::Body;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{HeaderMap, Response, header};
use bastle_contract::Code;
use bastle_control::fleet::{Caller, EventFilter, StoredEvent, Verb};
use bytes::Bytes;
use futures_util::SinkExt;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Events that are fetched at once.
const BATCH: usize = 32;
/// How often a quiet stream says that it lives; no less often than its token is looked up.
const PULSE: Duration = RECHECK;
/// How long a WebSocket may leave a ping unanswered.
const SILENCE: Duration = Duration::from_secs(60);
/// The word for the protocol, beside which a browser offers its token.
pub(super) const PROTOCOL: &str = "bastle.v1";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/events",
            Need::Within(Verb::Read),
            "Events as they come, resumable by since",
            sse,
        )
        .params::<ListEvents>()
        .bytes("text/event-stream"),
        Route::get(
            "/api/v1/ws",
            Need::Within(Verb::Read),
            "The same over WebSocket",
            socket,
        )
        .params::<ListEvents>()
        .upgrades(),
    ]
}

/// Kinds of events, separated by commas.
pub(super) fn kinds(words: Option<&str>) -> Result<Vec<String>, Refusal> {
    let Some(words) = words.filter(|words| !words.is_empty()) else {
        return Ok(Vec::new());
    };
    let good = |word: &str| {
        !word.is_empty()
            && word.len() <= 32
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte == b'.')
    };
    words
        .split(',')
        .map(|word| match good(word) {
            true => Ok(word.to_owned()),
            false => Err(Refusal::bad(format!("kind: {} is none", plain(word)))),
        })
        .collect()
}

/// A reader of events at its own pace.
pub(crate) struct Feed {
    app: App,
    filter: EventFilter,
    since: u64,
    newest: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
    token: Recheck,
    /// What its reader may see of events; everything where the daemon itself reads.
    view: Option<EventView>,
    /// Whether nothing was found the last time.
    dry: bool,
    _slot: Option<StreamSlot>,
}

/// What a reader gets next.
pub(crate) enum Next {
    /// Some events.
    Events(Vec<StoredEvent>),
    /// Nothing happened; it lives.
    Quiet,
    /// The daemon ends, the token does not hold any more, or the store failed.
    Over,
}

impl Feed {
    async fn open(app: App, who: Who, asked: ListEvents, resume: Option<u64>) -> Result<Self, Refusal> {
        if asked.limit.is_some() {
            return Err(Refusal::bad("limit: a stream has none"));
        }
        let filter = filter(&app, &who.0, &asked).await?;
        let slot = app.streams.open(&who.0.id)?;
        let since = match asked.since.or(resume) {
            Some(since) => since,
            None => app.ask(|fleet| fleet.newest_event()).await?,
        };
        Ok(Self::with(app, filter, since, Some((who, slot))))
    }

    /// Of events that the caller was found to may see.
    pub(crate) fn of(app: App, who: Who, filter: EventFilter, since: u64) -> Result<Self, Refusal> {
        let slot = app.streams.open(&who.0.id)?;
        Ok(Self::with(app, filter, since, Some((who, slot))))
    }

    /// For the daemon itself.
    pub(crate) fn own(app: App, filter: EventFilter, since: u64) -> Self {
        Self::with(app, filter, since, None)
    }

    fn with(app: App, filter: EventFilter, since: u64, reader: Option<(Who, StreamSlot)>) -> Self {
        let (who, slot) = reader.unzip();
        let view = who.as_ref().map(|who| EventView::of(app.clone(), &who.0));
        Self {
            token: Recheck::new(app.clone(), who.and_then(|who| who.1)),
            view,
            newest: app.newest.clone(),
            closing: app.closing.clone(),
            filter,
            since,
            dry: false,
            _slot: slot,
            app,
        }
    }

    /// Number of the last event that was given.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// What comes next.
    pub(crate) async fn next(&mut self) -> Next {
        self.next_within(PULSE).await
    }

    /// What comes next, or that nothing came for so long.
    pub(crate) async fn next_within(&mut self, patience: Duration) -> Next {
        loop {
            if *self.closing.borrow() || !self.token.held_lately().await {
                return Next::Over;
            }
            // Where nothing was, there is nothing before the number of the newest changes.
            if !self.dry || self.newest.has_changed().unwrap_or(true) {
                // Marked before looking: an event that comes meanwhile wakes the next wait.
                self.newest.borrow_and_update();
                self.dry = false;
                let (since, filter) = (self.since, self.filter.clone());
                match self
                    .app
                    .ask(move |fleet| fleet.events(since, &filter, BATCH))
                    .await
                {
                    Ok(mut found) => {
                        if let Some(last) = found.last() {
                            self.since = last.seq;
                            if let Some(view) = &mut self.view {
                                view.narrow(&mut found).await;
                            }
                            return Next::Events(found);
                        }
                        self.dry = true;
                    }
                    Err(_) => return Next::Over,
                }
            }
            tokio::select! {
                changed = self.newest.changed() => match changed {
                    Ok(()) => self.dry = false,
                    Err(_) => return Next::Over,
                },
                _ = self.closing.changed() => {}
                () = tokio::time::sleep(patience) => return Next::Quiet,
            }
        }
    }
}

/// What is asked for within what the caller may see.
async fn filter(app: &App, caller: &Caller, asked: &ListEvents) -> Result<EventFilter, Refusal> {
    let run = match &asked.run {
        Some(run) => Some(app.named(caller, Verb::Read, run).await?),
        None => caller.run.clone(),
    };
    Ok(EventFilter {
        run,
        prefix: caller.prefix.clone(),
        batch: asked.batch.clone(),
        tag: asked.tag.clone(),
        kinds: kinds(asked.kind.as_deref())?,
    })
}

async fn sse(
    State(app): State<App>,
    who: Who,
    Params(asked): Params<ListEvents>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let resume = match headers.get("last-event-id") {
        None => None,
        Some(id) => Some(
            id.to_str()
                .ok()
                .and_then(|id| id.parse().ok())
                .ok_or_else(|| Refusal::bad("last-event-id: a number"))?,
        ),
    };
    let feed = Feed::open(app, who, asked, resume).await?;
    let hello = Bytes::from(format!(": from {}\nretry: 2000\n\n", feed.since));
    let stream = futures_util::stream::unfold((feed, Some(hello)), |(mut feed, hello)| async move {
        if let Some(hello) = hello {
            return Some((Ok::<_, Infallible>(hello), (feed, None)));
        }
        match feed.next().await {
            Next::Events(events) => Some((Ok(frames(events)), (feed, None))),
            Next::Quiet => Some((Ok(Bytes::from_static(b": still here\n\n")), (feed, None))),
            Next::Over => None,
        }
    });
    Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream")
        .header("x-accel-buffering", "no")
        .body(Body::from_stream(stream))
        .map_err(|error| {
            Refusal::new(
                Code::ApiInternal,
                "the answer cannot be written",
                error.to_string(),
            )
        })
}

fn frames(events: Vec<StoredEvent>) -> Bytes {
    let mut text = String::new();
    for event in events {
        // A kind is a word of ours; were it not, it must not become a line of its own.
        let kind: String = event
            .kind
            .chars()
            .filter(|c| c.is_ascii_lowercase() || *c == '-')
            .collect();
        let seq = event.seq;
        let data = serde_json::to_string(&EventForm::from(event)).unwrap_or_default();
        text.push_str(&format!("id: {seq}\nevent: {kind}\ndata: {data}\n\n"));
    }
    Bytes::from(text)
}

/// A request that is no WebSocket handshake.
pub(super) fn upgraded(
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<WebSocketUpgrade, Refusal> {
    upgrade
        .map(|upgrade| {
            upgrade
                .protocols([PROTOCOL])
                .max_message_size(128 * 1024)
                .max_frame_size(128 * 1024)
        })
        .map_err(|_| Refusal::bad("this address is a WebSocket"))
}

async fn socket(
    State(app): State<App>,
    who: Who,
    Params(asked): Params<ListEvents>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<axum::response::Response, Refusal> {
    let upgrade = upgraded(upgrade)?;
    let feed = Feed::open(app, who, asked, None).await?;
    Ok(upgrade.on_upgrade(move |socket| tell(feed, socket)))
}

async fn tell(mut feed: Feed, mut socket: WebSocket) {
    // Since when a ping waits for its answer. Who is told events is not asked, and must not be taken for gone.
    let mut asked: Option<Instant> = None;
    loop {
        let sent = tokio::select! {
            next = feed.next() => match next {
                Next::Events(events) => send(&mut socket, events).await,
                Next::Quiet if asked.is_some_and(|since| since.elapsed() > SILENCE) => false,
                Next::Quiet => {
                    asked.get_or_insert_with(Instant::now);
                    socket.send(Message::Ping(Bytes::new())).await.is_ok()
                }
                Next::Over => false,
            },
            word = socket.recv() => match word {
                // Nothing is asked for here; that somebody is there is all that counts.
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {
                    asked = None;
                    true
                }
            },
        };
        if !sent {
            break;
        }
    }
    let frame = CloseFrame {
        code: close_code::AWAY,
        reason: "resume with since".into(),
    };
    drop(socket.send(Message::Close(Some(frame))).await);
}

async fn send(socket: &mut WebSocket, events: Vec<StoredEvent>) -> bool {
    for event in events {
        let text = serde_json::to_string(&EventForm::from(event)).unwrap_or_default();
        if socket.feed(Message::text(text)).await.is_err() {
            return false;
        }
    }
    // Together: a call to the kernel for each would cost more than the events.
    socket.flush().await.is_ok()
}
