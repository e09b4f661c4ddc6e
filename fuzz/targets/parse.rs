//! libFuzzer's entry point: any bytes for the parser.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spanwire_fuzz::corpus::write_if_requested("parse"),
    |data: &[u8]| spanwire_fuzz::parse::run(data)
);
