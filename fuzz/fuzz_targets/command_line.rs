//! libFuzzer's entry to [`bastle_fuzz::command_line`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::command_line(data));
