//! libFuzzer's entry to [`bastle_fuzz::sse_usage`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::sse_usage(data));
