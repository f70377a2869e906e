//! The second path of a request: `Destination` of WebDAV's `MOVE` and `COPY`. Where paths decide it is judged as the first.
//!
//! **Trust:** reads the agent's field. Any method is held to it: a server may have methods of its own that follow it.
use super::canonical::CanonicalRequest;
use super::headers::is_site;
use super::{Scheme, Site};
use crate::header_name;
use bastle_policy::{CanonicalPath, NetPolicy, PathDemand};
use http::HeaderMap;

const ELSEWHERE: &str = "its Destination is not one plain path on the host of the connection";
const UNCOVERED: &str = "its Destination is outside the paths of the secret for this host";
const UNPARSED: &str = "a request with Destination to a host where pushes are judged";

/// The path that a request names besides its own, where the rules for its host look at paths.
pub(super) fn read(
    policy: &NetPolicy,
    site: &Site,
    inbound: &CanonicalRequest,
) -> Result<Option<String>, &'static str> {
    let (method, host, port) = (inbound.method.as_str(), &site.via.host, site.via.port);
    if policy.path_demand(method, host, port) != PathDemand::Plain
        || !header_name::contains(&inbound.headers, "destination")
    {
        return Ok(None);
    }
    // Which repository it writes to is known of the first path only.
    if policy.judges_pushes(host) {
        return Err(UNPARSED);
    }
    let path = path(site, &inbound.headers).ok_or(ELSEWHERE)?;
    // The credential goes out for the first path and acts on the second.
    let mut secrets = policy.secrets_for(host, port);
    if secrets.any(|one| one.covers(method, &inbound.path) && !one.covers(method, &path)) {
        return Err(UNCOVERED);
    }
    Ok(Some(path))
}

/// The canonical path, from an address on this host or an absolute path (RFC 4918, 10.3).
fn path(site: &Site, headers: &HeaderMap) -> Option<String> {
    let mut values = header_name::fields(headers, "destination");
    let (Some((_, value)), None) = (values.next(), values.next()) else {
        return None;
    };
    let text = value.to_str().ok()?;
    let scheme = match site.scheme {
        Scheme::Http => "http://",
        Scheme::Https => "https://",
    };
    let path = match text.split_at_checked(scheme.len()) {
        Some((start, rest)) if start.eq_ignore_ascii_case(scheme) => {
            let (authority, path) = rest.split_at(rest.find('/')?);
            is_site(site, authority).then_some(path)?
        }
        Some(_) | None => text,
    };
    // Two slashes begin an authority; a query or fragment is read by some servers as a part of the name.
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return None;
    }
    let canonical = CanonicalPath::new(path);
    canonical
        .refused(PathDemand::Plain)
        .is_none()
        .then_some(canonical.text)
}
