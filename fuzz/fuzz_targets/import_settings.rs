//! libFuzzer's entry to [`bastle_fuzz::import_settings`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::import_settings(data));
