//! libFuzzer's entry point: any bytes for the parser.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spanwire_fuzz::parse::run(data));
