//! The receive queue that a port serves. Packets of the interface's other queues go to the kernel.

use crate::output::print_error;
use spanwire_host::diagnosis::{Check, InterfaceFacts, Status};
use spanwire_host::fabric::interface;

/// Prints a warning if packets may arrive on a queue of `dev` other than `queue`.
pub(crate) fn warn(dev: &str, queue: u32) {
    if let Some(text) =
        facts(dev, queue).and_then(|facts| warning(dev, queue, &facts.check_queues()))
    {
        print_error(&text);
    }
}

/// The queue for a report, such as "eth0, queue 1: 4 receive queues ...".
pub(crate) fn text(dev: &str, queue: u32) -> String {
    match facts(dev, queue).map(|facts| facts.check_queues()) {
        Some(Check { found, .. }) => format!("{dev}, queue {queue}: {found}"),
        None => format!("{dev}, queue {queue}"),
    }
}

/// The facts that `spanwire doctor` checks; `None` if the kernel does not report them.
fn facts(dev: &str, queue: u32) -> Option<InterfaceFacts> {
    let link = interface(dev).ok()?;
    InterfaceFacts::read(link, queue, None).ok()
}

fn warning(dev: &str, queue: u32, check: &Check) -> Option<String> {
    let Check { status, found, fix, .. } = check;
    if *status == Status::Ok {
        return None;
    }
    let fix = fix.as_ref().map(|fix| format!(" ({fix})")).unwrap_or_default();
    let doctor = format!("`spanwire doctor --dev {dev} --queue {queue}` has details");
    Some(format!("warning: {dev}: {found}{fix}; {doctor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning__names_the_queues_and_doctor() {
        let found = "4 receive queues: UDP port 4791 must arrive on queue 1";
        let text = warning("eth0", 1, &Check::warn("queues", found, "ethtool -L eth0 combined 1"));
        let text = text.expect("there are others");
        for words in ["eth0", found, "ethtool -L", "doctor --dev eth0 --queue 1"] {
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(warning("eth0", 1, &Check::ok("queues", "one receive queue")), None);
    }
}
