//! What a request body asks the server to do: JSON-RPC methods (MCP among them) or GraphQL operations.
//!
//! **Trust:** reads the agent's bytes. A body that two readers could understand differently, or that cannot be read
//! within its limits, is [`Asks::Unreadable`]: an allow rule about operations never matches it.
mod graphql;
mod json_rpc;
mod key;
mod lexer;
#[cfg(test)]
mod tests;

pub(crate) use graphql::{from_query_string, is_graphql_parameter, read as graphql};
pub(crate) use json_rpc::read as json_rpc;
pub(crate) use key::only_text;

/// Largest body that is read for operations; what a person or a tool writes is a hundredth of it. Larger ones are
/// unreadable.
pub(crate) const MAX_BODY: usize = 1024 * 1024;
/// Most operations in one body; a batch of more is unreadable.
pub(crate) const MAX_OPERATIONS: usize = 100;
/// Longest name of a method, tool, operation or field.
pub(crate) const MAX_NAME: usize = 256;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// These, all of which must be allowed. Never empty.
    For(Vec<String>),
    /// It cannot be told.
    Unreadable,
}

/// Whether a name can stand in a rule and in a log as it is.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(|b| b.is_ascii_graphic())
}

/// Entry for fuzzing.
pub(crate) fn fuzz_rpc(bytes: &[u8]) {
    for asks in [json_rpc(bytes), graphql(bytes)] {
        match asks {
            Asks::For(names) => assert!(!names.is_empty() && names.iter().all(|name| is_plain(name))),
            Asks::Unreadable => {}
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        // Any text gives an answer; which one is the tests' business.
        match from_query_string(text) {
            Asks::For(_) | Asks::Unreadable => {}
        }
    }
}
