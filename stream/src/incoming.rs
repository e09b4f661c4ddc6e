//! The receiving side of a channel: checks of received fragments, and credit for those taken.

use crate::config::Shape;
use crate::imm;

/// Counts of data received, taken, and acknowledged by credit.
#[derive(Debug)]
pub(crate) struct Incoming {
    shape: Shape,
    fragments: u64,
    bytes: u64,
    credited: Taken,
    finished: bool,
}

/// Counts of data that the application has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) fragments: u64,
    pub(crate) bytes: u64,
}

impl Incoming {
    pub(crate) fn new(shape: Shape) -> Self {
        Self { shape, fragments: 0, bytes: 0, credited: Taken::default(), finished: false }
    }

    /// Bytes received so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Handles a fragment of `bytes` in the ring.
    ///
    /// # Errors
    /// The fragment violates the protocol.
    pub(crate) fn on_fragment(
        &mut self,
        imm: u32,
        bytes: u32,
        taken: Taken,
    ) -> Result<(), &'static str> {
        if imm != imm::of_fragment(self.fragments) {
            return Err("a fragment that is not the next one");
        }
        if self.finished {
            return Err("a fragment after the end");
        }
        if bytes == 0 {
            return Err("an empty fragment");
        }
        if bytes > self.shape.fragment_bytes {
            return Err("a fragment longer than agreed");
        }
        let len = u64::from(bytes);
        if len > self.shape.to_end(self.bytes) {
            return Err("a fragment across the ring's end");
        }
        if self.fragments - taken.fragments >= self.shape.fragments.into()
            || self.bytes + len - taken.bytes > self.shape.ring_bytes.into()
        {
            return Err("more than there was credit for");
        }
        self.fragments += 1;
        self.bytes += len;
        Ok(())
    }

    /// Handles the other end's `Finish`.
    ///
    /// # Errors
    /// It is a duplicate, or has another count than was received.
    pub(crate) fn on_finish(&mut self, fragments: u32) -> Result<(), &'static str> {
        if imm::ahead(fragments, self.fragments) != 0 || self.finished {
            return Err("an end that does not fit");
        }
        self.finished = true;
        Ok(())
    }

    /// The credit to be sent now, if any. With `at_once`, credit for less than a quarter is sent
    /// too: this end has finished, and may close before a quarter is taken.
    pub(crate) fn credit(&mut self, taken: Taken, at_once: bool) -> Option<u64> {
        let (bytes, fragments) = self.shape.credit_after();
        let is_due = taken.bytes - self.credited.bytes >= bytes
            || taken.fragments - self.credited.fragments >= fragments
            || at_once && taken.fragments > self.credited.fragments;
        if !is_due || self.finished {
            return None;
        }
        self.credited = taken;
        Some(taken.fragments)
    }

    /// True if all received data were taken, and credit for all of them was sent.
    pub(crate) fn is_all_credited(&self, taken: Taken) -> bool {
        taken.fragments == self.fragments && self.credited.fragments == self.fragments
    }

    /// True if the other end has finished and all data were taken.
    pub(crate) fn is_drained(&self, taken: Taken) -> bool {
        self.finished && taken.fragments == self.fragments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape =
        Shape { ring_bytes: 4096, fragment_bytes: 1000, fragments: 16, max_message_bytes: 3000 };

    const NONE: Taken = Taken { fragments: 0, bytes: 0 };

    fn incoming() -> Incoming {
        Incoming::new(SHAPE)
    }

    #[test]
    fn on_fragment__rejects_protocol_violations() {
        let refused = |imm, bytes, why: &str| {
            let e = incoming().on_fragment(imm, bytes, NONE).unwrap_err();
            assert!(e.contains(why), "{e}");
        };
        refused(1, 1, "next");
        refused(1 << 31, 1, "next");
        refused(0, 1001, "longer");
        refused(0, u32::MAX, "longer");
        refused(0, 0, "empty");
        incoming().on_fragment(0, 1000, NONE).unwrap();
    }

    #[test]
    fn on_fragment__is_limited_by_the_ring_its_end_and_its_fragments() {
        let mut inn = incoming();
        let mut taken = NONE;
        for n in 0..4 {
            inn.on_fragment(n, 1000, taken).unwrap();
        }
        let e = inn.on_fragment(4, 97, taken).unwrap_err();
        assert!(e.contains("end"), "{e}");
        inn.on_fragment(4, 96, taken).unwrap();
        assert!(inn.on_fragment(5, 1, taken).is_err(), "the ring is full");
        taken = Taken { fragments: 1, bytes: 1000 };
        inn.on_fragment(5, 1000, taken).unwrap();
        assert_eq!(inn.bytes(), 5096);

        let mut inn = incoming();
        for n in 0..16 {
            inn.on_fragment(n, 1, NONE).unwrap();
        }
        assert!(inn.on_fragment(16, 1, NONE).is_err());
    }

    #[test]
    fn on_finish__requires_the_exact_count_once() {
        let mut inn = incoming();
        assert!(inn.on_finish(1).is_err());
        inn.on_fragment(0, 10, NONE).unwrap();
        inn.on_fragment(1, 10, NONE).unwrap();
        assert!(inn.on_finish(1).is_err());
        inn.on_finish(2).unwrap();
        assert!(inn.on_finish(2).is_err());
        assert!(inn.on_fragment(2, 1, NONE).is_err());
        assert!(!inn.is_drained(NONE));
        assert!(inn.is_drained(Taken { fragments: 2, bytes: 20 }));
    }

    #[test]
    fn credit__is_sent_for_a_quarter_of_the_bytes_or_of_the_fragments() {
        let mut inn = incoming();
        assert_eq!(inn.credit(Taken { fragments: 3, bytes: 1023 }, false), None);
        assert_eq!(inn.credit(Taken { fragments: 3, bytes: 1024 }, false), Some(3));
        assert_eq!(inn.credit(Taken { fragments: 6, bytes: 1024 }, false), None);
        assert_eq!(inn.credit(Taken { fragments: 7, bytes: 1024 }, false), Some(7));
        let last = Taken { fragments: 8, bytes: 1025 };
        assert_eq!((inn.credit(last, false), inn.credit(last, true)), (None, Some(8)));
        assert_eq!(inn.credit(last, true), None, "credited already");
    }
}
