//! Departing frames: marks, addresses, telemetry.

use super::{Leaving, Port};
use crate::config::Hop;
use crate::store::Store;
use spanwire_base::{Time, TxMeta, usize_from};
use spanwire_wire::{IntHop, IntStack, decrement_ttl, int_push};

impl Port {
    /// Copies a frame out and applies marking, routing and telemetry; `None` if it does not fit.
    #[inline]
    pub(crate) fn write(
        &mut self,
        now: Time,
        leaving: &Leaving,
        store: &Store,
        out: &mut [u8],
    ) -> Option<TxMeta> {
        let meta = store.meta(leaving.id);
        let mut len = usize_from(u64::from(meta.len));
        let Some(room) = out.get_mut(..len) else {
            self.counters.drop_tx_too_long += 1;
            return None;
        };
        room.copy_from_slice(store.bytes(leaving.id));
        if let Some(mark) = leaving.mark {
            self.queues[leaving.queue].mark(mark, room);
        }
        if self.has_int {
            len = self.stamp(now, leaving.queue, out, len, meta.elided_bytes);
        }
        self.counters.tx_pkts += 1;
        self.counters.tx_bytes += crate::link::wire_bytes(len, meta.elided_bytes);
        Some(TxMeta { len, elided_bytes: meta.elided_bytes })
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
    fn stamp(&mut self, now: Time, queue: usize, out: &mut [u8], len: usize, elided: u32) -> usize {
        let mbps = self.rate.map_or(0, |rate| rate.as_bps() / 1_000_000);
        let hop = IntHop {
            time_ps: now.as_ps(),
            tx_bytes: self.counters.tx_bytes,
            queue_bytes: u32::try_from(self.queues[queue].bytes()).unwrap_or(u32::MAX),
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
