//! libFuzzer's entry to [`bastle_fuzz::mcp_http`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::mcp_http(data));
