//! What becomes of packets on their ways, for whoever chooses the ways.

use super::Sent;
use super::ack_info::{AckInfo, Fate, OnPath};
use super::entry::Entry;

impl<T: Copy> Sent<T> {
    /// From now on tells of paths with [`Sent::take_on_paths`].
    pub(crate) fn watch_paths(&mut self) {
        self.on_paths.get_or_insert_default();
    }

    /// The path that a packet was sent by last, while it is not acknowledged.
    pub(crate) fn path(&self, number: u64) -> Option<u16> {
        self.entry(number).map(|e| e.path)
    }

    /// What has happened to packets on their ways since the last time.
    pub(crate) fn take_on_paths(&mut self) -> Vec<OnPath> {
        self.on_paths.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Gives an empty list back, whose memory is used again.
    pub(crate) fn give_on_paths(&mut self, list: Vec<OnPath>) {
        if let Some(on_paths) = self.on_paths.as_mut().filter(|old| old.is_empty()) {
            *on_paths = list;
        }
    }

    /// The packet `number` has arrived. Of what was sent twice the first may have, by a path that
    /// is forgotten: the second one's path has brought nothing then.
    pub(super) fn tell_arrived(&mut self, number: u64, newest: u64, told: &AckInfo<'_>) {
        let Some(&Entry { path, sent_at, bytes, was_resent, .. }) = self.entry(number) else {
            return;
        };
        let may_be = if number == newest { sent_at == told.echo } else { sent_at <= told.audible };
        if was_resent && !may_be {
            return;
        }
        let behind = newest.wrapping_sub(number);
        let marked = u32::from(behind < 64 && told.marks >> behind & 1 != 0);
        let (bytes, fate) = (bytes.into(), Fate::Arrived);
        self.tell_path(OnPath { path, pkts: 1, bytes, marked, sent_at, fate });
    }

    pub(super) fn tell_path(&mut self, one: OnPath) {
        let Some(told) = &mut self.on_paths else { return };
        match told.last_mut() {
            Some(last) if last.path == one.path && last.fate == one.fate => {
                last.pkts += one.pkts;
                last.bytes += one.bytes;
                last.marked += one.marked;
                last.sent_at = last.sent_at.max(one.sent_at);
            }
            _ => told.push(one),
        }
    }
}
