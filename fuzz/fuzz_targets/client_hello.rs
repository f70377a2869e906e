//! libFuzzer's entry to [`bastle_fuzz::client_hello`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::client_hello(data));
