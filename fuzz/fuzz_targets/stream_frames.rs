//! libFuzzer's entry to [`bastle_fuzz::stream_frames`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::stream_frames(data));
