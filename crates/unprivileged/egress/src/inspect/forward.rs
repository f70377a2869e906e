//! Sends an allowed request and brings the answer back.
//!
//! **Trust:** takes only a [`Passed`]. Credentials are put in after the decision, and taken out of whatever comes
//! back; the request is written anew from its parsed form by the HTTP library.
use super::body::{AnyBody, Received, Sent, Stopped, Tally, scrub_headers};
use super::decoy;
use super::dress::{STRAY, dressed, no_stray_phantom};
use super::headers::{put_upgrade, single, strip_hop};
use super::judge::{Inbound, Passed, judge};
use super::ledger::Ledger;
use super::operation::Begun;
use super::pool::{Line, Return, SendError};
use super::reply::{Reply, denied, denied_as};
use super::{Scheme, Session, Site};
use crate::canary::{Seen, Watch};
use crate::dial::Refused;
use crate::scrub::{Needles, Scrubber};
use crate::state::{Generation, Terms};
use crate::tls::Protocols;
use crate::usage::{UsageReader, is_model_path};
use bastle_contract::Code;
use bastle_contract::egress::BudgetKind;
use bastle_policy::SecretUse;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE};
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
pub(super) async fn answer(session: &Arc<Session>, site: &Site, inbound: Inbound, body: AnyBody) -> Reply {
    let mut begun = Begun::new(body);
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
    inbound: Inbound,
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
        turn,
        ..
    } = passed;
    let tally = Arc::new(Tally::default());
    let mut ledger = Ledger::new(Arc::clone(&session.state), seq, Arc::clone(&tally));
    let sent = Sent {
        length: if body.rest.is_none() {
            Some(body.length as u64)
        } else {
            inbound.length
        },
        read: body.read,
        rest: body.rest,
        most: decision.max_body,
        scan,
        watch,
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
    ledger.answered(response.status().as_u16());
    if is_model_path(&inbound.path) && response.status().is_success() {
        turn.answered();
        let kind = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        ledger.reads(UsageReader::new(kind));
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if !websocket {
            let reason = "the server switched protocols unasked";
            return Err(Failed::new(Code::NetProtocol, reason).status(502));
        }
        return switched(response, &needles, ledger).await;
    }
    deliver(session, response, line, needles, ledger)
}

/// Looks for phantoms, takes out what belongs to the hop, puts the credential in.
async fn prepare(
    session: &Session,
    site: &Site,
    inbound: &Inbound,
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
    let mut headers = inbound.headers.clone();
    strip_hop(&mut headers);
    headers.remove(CONTENT_LENGTH);
    headers.remove(HOST);
    let secret = dressed(session, &mut headers, &uses, inbound).await?;
    let needles = Arc::new(secrets.now().needles(uses.iter().copied()));
    // Compressed, neither a value nor a usage field could be found.
    if !needles.is_empty() || is_model_path(&inbound.path) {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
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
    inbound: &Inbound,
    passed: &Passed,
    secret: Option<String>,
    line: &Line,
) -> Result<u64, Failed> {
    let state = &session.state;
    let reads = matches!(inbound.method.as_str(), "GET" | "HEAD" | "OPTIONS");
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
    needles: &Needles,
    ledger: Ledger,
) -> Result<Reply, Failed> {
    let server = hyper::upgrade::on(&mut response).await;
    let server = server.map_err(|error| Failed::new(Code::NetUpstream, error.to_string()))?;
    let (mut parts, _) = response.into_parts();
    scrub_headers(needles, &mut parts.headers);
    strip_hop(&mut parts.headers);
    put_upgrade(&mut parts.headers);
    Ok(Reply::WebSocket {
        head: Response::from_parts(parts, ()),
        server,
        ledger: Box::new(ledger),
    })
}

/// The answer without what belongs to the hop and without values of secrets.
fn deliver(
    session: &Arc<Session>,
    response: Response<Incoming>,
    line: Line,
    needles: Arc<Needles>,
    ledger: Ledger,
) -> Result<Reply, Failed> {
    let (mut parts, inner) = response.into_parts();
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !needles.is_empty() && !parts.headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        let reason = "the server compressed its answer though asked not to, so no value could be found in it";
        return Err(Failed::new(Code::NetSecret, reason).status(502));
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
        scrub,
        needles,
        ledger,
        give_back: Some(Return::new(Arc::clone(session), line)),
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
        Some(Stopped::Phantom) => Failed::new(Code::NetSecret, STRAY),
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
    inbound: &Inbound,
    line: &Line,
    mut headers: HeaderMap,
    body: AnyBody,
) -> Result<Request<AnyBody>, Failed> {
    let authority = site.authority();
    let path = match &inbound.query {
        Some(query) => format!("{}?{query}", inbound.path),
        None => inbound.path.clone(),
    };
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
