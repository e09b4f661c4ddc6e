//! libFuzzer's entry point: datagrams into the UDP port, and frames out of it.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: spanwire_fuzz::corpus::write_if_requested("port"),
    |data: &[u8]| spanwire_fuzz::port::run(data)
);
