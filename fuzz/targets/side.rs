//! libFuzzer's entry point: any bytes on the side connection.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spanwire_fuzz::corpus::write_if_requested("side"),
    |data: &[u8]| spanwire_fuzz::side::run(data)
);
