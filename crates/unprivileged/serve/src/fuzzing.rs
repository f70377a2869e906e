//! Entries for fuzzers: arbitrary bytes as bodies of the daemon's interface and of the agent protocol, and as calls of tools.
//!
//! **Trust:** none in the bytes. An entry returns normally whatever they are; what must hold of everything that was taken
//! is checked inside, because a reader that takes too much does not crash.

/// A body, and an address, of the agent protocol A2A in both bindings.
pub fn fuzz_a2a(bytes: &[u8]) {
    crate::a2a::fuzz(bytes);
}

/// The call of a tool, `{"name", "arguments"}`, and what it becomes.
pub fn fuzz_tool(bytes: &[u8]) {
    crate::mcp::fuzz(bytes);
}

/// A body of a REST request, or the settings file `serve.json`. The first byte chooses which.
pub fn fuzz_rest(bytes: &[u8]) {
    crate::routes::fuzz(bytes);
}
