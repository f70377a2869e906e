//! What stands before every handler: which host and page the request is for, who asks, how often, and whether they may.
//!
//! **Trust:** nothing of a request is believed. A local socket's peer is known from the kernel; everybody else shows a
//! token. What is refused here has changed nothing.
mod admission;
mod declared;
mod rate;
mod recheck;
mod streams;

pub(crate) use admission::{Admission, Secure};
pub(crate) use declared::{DECLARED, header_of};
pub(crate) use rate::Rate;
pub(crate) use recheck::{RECHECK, Recheck};
pub(crate) use streams::{StreamSlot, Streams};

use crate::app::App;
use crate::errors::{self, Refusal, Told};
use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bastle_contract::Code;
use bastle_control::fleet::{Caller, Role, Verb};
use std::sync::Arc;
use std::time::Instant;

/// Before the token in a list of WebSocket protocols: browsers can send no other header there.
pub(crate) const WS_BEARER: &str = "bastle.bearer.";

/// Where a connection comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The local socket, with the peer's uid as the kernel tells it.
    Local(u32),
    /// An address.
    Network(std::net::IpAddr),
}

/// What a route asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing, not even a token.
    Nothing,
    /// The verb on the run that the address names; the handler looks the run up.
    OnRun(Verb),
    /// The verb; the handler shows or takes only what is the caller's.
    Within(Verb),
    /// The verb on everything: not for a token that is held to some runs.
    OnAll(Verb),
}

impl Need {
    /// The weakest role that satisfies it, for messages and documents.
    pub(crate) fn role(self) -> Option<Role> {
        let (Self::OnRun(verb) | Self::Within(verb) | Self::OnAll(verb)) = self else {
            return None;
        };
        Some(match verb {
            Verb::Read => Role::Viewer,
            Verb::Spawn | Verb::Control | Verb::Remove => Role::Operator,
            Verb::Answer => Role::Approver,
            Verb::Administer => Role::Admin,
        })
    }

    fn allows(self, caller: &Caller) -> bool {
        match self {
            Self::Nothing => true,
            Self::OnRun(verb) | Self::Within(verb) => caller.may(verb),
            Self::OnAll(verb) => caller.may(verb) && caller.run.is_none() && caller.prefix.is_none(),
        }
    }
}

/// Whoever was recognised, and by which token: a stream looks again whether it holds.
#[derive(Clone)]
pub(crate) struct Who(pub(crate) Caller, pub(crate) Option<Arc<str>>);

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Refusal::new(Code::ApiUnauthorized, "nobody was recognised", ""))
    }
}

