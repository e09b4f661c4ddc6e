//! Erasure coding of sent data (docs/protocol/sr.md, "Blocks"): the encoder, and the effects of
//! lost packets of blocks. The packets of blocks that were sent are in [`Sent`].

mod digest;
mod encoder;
pub(super) mod position;
mod sender;
mod sent;

use super::plan::{Contents, PlannedPacket, TransmissionKind};
use super::sent::Sent;
use super::sent::ack_info::{Acked, NewlyLost};
use crate::coding::ErasureCoding;
use crate::counters::Counters;
use crate::payload::PayloadMut;
use crate::qp::flow::Flow;
use encoder::Encoder;
use spanwire_base::{Dur, Time};
use spanwire_cc::LossKind;

/// The erasure coding of a sending direction.
#[derive(Debug)]
pub(super) struct Coding {
    encoder: Encoder,
    /// The recovery period of packets of blocks ends when all packets below this number are
    /// acknowledged. It has no effect on the reordering window: parity leaves no time to
    /// retransmissions.
    recovery_end: Option<u64>,
}

impl Coding {
    pub(super) fn new(choice: ErasureCoding, base_rtt: Option<Dur>) -> Self {
        Self { encoder: Encoder::new(choice, base_rtt), recovery_end: None }
    }

    /// A block is open: its next packet goes before all other new ones.
    pub(super) fn is_open(&self) -> bool {
        self.encoder.next().is_some()
    }

    /// Abandons the open block: its message ended early.
    pub(super) fn abandon(&mut self) {
        self.encoder.abandon();
    }

    /// Asserts the invariants of the open block.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(super) fn check_invariants(&self) {
        debug_assert!(
            self.encoder.next().is_none_or(|(block, _)| block.index < block.pkts()),
            "a block that has been sent whole is closed"
        );
    }

    /// Writes the payload of a block's packet; false if its memory is no longer registered. `copy`
    /// copies the contents of a source packet, which are added to the parity.
    #[inline]
    pub(super) fn fill(
        &mut self,
        planned: &PlannedPacket,
        payload: PayloadMut<'_>,
        copy: impl FnOnce(PayloadMut<'_>) -> bool,
    ) -> bool {
        let is_new = planned.kind == TransmissionKind::First;
        match payload {
            PayloadMut::Bytes(out) if is_new && planned.contents == Contents::Parity => {
                self.encoder.copy_parity(out)
            }
            PayloadMut::Bytes(out) => {
                let is_there = copy(PayloadMut::Bytes(&mut *out));
                self.encoder.on_filled(out, is_new);
                is_there
            }
            payload => {
                self.encoder.on_filled(&[], false);
                copy(payload)
            }
        }
    }

    /// Handles losses that an ACK reports; see [`Coding::on_lost`].
    #[inline]
    pub(super) fn on_reports(
        &mut self,
        now: Time,
        acked: &Acked,
        sent: &Sent<Contents>,
        counters: &mut Counters,
        flow: Option<&mut Flow>,
    ) {
        let mut lost = acked.settled;
        lost.add(acked.nacked);
        counters.ec_settled_packets += acked.settled.pkts;
        counters.ec_short_packets += acked.nacked.pkts;
        self.on_lost(now, lost, sent, flow);
    }

    /// Handles losses of packets of blocks. They start no recovery period: their retransmissions,
    /// which were queued at the same time, do.
    #[inline]
    pub(super) fn on_lost(
        &mut self,
        now: Time,
        lost: NewlyLost,
        sent: &Sent<Contents>,
        mut flow: Option<&mut Flow>,
    ) {
        let in_flight_bytes = sent.in_flight_bytes();
        if lost.pkts > 0 {
            self.encoder.on_lost(lost.pkts);
            if let Some(flow) = flow.as_deref_mut() {
                flow.count_lost(lost.bytes);
                flow.on_loss(now, LossKind::Block, lost.bytes, in_flight_bytes);
            }
        }
        let pkts = sent.coding.queued_pkts;
        if pkts == 0 || self.recovery_end.is_some() {
            return;
        }
        self.recovery_end = Some(sent.next());
        if let Some(flow) = flow {
            let bytes = pkts * u64::from(flow.mtu_bytes());
            flow.on_loss(now, LossKind::BlockRecovery, bytes, in_flight_bytes);
        }
    }

    /// All packets below `una` are acknowledged.
    #[inline]
    pub(super) fn on_acked(&mut self, una: u64) {
        self.recovery_end = self.recovery_end.filter(|end| una < *end);
    }
}

/// The bytes that a block adds to the longest packet header: position and QPN of data, or position
/// and bytes of parity, which carries no QPN.
pub(super) const OVERHEAD_BYTES: u32 = 4 + SOURCE_QPN_BYTES;
/// The bytes of our QPN in a packet header.
pub(super) const SOURCE_QPN_BYTES: u32 = 4;
