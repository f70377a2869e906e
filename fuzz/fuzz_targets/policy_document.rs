//! libFuzzer's entry to [`bastle_fuzz::policy_document`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::policy_document(data));
