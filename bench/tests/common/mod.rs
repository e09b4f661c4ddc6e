//! The command, and its privileges, for tests.

use spanwire_io::net::NetNs;
use std::process::Command;

/// The command with these arguments.
pub(crate) fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spanwire-bench"));
    command.args(args);
    command
}

/// True, with a message on stderr, without the privilege to move packets, or for `reason`.
pub(crate) fn is_skipped(reason: Option<String>) -> bool {
    let privilege = NetNs::new_anonymous().err().map(|e| e.to_string());
    let Some(reason) = privilege.or(reason) else { return false };
    let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
    assert!(!required, "SPANWIRE_REQUIRE_E2E=1, but skipped: {reason}");
    eprintln!("SKIPPED: {reason}");
    true
}
