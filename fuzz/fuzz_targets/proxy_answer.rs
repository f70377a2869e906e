//! libFuzzer's entry to [`bastle_fuzz::proxy_answer`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::proxy_answer(data));
