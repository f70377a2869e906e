//! Reads what a model response cost from its own usage fields, streamed or not, and what a request asks for.
//!
//! **Trust:** the bytes come from a server that a rule allows, or from the agent; they may be anything. Memory is bounded
//! whatever they are. A response without usage fields is counted by an estimate, so that leaving them out, cutting a
//! stream off or compressing it is no way around a budget.
mod fields;
mod prices;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub(crate) use prices::Prices;
pub(crate) use request::{RequestFacts, RequestReader};
pub(crate) use response::{Ending, Settlement, UsageReader, fuzz_usage};

use std::sync::OnceLock;

/// Longest model name in a record, by the contract.
const MAX_NAME: usize = 128;
/// Bytes of text per token where nobody says: the usual rule of thumb for English and code.
pub(crate) const BYTES_PER_TOKEN: u64 = 4;
/// Tokens that are reserved for an answer where the request sets no maximum.
pub(crate) const DEFAULT_OUTPUT: u64 = 4_096;

/// The built-in prices, read once.
pub(crate) fn prices() -> &'static Prices {
    static PRICES: OnceLock<Prices> = OnceLock::new();
    PRICES.get_or_init(Prices::built_in)
}

/// A model's name on one line and of bounded length.
fn clean_name(name: &str) -> String {
    let mut clean: String = name.chars().filter(|c| c.is_ascii_graphic()).collect();
    clean.truncate(MAX_NAME);
    clean
}
