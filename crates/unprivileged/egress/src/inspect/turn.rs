//! One turn of an agent: a request that a model answers. Room is taken for it before it is sent, and settled after.
//!
//! **Trust:** path and body come from the agent; which requests count is decided by policy on a canonical path. A request
//! that cannot be counted though a budget is set is refused, never passed uncounted.
use super::begun::code_of;
use super::canonical::CanonicalRequest;
use super::headers::{Upgrade, upgrade};
use super::operation::{Begun, is_plain};
use super::reply::{Reply, denied};
use super::{Session, Site};
use crate::budget::{Estimate, Flow, Reservation, WithTurn};
use crate::denial::{Asked, Grounds};
use crate::state::Generation;
use crate::usage::{BYTES_PER_TOKEN, DEFAULT_OUTPUT, Prices, RequestFacts, prices};
use bastle_contract::Code;
use bastle_contract::egress::{BudgetKind, BudgetReached, ModelUse};
use bastle_policy::{HostRole, ModelCall, NetPolicy, NetRequest, UnlistedCall};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// How much of a body is read for the model's name and the most tokens of the answer.
const PEEK: usize = 256 * 1024;
/// How much where a price must be found: some clients write the name after a whole conversation.
const PEEK_FOR_PRICE: usize = 8 * 1024 * 1024;

/// What a request is to the budgets of models.
#[must_use]
pub(super) enum Turn {
    /// Nothing: it passes by.
    None,
    /// Nothing is generated there, but it is a model's host: should its answer say that tokens were used, they count.
    Watched,
    /// A turn, for which room is taken.
    Taken(Box<Claim>),
}

/// A turn that was let through.
#[must_use]
pub(super) struct Claim {
    pub(super) reservation: Reservation,
    pub(super) call: ModelCall,
    pub(super) facts: RequestFacts,
    /// A budget of cost holds, and what has no price is charged the highest.
    pub(super) must_cost: bool,
    pub(super) api: Api,
}

/// Whether a model answers for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// The request is one of a known or declared API.
    Known,
    /// It is a write to a model's host: a turn unless its answer says that nothing was generated.
    Unlisted,
}

impl Claim {
    /// What `used` costs. Under a budget of cost nothing is free because nobody knows its price.
    pub(super) fn cost_of(&self, used: &ModelUse) -> Option<u64> {
        let known = match self.call.price {
            Some(price) => Some(Prices::cost_at(price, used)),
            None => prices().cost(used),
        };
        known.or_else(|| self.must_cost.then(|| prices().dearest(used)))
    }

    /// What a message of this many bytes over a WebSocket may use.
    pub(super) fn message(&self, length: u64) -> Estimate {
        estimate(
            &self.call,
            &self.facts,
            (length / BYTES_PER_TOKEN, DEFAULT_OUTPUT),
        )
    }
}

impl Turn {
    /// Whether the answer must come uncompressed to be read.
    pub(super) fn reads_answer(&self) -> bool {
        match self {
            Self::None => false,
            Self::Watched | Self::Taken(_) => true,
        }
    }
}

/// Waits for room and takes it; the refusal is ready to be sent.
pub(super) async fn take(
    session: &Session,
    site: &Site,
    generation: &Generation,
    inbound: &CanonicalRequest,
    asked: &Asked,
    body: &mut Begun,
) -> Result<Turn, Box<Reply>> {
    let (state, policy) = (&session.state, &generation.policy);
    let (host, port) = (&site.via.host, site.via.port);
    let request = NetRequest {
        method: inbound.method.as_str(),
        host,
        port,
        path: &inbound.path,
        body_len: inbound.length,
        operation: None,
        websocket: upgrade(&inbound.headers) == Upgrade::WebSocket,
    };
    let refuse = async |grounds: Grounds| {
        let denial = state.deny(asked, &grounds).await;
        Box::new(denied(&denial))
    };
    let (call, api) = match part(policy, &request, &inbound.headers) {
        Part::Call(call, api) => (call, api),
        Part::Refused(grounds) => return Err(refuse(grounds).await),
        Part::Passes(turn) => {
            if state.budget.flow() != Flow::Go && state.budget.clear().await != Flow::Go {
                return Err(refuse(used_up(&state.budget.worst())).await);
            }
            return Ok(turn);
        }
    };
    let holds = |kind: BudgetKind| holds(policy, kind);
    let must_cost = holds(BudgetKind::Cost);
    let most = if must_cost && call.price.is_none() && api == Api::Known {
        PEEK_FOR_PRICE
    } else {
        PEEK
    };
    let facts = match facts(policy, inbound, most, body).await {
        Ok(facts) => facts,
        Err(error) => return Err(refuse(Grounds::own(code_of(&error), error.to_string())).await),
    };
    let unpriced =
        |name: &&String| must_cost && api == Api::Known && call.price.is_none() && !prices().knows(name);
    if let Some(model) = facts.model.as_ref().filter(unpriced) {
        return Err(refuse(no_price(model, host.as_str())).await);
    }
    let length = inbound.length.unwrap_or(body.length as u64);
    let estimate = estimate(&call, &facts, facts.tokens(length));
    match Reservation::take(&state.budget, estimate, WithTurn::One).await {
        Some(reservation) => Ok(Turn::Taken(Box::new(Claim {
            reservation,
            call,
            facts,
            must_cost,
            api,
        }))),
        None => Err(refuse(used_up(&state.budget.worst())).await),
    }
}

