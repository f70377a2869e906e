//! Sends an allowed request and brings the answer back.
//!
//! **Trust:** takes only a [`Passed`]. Credentials are put in after the decision, and taken out of whatever comes
//! back; the request is written anew from its parsed form by the HTTP library.
use super::body::{AnyBody, Received, Sent, Stopped, Tally, scrub_headers};
use super::canonical::{CanonicalRequest, Malformed, Parsed};
use super::decode::{Coded, Decoder};
use super::decoy;
use super::dress::{STRAY, dressed, no_stray_phantom};
use super::headers::{put_upgrade, single, strip_hop};
use super::judge::{Passed, judge};
use super::ledger::Ledger;
use super::operation::Begun;
use super::overrides;
use super::pool::{Line, Return, SendError};
use super::reply::{Reply, denied, denied_as};
use super::{Scheme, Session, Site, turn};
use crate::canary::{Seen, Watch};
use crate::denial::Asked;
use crate::dial::Refused;
use crate::header_name;
use crate::scrub::{Needles, Scrubber};
use crate::state::{Generation, Terms};
use crate::tls::Protocols;
use bastle_contract::Code;
use bastle_contract::egress::BudgetKind;
use bastle_policy::SecretUse;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST, IF_RANGE, RANGE,
    SEC_WEBSOCKET_EXTENSIONS, TE, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for the head of an answer. Models think for minutes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1_800);

/// Why an allowed request failed, as its own refusal.
pub(super) struct Failed {
    code: Code,
    status: Option<u16>,
    reason: String,
}

impl Failed {
    pub(super) fn new(code: Code, reason: impl Into<String>) -> Self {
        Self {
            code,
            status: None,
            reason: reason.into(),
        }
    }

    fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        Self::new(refused.code, refused.reason)
    }
}

/// Judges one request, sends it, and gives the answer.
pub(super) async fn answer(session: &Arc<Session>, site: &Site, parsed: Parsed, body: AnyBody) -> Reply {
    session.state.cpu.turn().await;
    let asked = Asked::request(&site.via, parsed.method.as_str(), &parsed.path);
    let inbound = match CanonicalRequest::new(site, parsed) {
        Ok(inbound) => inbound,
        Err(Malformed { code, status, reason }) => {
            let denial = session.state.refuse(&asked, code, reason).await;
            return denied_as(&denial, status);
        }
    };
    let mut begun = Begun::new(body, &session.state.memory);
    let passed = match judge(session, site, &inbound, &mut begun).await {
        Ok(passed) => passed,
        Err(reply) => return *reply,
    };
    let asked = passed.asked.clone();
    match send(session, site, inbound, passed, begun).await {
        Ok(reply) => reply,
        Err(failed) => {
            let denial = session.state.refuse(&asked, failed.code, failed.reason).await;
            match failed.status {
                Some(status) => denied_as(&denial, status),
                None => denied(&denial),
            }
        }
    }
}

/// What an allowed request has become before it is sent.
struct Ready {
    headers: HeaderMap,
    scan: Option<Scrubber>,
    watch: Option<Watch>,
    secret: Option<String>,
    needles: Arc<Needles>,
}

async fn send(
    session: &Arc<Session>,
    site: &Site,
    inbound: CanonicalRequest,
    passed: Passed,
    mut body: Begun,
) -> Result<Reply, Failed> {
    let Ready {
        headers,
        scan,
        watch,
        secret,
        needles,
    } = prepare(session, site, &inbound, &passed, &mut body).await?;
    let protocols = if passed.websocket {
        Protocols::Http1
    } else {
        Protocols::Any
    };
    let mut line = session
        .pool
        .line(session, site, &passed.generation, protocols)
        .await?;
    let seq = record(session, &inbound, &passed, secret, &line).await?;
    let Passed {
        generation,
        decision,
        websocket,
        form,
        mut turn,
        ..
    } = passed;
    let tally = Arc::new(Tally::default());
    let counts = turn.reads_answer();
    let background = turn.rest();
    let mut ledger = Ledger::new(Arc::clone(&session.state), seq, Arc::clone(&tally), turn);
    let sent = Sent {
        length: if body.rest.is_none() {
            Some(body.length as u64)
        } else {
            inbound.length
        },
        read: body.read,
        held: body.held,
        rest: body.rest,
        most: decision.max_body,
        scan,
        form,
        watch,
        background,
        tally: Arc::clone(&tally),
        state: Arc::clone(&session.state),
    };
    let request = outgoing(site, &inbound, &line, headers, sent.boxed_unsync())?;
    let exchange = exchange(session, site, &generation, &mut line, request);
    let response = match timeout(ANSWER_DEADLINE, exchange).await {
        Ok(Ok(response)) => response,
        Ok(Err(why)) => return Err(ended(&tally, &why)),
        Err(_) => {
            return Err(Failed::new(
                Code::NetUpstream,
                "the server did not answer in time",
            ));
        }
    };
    ledger.answered(response.status(), response.headers());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if !websocket {
            let reason = "the server switched protocols unasked";
            return Err(Failed::new(Code::NetProtocol, reason).status(502));
        }
        return switched(response, needles, ledger).await;
    }
    deliver(session, response, line, Looks { needles, counts }, ledger)
}

