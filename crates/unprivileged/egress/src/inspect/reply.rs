//! What the client is told: the server's answer, or ours.
use super::body::{AnyBody, whole};
use super::ledger::Ledger;
use crate::denial::Denial;
use crate::scrub::Needles;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use hyper::upgrade::Upgraded;
use std::sync::Arc;

/// The answer to one request.
pub(super) enum Reply {
    /// A response.
    Answer(Response<AnyBody>),
    /// The server turned the connection into a WebSocket.
    WebSocket {
        /// Its answer.
        head: Response<()>,
        /// The connection.
        server: Upgraded,
        /// What must not come back over it.
        needles: Arc<Needles>,
        /// The account.
        ledger: Box<Ledger>,
    },
}

/// Name of the header that carries the id of a denial.
const DENIED: HeaderName = HeaderName::from_static("x-bastle-denied");

/// A refusal, with the status that fits its code.
pub(super) fn denied(denial: &Denial) -> Reply {
    denied_as(denial, denial.status())
}

/// A refusal with another status.
pub(super) fn denied_as(denial: &Denial, status: u16) -> Reply {
    let mut response = Response::new(whole(denial.json()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(denial.id()) {
        headers.insert(DENIED, id);
    }
    Reply::Answer(response)
}

/// A report in git's own words.
pub(super) fn git_report(report: Vec<u8>, denial: &Denial) -> Reply {
    let mut response = Response::new(whole(report));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(crate::git::REPORT_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(id) = HeaderValue::from_str(denial.id()) {
        headers.insert(DENIED, id);
    }
    Reply::Answer(response)
}
