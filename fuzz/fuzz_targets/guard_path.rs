//! libFuzzer's entry to [`bastle_fuzz::guard_path`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::guard_path(data));
