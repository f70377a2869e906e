//! libFuzzer's entry to [`bastle_fuzz::request_body`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::request_body(data));
