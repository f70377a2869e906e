//! libFuzzer's entry to [`bastle_fuzz::gate`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::gate(data));
