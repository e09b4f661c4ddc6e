//! libFuzzer's entry point: any bytes for the handshake of messages and streams.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spanwire_fuzz::corpus::write_if_requested("stream"),
    |data: &[u8]| spanwire_fuzz::stream::run(data)
);