/// What a request is to the budgets of models, before room is looked for.
enum Part {
    Call(ModelCall, Api),
    Passes(Turn),
    Refused(Grounds),
}

/// Tells what a request is. Whatever is not read as HTTP messages cannot be counted on a model's host.
fn part(policy: &NetPolicy, request: &NetRequest<'_>, headers: &HeaderMap) -> Part {
    let held: Vec<BudgetKind> = BudgetKind::OF_MODELS
        .into_iter()
        .filter(|kind| holds(policy, *kind))
        .collect();
    let is_models = policy.host_role(request.host, request.port) == HostRole::Model;
    if is_models && !held.is_empty() && is_grpc(headers) {
        return Part::Refused(unreadable("gRPC", &held));
    }
    if let Some(call) = policy.model_call(request) {
        return if call.counted || held.is_empty() {
            Part::Call(call, Api::Known)
        } else {
            Part::Refused(uncountable())
        };
    }
    match policy.unlisted_call(request) {
        UnlistedCall::Write(call) if !held.is_empty() => Part::Call(call, Api::Unlisted),
        UnlistedCall::WebSocket if !held.is_empty() => {
            let mut grounds = unreadable("a WebSocket that no API declares", &held);
            grounds.help.insert(
                0,
                format!(
                    "declare its path: \"net\": {{\"models\": [{{\"host\": \"{}\", \"paths\": [\"/...\"], \"api\": \"openai-realtime\"}}]}}",
                    request.host
                ),
            );
            Part::Refused(grounds)
        }
        UnlistedCall::Write(_) | UnlistedCall::Management if policy.counts_models() => {
            Part::Passes(Turn::Watched)
        }
        UnlistedCall::Write(_) | UnlistedCall::Management | UnlistedCall::WebSocket | UnlistedCall::None => {
            Part::Passes(Turn::None)
        }
    }
}

/// Whether a request says that it is gRPC, in any of its forms.
fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    headers.get_all(CONTENT_TYPE).iter().any(|value| {
        let kind = value.as_bytes().trim_ascii_start().get(..GRPC.len());
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case(GRPC))
    })
}

/// Whether a budget has a limit that was not waived.
fn holds(policy: &NetPolicy, kind: BudgetKind) -> bool {
    let budget = &policy.budget;
    let stated = match kind {
        BudgetKind::Cost => budget.cost_micro_usd.is_some(),
        BudgetKind::Tokens => budget.tokens.is_some(),
        BudgetKind::Turns => budget.turns.is_some(),
        BudgetKind::BytesOut | BudgetKind::BytesIn | BudgetKind::Requests | BudgetKind::Connections => false,
    };
    stated && !budget.waived.contains(&kind)
}

/// Reads the request as far as budgets need it; without any, only its path.
async fn facts(
    policy: &NetPolicy,
    inbound: &CanonicalRequest,
    most: usize,
    body: &mut Begun,
) -> Result<RequestFacts, super::body::BodyError> {
    if !policy.counts_models() || !is_plain(&inbound.headers) {
        return Ok(RequestFacts::read(std::iter::empty(), &inbound.path));
    }
    body.read_to(PEEK).await?;
    let read = |body: &Begun| RequestFacts::read(body.read.iter().map(AsRef::as_ref), &inbound.path);
    let found = read(body);
    if found.model.is_some() || body.rest.is_none() {
        return Ok(found);
    }
    body.read_to(most).await?;
    Ok(read(body))
}

/// What a request may use. The number of tokens that it declares may be a lie, so no estimate is below the usual answer.
fn estimate(call: &ModelCall, facts: &RequestFacts, (input, output): (u64, u64)) -> Estimate {
    let output = output.max(DEFAULT_OUTPUT);
    let used = ModelUse {
        model: facts.model.clone().unwrap_or_default(),
        input,
        output,
        ..ModelUse::default()
    };
    let cost = match call.price {
        Some(price) => Prices::cost_at(price, &used),
        None => prices().cost(&used).unwrap_or_else(|| prices().dearest(&used)),
    };
    Estimate { input, output, cost }
}

fn used_up(worst: &BudgetReached) -> Grounds {
    let reason = format!(
        "the budget of {} is used up ({} of {})",
        worst.kind.name(),
        worst.used,
        worst.limit
    );
    Grounds::own(Code::NetBudget, reason)
}

fn uncountable() -> Grounds {
    let reason =
        "what this request uses is told by another request or by none, so the budget could not count it";
    Grounds::own(Code::NetBudget, reason)
}

fn unreadable(what: &str, held: &[BudgetKind]) -> Grounds {
    let reason = format!("{what} to a model's host is not read, so the budget could not count it");
    let mut grounds = Grounds::own(Code::NetBudget, reason);
    let waive: Vec<String> = held
        .iter()
        .map(|kind| format!("--waive {}", kind.name()))
        .collect();
    grounds
        .help
        .push(format!("or start the run with {}", waive.join(" ")));
    grounds
}

fn no_price(model: &str, host: &str) -> Grounds {
    let reason =
        format!("no price is known for the model {model:?}, so the budget of usd could not count it");
    let mut grounds = Grounds::own(Code::NetBudget, reason);
    grounds.help.push(format!(
        "state one, in dollars for a million tokens: \"net\": {{\"models\": [{{\"host\": \"{host}\", \"price\": {{\"input\": 1, \"output\": 2}}}}]}}"
    ));
    grounds.help.push("or start the run with --waive usd".to_owned());
    grounds
}
