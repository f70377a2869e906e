//! libFuzzer's entry to [`bastle_fuzz::work_contents`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::work_contents(data));
