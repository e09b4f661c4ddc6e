//! The list of recently dead paths.

use crate::{Entropy, PathAck};
use spanwire_base::Time;

/// The last [`PATHS_MAX`] paths that were left as dead, each until it expires.
#[derive(Clone, Debug)]
pub(super) struct Dead {
    /// The oldest first.
    paths: Vec<Path>,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    entropy: Entropy,
    /// The send time of the first packet that did not arrive.
    since: Time,
    until: Time,
}

impl Dead {
    pub(super) fn new() -> Self {
        Self { paths: Vec::with_capacity(PATHS_MAX) }
    }

    /// Adds `entropy`, dead for packets sent from `since` on, until `until`.
    pub(super) fn add(&mut self, entropy: Entropy, since: Time, until: Time) {
        self.paths.retain(|path| path.entropy != entropy);
        if self.paths.len() == PATHS_MAX {
            self.paths.remove(0);
        }
        self.paths.push(Path { entropy, since, until });
    }

    pub(super) fn has(&self, entropy: Entropy, now: Time) -> bool {
        self.paths.iter().any(|path| path.entropy == entropy && now < path.until)
    }

    /// Removes a path if a packet sent since its death arrived after all.
    pub(super) fn on_ack(&mut self, ack: &PathAck) {
        self.paths.retain(|path| path.entropy != ack.path || ack.sent_at < path.since);
    }
}

/// A flow of ten subflows fills the list in six rounds of deaths.
const PATHS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{acked, at};

    #[test]
    fn has__until_it_expires() {
        let mut dead = Dead::new();
        let path = Entropy::new(1);
        dead.add(path, at(10), at(100));
        assert!(dead.has(path, at(99)) && !dead.has(Entropy::new(2), at(99)));
        assert!(!dead.has(path, at(100)));
    }

    #[test]
    fn add__keeps_the_newest_and_each_once() {
        let mut dead = Dead::new();
        for bits in 0..70 {
            dead.add(Entropy::new(bits), at(0), at(100));
            dead.add(Entropy::new(bits), at(0), at(100));
        }
        assert_eq!(dead.paths.len(), PATHS_MAX);
        let kept = (0..70).filter(|bits| dead.has(Entropy::new(*bits), at(1)));
        assert_eq!(kept.collect::<Vec<_>>(), (6..70).collect::<Vec<_>>());
    }

    #[test]
    fn on_ack__a_later_packet_revives_the_path() {
        let mut dead = Dead::new();
        let path = Entropy::new(1);
        dead.add(path, at(10), at(1000));
        dead.on_ack(&acked(path, at(9), 100));
        assert!(dead.has(path, at(120)));
        dead.on_ack(&acked(path, at(10), 100));
        assert!(!dead.has(path, at(120)));
    }
}
