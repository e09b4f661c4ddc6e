//! libFuzzer's entry point: any sequence of packets, posts and pauses for a queue pair.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spanwire_fuzz::corpus::write_if_requested("sequence"),
    |data: &[u8]| spanwire_fuzz::sequence::run(data)
);
