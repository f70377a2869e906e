//! libFuzzer's entry to [`bastle_fuzz::canonical_request`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::canonical_request(data));
