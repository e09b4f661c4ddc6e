//! Integration tests of the workspace: tidy, golden vectors, conformance
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

pub mod pcap;
pub mod replay;
