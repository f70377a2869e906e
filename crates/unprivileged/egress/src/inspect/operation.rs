//! Reads from the beginning of a body what the request asks the server to do.
//!
//! **Trust:** reads the agent's body, bounded; what was read is sent on afterwards exactly as it came.
pub(super) use super::begun::Begun;
use super::body::BodyError;
use super::canonical::{CanonicalRequest, Media};
use crate::header_name;
use crate::rpc::{self, Asks};
use bastle_policy::{BodyNeed, Operation};
use http::HeaderMap;

/// Whether a body is sent as it is.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    let mut codings = header_name::fields(headers, "content-encoding").map(|(_, value)| value.as_bytes());
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.eq_ignore_ascii_case(b"identity"),
        (Some(_), Some(_)) => false,
    }
}

/// What the request asks for; `None` where no rule wants to know.
pub(super) async fn read(
    need: BodyNeed,
    request: &CanonicalRequest,
    body: &mut Begun,
) -> Result<Option<Operation>, BodyError> {
    let query = request.query.as_deref();
    let asks = match need {
        BodyNeed::None => return Ok(None),
        BodyNeed::GraphQl if matches!(request.method.as_str(), "GET" | "HEAD") => match query {
            Some(query) => rpc::from_query_string(query),
            None => Asks::Unreadable,
        },
        // Some servers prefer a query in the address to the one in the body; an escape may hide one.
        BodyNeed::GraphQl if query.is_some_and(may_ask) => Asks::Unreadable,
        // A server takes a body for what its type says: a form, a part of a multipart body or another character set
        // would be read differently there.
        BodyNeed::GraphQl | BodyNeed::Rpc if request.media != Media::Json || !is_plain(&request.headers) => {
            Asks::Unreadable
        }
        BodyNeed::GraphQl | BodyNeed::Rpc => {
            body.read_to(rpc::MAX_BODY).await?;
            match (body.whole(), need) {
                (Some(whole), BodyNeed::GraphQl) => rpc::graphql(&whole),
                (Some(whole), BodyNeed::Rpc | BodyNeed::None) => rpc::json_rpc(&whole),
                (None, _) => Asks::Unreadable,
            }
        }
    };
    Ok(Some(match (asks, need) {
        (Asks::For(names), BodyNeed::GraphQl) => Operation::GraphQl(names),
        (Asks::For(names), BodyNeed::Rpc | BodyNeed::None) => Operation::Rpc(names),
        (Asks::Unreadable, _) => Operation::Unreadable,
    }))
}

/// Whether a query string may hold a request of its own, or name a stored one.
fn may_ask(query: &str) -> bool {
    let names = |pair: &str| {
        let key = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
        rpc::is_graphql_parameter(&key)
    };
    query.contains('%') || query.split(['&', ';']).any(names)
}

/// The operation as it is shown.
pub(super) fn shown(operation: &Operation) -> String {
    match operation {
        Operation::Rpc(names) | Operation::GraphQl(names) => names.join(" "),
        Operation::Unreadable => "unreadable".to_owned(),
    }
}
