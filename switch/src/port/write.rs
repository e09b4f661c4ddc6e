//! Departing frames: marks, addresses, telemetry.

use super::{Leaving, Port};
use crate::config::Hop;
use crate::store::Store;
use spanwire_base::{Time, TxMeta, u64_from, usize_from};
use spanwire_wire::{IntCredit, IntHop, IntStack, decrement_ttl, int_push, int_restart_credit};

impl Port {
    /// Copies a frame out and applies marking and telemetry; `None` if it does not fit.
    #[inline]
    pub(crate) fn write(
        &mut self,
        now: Time,
        leaving: &Leaving,
        store: &Store,
        out: &mut [u8],
    ) -> Option<TxMeta> {
        let mut sent = self.copy(leaving, store, out)?;
        if self.has_int {
            let queue_bytes = self.queues[leaving.queue].bytes();
            sent.len = self.stamp(now, queue_bytes, out, sent);
        }
        Some(self.count(sent))
    }

    /// As [`Port::write`], with telemetry that begins anew with this credit.
    #[inline(never)]
    pub(crate) fn write_anew(
        &mut self,
        now: Time,
        leaving: &Leaving,
        credit: IntCredit,
        store: &Store,
        out: &mut [u8],
    ) -> Option<TxMeta> {
        let mut sent = self.copy(leaving, store, out)?;
        let mut queue_bytes = self.queues[leaving.queue].bytes();
        if let Some(left) = int_restart_credit(out, sent.len, sent.elided_bytes, credit) {
            // What waits here waits on purpose.
            (sent.len, queue_bytes) = (left, 0);
        }
        if self.has_int {
            sent.len = self.stamp(now, queue_bytes, out, sent);
        }
        Some(self.count(sent))
    }

    /// Copies a frame out and marks it.
    #[inline]
    fn copy(&mut self, leaving: &Leaving, store: &Store, out: &mut [u8]) -> Option<TxMeta> {
        let meta = store.meta(leaving.id);
        let len = usize_from(u64::from(meta.len));
        let Some(room) = out.get_mut(..len) else {
            self.counters.drop_tx_too_long += 1;
            return None;
        };
        room.copy_from_slice(store.bytes(leaving.id));
        if let Some(mark) = leaving.mark {
            self.queues[leaving.queue].mark(mark, room);
        }
        Some(TxMeta { elided_bytes: meta.elided_bytes, ..TxMeta::whole(len) })
    }

    /// Counts a frame that leaves.
    #[inline]
    fn count(&mut self, sent: TxMeta) -> TxMeta {
        self.counters.tx_pkts += 1;
        self.counters.tx_bytes += crate::link::wire_bytes(sent.len, sent.elided_bytes);
        sent
    }

    /// Empties the telemetry of a frame that was written, so that the next switches begin it;
    /// returns the frame's description.
    pub(crate) fn empty_stack(&mut self, frame: &mut [u8], sent: TxMeta) -> TxMeta {
        let none = IntCredit::default();
        let Some(len) = int_restart_credit(frame, sent.len, sent.elided_bytes, none) else {
            return sent;
        };
        self.counters.tx_bytes -= u64_from(sent.len - len);
        TxMeta { len, ..sent }
    }

    /// Applies routing to a frame: TTL, and the addresses of this link.
    pub(super) fn rewrite(&self, frame: &mut [u8], hop: Hop) {
        let aged = decrement_ttl(frame);
        debug_assert_eq!(aged, Ok(()), "the TTL was checked before routing");
        if let (Some(mac), Some((addresses, _))) = (hop.mac, frame.split_first_chunk_mut::<12>()) {
            addresses[..6].copy_from_slice(&mac.0);
            addresses[6..].copy_from_slice(&self.mac.0);
        }
    }

    /// Adds a telemetry record if the frame requests one; returns the frame's length.
    fn stamp(&mut self, now: Time, queue_bytes: u64, out: &mut [u8], sent: TxMeta) -> usize {
        let TxMeta { len, elided_bytes: elided, .. } = sent;
        let mbps = self.rate.map_or(0, |rate| rate.as_bps() / 1_000_000);
        let hop = IntHop {
            time_ps: now.as_ps(),
            tx_bytes: self.counters.tx_bytes,
            queue_bytes: u32::try_from(queue_bytes).unwrap_or(u32::MAX),
            link_rate_mbps: u32::try_from(mbps).unwrap_or(u32::MAX),
        };
        if let Some(len) = int_push(out, len, elided, &hop) {
            self.counters.int_stamped += 1;
            return len;
        }
        if IntStack::find(&out[..len], elided).is_some() {
            self.counters.int_full += 1;
        }
        len
    }
}
