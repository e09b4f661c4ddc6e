//! libFuzzer's entry point: hostile frames into a switch with every agent.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spanwire_fuzz::corpus::write_if_requested("agents"),
    |data: &[u8]| spanwire_fuzz::agents::run(data)
);
