//! From a parsed request to a decision: its shape, its names, what it asks for, the rules, the budget.
//!
//! **Trust:** everything judged here comes from the agent. A [`Passed`] is made only by [`judge`].
use super::begun::code_of;
use super::canonical::CanonicalRequest;
use super::decoy;
use super::destination;
use super::dress::undress;
use super::forge::{self, Effect};
use super::headers::{Upgrade, strip_hop, upgrade};
use super::operation::{self, Begun};
use super::overrides::{self, BodyScan, Overridden};
use super::push;
use super::reply::{Reply, denied, denied_as};
use super::turn::{self, Turn};
use super::{Session, Site};
use crate::denial::{Asked, Grounds};
use crate::git;
use crate::header_name;
use crate::state::Generation;
use bastle_contract::Code;
use bastle_policy::{BodyNeed, Decision, NetPolicy, NetRequest, Operation, Outcome};
use http::{HeaderMap, Method};
use std::sync::Arc;

/// A request that may go out.
#[must_use]
pub(super) struct Passed {
    pub(super) generation: Arc<Generation>,
    pub(super) asked: Asked,
    pub(super) decision: Decision,
    /// Its fields without those of the hop and without the agent's own credentials.
    pub(super) headers: HeaderMap,
    /// For a push, each reference and what allows it.
    pub(super) references: Vec<(Asked, Decision)>,
    pub(super) websocket: bool,
    /// Looks a form or JSON through for another method while it passes.
    pub(super) form: Option<BodyScan>,
    /// What it is to the budgets of models.
    pub(super) turn: Turn,
}

/// Judges one request. The refusal is ready to be sent.
pub(super) async fn judge(
    session: &Session,
    site: &Site,
    inbound: &CanonicalRequest,
    body: &mut Begun,
) -> Result<Passed, Box<Reply>> {
    let state = &session.state;
    let method = inbound.method.as_str();
    let mut asked = Asked::request(&site.via, method, &inbound.path);
    // Before the rules: that it was tried is worth knowing even where they refuse it.
    if let Some(seen) = decoy::in_head(&state.canary, site, inbound) {
        let denial = state.deny(&asked, &seen.grounds()).await;
        return Err(Box::new(denied(&denial)));
    }
    let generation = state.generation();
    let policy = &generation.policy;
    one_reading(session, site, &generation, inbound, &asked).await?;
    let forge = policy.judges_pushes(&site.via.host);
    let need = match policy.body_need(method, &site.via.host, site.via.port, &inbound.path) {
        // A query reads, a mutation writes.
        BodyNeed::None if forge && forge::is_graphql(inbound) => BodyNeed::GraphQl,
        need => need,
    };
    let query = inbound.query.as_deref();
    let operation = match operation::read(need, inbound, body).await {
        Ok(operation) => operation,
        Err(error) => {
            let denial = state.refuse(&asked, code_of(&error), error.to_string()).await;
            return Err(Box::new(denied(&denial)));
        }
    };
    if let Some(operation) = &operation {
        asked = asked.operation(&operation::shown(operation));
    }
    let websocket = upgrade(&inbound.headers) == Upgrade::WebSocket;
    let request = NetRequest {
        method,
        host: &site.via.host,
        port: site.via.port,
        path: &inbound.path,
        body_len: inbound.length,
        operation: operation.as_ref(),
        websocket,
    };
    let mut decision = policy.request(&request);
    permit(session, &asked, &decision).await?;
    judge_destination(session, site, policy, inbound, &request).await?;
    let form = one_method(session, site, policy, inbound, &asked, body).await?;
    let headers = own_fields(policy, site, inbound, &request, &mut decision);
    let kind = content_type(inbound);
    let call = git::call(method, &inbound.path, query, kind.as_deref());
    if forge {
        judge_write(
            session,
            site,
            &generation,
            inbound,
            (&asked, call.as_ref(), operation.as_ref()),
            body,
        )
        .await?;
    }
    let references = match call {
        Some(git::Call::Push { repository } | git::Call::OddPush { repository }) => {
            push::judge(session, site, &generation, inbound, &repository, body).await?
        }
        Some(git::Call::Fetch | git::Call::PushRefs { .. }) | None => Vec::new(),
    };
    let turn = turn::take(session, site, &generation, inbound, &asked, body).await?;
    Ok(Passed {
        generation,
        asked,
        decision,
        headers,
        references,
        websocket,
        form,
        turn,
    })
}

