//! Ports, clock and driver: the machine's side of Spanwire.
#![cfg_attr(
    test,
    expect(non_snake_case, reason = "tests are named function__case")
)]

pub mod net;
pub mod port;
