//! Parameters of a socket, validated before any system call.

use crate::error::{Error, Place};
use std::time::Duration;

/// Parameters of a socket. The fields are independent; [`SocketConfig::new`] gives defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketConfig {
    /// Index of the interface, in the network namespace of the thread that binds.
    pub ifindex: u32,
    /// Receive queue of the interface, from 0.
    pub queue: u32,
    /// Entries of the fill ring; a power of two. Default 256: the shortest ring that covers a
    /// window of 200 packets. Longer rings only spread the same packets over more cache lines.
    pub fill_size: u32,
    /// Entries of the RX ring; a power of two. Default 256.
    pub rx_size: u32,
    /// Entries of the TX ring; a power of two. Default 256.
    pub tx_size: u32,
    /// Entries of the completion ring; a power of two. Default 256. The kernel sends no packet for
    /// whose completion this ring has no room.
    pub completion_size: u32,
    /// The copy modes to try, best first. Default: zero-copy, then copy.
    pub copy_modes: &'static [CopyMode],
    /// Allows the driver to sleep and to request a wakeup (`XDP_USE_NEED_WAKEUP`). Default true.
    pub need_wakeup: bool,
    /// Allows multi-buffer packets in both directions (`XDP_USE_SG`, Linux 6.6). Default false: the
    /// kernel drops packets that exceed one chunk.
    pub multi_buffer: bool,
    /// Descriptors sent by one system call in copy mode (`XDP_MAX_TX_SKB_BUDGET`), 32 to
    /// `tx_size`. Default `None`: the kernel's 32.
    pub tx_budget: Option<u32>,
    /// How long to retry while the queue is busy. Default 10 s: the kernel frees a queue some tens
    /// of milliseconds after its socket was closed, later on a busy machine.
    pub busy_timeout: Duration,
}

/// The copy mode: how bytes move between the interface and the UMEM.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CopyMode {
    /// The interface accesses the UMEM (`XDP_ZEROCOPY`).
    ZeroCopy,
    /// The kernel copies (`XDP_COPY`).
    Copy,
}

impl SocketConfig {
    /// The defaults for a queue of an interface.
    #[must_use]
    pub fn new(ifindex: u32, queue: u32) -> Self {
        Self {
            ifindex,
            queue,
            fill_size: 256,
            rx_size: 256,
            tx_size: 256,
            completion_size: 256,
            copy_modes: &[CopyMode::ZeroCopy, CopyMode::Copy],
            need_wakeup: true,
            multi_buffer: false,
            tx_budget: None,
            busy_timeout: BUSY_TIMEOUT,
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let rings = [
            ("fill_size", self.fill_size),
            ("rx_size", self.rx_size),
            ("tx_size", self.tx_size),
            ("completion_size", self.completion_size),
        ];
        for (field, size) in rings {
            if !size.is_power_of_two() || size > RING_SIZE_MAX {
                let reason = format!("{size} is not a power of two in 1..={RING_SIZE_MAX}");
                return Err(Error::config(field, reason));
            }
        }
        if self.copy_modes.is_empty() {
            return Err(Error::config("copy_modes", "no mode to try"));
        }
        match self.tx_budget {
            Some(budget) if !(TX_BUDGET_MIN..=self.tx_size).contains(&budget) => {
                let range = format!("{budget} is not in {TX_BUDGET_MIN}..={}", self.tx_size);
                Err(Error::config("tx_budget", range))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn place(&self) -> Place {
        Place::queue(self.ifindex, self.queue)
    }
}

/// The kernel's default and minimum.
const TX_BUDGET_MIN: u32 = 32;
/// Above the ring size of any device; bounds the memory of a ring to 1 MiB.
const RING_SIZE_MAX: u32 = 1 << 16;

/// Maximum time for which the kernel keeps a queue or interface after its owner has gone: usually
/// some tens of milliseconds, with eight busy threads on two cores more than two seconds.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(change: impl FnOnce(&mut SocketConfig)) -> String {
        let mut config = SocketConfig::new(1, 0);
        change(&mut config);
        config.check().expect_err("refused").to_string()
    }

    #[test]
    fn check__names_the_field_and_the_rule() {
        SocketConfig::new(1, 0).check().expect("defaults are valid");
        assert!(error_of(|c| c.fill_size = 0).starts_with("fill_size: 0 is not"));
        assert!(error_of(|c| c.rx_size = 100).starts_with("rx_size: 100"));
        assert!(error_of(|c| c.tx_size = 1 << 17).starts_with("tx_size: "));
        assert!(error_of(|c| c.copy_modes = &[]).starts_with("copy_modes: "));
        assert!(error_of(|c| c.tx_budget = Some(31)).contains("32..=256"));
        assert!(error_of(|c| c.tx_budget = Some(257)).contains("32..=256"));
    }
}
