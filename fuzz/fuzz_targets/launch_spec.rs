//! libFuzzer's entry to [`bastle_fuzz::launch_spec`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::launch_spec(data));
