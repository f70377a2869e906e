//! Judges a push reference by reference, and tells git in its own words what was refused.
//!
//! **Trust:** the commands and the pack come from the agent. Nothing of a push goes out before every reference in it
//! is allowed: a push is one request, and half of one cannot be sent.
use super::body::BodyError;
use super::canonical::CanonicalRequest;
use super::operation::{Begun, is_plain};
use super::reply::{Reply, denied, git_report};
use super::{Session, Site};
use crate::denial::{Asked, Denial, Grounds};
use crate::git::{self, Head, History, Progress, Push, Relation, Sections, Update};
use crate::state::Generation;
use bastle_contract::Code;
use bastle_policy::{Decision, Force, GitPush, Outcome, PushKind};
use std::sync::Arc;
use std::time::Duration;

/// How much of a refused push is thrown away so that git is still there to read the answer. Larger ones are cut off
/// and git says that the connection ended.
const MAX_DRAINED: usize = 256 * 1024 * 1024;
/// How long that may take.
const DRAIN: Duration = Duration::from_secs(30);

/// Judges every reference. The list is empty for git's probe.
pub(super) async fn judge(
    session: &Session,
    site: &Site,
    generation: &Generation,
    inbound: &CanonicalRequest,
    repository: &str,
    body: &mut Begun,
) -> Result<Vec<(Asked, Decision)>, Box<Reply>> {
    let whole = Asked::request(&site.via, "push", &inbound.path);
    let refuse = async |reason: String| {
        let denial = session.state.refuse(&whole, Code::NetGit, reason).await;
        Box::new(denied(&denial))
    };
    if inbound.method != http::Method::POST || !is_plain(&inbound.headers) {
        return Err(refuse("a push that is compressed or no POST cannot be judged".to_owned()).await);
    }
    let push = match head(body).await {
        Ok(Ok(push)) => push,
        Ok(Err(reason)) => return Err(refuse(reason.to_owned()).await),
        Err(error) => return Err(refuse(error.to_string()).await),
    };
    if let Some(reply) = strange_option(session, generation, &whole, &push, body).await {
        return Err(reply);
    }
    let kinds = match kinds(session, site, repository, &push, body).await {
        Ok(kinds) => kinds,
        Err(error) => return Err(refuse(error.to_string()).await),
    };
    let mut allowed = Vec::new();
    let mut denials: Vec<(String, Denial)> = Vec::new();
    for (update, (kind, force)) in push.updates.iter().zip(kinds) {
        let asked = whole
            .clone()
            .operation(&format!("{} {}", word(kind, force), update.reference));
        let decision = generation.policy.push(&GitPush {
            host: &site.via.host,
            port: site.via.port,
            repository,
            reference: &update.reference,
            kind,
            force,
        });
        let denial = match decision.outcome {
            Outcome::Allow => None,
            // Once a reference is refused the push is, and nobody needs to be asked about the rest.
            Outcome::Ask if !denials.is_empty() => continue,
            Outcome::Ask => session.state.ask(&asked, &decision).await.err(),
            Outcome::Deny => Some(session.state.deny(&asked, &Grounds::from(&decision)).await),
        };
        match denial {
            None => allowed.push((asked, decision)),
            Some(denial) => denials.push((update.reference.clone(), denial)),
        }
    }
    match denials.first() {
        None => Ok(allowed),
        Some((_, first)) => {
            drain(body).await;
            Err(Box::new(report(&push, &denials, first)))
        }
    }
}

/// Refuses a push with an option that no rule names: servers act on them.
async fn strange_option(
    session: &Session,
    generation: &Generation,
    whole: &Asked,
    push: &Push,
    body: &mut Begun,
) -> Option<Box<Reply>> {
    for option in &push.options {
        let decision = generation.policy.push_option(option);
        if decision.outcome == Outcome::Allow {
            continue;
        }
        // What follows `=` may be a text of any length.
        let name = option.split('=').next().unwrap_or_default();
        let asked = whole.clone().operation(&format!("option {name}"));
        let denial = session.state.deny(&asked, &Grounds::from(&decision)).await;
        drain(body).await;
        return Some(Box::new(report(push, &[], &denial)));
    }
    None
}

