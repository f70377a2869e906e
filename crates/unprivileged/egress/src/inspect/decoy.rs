//! Requests that carry the decoy credential go nowhere.
//!
//! **Trust:** reads the agent's request.
use super::Site;
use super::body::BodyError;
use super::canonical::CanonicalRequest;
use super::forward::Failed;
use super::operation::Begun;
use crate::canary::{Canary, SCANNED, Seen, Watch};
use bastle_contract::Code;

/// Where the decoy stands in a request, its body left out.
pub(super) fn in_head(canary: &Canary, site: &Site, inbound: &CanonicalRequest) -> Option<Seen> {
    let address = (inbound.path.as_str(), inbound.query.as_deref());
    canary.in_request(site.via.host.as_str(), address, &inbound.headers)
}

/// Refuses a body that begins with it; gives what a longer one is looked through with. A short body is looked through
/// before anything is sent.
pub(super) async fn not_in_body(
    canary: &Canary,
    inbound: &CanonicalRequest,
    body: &mut Begun,
) -> Result<Option<Watch>, Failed> {
    if !canary.is_armed() {
        return Ok(None);
    }
    if inbound.length.is_some_and(|length| length <= SCANNED as u64) {
        let failed = |error: BodyError| Failed::new(Code::NetProtocol, error.to_string());
        body.read_to(SCANNED).await.map_err(failed)?;
    }
    if body.rest.is_some() {
        // What was read is looked through once more as it passes: a value may lie across its end.
        return Ok(canary.watch(0));
    }
    if canary.in_body(&body.joined()) {
        return Err(Failed::new(Code::NetCanary, Seen::Body.reason()));
    }
    Ok(None)
}
