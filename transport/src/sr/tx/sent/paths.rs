//! Events of packets by path, for the load balancer.

use super::Sent;
use super::ack_info::{AckInfo, PacketOutcome, PathEvent};
use super::entry::Entry;
use super::run::Strided;

impl<T: Strided> Sent<T> {
    /// Records path events from now on, for [`Sent::take_path_events`].
    pub(crate) fn track_paths(&mut self) {
        self.expand();
        self.path_events.get_or_insert_default();
    }

    /// The path of a packet's last transmission, while it is unacknowledged.
    pub(crate) fn path(&self, number: u64) -> Option<u16> {
        self.packet(number).map(|e| e.path)
    }

    /// The path events since the last call.
    pub(crate) fn take_path_events(&mut self) -> Vec<PathEvent> {
        self.path_events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns an empty list for reuse of its memory.
    pub(crate) fn recycle_path_events(&mut self, list: Vec<PathEvent>) {
        if let Some(path_events) = self.path_events.as_mut().filter(|old| old.is_empty()) {
            *path_events = list;
        }
    }

    /// Records the arrival of the packet `number`. If it was retransmitted, the arrival may be of
    /// the first transmission, whose path is not kept. In that case nothing is recorded for the
    /// last path.
    pub(super) fn push_path_arrival(&mut self, number: u64, newest: u64, info: &AckInfo<'_>) {
        let Some(&Entry { path, sent_at, bytes, is_retransmitted, .. }) = self.entry(number) else {
            return;
        };
        let may_be =
            if number == newest { sent_at == info.echo } else { sent_at <= info.latest_ackable };
        if is_retransmitted && !may_be {
            return;
        }
        let behind = newest.wrapping_sub(number);
        let marked = u32::from(behind < 64 && info.marks >> behind & 1 != 0);
        let (bytes, outcome) = (bytes.into(), PacketOutcome::Arrived);
        self.push_path_event(PathEvent { path, pkts: 1, bytes, marked, sent_at, outcome });
    }

    pub(in crate::sr::tx) fn push_path_event(&mut self, one: PathEvent) {
        let Some(events) = &mut self.path_events else { return };
        match events.last_mut() {
            Some(last) if last.path == one.path && last.outcome == one.outcome => {
                last.pkts += one.pkts;
                last.bytes += one.bytes;
                last.marked += one.marked;
                last.sent_at = last.sent_at.max(one.sent_at);
            }
            _ => events.push(one),
        }
    }
}
