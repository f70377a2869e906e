//! libFuzzer's entry to [`bastle_fuzz::rest_bodies`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::rest_bodies(data));
