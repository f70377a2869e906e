//! Credentials of one request: phantoms that must not be in it, and the real value that goes in.
//!
//! **Trust:** reads the agent's request. Runs after policy allowed it; a value is put in for TLS only, and only for
//! the host, port, method and path that the secret is for.
use super::Session;
use super::canonical::CanonicalRequest;
use super::forward::Failed;
use super::operation::Begun;
use crate::header_name;
use crate::scrub::Scrubber;
use crate::secrets::{Dressed, RENEWAL, Table, basic_of};
use bastle_contract::Code;
use bastle_contract::egress::FromEgress;
use bastle_policy::{CREDENTIAL_HEADERS, NetPolicy, NetRequest, SecretUse};
use http::HeaderMap;
use tokio::time::{Instant, timeout_at};

/// A body up to this length is looked through for phantoms before anything is sent; a longer one while it passes.
const SCANNED_FIRST: u64 = 64 * 1024;
/// Why a phantom is refused.
pub(super) const STRAY: &str =
    "it carries the placeholder of a secret that is not for this host, method and path";

/// Refuses phantoms of secrets that are not for this request; gives what a longer body is looked through with.
pub(super) async fn no_stray_phantom(
    table: &Table,
    uses: &[&SecretUse],
    inbound: &CanonicalRequest,
    body: &mut Begun,
) -> Result<Option<Scrubber>, Failed> {
    if table.is_empty() {
        return Ok(None);
    }
    let (method, path) = (inbound.method.as_str(), inbound.path.as_str());
    let fits = |name: &&str| {
        uses.iter()
            .any(|one| one.name.as_str() == *name && one.covers(method, path))
    };
    let stray = |text: &[u8]| !table.named_in(text).iter().all(fits);
    let stray = |text: &[u8]| {
        if stray(text) {
            Err(Failed::new(Code::NetSecret, STRAY))
        } else {
            Ok(())
        }
    };
    stray(inbound.path.as_bytes())?;
    stray(inbound.query.as_deref().unwrap_or_default().as_bytes())?;
    for (name, value) in &inbound.headers {
        stray(name.as_str().as_bytes())?;
        stray(value.as_bytes())?;
        if let Some(pair) = basic_of(value) {
            stray(&pair)?;
        }
    }
    if inbound.length.is_some_and(|length| length <= SCANNED_FIRST) {
        let failed = |error: super::body::BodyError| Failed::new(Code::NetProtocol, error.to_string());
        body.read_to(usize::try_from(SCANNED_FIRST).unwrap_or(usize::MAX))
            .await
            .map_err(failed)?;
    }
    stray(&body.joined())?;
    let own: Vec<&SecretUse> = uses
        .iter()
        .copied()
        .filter(|one| one.covers(method, path))
        .collect();
    Ok(body.rest.is_some().then(|| Scrubber::new(table.strange(&own))))
}

/// Takes out the credential headers that the agent added itself and no rule lets pass, in every spelling; gives their names. A host with a
/// secret is the matter of [`dressed`].
pub(super) fn undress(
    policy: &NetPolicy,
    request: &NetRequest<'_>,
    headers: &mut HeaderMap,
) -> Vec<&'static str> {
    let strange =
        |name: &&'static str| header_name::contains(headers, name) && !policy.passes_header(request, name);
    let taken: Vec<&'static str> = CREDENTIAL_HEADERS.into_iter().filter(strange).collect();
    for name in &taken {
        header_name::remove(headers, name);
    }
    taken
}

/// Puts the credential in; waits a little for one that must be renewed.
pub(super) async fn dressed(
    session: &Session,
    headers: &mut HeaderMap,
    uses: &[&SecretUse],
    inbound: &CanonicalRequest,
) -> Result<Option<String>, Failed> {
    let secrets = &session.state.secrets;
    let deadline = Instant::now() + RENEWAL;
    let mut asked = false;
    loop {
        // Watched from before the look, so that a renewal in between is not missed.
        let mut changed = secrets.watch();
        let mut attempt = headers.clone();
        match secrets
            .now()
            .dress(&mut attempt, uses, inbound.method.as_str(), &inbound.path)
        {
            Dressed::Plain => {
                *headers = attempt;
                return Ok(None);
            }
            Dressed::With(name) => {
                *headers = attempt;
                return Ok(Some(name));
            }
            Dressed::Missing(name) if secrets.now().is_revoked(&name) => {
                let reason = format!("the secret {name} was revoked: bastle secret rm");
                return Err(Failed::new(Code::NetSecret, reason));
            }
            Dressed::Missing(name) => {
                let reason = format!("the value of the secret {name} is missing or has expired");
                let missing = || Failed::new(Code::NetSecret, reason.clone());
                if !asked {
                    asked = true;
                    let need = FromEgress::NeedSecret { name };
                    session.state.recorder.tell(need).await.map_err(|_| missing())?;
                }
                match timeout_at(deadline, changed.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return Err(missing()),
                }
            }
        }
    }
}
