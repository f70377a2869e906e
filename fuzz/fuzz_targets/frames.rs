//! libFuzzer's entry to [`bastle_fuzz::frames`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::frames(data));
