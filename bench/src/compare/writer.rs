//! The application at the sender: WRITEs of one size, whose bytes differ from message to message.

use spanwire_base::{Dur, Time, usize_from};
use spanwire_host::queue_pair::QpParams;
use spanwire_mem::{OutOfBounds, Region};
use spanwire_transport::{
    App, CqId, Endpoint, MemoryRegion, RemoteAddr, Sge, WcStatus, WorkRequest, WrOp,
};
use spanwire_wire::Qpn;

/// Keeps [`DEPTH`] messages outstanding for a time, each in a slot of the memory of both ends. It
/// begins with one, and each completion adds one, so that a host without processor time has few
/// messages to complete after the time.
pub(super) struct Writer {
    pub(super) cq: CqId,
    pub(super) qp: QpParams,
    /// Our memory, a slot after the other, and its registration.
    pub(super) region: Region,
    pub(super) mr: MemoryRegion,
    /// The peer's memory.
    pub(super) remote: RemoteAddr,
    /// Bytes of a message, whole pages.
    pub(super) message_bytes: u32,
    pub(super) time: Dur,
    pub(super) progress: Progress,
}

/// The progress of a [`Writer`].
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    posted: u64,
    /// Slots in use, from the first.
    pub(super) slots: u64,
    /// Messages completed.
    pub(super) messages: u64,
    started: Option<Time>,
    last: Option<Time>,
    /// The reason of an early end.
    pub(super) failure: Option<String>,
}

impl Progress {
    /// All messages are complete, or the run has failed.
    pub(super) fn is_done(&self) -> bool {
        self.failure.is_some() || self.started.is_some() && self.messages == self.posted
    }

    /// Seconds from the first message to the last completion.
    pub(super) fn seconds(&self) -> f64 {
        let span = self.started.zip(self.last).map_or(Dur::ZERO, |(from, to)| to.since(from));
        span.as_ns() as f64 / 1e9
    }

    /// Fails a run whose messages do not complete.
    pub(super) fn end_overdue(&mut self, now: Time, time: Dur) {
        let is_overdue = self.started.is_some_and(|started| now > started + time + DRAIN);
        if is_overdue && !self.is_done() {
            let open = self.posted - self.messages;
            self.failure = Some(format!("{open} messages did not complete within {DRAIN:?}"));
        }
    }
}

impl Writer {
    /// Posts the next message on `slot`, with the number of the message in each of its pages.
    fn post(&mut self, slot: u64, ep: &mut Endpoint) {
        let offset = slot * u64::from(self.message_bytes);
        if let Err(why) = stamp(&self.region, offset, self.message_bytes, self.progress.posted) {
            self.progress.failure = Some(why.to_string());
            return;
        }
        let sge = Sge { addr: self.mr.addr + offset, len: self.message_bytes, lkey: self.mr.lkey };
        let RemoteAddr { va, rkey } = self.remote;
        let op = WrOp::Write { remote: RemoteAddr { va: va + offset, rkey } };
        let wr = WorkRequest::new(slot, op, std::slice::from_ref(&sge));
        match ep.post_send(Qpn::new(self.qp.qpn), &wr) {
            Ok(()) => self.progress.posted += 1,
            Err(why) => self.progress.failure = Some(format!("a message is not accepted: {why}")),
        }
    }

    fn post_in_new_slot(&mut self, ep: &mut Endpoint) {
        if self.progress.slots < DEPTH.into() {
            self.post(self.progress.slots, ep);
            self.progress.slots += 1;
        }
    }
}

impl App for Writer {
    fn poll(&mut self, now: Time, ep: &mut Endpoint) {
        if self.progress.started.is_none() {
            self.progress.started = Some(now);
            self.post_in_new_slot(ep);
        }
        let until = self.progress.started.map_or(now, |started| started + self.time);
        loop {
            match ep.poll_cq(self.cq) {
                Ok(None) => return,
                Ok(Some(wc)) if wc.status == WcStatus::Success => {
                    self.progress.messages += 1;
                    self.progress.last = Some(now);
                    if now < until {
                        self.post(wc.wr_id, ep);
                        self.post_in_new_slot(ep);
                    }
                }
                Ok(Some(wc)) => {
                    self.progress.failure.get_or_insert(wc.status.name().to_owned());
                    return;
                }
                Err(why) => {
                    self.progress.failure.get_or_insert(why.to_string());
                    return;
                }
            }
        }
    }
}

/// Writes `number` to the start of each page of the message at `offset`.
fn stamp(region: &Region, offset: u64, bytes: u32, number: u64) -> Result<(), OutOfBounds> {
    let start = usize_from(offset);
    let end = start + usize_from(bytes.into());
    let mut pages = (start..end).step_by(PAGE_BYTES);
    pages.try_for_each(|at| region.copy_in(at, &number.to_le_bytes()))
}

/// Messages outstanding.
pub(super) const DEPTH: u32 = 16;
const PAGE_BYTES: usize = 4096;
/// Time for the last messages, which only a failure exceeds.
const DRAIN: Dur = Dur::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp__is_in_every_page_of_the_message_only() {
        let region = Region::zeroed(4 * PAGE_BYTES);
        stamp(&region, PAGE_BYTES as u64, 8192, u64::MAX).unwrap();
        let mut all = vec![0; region.len()];
        region.copy_out(0, &mut all).unwrap();
        let stamped: Vec<usize> = (0..all.len()).filter(|at| all[*at] != 0).collect();
        let expected: Vec<usize> = [1, 2]
            .into_iter()
            .flat_map(|page| (0..8).map(move |n| page * PAGE_BYTES + n))
            .collect();
        assert_eq!(stamped, expected);
        assert!(stamp(&region, 0, 20_480, 1).is_err());
    }

    #[test]
    fn end_overdue__fails_only_what_did_not_complete() {
        let started = Some(Time::ZERO);
        let after = Time::ZERO + Dur::from_ms(100) + DRAIN + Dur::from_ms(1);
        let mut open = Progress { posted: 3, messages: 1, started, ..Progress::default() };
        open.end_overdue(after - Dur::from_ms(1), Dur::from_ms(100));
        assert!(!open.is_done());
        open.end_overdue(after, Dur::from_ms(100));
        assert!(open.failure.unwrap().starts_with("2 messages did not complete"));
        let mut complete = Progress { posted: 3, messages: 3, started, ..Progress::default() };
        complete.end_overdue(after, Dur::from_ms(100));
        assert!(complete.is_done() && complete.failure.is_none());
    }
}
