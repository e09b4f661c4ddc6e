//! Whose turn it is: the queue pairs that may send, those that wait for the endpoint's window, and
//! those that wait for their time.

use super::{Endpoint, Turned};
use crate::qp::{Shared, Transmit};
use crate::schedule::Turn;
use spanwire_base::Time;

impl Endpoint {
    /// Lets the queue pair at the head of a list write a packet, and moves it where it belongs.
    pub(super) fn transmit_head(
        &mut self,
        now: Time,
        from: Turn,
        frame: &mut [u8],
    ) -> Option<Turned> {
        let slot = self.schedule.head(from)?;
        let room = self.schedule.room(from, &self.config);
        let Some(entry) = self.qps.at_mut(slot) else {
            self.schedule.leave(from, self.config.qp_burst_pkts);
            return Some(Turned::Next);
        };
        let mut shared = Shared {
            mrs: &mut self.mrs,
            cqs: &mut self.cqs,
            srqs: &mut self.srqs,
            events: &mut self.events,
            counters: &mut self.counters,
            config: &self.config,
        };
        let sent = entry.qp.poll_transmit(now, room, frame, &mut shared);
        entry.tell_held(&mut self.schedule);
        match sent {
            Transmit::Sent(meta) => {
                if let Some(at) = entry.qp.next_deadline() {
                    self.timers.arm(slot, at);
                }
                self.schedule.rotate(from, self.config.qp_burst_pkts);
                Some(Turned::Sent(meta))
            }
            Transmit::Blocked if from == Turn::Blocked => None,
            left => {
                // It may have found that it has to ask its peer for a sign later.
                if let Some(at) = entry.qp.idle_deadline() {
                    self.timers.arm(slot, at);
                }
                self.schedule.leave(from, self.config.qp_burst_pkts);
                match from {
                    Turn::Ready => entry.is_ready = false,
                    Turn::Blocked => entry.is_blocked = false,
                }
                if let Transmit::Paced(at) = left {
                    self.pacer.insert(slot, at);
                }
                let waits = left == Transmit::Blocked;
                if waits && !std::mem::replace(&mut entry.is_blocked, true) {
                    self.schedule.enter(Turn::Blocked, slot);
                }
                Some(Turned::Next)
            }
        }
    }

    /// Gives queue pairs their turn whose next packet may leave by `now`.
    pub(super) fn wake_paced(&mut self, now: Time) {
        while let Some(slot) = self.pacer.pop_due(now) {
            if let Some(entry) = self.qps.at_mut(slot)
                && !std::mem::replace(&mut entry.is_ready, true)
            {
                self.schedule.enter(Turn::Ready, slot);
                self.schedule.tell();
            }
        }
    }
}
