//! The order of a flow's packets over the two queues of a port.

use arrayvec::ArrayVec;

/// The packets of flows in the two queues of a port.
///
/// A flow that becomes congested may have packets in the normal queue that those in the controlled
/// queue must not overtake. So the first of them in the controlled queue waits until the last of
/// those in the normal queue has left.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Packets of flows that came to the normal queue, and that left it.
    pub(super) normal_in: u64,
    normal_out: u64,
    /// The same of the controlled queue.
    controlled_in: u64,
    controlled_out: u64,
    /// In increasing order of both fields.
    barriers: ArrayVec<Barrier, BARRIERS_MAX>,
}

/// The packet of the controlled queue with this number leaves after so many of the normal queue.
#[derive(Clone, Copy, Debug)]
struct Barrier {
    controlled: u64,
    normal: u64,
}

impl Order {
    /// A packet comes to the normal queue; returns its number, from 1 on.
    pub(super) fn push_normal(&mut self) -> u64 {
        self.normal_in += 1;
        self.normal_in
    }

    /// A packet comes to the controlled queue. It leaves after the packet of the normal queue with
    /// the number `after`, 0 if it need not wait.
    pub(super) fn push_controlled(&mut self, after: u64) {
        self.controlled_in += 1;
        // Those before it wait at least as long as any barrier, and so does it.
        let last = self.barriers.last().map_or(self.normal_out, |last| last.normal);
        if after <= last {
            return;
        }
        let barrier = Barrier { controlled: self.controlled_in, normal: after };
        if self.barriers.try_push(barrier).is_err()
            && let Some(last) = self.barriers.last_mut()
        {
            // Its predecessors wait too long, but in order.
            last.normal = after;
        }
    }

    /// A packet leaves the normal queue.
    pub(super) fn pop_normal(&mut self) {
        self.normal_out += 1;
        while self.barriers.first().is_some_and(|first| first.normal <= self.normal_out) {
            self.barriers.remove(0);
        }
    }

    /// A packet leaves the controlled queue.
    pub(super) fn pop_controlled(&mut self) {
        debug_assert!(!self.is_held(), "it would overtake");
        self.controlled_out += 1;
    }

    /// Packets that wait in the controlled queue.
    pub(super) fn controlled_waits(&self) -> u64 {
        self.controlled_in - self.controlled_out
    }

    /// True if the next packet of the controlled queue has to wait.
    pub(super) fn is_held(&self) -> bool {
        self.barriers.first().is_some_and(|first| first.controlled <= self.controlled_out + 1)
    }
}

/// Barriers of a port; beyond these packets wait longer than they have to.
const BARRIERS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Whatever the two queues serve, no packet leaves before those that it has to follow, and
        /// the controlled queue is not held once the normal one is empty.
        #[test]
        fn order__no_packet_overtakes(
            steps in prop::collection::vec((0_u8..4, 0_u64..4), 1..400),
        ) {
            let mut order = Order::default();
            let (mut normal, mut controlled) = (VecDeque::new(), VecDeque::new());
            for (kind, back) in steps {
                match kind {
                    0 => normal.push_back(order.push_normal()),
                    1 => {
                        let after = order.normal_in.saturating_sub(back);
                        order.push_controlled(after);
                        controlled.push_back(after);
                    }
                    2 => {
                        if normal.pop_front().is_some() {
                            order.pop_normal();
                        }
                    }
                    _ if order.is_held() => {}
                    _ => {
                        if let Some(after) = controlled.pop_front() {
                            order.pop_controlled();
                            prop_assert!(normal.front().is_none_or(|first| *first > after));
                        }
                    }
                }
                prop_assert!(!normal.is_empty() || !order.is_held());
            }
        }
    }
}
