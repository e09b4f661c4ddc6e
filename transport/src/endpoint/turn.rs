//! Transmission: ACKs and other control packets first, then data by deficit round robin, requests
//! that wait for the endpoint's window, and paced queue pairs.

use super::{Endpoint, Entry};
use crate::qp::common::{Shared, Transmit};
use crate::schedule::{ActiveList, Schedule};
use crate::timer::Timers;
use spanwire_base::{Time, TxBurst, TxMeta};
use spanwire_pacer::Wheel;
use spanwire_wire::Qpn;

/// A queue pair with the parts of the endpoint that its transmission needs.
struct TransmitContext<'a> {
    entry: &'a mut Entry,
    shared: &'a mut Shared,
    schedule: &'a mut Schedule,
    timers: &'a mut Timers,
    pacer: &'a mut Wheel,
}

impl Endpoint {
    /// Writes the next packet of any queue pair. Control packets go first, up to a limit in a row
    /// that keeps them from starving data.
    pub(super) fn transmit(&mut self, now: Time, frame: &mut [u8]) -> Option<TxMeta> {
        if self.schedule.prefers_control()
            && let Some(meta) = self.transmit_control(now, frame)
        {
            return Some(meta);
        }
        let mut list = ActiveList::Ready;
        loop {
            if let Some(slot) = self.schedule.head(list) {
                match self.transmit_head(now, list, slot, frame) {
                    HeadOutcome::Sent(meta) => return Some(meta),
                    HeadOutcome::Removed => continue,
                    HeadOutcome::WindowFull => {}
                }
            }
            match list {
                ActiveList::Ready => list = ActiveList::Blocked,
                _ => break,
            }
        }
        // No data may leave, or an attempt to send some made a control packet due.
        match self.schedule.has_control() {
            true => self.transmit_control(now, frame),
            false => None,
        }
    }

    /// The next packet of the queue pair that sent data last may be one of a run.
    #[inline]
    pub(super) fn is_at_run(&self) -> bool {
        self.qps.at(self.schedule.last_sent()).is_some_and(|entry| entry.qp.is_at_run())
    }

    /// Writes the next packets, if they are plain ones of the queue pair whose turn it is: as many
    /// as [`Endpoint::transmit`] would in a row. False if it has written none.
    #[inline(never)]
    pub(super) fn transmit_run(&mut self, now: Time, burst: &mut dyn TxBurst) -> bool {
        let list = ActiveList::Ready;
        let Some((slot, turn_bytes)) = self.schedule.head_of_burst() else { return false };
        let Some(cx) = self.transmit_context(slot) else { return false };
        let space = cx.schedule.window_space(list, &cx.shared.config);
        let bytes = cx.entry.qp.send_run((now, turn_bytes), space, burst, cx.shared);
        if bytes == 0 {
            return false;
        }
        cx.entry.update_in_flight(cx.schedule);
        cx.timers.touch(slot);
        cx.schedule.set_last_sent(slot);
        cx.schedule.on_data_sent(list, bytes);
        true
    }

    /// As [`Endpoint::transmit`], at the rate of the port. Not inlined, since ports without a rate
    /// must not pay for it.
    #[inline(never)]
    pub(super) fn transmit_at_rate(&mut self, now: Time, frame: &mut [u8]) -> Option<TxMeta> {
        let port = self.port.as_mut()?;
        if !port.may_send(now, !self.schedule.is_empty()) {
            return None;
        }
        self.schedule.set_requests_acks(port.is_slow(self.qps.len(), &self.shared.config));
        let sent = self.transmit(now, frame);
        let port = self.port.as_mut()?;
        let Some(meta) = &sent else {
            port.on_idle();
            return None;
        };
        port.on_sent(now, meta);
        if port.is_limiting(now)
            && let Some(entry) = self.qps.at_mut(self.schedule.last_sent())
        {
            entry.qp.on_port_paced(now);
        }
        sent
    }

    /// Wakes the driver once a packet that waited for the rate of the port may leave.
    #[inline(never)]
    pub(super) fn wake_port(&mut self, now: Time) {
        if self.port.as_mut().is_some_and(|port| port.take_due(now)) {
            self.schedule.wake_driver();
        }
    }

