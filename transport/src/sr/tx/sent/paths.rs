//! What becomes of packets on their ways, for whoever chooses the ways.

use super::{Entry, Sent, Told};
use spanwire_base::Time;

/// What happened to packets that were sent by one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OnPath {
    /// The path, as [`Sent::push`] was told.
    pub(crate) path: u16,
    pub(crate) pkts: u32,
    pub(crate) bytes: u64,
    /// Of those that arrived, packets that came marked.
    pub(crate) marked: u32,
    /// When the one of them was sent that was sent latest.
    pub(crate) sent_at: Time,
    pub(crate) fate: Fate,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Arrived,
    /// Found lost, by time or because its block is short.
    Lost,
    /// Lost, and not needed any more.
    Settled,
}

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
    pub(super) fn tell_arrived(&mut self, number: u64, newest: u64, told: &Told<'_>) {
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
