//! libFuzzer's entry to [`bastle_fuzz::pkt_line`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bastle_fuzz::pkt_line(data));