/// Reads the commands. They are parsed when a section of packets is whole: parsing again with every piece would take time
/// in the square of their length.
async fn head(body: &mut Begun) -> Result<Result<Push, &'static str>, BodyError> {
    let mut sections = Sections::default();
    let mut seen = 0;
    loop {
        let mut whole = body.length > git::MAX_COMMANDS;
        for piece in body.since(seen) {
            whole |= sections.feed(piece) != Progress::Inside;
        }
        seen = body.length;
        if whole {
            match git::read(&body.joined()) {
                Head::Whole(push) => return Ok(Ok(push)),
                Head::Refused(reason) => return Ok(Err(reason)),
                Head::More => {}
            }
        }
        if !body.more().await? {
            return Ok(Err("the push ends before its commands do"));
        }
    }
}

/// What each command does: the beginning of the pack and the commits of earlier pushes say how a reference moves. The
/// pack is read for a new reference as well, whose commits another one may move to later.
async fn kinds(
    session: &Session,
    site: &Site,
    repository: &str,
    push: &Push,
    body: &mut Begun,
) -> Result<Vec<(PushKind, Force)>, BodyError> {
    let most = push.length.saturating_add(git::MAX_PACK);
    let digits = push.updates.iter().find_map(|update| update.new.as_ref());
    let digits = digits.map(String::len);
    if digits.is_some() {
        body.read_to(most).await?;
    }
    let (all, from) = (body.joined(), push.length);
    let updates = push.updates.clone();
    let (state, place) = (
        Arc::clone(&session.state),
        format!("{}:{}/{repository}", site.via.host, site.via.port),
    );
    // Inflating takes several times the length of a pack: a few at a time.
    let _place = session.state.memory.analyses.acquire().await?;
    // Inflating takes a while, and other connections must not wait for it.
    let reading = tokio::task::spawn_blocking(move || {
        let end = all.len().min(most);
        let pack = all.get(from..end).unwrap_or_default();
        let history = digits
            .map(|digits| History::read(pack, digits))
            .unwrap_or_default();
        let moved = |update: &Update| Some((update.old.clone()?, update.new.clone()?));
        let moves: Vec<_> = updates.iter().filter_map(moved).collect();
        let mut relations = state.commits.relations(&place, history, &moves).into_iter();
        let kind = |update| kind_of(update, &mut relations);
        updates.iter().map(kind).collect()
    });
    Ok(reading.await?)
}

/// `relations` holds those of the references that move, in order.
fn kind_of(update: &Update, relations: &mut impl Iterator<Item = Relation>) -> (PushKind, Force) {
    match (&update.old, &update.new) {
        (None, _) => (PushKind::Create, Force::No),
        (Some(_), None) => (PushKind::Delete, Force::Unknown),
        (Some(_), Some(_)) => {
            let force = match relations.next() {
                Some(Relation::FastForward) => Force::No,
                Some(Relation::Rewrite) => Force::Yes,
                Some(Relation::Unknown) | None => Force::Unknown,
            };
            (PushKind::Update, force)
        }
    }
}

fn word(kind: PushKind, force: Force) -> &'static str {
    match (kind, force) {
        (PushKind::Create, _) => "create",
        (PushKind::Delete, _) => "delete",
        (PushKind::Update, Force::No) => "update",
        (PushKind::Update, Force::Yes) => "force",
        (PushKind::Update, Force::Unknown) => "update-or-force",
    }
}

/// Git reads no answer before it has sent everything.
async fn drain(body: &mut Begun) {
    let reading = async {
        while body.length < MAX_DRAINED && body.more().await.unwrap_or(false) {
            // What is refused is not kept.
            body.read.clear();
        }
    };
    // Late or not, the answer follows.
    drop(tokio::time::timeout(DRAIN, reading).await);
}

fn report(push: &Push, denials: &[(String, Denial)], first: &Denial) -> Reply {
    let reasons: Vec<(String, String)> = denials
        .iter()
        .map(|(reference, denial)| (reference.clone(), denial.line()))
        .collect();
    let message = format!("{}\nbastle: nothing was pushed", first.line());
    match git::refused(push, &reasons, &message) {
        Some(report) => git_report(report, first),
        None => denied(first),
    }
}
