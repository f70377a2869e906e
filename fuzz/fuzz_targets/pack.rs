//! libFuzzer's entry to [`bastle_fuzz::pack`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::pack(data));