/// The outermost layer: host and origin, the body of refusals, the numbers.
pub(crate) async fn around(State(app): State<App>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("other", MatchedPath::as_str)
        .to_owned();
    let method = request.method().clone();
    let instance: String = request.uri().path().chars().take(200).collect();
    let peer = request.extensions().get::<Peer>().cloned();
    let response = match app.settings().admission.check(peer.as_ref(), &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let told = match response.extensions().get::<Who>() {
        Some(Who(caller, _)) if caller.role == Role::Admin => Told::All,
        Some(_) | None => Told::Outside,
    };
    let mut response = errors::tell(response, told, &instance);
    let headers = response.headers_mut();
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    app.metrics.request(
        method.as_str(),
        &route,
        response.status().as_u16(),
        began.elapsed(),
    );
    response
}

/// The layer of one route.
pub(crate) async fn authorize(
    State((app, need)): State<(App, Need)>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    if need == Need::Nothing {
        return match app.settings().rate.open(request.extensions().get::<Peer>()) {
            Ok(()) => next.run(request).await,
            Err(refusal) => refusal.into_response(),
        };
    }
    let peer = request.extensions().get::<Peer>().cloned();
    let who = match recognise(&app, peer.as_ref(), request.headers()).await {
        Ok(who) => who,
        Err(refusal) => return refusal.into_response(),
    };
    let who = match declared::narrowed(who, request.headers(), request.uri().path()) {
        Ok(who) => who,
        Err(refusal) => return refusal.into_response(),
    };
    let passed = admit(&app, need, &who.0);
    let mut response = match passed {
        Ok(()) => {
            request.extensions_mut().insert(who.clone());
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    };
    response.extensions_mut().insert(who);
    response
}

fn admit(app: &App, need: Need, caller: &Caller) -> Result<(), Refusal> {
    app.settings().rate.known(&caller.id)?;
    if need.allows(caller) {
        return Ok(());
    }
    let role = need.role().map_or("admin", Role::word);
    let limited = caller.run.is_some() || caller.prefix.is_some();
    let why = if limited && matches!(need, Need::OnAll(_)) {
        "it is about all runs, and the token is held to some".to_owned()
    } else {
        format!(
            "it needs the role {role}, and the token has {}",
            caller.role.word()
        )
    };
    Err(
        Refusal::new(Code::ApiForbidden, "this token does not allow that", why)
            .help(format!("bastle token create --role {role}")),
    )
}

async fn recognise(app: &App, peer: Option<&Peer>, headers: &HeaderMap) -> Result<Who, Refusal> {
    let unknown = || {
        Refusal::new(
            Code::ApiUnauthorized,
            "the request carries no token that holds",
            "",
        )
        .help("Authorization: Bearer TOKEN")
        .help("bastle token create --role viewer")
    };
    match token(headers)? {
        Some(secret) => {
            let secret: Arc<str> = secret.into();
            let asked = Arc::clone(&secret);
            let found = app
                .ask(move |fleet| Ok::<_, Refusal>(fleet.authenticate(&asked)))
                .await?;
            match found {
                Some(caller) => Ok(Who(caller, Some(secret))),
                // Only wrong ones are counted: guesses of one process must not keep another out that has a good one.
                None => {
                    app.settings().rate.unknown(peer)?;
                    Err(unknown())
                }
            }
        }
        None => match peer {
            Some(Peer::Local(uid)) if is_owner(*uid) => Ok(Who(Caller::owner(*uid), None)),
            Some(_) | None => {
                app.settings().rate.unknown(peer)?;
                Err(unknown())
            }
        },
    }
}

/// The daemon's own user, and root, need no token on the local socket: they can read its files anyway.
fn is_owner(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The one token of a request.
fn token(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let malformed = || Refusal::new(Code::ApiUnauthorized, "the authorization cannot be read", "");
    let mut found: Option<String> = None;
    let mut take = |secret: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let good = !secret.is_empty() && secret.len() <= 256 && secret.bytes().all(plain);
        if !good || found.is_some() {
            return Err(malformed());
        }
        found = Some(secret.to_owned());
        Ok(())
    };
    for value in headers.get_all(header::AUTHORIZATION) {
        let text = value.to_str().map_err(|_| malformed())?;
        let (scheme, secret) = text.split_once(' ').ok_or_else(malformed)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(malformed());
        }
        take(secret.trim())?;
    }
    for value in headers.get_all(header::SEC_WEBSOCKET_PROTOCOL) {
        let text = value.to_str().map_err(|_| malformed())?;
        for offered in text.split(',').map(str::trim) {
            if let Some(secret) = offered.strip_prefix(WS_BEARER) {
                take(secret)?;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn two_tokens_another_scheme_or_a_token_that_is_none_are_refused() {
        for bad in [
            &[("authorization", "Basic abc")][..],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer a b")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
            &[
                ("authorization", "Bearer a"),
                ("sec-websocket-protocol", "bastle.bearer.b"),
            ],
            &[("authorization", "Bearer \u{e9}")],
        ] {
            assert!(token(&headers(bad)).is_err(), "{bad:?}");
        }
        assert_eq!(token(&headers(&[])).unwrap(), None);
        assert_eq!(
            token(&headers(&[("authorization", "bearer bst_a_b")]))
                .unwrap()
                .as_deref(),
            Some("bst_a_b")
        );
        let offered = headers(&[("sec-websocket-protocol", "bastle.v1, bastle.bearer.bst_a")]);
        assert_eq!(token(&offered).unwrap().as_deref(), Some("bst_a"));
    }

    #[test]
    fn a_token_held_to_some_runs_sees_nothing_of_all() {
        let mut caller = Caller::owner(0);
        assert!(Need::OnAll(Verb::Administer).allows(&caller));
        caller.prefix = Some("a-".to_owned());
        assert!(!Need::OnAll(Verb::Read).allows(&caller));
        assert!(Need::Within(Verb::Read).allows(&caller));
        caller.role = Role::Viewer;
        assert!(!Need::OnRun(Verb::Control).allows(&caller));
    }
}
