//! What becomes of packets on their ways, for whoever chooses the ways.

use super::Sent;
use super::ack_info::{AckInfo, PacketOutcome, PathEvent};
use super::entry::Entry;

impl<T: Copy> Sent<T> {
    /// From now on tells of paths with [`Sent::take_path_events`].
    pub(crate) fn track_paths(&mut self) {
        self.path_events.get_or_insert_default();
    }

    /// The path that a packet was sent by last, while it is not acknowledged.
    pub(crate) fn path(&self, number: u64) -> Option<u16> {
        self.entry(number).map(|e| e.path)
    }

    /// What has happened to packets on their ways since the last time.
    pub(crate) fn take_path_events(&mut self) -> Vec<PathEvent> {
        self.path_events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Gives an empty list back, whose memory is used again.
    pub(crate) fn recycle_path_events(&mut self, list: Vec<PathEvent>) {
        if let Some(path_events) = self.path_events.as_mut().filter(|old| old.is_empty()) {
            *path_events = list;
        }
    }

    /// The packet `number` has arrived. Of what was sent twice the first may have, by a path that
    /// is forgotten: the second one's path has brought nothing then.
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

    pub(super) fn push_path_event(&mut self, one: PathEvent) {
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