    /// The attributes of a queue pair have changed: no timer of its may expire because packets that
    /// request no ACK have left, and one that does waits for the rate of the port.
    pub(super) fn limit_unacknowledged(&mut self, qpn: Qpn) {
        let qp = self.qps.at(self.slot_of(qpn)).map(|entry| &entry.qp);
        let interval = qp.and_then(|qp| qp.ack_req_interval(&self.shared.config));
        if let Some((port, interval)) = self.port.as_mut().zip(interval) {
            port.limit_unacknowledged(interval);
        }
    }

    /// Activates the queue pairs whose paced packet may leave by `now`.
    pub(super) fn wake_paced(&mut self, now: Time) {
        while let Some(slot) = self.pacer.pop_due(now) {
            if self.qps.at(slot).is_some() {
                self.schedule.activate(ActiveList::Ready, slot);
                self.schedule.wake_driver();
            }
        }
    }

    /// Writes a control packet of the next queue pair that has one due.
    #[inline(never)]
    fn transmit_control(&mut self, now: Time, frame: &mut [u8]) -> Option<TxMeta> {
        while let Some(slot) = self.schedule.head(ActiveList::Control) {
            let Some(cx) = self.transmit_context(slot) else {
                self.schedule.deactivate(ActiveList::Control, slot);
                continue;
            };
            let sent = cx.entry.qp.poll_control(now, frame, cx.shared);
            match sent {
                Transmit::Sent(meta) => {
                    cx.timers.touch(slot);
                    cx.schedule.on_control_sent();
                    if !cx.entry.qp.is_control_due() {
                        cx.schedule.deactivate(ActiveList::Control, slot);
                    }
                    return Some(meta);
                }
                // The packet may not leave or could not be written. The next event of the queue
                // pair makes it due again, if it still is.
                Transmit::Idle | Transmit::Blocked | Transmit::Paced(_) => {
                    cx.schedule.deactivate(ActiveList::Control, slot);
                }
            }
        }
        None
    }

    /// Lets the queue pair at the head of a list write a packet, then moves it to the list that it
    /// belongs to.
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
        let space = cx.schedule.window_space(from, &cx.shared.config);
        let sent = cx.entry.qp.poll_transmit(now, space, frame, cx.shared);
        cx.entry.update_in_flight(cx.schedule);
        if cx.entry.qp.is_control_due() {
            // The last response has left, or a response failed: an ACK or NAK is due now.
            cx.schedule.activate(ActiveList::Control, slot);
        }
        match sent {
            Transmit::Sent(meta) => {
                cx.timers.touch(slot);
                cx.schedule.set_last_sent(slot);
                let len = spanwire_base::u32_from(meta.len);
                cx.schedule.on_data_sent(from, len + meta.elided_bytes);
                HeadOutcome::Sent(meta)
            }
            Transmit::Blocked if from == ActiveList::Blocked => HeadOutcome::WindowFull,
            left => {
                // The attempt may have armed the timer of a probe.
                cx.timers.touch(slot);
                cx.schedule.deactivate(from, slot);
                // Remove a stale entry of the pacer: a failed queue pair no longer waits for its
                // rate.
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

    #[inline(always)]
    fn transmit_context(&mut self, slot: u32) -> Option<TransmitContext<'_>> {
        Some(TransmitContext {
            entry: self.qps.at_mut(slot)?,
            shared: &mut self.shared,
            schedule: &mut self.schedule,
            timers: &mut self.timers,
            pacer: &mut self.pacer,
        })
    }
}

impl TransmitContext<'_> {
    /// Inserts the queue pair into the pacer: its next packet leaves at `at`.
    fn pace(&mut self, now: Time, slot: u32, at: Time) {
        if self.pacer.is_empty() {
            // An empty wheel may not have advanced to `now`. The time of a slot far ahead is then
            // up to a millisecond early, and the driver would wake for nothing.
            self.pacer.pop_due(now);
        }
        self.pacer.insert(slot, at);
    }
}

/// The outcome of an attempt to send from the head of a list.
enum HeadOutcome {
    Sent(TxMeta),
    /// Nothing was sent; the queue pair left the list.
    Removed,
    /// No queue pair of the list can send before the endpoint's window has room.
    WindowFull,
}
