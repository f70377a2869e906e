//! libFuzzer's entry to [`bastle_fuzz::operations`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::operations(data));