/// Looks for phantoms, takes out what belongs to the hop, puts the credential in.
async fn prepare(
    session: &Session,
    site: &Site,
    inbound: &CanonicalRequest,
    passed: &Passed,
    body: &mut Begun,
) -> Result<Ready, Failed> {
    let secrets = &session.state.secrets;
    let policy = &passed.generation.policy;
    let protected = site.scheme == Scheme::Https && !passed.decision.learned;
    let uses: Vec<&SecretUse> = policy
        .secrets_for(&site.via.host, site.via.port)
        .filter(|_| protected)
        .collect();
    let scan = no_stray_phantom(&secrets.now(), &uses, inbound, body).await?;
    let watch = decoy::not_in_body(&session.state.canary, inbound, body).await?;
    let mut headers = passed.headers.clone();
    header_name::remove(&mut headers, CONTENT_LENGTH.as_str());
    header_name::remove(&mut headers, HOST.as_str());
    let secret = dressed(session, &mut headers, &uses, inbound).await?;
    let needles = Arc::new(secrets.now().needles(uses.iter().copied()));
    // Compressed, neither a value nor a usage field could be found.
    if !needles.is_empty() || passed.turn.reads_answer() {
        header_name::remove(&mut headers, ACCEPT_ENCODING.as_str());
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    // A part of an answer may begin in the middle of a value.
    if !needles.is_empty() {
        header_name::remove(&mut headers, RANGE.as_str());
        header_name::remove(&mut headers, IF_RANGE.as_str());
    }
    // Compressed frames could not be looked through, and their length would say nothing about tokens.
    if !needles.is_empty() || (passed.websocket && passed.turn.reads_answer()) {
        header_name::remove(&mut headers, SEC_WEBSOCKET_EXTENSIONS.as_str());
    }
    if passed.websocket {
        put_upgrade(&mut headers);
    }
    Ok(Ready {
        headers,
        scan,
        watch,
        secret,
        needles,
    })
}

/// Records what is allowed, each reference of a push by itself, and counts it. Nothing is sent before.
async fn record(
    session: &Session,
    inbound: &CanonicalRequest,
    passed: &Passed,
    secret: Option<String>,
    line: &Line,
) -> Result<u64, Failed> {
    let state = &session.state;
    let reads = inbound.reads();
    let terms = Terms {
        address: line.address,
        held: secret.is_some() || !passed.references.is_empty() || !reads,
        secret,
    };
    let lost = |_| Failed::new(Code::NetLost, "the decision could not be recorded");
    let mut seq = 0;
    for (asked, decision) in &passed.references {
        seq = state.allow(asked, decision, terms.clone()).await.map_err(lost)?;
    }
    if passed.references.is_empty() {
        seq = state
            .allow(&passed.asked, &passed.decision, terms)
            .await
            .map_err(lost)?;
    }
    state.budget.count(BudgetKind::Requests, 1);
    Ok(seq)
}

/// Sends; a kept connection that was closed in the meantime is replaced once.
async fn exchange(
    session: &Arc<Session>,
    site: &Site,
    generation: &Generation,
    line: &mut Line,
    request: Request<AnyBody>,
) -> Result<Response<Incoming>, String> {
    match line.send(request).await {
        Ok(response) => Ok(response),
        Err(SendError::Failed(why)) => Err(why),
        Err(SendError::Unsent(request)) => {
            let h2 = line.is_h2();
            let fresh = session.pool.line(session, site, generation, Protocols::Any).await;
            *line = fresh.map_err(|refused| refused.reason)?;
            if line.is_h2() != h2 {
                return Err("the server changed its protocol".to_owned());
            }
            match line.send(*request).await {
                Ok(response) => Ok(response),
                Err(SendError::Failed(why)) => Err(why),
                Err(SendError::Unsent(_)) => Err("the connection was closed".to_owned()),
            }
        }
    }
}

/// A connection that has become a WebSocket.
async fn switched(
    mut response: Response<Incoming>,
    needles: Arc<Needles>,
    ledger: Ledger,
) -> Result<Reply, Failed> {
    let server = hyper::upgrade::on(&mut response).await;
    let server = server.map_err(|error| Failed::new(Code::NetUpstream, error.to_string()))?;
    let (mut parts, _) = response.into_parts();
    scrub_headers(&needles, &mut parts.headers);
    strip_hop(&mut parts.headers);
    put_upgrade(&mut parts.headers);
    Ok(Reply::WebSocket {
        head: Response::from_parts(parts, ()),
        server,
        needles,
        ledger: Box::new(ledger),
    })
}

/// What an answer is looked through for.
struct Looks {
    needles: Arc<Needles>,
    /// Whether a model's usage is read from it.
    counts: bool,
}

/// Why values of secrets could not be found in an answer.
fn opaque(parts: &http::response::Parts) -> Option<&'static str> {
    let headers = &parts.headers;
    let chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if Coded::of(headers) == Coded::Unknown {
        Some("the server compressed its answer in a way that cannot be undone here")
    } else if !headers.get_all(TRANSFER_ENCODING).iter().all(chunked) {
        Some("the server coded its answer for the transfer in a way that cannot be undone here")
    } else if parts.status == StatusCode::PARTIAL_CONTENT
        || headers.contains_key(CONTENT_RANGE)
        || kind.is_some_and(|kind| kind.to_ascii_lowercase().contains("byteranges"))
    {
        Some("the server sent a part of its answer though the whole was asked for")
    } else {
        None
    }
}

