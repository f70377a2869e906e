//! libFuzzer's entry to [`bastle_fuzz::audit_reader`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::audit_reader(data));
