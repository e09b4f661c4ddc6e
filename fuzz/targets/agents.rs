//! libFuzzer's entry point: hostile frames into a switch with every agent.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spanwire_fuzz::agents::run(data));
