//! From a parsed request to a decision: its shape, its names, what it asks for, the rules, the budget.
//!
//! **Trust:** everything judged here comes from the agent. A [`Passed`] is made only by [`judge`].
use super::decoy;
use super::headers::{Upgrade, names_fit, upgrade};
use super::operation::{self, Begun};
use super::push;
use super::reply::{Reply, denied, denied_as};
use super::turn::Turn;
use super::{Session, Site};
use crate::budget::Flow;
use crate::denial::{Asked, Grounds};
use crate::git;
use crate::state::Generation;
use bastle_contract::Code;
use bastle_policy::{Decision, NetRequest, Outcome};
use http::{HeaderMap, Method};
use std::sync::Arc;

/// A request as it was parsed from either version of HTTP.
pub(super) struct Inbound {
    /// Method.
    pub(super) method: Method,
    /// Path, at least `/`, or `*`.
    pub(super) path: String,
    /// Query, without its question mark.
    pub(super) query: Option<String>,
    /// The authority in the request itself, besides any Host field.
    pub(super) authority: Option<String>,
    /// Fields.
    pub(super) headers: HeaderMap,
    /// Length of the body, where it is known.
    pub(super) length: Option<u64>,
    /// Whether this connection could become a WebSocket.
    pub(super) can_upgrade: bool,
}

/// A request that may go out.
#[must_use]
pub(super) struct Passed {
    pub(super) generation: Arc<Generation>,
    pub(super) asked: Asked,
    pub(super) decision: Decision,
    /// For a push, each reference and what allows it.
    pub(super) references: Vec<(Asked, Decision)>,
    pub(super) websocket: bool,
    /// For a model's path, the turn it is.
    pub(super) turn: Turn,
}

/// Judges one request. The refusal is ready to be sent.
pub(super) async fn judge(
    session: &Session,
    site: &Site,
    inbound: &Inbound,
    body: &mut Begun,
) -> Result<Passed, Box<Reply>> {
    let state = &session.state;
    let method = inbound.method.as_str();
    let mut asked = Asked::request(&site.via, method, &inbound.path);
    if let Err((code, status, reason)) = shape(site, inbound) {
        let denial = state.refuse(&asked, code, reason).await;
        return Err(Box::new(denied_as(&denial, status)));
    }
    // Before the rules: that it was tried is worth knowing even where they refuse it.
    if let Some(seen) = decoy::in_head(&state.canary, site, inbound) {
        let denial = state.deny(&asked, &seen.grounds()).await;
        return Err(Box::new(denied(&denial)));
    }
    let generation = state.generation();
    let policy = &generation.policy;
    let need = policy.body_need(method, &site.via.host, site.via.port, &inbound.path);
    let query = inbound.query.as_deref();
    let operation = match operation::read(need, method, query, &inbound.headers, body).await {
        Ok(operation) => operation,
        Err(error) => {
            let denial = state.refuse(&asked, Code::NetProtocol, error.to_string()).await;
            return Err(Box::new(denied(&denial)));
        }
    };
    if let Some(operation) = &operation {
        asked = asked.operation(&operation::shown(operation));
    }
    let websocket = upgrade(&inbound.headers) == Upgrade::WebSocket;
    let decision = policy.request(&NetRequest {
        method,
        host: &site.via.host,
        port: site.via.port,
        path: &inbound.path,
        body_len: inbound.length,
        operation: operation.as_ref(),
        websocket,
    });
    permit(session, &asked, &decision).await?;
    let references = match git::call(method, &inbound.path, query, content_type(inbound)) {
        Some(git::Call::Push { repository }) => {
            push::judge(session, site, &generation, inbound, &repository, body).await?
        }
        Some(git::Call::Fetch | git::Call::PushRefs { .. }) | None => Vec::new(),
    };
    let turn = Turn::begin(state, inbound);
    if state.budget.flow() != Flow::Go && state.budget.clear().await != Flow::Go {
        let worst = state.budget.worst();
        let reason = format!(
            "the budget of {:?} is used up ({} of {})",
            worst.kind, worst.used, worst.limit
        );
        let denial = state.refuse(&asked, Code::NetBudget, reason).await;
        return Err(Box::new(denied(&denial)));
    }
    Ok(Passed {
        generation,
        asked,
        decision,
        references,
        websocket,
        turn,
    })
}

/// Follows a decision: goes on, asks, or refuses.
async fn permit(session: &Session, asked: &Asked, decision: &Decision) -> Result<(), Box<Reply>> {
    let state = &session.state;
    let denial = match decision.outcome {
        Outcome::Allow => return Ok(()),
        Outcome::Ask => match state.ask(asked, decision).await {
            Ok(()) => return Ok(()),
            Err(denial) => denial,
        },
        Outcome::Deny => state.deny(asked, &Grounds::from(decision)).await,
    };
    let too_large = decision.code == Some(Code::NetLimit);
    Err(Box::new(if too_large {
        denied_as(&denial, 413)
    } else {
        denied(&denial)
    }))
}

fn content_type(inbound: &Inbound) -> Option<&str> {
    inbound.headers.get(http::header::CONTENT_TYPE)?.to_str().ok()
}

/// What no rule can allow.
fn shape(site: &Site, inbound: &Inbound) -> Result<(), (Code, u16, &'static str)> {
    if !names_fit(site, inbound.authority.as_deref(), &inbound.headers) {
        let reason = "the Host of the request is not the host of the connection";
        return Err((Code::NetMismatch, 421, reason));
    }
    let method = inbound.method.as_str();
    // TRACE sends a request back to whoever asked, the injected credential with it.
    if ["TRACE", "TRACK", "CONNECT"]
        .iter()
        .any(|bad| method.eq_ignore_ascii_case(bad))
    {
        return Err((Code::NetProtocol, 405, "this method is never passed on"));
    }
    match upgrade(&inbound.headers) {
        Upgrade::None => {}
        Upgrade::WebSocket if inbound.can_upgrade && method == "GET" => {}
        Upgrade::WebSocket => {
            return Err((
                Code::NetProtocol,
                400,
                "a WebSocket begins with GET over HTTP/1.1",
            ));
        }
        Upgrade::Other => {
            return Err((
                Code::NetProtocol,
                400,
                "the only upgrade that is passed on is a WebSocket",
            ));
        }
    }
    let whole_server = inbound.path == "*" && method == "OPTIONS";
    if !whole_server && !inbound.path.starts_with('/') {
        return Err((Code::NetProtocol, 400, "the path does not begin with a slash"));
    }
    Ok(())
}
