//! Reads from the beginning of a body what the request asks the server to do.
//!
//! **Trust:** reads the agent's body, bounded; what was read is sent on afterwards exactly as it came.
use super::body::{AnyBody, BodyError};
use super::headers::single;
use crate::limits::BODY_PAUSE;
use crate::rpc::{self, Asks};
use bastle_policy::{BodyNeed, Operation};
use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;
use std::collections::VecDeque;

/// The beginning of a body.
pub(super) struct Begun {
    /// What was read.
    pub(super) read: VecDeque<Bytes>,
    /// Its length.
    pub(super) length: usize,
    /// What was not; `None` at the end.
    pub(super) rest: Option<AnyBody>,
}

impl Begun {
    /// Nothing read yet.
    pub(super) fn new(body: AnyBody) -> Self {
        Self {
            read: VecDeque::new(),
            length: 0,
            rest: (!body.is_end_stream()).then_some(body),
        }
    }

    /// Reads on until more than `most` bytes are there or the body ends.
    pub(super) async fn read_to(&mut self, most: usize) -> Result<(), BodyError> {
        while self.length <= most && self.more().await? {}
        Ok(())
    }

    /// Reads one more piece; `false` at the end.
    pub(super) async fn more(&mut self) -> Result<bool, BodyError> {
        let Some(body) = self.rest.as_mut() else {
            return Ok(false);
        };
        let frame = tokio::time::timeout(BODY_PAUSE, body.frame()).await?;
        match frame.transpose()? {
            None => {
                self.rest = None;
                return Ok(false);
            }
            Some(frame) => {
                if let Ok(bytes) = frame.into_data() {
                    self.length += bytes.len();
                    self.read.push_back(bytes);
                }
            }
        }
        Ok(true)
    }

    /// What was read, in one piece.
    pub(super) fn joined(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.length);
        for piece in &self.read {
            all.extend_from_slice(piece);
        }
        all
    }

    /// The whole body, where it was read to its end.
    pub(super) fn whole(&self) -> Option<Vec<u8>> {
        self.rest.is_none().then(|| self.joined())
    }
}

/// Whether a body is sent as it is.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    match single(headers, "content-encoding") {
        None => !headers.contains_key("content-encoding"),
        Some(coding) => coding.eq_ignore_ascii_case("identity"),
    }
}

/// What the request asks for; `None` where no rule wants to know.
pub(super) async fn read(
    need: BodyNeed,
    method: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    body: &mut Begun,
) -> Result<Option<Operation>, BodyError> {
    let asks = match need {
        BodyNeed::None => return Ok(None),
        BodyNeed::GraphQl if matches!(method, "GET" | "HEAD") => match query {
            Some(query) => rpc::from_query_string(query),
            None => Asks::Unreadable,
        },
        // Some servers prefer a query in the address to the one in the body; an escape may hide one.
        BodyNeed::GraphQl if query.is_some_and(may_ask) => Asks::Unreadable,
        BodyNeed::GraphQl | BodyNeed::Rpc if !is_plain(headers) => Asks::Unreadable,
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

fn may_ask(query: &str) -> bool {
    query.contains('%') || query.to_ascii_lowercase().contains("query")
}

/// The operation as it is shown.
pub(super) fn shown(operation: &Operation) -> String {
    match operation {
        Operation::Rpc(names) | Operation::GraphQl(names) => names.join(" "),
        Operation::Unreadable => "unreadable".to_owned(),
    }
}
