//! Tests against the running kernel. They need CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and
//! CAP_SYS_ADMIN (for namespaces). Without them each prints SKIPPED and the reason, or panics if
//! SPANWIRE_REQUIRE_E2E=1.
#![expect(non_snake_case, reason = "tests are named subject__case")]

mod steer;
#[path = "../support/mod.rs"]
mod support;
mod veth;
