//! Helpers shared by the tests of [`super`].

use super::netns::NetNs;
use super::veth::{VethEnd, VethSpec};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns true, and prints SKIPPED, if this process may not create network namespaces.
///
/// # Panics
/// Instead of skipping, if `SPANWIRE_REQUIRE_E2E` is `1`.
pub(super) fn lacks_privilege(test: &str) -> bool {
    let Err(error) = NetNs::new_anonymous() else {
        return false;
    };
    assert_ne!(std::env::var("SPANWIRE_REQUIRE_E2E").as_deref(), Ok("1"), "{test}: {error}");
    eprintln!("SKIPPED: {test}: {error}");
    true
}

/// A name unique among tests and runs.
pub(super) fn unique_name(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("swtest-{}-{number}-{what}", std::process::id())
}

/// Two empty namespaces.
pub(super) fn two_namespaces() -> (NetNs, NetNs) {
    (NetNs::new_anonymous().expect("privileged"), NetNs::new_anonymous().expect("privileged"))
}

/// A pair of `x0` in `a` and `y0` in `b`, down and without addresses.
pub(super) fn spec<'a>(a: &'a NetNs, b: &'a NetNs) -> VethSpec<'a> {
    VethSpec {
        a: VethEnd { ns: a, name: "x0" },
        b: VethEnd { ns: b, name: "y0" },
        mtu: 1500,
        queues: 1,
    }
}
