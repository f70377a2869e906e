//! libFuzzer's entry to [`bastle_fuzz::editor_lines`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::editor_lines(data));
