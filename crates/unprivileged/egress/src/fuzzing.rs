//! Entries for fuzzing: every parser of bytes that come from the agent or the network. None may panic on any bytes.
//!
//! **Trust:** for tests only; nothing here has an effect.
use crate::{dns, git, hello, http1, inspect, resolve, rpc, scrub, socks, upstream, usage};
use bytes::BytesMut;

/// Request line and header fields.
pub fn fuzz_request_head(bytes: &[u8]) {
    drop(http1::parse_head(bytes));
}

/// Body framing; the first byte chooses it.
pub fn fuzz_request_body(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else {
        return;
    };
    let framing = match first {
        0..=127 => http1::Framing::Length(u64::from(first)),
        128..=255 => http1::Framing::Chunked,
    };
    let mut decoder = http1::BodyDecoder::new(framing);
    let mut buffer = BytesMut::from(rest);
    while let Ok(http1::Decoded::Piece(_)) = decoder.decode(&mut buffer, 64) {}
}

/// ClientHello across records.
pub fn fuzz_client_hello(bytes: &[u8]) {
    drop(hello::parse_hello(bytes));
}

/// DNS queries of the agent.
pub fn fuzz_dns_query(bytes: &[u8]) {
    drop(dns::parse_query(bytes));
}

/// DNS answers of the network.
pub fn fuzz_dns_answer(bytes: &[u8]) {
    resolve::fuzz_answer(bytes);
}

/// SOCKS greeting and request.
pub fn fuzz_socks(bytes: &[u8]) {
    let _greeting = socks::parse_greeting(bytes);
    drop(socks::parse_request(bytes));
}

/// The answer of a company proxy.
pub fn fuzz_proxy_answer(bytes: &[u8]) {
    let _status = upstream::status(bytes);
}

/// The head of a push and its pack.
pub fn fuzz_git(bytes: &[u8]) {
    git::fuzz_push(bytes);
    git::fuzz_pack(bytes);
}

/// JSON-RPC and GraphQL bodies.
pub fn fuzz_rpc(bytes: &[u8]) {
    rpc::fuzz_rpc(bytes);
}

/// Usage fields of model answers, streamed and whole.
pub fn fuzz_usage(bytes: &[u8]) {
    usage::fuzz_usage(bytes);
}

/// The canonical form of a request, as either version of HTTP gives it.
pub fn fuzz_canonical_request(bytes: &[u8]) {
    inspect::fuzz_canonical(bytes);
}

/// Answers that are looked through for a value: the first byte cuts them into pieces.
pub fn fuzz_scrub(bytes: &[u8]) {
    scrub::fuzz_scrub(bytes);
}
