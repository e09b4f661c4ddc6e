//! Whose turn it is: queue pairs that owe their peer an acknowledgement before those with data,
//! those that wait for the endpoint's window, and those that wait for their time.

use super::{Endpoint, Entry};
use crate::qp::common::{Shared, Transmit};
use crate::schedule::{ActiveList, Schedule};
use crate::timer::Timers;
use spanwire_base::{Time, TxMeta};
use spanwire_pacer::Wheel;

/// A queue pair, with what of the endpoint its turn needs.
struct TransmitContext<'a> {
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
        if self.schedule.prefers_control()
            && let Some(meta) = self.transmit_control(now, frame)
        {
            return Some(meta);
        }
        for list in [ActiveList::Ready, ActiveList::Blocked] {
            while let Some(slot) = self.schedule.head(list) {
                match self.transmit_head(now, list, slot, frame) {
                    HeadOutcome::Sent(meta) => return Some(meta),
                    HeadOutcome::Removed => {}
                    HeadOutcome::WindowFull => break,
                }
            }
        }
        // There is no data, or what it wanted has made something owed.
        match self.schedule.has_control() {
            true => self.transmit_control(now, frame),
            false => None,
        }
    }

    /// Gives queue pairs their turn whose next packet may leave by `now`.
    pub(super) fn wake_paced(&mut self, now: Time) {
        while let Some(slot) = self.pacer.pop_due(now) {
            if self.qps.at(slot).is_some() {
                self.schedule.activate(ActiveList::Ready, slot);
                self.schedule.wake_driver();
            }
        }
    }

    /// Writes what one of those owes that owe something.
    #[inline(never)]
    fn transmit_control(&mut self, now: Time, frame: &mut [u8]) -> Option<TxMeta> {
        while let Some(slot) = self.schedule.head(ActiveList::Control) {
            let Some(mut cx) = self.transmit_context(slot) else {
                self.schedule.deactivate(ActiveList::Control, slot);
                continue;
            };
            let sent = cx.entry.qp.poll_control(now, frame, &mut cx.shared);
            match sent {
                Transmit::Sent(meta) => {
                    cx.arm(slot);
                    cx.schedule.on_control_sent();
                    if !cx.entry.qp.is_control_due() {
                        cx.schedule.deactivate(ActiveList::Control, slot);
                    }
                    return Some(meta);
                }
                // It may not leave, or could not be written: the next event says whether it is
                // owed again.
                Transmit::Idle | Transmit::Blocked | Transmit::Paced(_) => {
                    cx.schedule.deactivate(ActiveList::Control, slot);
                }
            }
        }
        None
    }

    /// Lets the queue pair at the head of a list write a packet, and moves it where it belongs.
    fn transmit_head(
        &mut self,
        now: Time,
        from: ActiveList,
        slot: u32,
        frame: &mut [u8],
    ) -> HeadOutcome {
        let Some(mut cx) = self.transmit_context(slot) else {
            self.schedule.deactivate(from, slot);
            return HeadOutcome::Removed;
        };
        let room = cx.schedule.room(from, cx.shared.config);
        let sent = cx.entry.qp.poll_transmit(now, room, frame, &mut cx.shared);
        cx.entry.update_in_flight(cx.schedule);
        if cx.entry.qp.is_control_due() {
            // Its last answer has left, or one could not be given.
            cx.schedule.activate(ActiveList::Control, slot);
        }
        match sent {
            Transmit::Sent(meta) => {
                cx.arm(slot);
                let len = spanwire_base::u32_from(meta.len);
                cx.schedule.on_data_sent(from, len + meta.elided_bytes);
                HeadOutcome::Sent(meta)
            }
            Transmit::Blocked if from == ActiveList::Blocked => HeadOutcome::WindowFull,
            left => {
                // It may have found that it has to ask its peer for a sign later.
                if let Some(at) = cx.entry.qp.idle_deadline() {
                    cx.timers.arm(slot, at);
                }
                cx.schedule.deactivate(from, slot);
                // What it once waited for may be gone: its own failure ends that, too.
                cx.pacer.remove(slot);
                match left {
                    Transmit::Paced(at) => cx.pace(now, slot, at),
                    Transmit::Blocked => cx.schedule.activate(ActiveList::Blocked, slot),
                    Transmit::Idle | Transmit::Sent(_) => {}
                }
                HeadOutcome::Removed
            }
        }
    }

    #[inline]
    fn transmit_context(&mut self, slot: u32) -> Option<TransmitContext<'_>> {
        Some(TransmitContext {
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

impl TransmitContext<'_> {
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
enum HeadOutcome {
    Sent(TxMeta),
    /// Nothing to send; the list is one shorter.
    Removed,
    /// Nobody in the list can send before the window has room.
    WindowFull,
}
