//! Whose turn it is: queue pairs that owe their peer an acknowledgement before those with data,
//! those that wait for the endpoint's window, and those that wait for their time.

use super::{Endpoint, Entry};
use crate::qp::common::{Shared, Transmit};
use crate::schedule::{Schedule, Turn};
use crate::timer::Timers;
use spanwire_base::{Time, TxMeta};
use spanwire_pacer::Wheel;

/// A queue pair, with what of the endpoint its turn needs.
struct Lent<'a> {
    entry: &'a mut Entry,
    shared: Shared<'a>,
    schedule: &'a mut Schedule,
    timers: &'a mut Timers,
    pacer: &'a mut Wheel,
}

impl Endpoint {
    /// The next packet of anybody. What is owed goes first, but never so often in a row that data
    /// would not leave.
    pub(super) fn transmit(&mut self, now: Time, frame: &mut [u8]) -> Option<TxMeta> {
        if self.schedule.control_goes_first()
            && let Some(meta) = self.transmit_control(now, frame)
        {
            return Some(meta);
        }
        for turn in [Turn::Ready, Turn::Blocked] {
            while let Some(slot) = self.schedule.head(turn) {
                match self.transmit_head(now, turn, slot, frame) {
                    Turned::Sent(meta) => return Some(meta),
                    Turned::Next => {}
                    Turned::Waits => break,
                }
            }
        }
        // There is no data, or what it wanted has made something owed.
        match self.schedule.owes_nothing() {
            true => None,
            false => self.transmit_control(now, frame),
        }
    }

    /// Gives queue pairs their turn whose next packet may leave by `now`.
    pub(super) fn wake_paced(&mut self, now: Time) {
        while let Some(slot) = self.pacer.pop_due(now) {
            if self.qps.at(slot).is_some() {
                self.schedule.enter(Turn::Ready, slot);
                self.schedule.tell();
            }
        }
    }

    /// Writes what one of those owes that owe something.
    #[inline(never)]
    fn transmit_control(&mut self, now: Time, frame: &mut [u8]) -> Option<TxMeta> {
        while let Some(slot) = self.schedule.head(Turn::Control) {
            let Some(mut lent) = self.lend(slot) else {
                self.schedule.leave(Turn::Control, slot);
                continue;
            };
            let sent = lent.entry.qp.poll_control(now, frame, &mut lent.shared);
            match sent {
                Transmit::Sent(meta) => {
                    lent.arm(slot);
                    lent.schedule.control_went();
                    if !lent.entry.qp.owes_control() {
                        lent.schedule.leave(Turn::Control, slot);
                    }
                    return Some(meta);
                }
                // It may not leave, or could not be written: the next event says whether it is
                // owed again.
                Transmit::Idle | Transmit::Blocked | Transmit::Paced(_) => {
                    lent.schedule.leave(Turn::Control, slot);
                }
            }
        }
        None
    }

    /// Lets the queue pair at the head of a list write a packet, and moves it where it belongs.
    fn transmit_head(&mut self, now: Time, from: Turn, slot: u32, frame: &mut [u8]) -> Turned {
        let Some(mut lent) = self.lend(slot) else {
            self.schedule.leave(from, slot);
            return Turned::Next;
        };
        let room = lent.schedule.room(from, lent.shared.config);
        let sent = lent.entry.qp.poll_transmit(now, room, frame, &mut lent.shared);
        lent.entry.tell_held(lent.schedule);
        if lent.entry.qp.owes_control() {
            // Its last answer has left, or one could not be given.
            lent.schedule.enter(Turn::Control, slot);
        }
        match sent {
            Transmit::Sent(meta) => {
                lent.arm(slot);
                let len = spanwire_base::u32_from(meta.len);
                lent.schedule.data_went(from, len + meta.elided_bytes);
                Turned::Sent(meta)
            }
            Transmit::Blocked if from == Turn::Blocked => Turned::Waits,
            left => {
                // It may have found that it has to ask its peer for a sign later.
                if let Some(at) = lent.entry.qp.idle_deadline() {
                    lent.timers.arm(slot, at);
                }
                lent.schedule.leave(from, slot);
                // What it once waited for may be gone: its own failure ends that, too.
                lent.pacer.remove(slot);
                match left {
                    Transmit::Paced(at) => lent.pace(now, slot, at),
                    Transmit::Blocked => lent.schedule.enter(Turn::Blocked, slot),
                    Transmit::Idle | Transmit::Sent(_) => {}
                }
                Turned::Next
            }
        }
    }

    #[inline]
    fn lend(&mut self, slot: u32) -> Option<Lent<'_>> {
        Some(Lent {
            entry: self.qps.at_mut(slot)?,
            shared: Shared {
                mrs: &mut self.mrs,
                cqs: &mut self.cqs,
                srqs: &mut self.srqs,
                events: &mut self.events,
                counters: &mut self.counters,
                block_memory: &mut self.block_memory,
                config: &self.config,
            },
            schedule: &mut self.schedule,
            timers: &mut self.timers,
            pacer: &mut self.pacer,
        })
    }
}

impl Lent<'_> {
    #[inline]
    fn arm(&mut self, slot: u32) {
        if let Some(at) = self.entry.qp.next_deadline() {
            self.timers.arm(slot, at);
        }
    }

    /// Its next packet leaves at `at`.
    fn pace(&mut self, now: Time, slot: u32, at: Time) {
        if self.pacer.is_empty() {
            // Nobody has moved it on meanwhile, and what it says of a slot far ahead of where it
            // stands is early by up to a millisecond: the driver would be woken for nothing.
            self.pacer.pop_due(now);
        }
        self.pacer.insert(slot, at);
    }
}

/// What a turn came to.
enum Turned {
    Sent(TxMeta),
    /// Nothing to send; the list is one shorter.
    Next,
    /// Nobody in the list can send before the window has room.
    Waits,
}
