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
use crate::budget::{Estimate, Flow, Reservation};
use crate::denial::{Asked, Grounds};
use crate::state::Generation;
use crate::usage::{Prices, RequestFacts, prices};
use bastle_contract::Code;
use bastle_contract::egress::{BudgetKind, BudgetReached, ModelUse};
use bastle_policy::{HostRole, ModelCall, NetPolicy, NetRequest};

/// How much of a body is read for the model's name and the most tokens of the answer.
const PEEK: usize = 256 * 1024;
/// How much where a price must be found: some clients write the name after a whole conversation.
const PEEK_FOR_PRICE: usize = 8 * 1024 * 1024;

/// What a request is to the budgets of models.
#[must_use]
pub(super) enum Turn {
    /// Nothing: it passes by.
    None,
    /// No known endpoint, but on a model's host: should its answer say that tokens were used, they count.
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
    let call = policy.model_call(&NetRequest {
        method: inbound.method.as_str(),
        host,
        port,
        path: &inbound.path,
        body_len: inbound.length,
        operation: None,
        websocket: upgrade(&inbound.headers) == Upgrade::WebSocket,
    });
    let refuse = async |grounds: Grounds| {
        let denial = state.deny(asked, &grounds).await;
        Box::new(denied(&denial))
    };
    let Some(call) = call else {
        if state.budget.flow() != Flow::Go && state.budget.clear().await != Flow::Go {
            return Err(refuse(used_up(&state.budget.worst())).await);
        }
        let writes = !matches!(inbound.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "DELETE");
        let watched = writes && policy.counts_models() && policy.host_role(host, port) == HostRole::Model;
        return Ok(if watched { Turn::Watched } else { Turn::None });
    };
    let holds = |kind: BudgetKind| holds(policy, kind);
    if !call.counted && BudgetKind::OF_MODELS.into_iter().any(holds) {
        return Err(refuse(uncountable()).await);
    }
    let must_cost = holds(BudgetKind::Cost);
    let most = if must_cost && call.price.is_none() {
        PEEK_FOR_PRICE
    } else {
        PEEK
    };
    let facts = match facts(policy, inbound, most, body).await {
        Ok(facts) => facts,
        Err(error) => return Err(refuse(Grounds::own(code_of(&error), error.to_string())).await),
    };
    let unpriced = |name: &&String| must_cost && call.price.is_none() && !prices().knows(name);
    if let Some(model) = facts.model.as_ref().filter(unpriced) {
        return Err(refuse(no_price(model, host.as_str())).await);
    }
    let length = inbound.length.unwrap_or(body.length as u64);
    let estimate = estimate(&call, &facts, length);
    match Reservation::take(&state.budget, estimate).await {
        Some(reservation) => Ok(Turn::Taken(Box::new(Claim {
            reservation,
            call,
            facts,
            must_cost,
        }))),
        None => Err(refuse(used_up(&state.budget.worst())).await),
    }
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

fn estimate(call: &ModelCall, facts: &RequestFacts, length: u64) -> Estimate {
    let (input, output) = facts.tokens(length);
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
    Estimate {
        tokens: input.saturating_add(output),
        cost,
    }
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
