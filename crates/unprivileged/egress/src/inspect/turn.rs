//! One turn of an agent: a request that a model answers. Room is taken for it before it is sent, and settled after.
//!
//! **Trust:** path and body come from the agent; which requests count is decided by policy on a canonical path. A request
//! that cannot be counted though a budget is set is refused, never passed uncounted: also one whose answer comes by another
//! request (`background`), wherever in its body it says so.
use super::begun::code_of;
use super::body::BodyError;
use super::canonical::{CanonicalRequest, Media};
use super::headers::{Upgrade, upgrade};
use super::media::{Json, is_legible};
use super::operation::{Begun, is_plain};
use super::reply::{Reply, denied};
use super::{Session, Site};
use crate::budget::{Estimate, Flow, Reservation, WithTurn};
use crate::denial::{Asked, Grounds};
use crate::state::Generation;
use crate::usage::{BYTES_PER_TOKEN, DEFAULT_OUTPUT, Prices, RequestFacts, RequestReader, prices};
use bastle_contract::Code;
use bastle_contract::egress::{BudgetKind, BudgetReached, ModelUse};
use bastle_policy::{HostRole, ModelCall, NetPolicy, NetRequest, UnlistedCall};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// How much of a body is read for the model's name and the most tokens of the answer.
const PEEK: usize = 256 * 1024;
/// How much where a price must be found: some clients write the name after a whole conversation.
const PEEK_FOR_PRICE: usize = 8 * 1024 * 1024;

/// Why a request for a later answer is refused.
pub(super) const LATER: &str =
    "its answer comes by another request (background, deferred), so the budget could not count it";
const CODED: &str =
    "its body is compressed, which could hide a request for a later answer that the budget could not count";
const ILLEGIBLE: &str = "its body is in a character set that could hide a request for a later answer that the budget could not count";

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
    /// For what of its body was not read yet.
    rest: Option<BackgroundScan>,
}

/// Looks the rest of a body through for a request that its answer come later. It is cut off before its end reaches the
/// server: half of it is not carried out.
#[derive(Debug)]
pub(super) struct BackgroundScan {
    reader: RequestReader,
    /// Bytes that it knows: they pass once more when they are sent.
    known: usize,
}

impl BackgroundScan {
    /// Whether such a request ends in `bytes`.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> bool {
        let again = self.known.min(bytes.len());
        self.known -= again;
        self.reader.feed(bytes.get(again..).unwrap_or_default());
        self.reader.is_background()
    }
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

    /// What the rest of the body is looked through with.
    pub(super) fn rest(&mut self) -> Option<BackgroundScan> {
        match self {
            Self::None | Self::Watched => None,
            Self::Taken(claim) => claim.rest.take(),
        }
    }
}

/// Whether method and path of a request decide if a budget counts it. Then it may name no others than its own.
pub(super) fn decides(policy: &NetPolicy, site: &Site, inbound: &CanonicalRequest) -> bool {
    let (host, port) = (&site.via.host, site.via.port);
    let posted = NetRequest {
        method: "POST",
        host,
        port,
        path: &inbound.path,
        body_len: inbound.length,
        operation: None,
        websocket: false,
    };
    let held = BudgetKind::OF_MODELS.into_iter().any(|kind| holds(policy, kind));
    held && (policy.host_role(host, port) == HostRole::Model || policy.model_call(&posted).is_some())
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
    let Read { facts, rest } = match read(policy, inbound, (api, most), body).await {
        Ok(read) => read,
        Err(grounds) => return Err(refuse(grounds).await),
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
            rest,
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

/// What was read of a request.
struct Read {
    facts: RequestFacts,
    rest: Option<BackgroundScan>,
}

/// Reads the request as far as budgets need it; without any, only its path.
async fn read(
    policy: &NetPolicy,
    inbound: &CanonicalRequest,
    (api, most): (Api, usize),
    body: &mut Begun,
) -> Result<Read, Grounds> {
    let unread = |error: BodyError| Grounds::own(code_of(&error), error.to_string());
    let held: Vec<BudgetKind> = [BudgetKind::Tokens, BudgetKind::Cost]
        .into_iter()
        .filter(|kind| holds(policy, *kind))
        .collect();
    let mut reader = RequestReader::default();
    let plain = is_plain(&inbound.headers);
    if policy.counts_models() && plain {
        body.read_to(PEEK).await.map_err(unread)?;
        body.read.iter().for_each(|piece| reader.feed(piece));
        if body.rest.is_some() && reader.facts(&inbound.path).model.is_none() {
            let before = body.length;
            body.read_to(most).await.map_err(unread)?;
            body.since(before)
                .into_iter()
                .for_each(|piece| reader.feed(piece));
        }
    }
    let facts = reader.facts(&inbound.path);
    // A budget of turns has counted such a request by itself.
    if held.is_empty() {
        return Ok(Read { facts, rest: None });
    }
    if !plain {
        // Without a body it does not matter what it would be.
        body.read_to(0).await.map_err(unread)?;
        return match body.length {
            0 => Ok(Read { facts, rest: None }),
            _ => Err(later(CODED, &held)),
        };
    }
    if facts.background {
        return Err(later(LATER, &held));
    }
    let is_text = api == Api::Known || may_be_json(inbound);
    if is_text && body.length > 0 && (reader.is_wide() || !is_legible(&inbound.headers)) {
        return Err(later(ILLEGIBLE, &held));
    }
    let known = body.read.iter().map(|piece| piece.len()).sum();
    let rest = body.rest.is_some().then_some(BackgroundScan { reader, known });
    Ok(Read { facts, rest })
}

/// Whether a server could take the body for JSON; pictures and sounds begin with zeros too.
fn may_be_json(inbound: &CanonicalRequest) -> bool {
    match inbound.media {
        Media::Absent | Media::Json | Media::Ambiguous => true,
        Media::Form | Media::Multipart | Media::Other => Json::of(&inbound.headers) != Json::Unmentioned,
    }
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
    let reason = "the answer to this request does not state what it uses, so the budget cannot count it";
    Grounds::own(Code::NetBudget, reason)
}

fn unreadable(what: &str, held: &[BudgetKind]) -> Grounds {
    let reason = format!("{what} to a model's host is not read, so the budget could not count it");
    waivable(reason, held)
}

fn later(reason: &str, held: &[BudgetKind]) -> Grounds {
    waivable(reason.to_owned(), held)
}

fn waivable(reason: String, held: &[BudgetKind]) -> Grounds {
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
