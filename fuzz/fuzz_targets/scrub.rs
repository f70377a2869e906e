//! libFuzzer's entry to [`bastle_fuzz::scrub`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::scrub(data));
