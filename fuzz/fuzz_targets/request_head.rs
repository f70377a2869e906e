//! libFuzzer's entry to [`bastle_fuzz::request_head`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::request_head(data));