/// The answer without what belongs to the hop and without values of secrets.
fn deliver(
    session: &Arc<Session>,
    response: Response<Incoming>,
    line: Line,
    looks: Looks,
    ledger: Ledger,
) -> Result<Reply, Failed> {
    let (mut parts, inner) = response.into_parts();
    let Looks { needles, counts } = looks;
    if !needles.is_empty()
        && let Some(why) = opaque(&parts)
    {
        let reason = format!("{why}, so the value of a secret could not be found in it");
        return Err(Failed::new(Code::NetSecret, reason).status(502));
    }
    let decoder = match Coded::of(&parts.headers) {
        Coded::With(coding) if counts || !needles.is_empty() => Some(Decoder::new(coding)),
        Coded::With(_) | Coded::Plain | Coded::Unknown => None,
    };
    if decoder.is_some() {
        parts.headers.remove(CONTENT_ENCODING);
        parts.headers.remove(CONTENT_LENGTH);
    }
    scrub_headers(&needles, &mut parts.headers);
    strip_hop(&mut parts.headers);
    // It would send the client to a protocol for which there is no way out.
    parts.headers.remove("alt-svc");
    let scrub = (!needles.is_empty()).then(|| Scrubber::new(Arc::clone(&needles)));
    if scrub.is_some() {
        parts.headers.remove(CONTENT_LENGTH);
    }
    let body = Received {
        inner,
        decoder,
        scrub,
        needles,
        ledger,
        give_back: Some(Return::new(Arc::clone(session), line)),
        trailers: None,
        ended: false,
    };
    Ok(Reply::Answer(Response::from_parts(parts, body.boxed_unsync())))
}

/// Why a request without an answer failed: because we or the client ended it, or because the server did.
fn ended(tally: &Tally, why: &str) -> Failed {
    match tally.stopped.get() {
        Some(Stopped::TooLarge) => {
            Failed::new(Code::NetLimit, "the body is larger than the rule allows").status(413)
        }
        Some(Stopped::Canary) => Failed::new(Code::NetCanary, Seen::Body.reason()),
        Some(Stopped::Override) => Failed::new(Code::NetProtocol, overrides::REASON),
        Some(Stopped::Phantom) => Failed::new(Code::NetSecret, STRAY),
        Some(Stopped::Background) => Failed::new(Code::NetBudget, turn::LATER),
        Some(Stopped::Budget) => Failed::new(Code::NetBudget, "a budget of the run is used up"),
        Some(Stopped::Cut) => Failed::new(
            Code::NetProtocol,
            "the body of the request is malformed or incomplete",
        ),
        None => Failed::new(Code::NetUpstream, format!("the server did not answer: {why}")),
    }
}

/// The request as the server gets it.
fn outgoing(
    site: &Site,
    inbound: &CanonicalRequest,
    line: &Line,
    mut headers: HeaderMap,
    body: AnyBody,
) -> Result<Request<AnyBody>, Failed> {
    let authority = site.authority();
    let path = inbound.target();
    let (uri, version) = match (line.is_h2(), line.absolute_form) {
        (true, _) => (format!("https://{authority}{path}"), Version::HTTP_2),
        (false, true) => (format!("http://{authority}{path}"), Version::HTTP_11),
        (false, false) => (path, Version::HTTP_11),
    };
    let malformed =
        |why: String| Failed::new(Code::NetProtocol, format!("the address cannot be written: {why}"));
    let uri: Uri = uri
        .parse()
        .map_err(|error: http::uri::InvalidUri| malformed(error.to_string()))?;
    if line.is_h2() {
        // The one field of the hop that HTTP/2 has; some servers refuse to answer with trailers without it.
        if single(&inbound.headers, "te") == Some("trailers") {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    } else {
        let host = HeaderValue::from_str(&authority).map_err(|error| malformed(error.to_string()))?;
        headers.insert(HOST, host);
    }
    let mut request = Request::new(body);
    *request.method_mut() = inbound.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    Ok(request)
}
