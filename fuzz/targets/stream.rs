//! libFuzzer's entry point: any bytes for the handshake of messages and streams.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spanwire_fuzz::stream::run(data));
