//! Parsers of egress: bytes of the agent and bytes of the internet.
use bastle_egress::fuzzing;

/// Request line and header fields from the agent.
pub fn request_head(data: &[u8]) {
    fuzzing::fuzz_request_head(data);
}

/// A request body by length or in chunks.
pub fn request_body(data: &[u8]) {
    fuzzing::fuzz_request_body(data);
}

/// The first bytes of a TLS connection.
pub fn client_hello(data: &[u8]) {
    fuzzing::fuzz_client_hello(data);
}

/// A question to the sandbox's resolver.
pub fn dns_query(data: &[u8]) {
    fuzzing::fuzz_dns_query(data);
}

/// An answer of a name server outside.
pub fn dns_answer(data: &[u8]) {
    fuzzing::fuzz_dns_answer(data);
}

/// A SOCKS greeting and request.
pub fn socks(data: &[u8]) {
    fuzzing::fuzz_socks(data);
}

/// The answer of a company's proxy.
pub fn proxy_answer(data: &[u8]) {
    fuzzing::fuzz_proxy_answer(data);
}

/// A push: its commands in git's packet lines, and its objects.
pub fn pkt_line(data: &[u8]) {
    fuzzing::fuzz_git(data);
}

/// The canonical form of a request: stable, and without what two servers resolve differently.
pub fn canonical_request(data: &[u8]) {
    fuzzing::fuzz_canonical_request(data);
}

/// Answers that are looked through for the value of a secret.
pub fn scrub(data: &[u8]) {
    fuzzing::fuzz_scrub(data);
}

/// JSON-RPC and GraphQL in a request's body.
pub fn operations(data: &[u8]) {
    fuzzing::fuzz_rpc(data);
}

/// Usage in a model's response, streamed and whole.
pub fn sse_usage(data: &[u8]) {
    fuzzing::fuzz_usage(data);
}
