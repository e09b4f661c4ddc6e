//! The spanwire command: demo, perf and lab
#![cfg_attr(
    test,
    expect(non_snake_case, reason = "tests are named function__case")
)]

pub mod lab;
