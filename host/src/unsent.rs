//! Packets that this host did not send, by the counters of its port.

use spanwire_transport::WcStatus;
use std::fmt;

/// Why this host did not send packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// A firewall of this host, or a route or policy rule, forbids them.
    Denied,
    /// They are longer than the MTU of the interface.
    TooLong,
    /// The kernel has no route for them, or the interface is down.
    Unroutable,
    /// The port sent none at all.
    None,
}

impl Unsent {
    /// The reason of the growth of a port's counters from `before` to `now`; `None` if all packets
    /// were sent.
    #[must_use]
    pub fn between(before: &[(String, u64)], now: &[(String, u64)]) -> Option<Self> {
        let sum = |list: &[(String, u64)], name: &str| -> u64 {
            list.iter().filter(|(counter, _)| counter.ends_with(name)).map(|(_, n)| *n).sum()
        };
        let grew = |name| sum(now, name) > sum(before, name);
        if grew("_tx_denied") {
            Some(Self::Denied)
        } else if grew("_tx_too_long") {
            Some(Self::TooLong)
        } else if grew("_tx_rejected") || grew("_tx_net_down") {
            Some(Self::Unroutable)
        } else {
            (!grew("_tx_frames")).then_some(Self::None)
        }
    }
}

/// `error` with the reason why this host did not send packets, if it reports a timeout and the
/// port's counters give one.
#[must_use]
pub fn explained(error: String, counters: &[(String, u64)]) -> String {
    match Unsent::between(&[], counters) {
        Some(why) if error.contains(WcStatus::RetryExcErr.name()) => format!("{error}: {why}"),
        _ => error,
    }
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Denied => {
                "this host's firewall refuses packets to UDP port 4791 (udp_tx_denied); allow \
                 them, see `nft list ruleset` and `ip xfrm policy`"
            }
            Self::TooLong => {
                "packets are longer than the interface's MTU (udp_tx_too_long), which was lowered \
                 meanwhile; start again"
            }
            Self::Unroutable => {
                "the kernel refuses to send packets (udp_tx_rejected, xdp_tx_net_down): no route, \
                 or the interface is down; see `ip route get ADDRESS` and `ip link`"
            }
            Self::None => {
                "the port sent no packet; `spanwire doctor --dev NAME` checks the interface"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between__names_the_reason_that_the_counters_give() {
        let before = [("udp_tx_denied", 7), ("udp_tx_too_long", 0), ("udp_tx_frames", 5)];
        let list = |counters: [(&str, u64); 3]| counters.map(|(name, n)| (name.to_owned(), n));
        let after = |denied, too_long, frames| {
            let now = [("udp_tx_denied", denied), ("udp_tx_too_long", too_long)];
            Unsent::between(&list(before), &list([now[0], now[1], ("udp_tx_frames", frames)]))
        };
        assert_eq!(after(8, 1, 9), Some(Unsent::Denied));
        assert_eq!(after(7, 1, 9), Some(Unsent::TooLong));
        assert_eq!(after(7, 0, 9), None);
        assert_eq!(after(7, 0, 5), Some(Unsent::None));
        let down = [("xdp_tx_net_down".to_owned(), 1)];
        assert_eq!(Unsent::between(&[], &down), Some(Unsent::Unroutable));
    }
}