/// The fields that go out: without those of the hop, and without the agent's own credentials where no rule lets them pass.
/// The record of the request names what was left out.
fn own_fields(
    policy: &NetPolicy,
    site: &Site,
    inbound: &CanonicalRequest,
    request: &NetRequest<'_>,
    decision: &mut Decision,
) -> HeaderMap {
    let mut headers = inbound.headers.clone();
    strip_hop(&mut headers);
    // On a host with a secret all of them are taken out when it is put in; until then they tell which one is meant.
    if policy.secrets_for(&site.via.host, site.via.port).next().is_none() {
        let taken = undress(policy, request, &mut headers);
        if !taken.is_empty() {
            let names = taken.join(", ");
            decision.reason = format!("{}; the agent's own {names} was left out", decision.reason);
        }
    }
    headers
}

/// Judges the second path of a request by the rules of its first.
async fn judge_destination(
    session: &Session,
    site: &Site,
    policy: &NetPolicy,
    inbound: &CanonicalRequest,
    request: &NetRequest<'_>,
) -> Result<(), Box<Reply>> {
    let state = &session.state;
    match destination::read(policy, site, inbound) {
        Ok(None) => Ok(()),
        Ok(Some(path)) => {
            let asked = Asked::request(&site.via, request.method, &path);
            let decision = policy.request(&NetRequest {
                path: &path,
                ..*request
            });
            permit(session, &asked, &decision).await
        }
        Err(why) => {
            let asked = Asked::request(&site.via, request.method, &inbound.path);
            let denial = state.refuse(&asked, Code::NetProtocol, why).await;
            Err(Box::new(denied(&denial)))
        }
    }
}

/// Judges a write to a git host that is no push.
async fn judge_write(
    session: &Session,
    site: &Site,
    generation: &Generation,
    inbound: &CanonicalRequest,
    (asked, call, operation): (&Asked, Option<&git::Call>, Option<&Operation>),
    body: &mut Begun,
) -> Result<(), Box<Reply>> {
    match forge::effect(inbound, call, operation, body).await {
        Ok(Effect::Reads) => Ok(()),
        Ok(Effect::Writes(kind, repository)) => {
            let write = (kind, repository.as_deref());
            let judged = forge::judge(&generation.policy, site, inbound, operation, write);
            permit(session, asked, &judged).await
        }
        Err(error) => {
            let denial = session
                .state
                .refuse(asked, Code::NetProtocol, error.to_string())
                .await;
            Err(Box::new(denied(&denial)))
        }
    }
}

/// Refuses heads that servers could read as another request, where the rules for this host look at methods or paths, or a
/// budget counts by them.
async fn one_reading(
    session: &Session,
    site: &Site,
    generation: &Generation,
    inbound: &CanonicalRequest,
    asked: &Asked,
) -> Result<(), Box<Reply>> {
    let policy = &generation.policy;
    let (host, port) = (&site.via.host, site.via.port);
    let demand = policy.path_demand(inbound.method.as_str(), host, port);
    let reason = if let Some(why) = inbound.refused_path(demand) {
        format!("servers read this path differently: {why}")
    } else if (policy.refuses_overrides(host, port) || turn::decides(policy, site, inbound))
        && overrides::in_head(inbound)
    {
        overrides::REASON.to_owned()
    } else {
        return Ok(());
    };
    let denial = session.state.refuse(asked, Code::NetProtocol, reason).await;
    Err(Box::new(denied(&denial)))
}

/// Refuses a body that names another method, where the rules for this host look at methods or paths, or a budget counts by
/// them. After the rules: the body of a request that they refuse is not awaited.
async fn one_method(
    session: &Session,
    site: &Site,
    policy: &NetPolicy,
    inbound: &CanonicalRequest,
    asked: &Asked,
    body: &mut Begun,
) -> Result<Option<BodyScan>, Box<Reply>> {
    // A POST to a model is counted, and no form makes a GET of it; what is none may become one.
    let counts = inbound.method != Method::POST && turn::decides(policy, site, inbound);
    if !counts && !policy.refuses_overrides(&site.via.host, site.via.port) {
        return Ok(None);
    }
    let (code, reason) = match overrides::in_body(inbound, body).await {
        Ok(scan) => return Ok(scan),
        Err(Overridden::Yes) => (Code::NetProtocol, overrides::REASON.to_owned()),
        Err(Overridden::Hidden(why)) => (Code::NetProtocol, why.to_owned()),
        Err(Overridden::Body(error)) => (code_of(&error), error.to_string()),
    };
    let denial = session.state.refuse(asked, code, reason).await;
    Err(Box::new(denied(&denial)))
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

/// Every value of `Content-Type`, in every spelling of its name: one of them may declare a push.
fn content_type(inbound: &CanonicalRequest) -> Option<String> {
    let values: Vec<_> = header_name::fields(&inbound.headers, "content-type")
        .map(|(_, value)| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}
