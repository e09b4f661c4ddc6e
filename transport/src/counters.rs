//! The counters of an endpoint. Names follow `rdma statistic` (hw_counters) where it has one.

use crate::drop::DropReason;
use spanwire_wire as wire;

/// Counters of one endpoint since its creation. All are monotonic.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Packets accepted by a queue pair.
    pub rx_packets: u64,
    /// Payload bytes of those.
    pub rx_payload_bytes: u64,
    /// Packets written for sending.
    pub tx_packets: u64,
    /// Payload bytes of those.
    pub tx_payload_bytes: u64,
    /// READ requests executed.
    pub rx_read_requests: u64,
    /// Atomic operations executed; duplicates are not.
    pub rx_atomic_requests: u64,
    /// SEND and WRITE messages received to their end.
    pub rx_messages: u64,
    /// ACKs sent, NAKs not counted.
    pub tx_acks: u64,
    /// Duplicate request packets.
    pub duplicate_request: u64,
    /// Gaps found in the requests received: one NAK each.
    pub out_of_sequence: u64,
    /// Messages that found no receive request: one RNR NAK each.
    pub out_of_buffer: u64,
    /// Fatal NAKs sent (0x61, 0x62, 0x63).
    pub tx_fatal_naks: u64,
    /// NAKs for a sequence error received.
    pub packet_seq_err: u64,
    /// RNR NAKs received; of SR, rounds of packets that found no receive request.
    pub rnr_nak_retry_err: u64,
    /// Gaps found in responses, or ACKs of a packet after a READ or atomic without its response.
    pub implied_nak_seq_err: u64,
    /// Times packets longer than the path carries were found, and packets became shorter or are
    /// sent as fragments.
    pub path_mtu_reduced: u64,
    /// Times a longer packet was found to arrive.
    pub path_mtu_raised: u64,
    /// Expirations of the retransmission timer.
    pub local_ack_timeout_err: u64,
    /// Packets retransmitted, whatever the cause: presumed loss, tail loss probes, no receive
    /// request.
    pub retransmitted_packets: u64,
    /// Completions with an error status on a send queue, flushes not counted.
    pub req_cqe_error: u64,
    /// Completions with an error status on a receive queue, flushes not counted.
    pub resp_cqe_error: u64,
    /// Requests flushed.
    pub flushed: u64,
    /// Completions lost because a completion queue was too small.
    pub cq_overrun: u64,
    /// Packets received with CE (congestion experienced) in the IP header.
    pub np_ecn_marked_roce_packets: u64,
    /// CNPs sent (RC).
    pub np_cnp_sent: u64,
    /// CNPs received and accepted.
    pub rp_cnp_handled: u64,
    /// SR: pseudo-ACKs of switches received and accepted.
    pub rp_pseudo_acks: u64,
    /// SR: telemetry of nearby switches, passed to congestion control.
    pub rp_near_int: u64,
    /// SR: tail loss probes: the newest packet is retransmitted after two RTTs without an ACK.
    pub tail_loss_probes: u64,
    /// SR: probes for receive credit.
    pub receive_limit_probes: u64,
    /// SR: packets presumed lost: overdue (RACK), outstanding at a retransmission timeout, or
    /// reported missing by a block NACK. Without FEC, the network has lost about
    /// `presumed_lost_packets` - `spurious_lost_packets` + `tail_loss_probes` packets.
    pub presumed_lost_packets: u64,
    /// SR: of these, packets that had arrived or arrived later, as far as ACKs prove it.
    pub spurious_lost_packets: u64,
    /// SR: of these, packets that had been retransmitted by then (spurious retransmissions).
    pub spurious_retransmits: u64,
    /// SR: spurious timeouts, whose effects were undone.
    pub spurious_timeouts: u64,
    /// SR: parity packets sent.
    pub ec_parity_packets: u64,
    /// SR: lost packets of own blocks that the peer has reported as not needed.
    pub ec_settled_packets: u64,
    /// SR: lost packets of own blocks that the peer has reported as needed (block NACK).
    pub ec_short_packets: u64,
    /// SR: blocks of the peer of which source packets were recovered.
    pub ec_blocks_rebuilt: u64,
    /// SR: source packets of the peer that were recovered.
    pub ec_rebuilt_packets: u64,
    /// SR: blocks of the peer without recovery: beyond the memory limit, of an unknown code, or
    /// recovered and refused.
    pub ec_blocks_plain: u64,
    /// SR: block NACKs sent.
    pub ec_block_nacks: u64,
    drops: [u64; DropReason::OWN.len()],
    wire_drops: [u64; wire::DropReason::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            rx_packets: 0,
            rx_payload_bytes: 0,
            tx_packets: 0,
            tx_payload_bytes: 0,
            rx_read_requests: 0,
            rx_atomic_requests: 0,
            rx_messages: 0,
            tx_acks: 0,
            duplicate_request: 0,
            out_of_sequence: 0,
            out_of_buffer: 0,
            tx_fatal_naks: 0,
            packet_seq_err: 0,
            rnr_nak_retry_err: 0,
            implied_nak_seq_err: 0,
            path_mtu_reduced: 0,
            path_mtu_raised: 0,
            local_ack_timeout_err: 0,
            retransmitted_packets: 0,
            req_cqe_error: 0,
            resp_cqe_error: 0,
            flushed: 0,
            cq_overrun: 0,
            np_ecn_marked_roce_packets: 0,
            np_cnp_sent: 0,
            rp_cnp_handled: 0,
            rp_pseudo_acks: 0,
            rp_near_int: 0,
            tail_loss_probes: 0,
            receive_limit_probes: 0,
            presumed_lost_packets: 0,
            spurious_lost_packets: 0,
            spurious_retransmits: 0,
            spurious_timeouts: 0,
            ec_parity_packets: 0,
            ec_settled_packets: 0,
            ec_short_packets: 0,
            ec_blocks_rebuilt: 0,
            ec_rebuilt_packets: 0,
            ec_blocks_plain: 0,
            ec_block_nacks: 0,
            drops: [0; DropReason::OWN.len()],
            wire_drops: [0; wire::DropReason::ALL.len()],
        }
    }
}

impl Counters {
    /// Counts one dropped packet.
    pub(crate) fn drop(&mut self, reason: DropReason) {
        let cell = match reason {
            DropReason::Wire(wire) => self.wire_drops.get_mut(wire.index()),
            own => own.own_index().and_then(|i| self.drops.get_mut(i)),
        };
        if let Some(cell) = cell {
            *cell += 1;
        }
    }

    /// Packets dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        let cell = match reason {
            DropReason::Wire(wire) => self.wire_drops.get(wire.index()),
            own => own.own_index().and_then(|i| self.drops.get(i)),
        };
        cell.copied().unwrap_or(0)
    }

    /// All counters by name, drops as `drop_<reason>`, for reports.
    #[must_use]
    pub fn list(&self) -> Vec<(String, u64)> {
        let named = [
            ("rx_packets", self.rx_packets),
            ("rx_payload_bytes", self.rx_payload_bytes),
            ("tx_packets", self.tx_packets),
            ("tx_payload_bytes", self.tx_payload_bytes),
            ("rx_read_requests", self.rx_read_requests),
            ("rx_atomic_requests", self.rx_atomic_requests),
            ("rx_messages", self.rx_messages),
            ("tx_acks", self.tx_acks),
            ("duplicate_request", self.duplicate_request),
            ("out_of_sequence", self.out_of_sequence),
            ("out_of_buffer", self.out_of_buffer),
            ("tx_fatal_naks", self.tx_fatal_naks),
            ("packet_seq_err", self.packet_seq_err),
            ("rnr_nak_retry_err", self.rnr_nak_retry_err),
            ("implied_nak_seq_err", self.implied_nak_seq_err),
            ("path_mtu_reduced", self.path_mtu_reduced),
            ("path_mtu_raised", self.path_mtu_raised),
            ("local_ack_timeout_err", self.local_ack_timeout_err),
            ("retransmitted_packets", self.retransmitted_packets),
            ("req_cqe_error", self.req_cqe_error),
            ("resp_cqe_error", self.resp_cqe_error),
            ("flushed", self.flushed),
            ("cq_overrun", self.cq_overrun),
            ("np_ecn_marked_roce_packets", self.np_ecn_marked_roce_packets),
            ("np_cnp_sent", self.np_cnp_sent),
            ("rp_cnp_handled", self.rp_cnp_handled),
            ("rp_pseudo_acks", self.rp_pseudo_acks),
            ("rp_near_int", self.rp_near_int),
            ("tail_loss_probes", self.tail_loss_probes),
            ("receive_limit_probes", self.receive_limit_probes),
            ("presumed_lost_packets", self.presumed_lost_packets),
            ("spurious_lost_packets", self.spurious_lost_packets),
            ("spurious_retransmits", self.spurious_retransmits),
            ("spurious_timeouts", self.spurious_timeouts),
            ("ec_parity_packets", self.ec_parity_packets),
            ("ec_settled_packets", self.ec_settled_packets),
            ("ec_short_packets", self.ec_short_packets),
            ("ec_blocks_rebuilt", self.ec_blocks_rebuilt),
            ("ec_rebuilt_packets", self.ec_rebuilt_packets),
            ("ec_blocks_plain", self.ec_blocks_plain),
            ("ec_block_nacks", self.ec_block_nacks),
        ];
        let own = DropReason::OWN.into_iter();
        let wire = wire::DropReason::ALL.iter().map(|r| DropReason::Wire(*r));
        let drops = own.chain(wire).map(|r| (format!("drop_{}", r.name()), self.dropped(r)));
        named.into_iter().map(|(name, n)| (name.to_owned(), n)).chain(drops).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop__every_reason_has_its_own_cell_and_name() {
        let mut c = Counters::default();
        let wire = wire::DropReason::ALL.iter().map(|r| DropReason::Wire(*r));
        let all: Vec<DropReason> = DropReason::OWN.into_iter().chain(wire).collect();
        for reason in &all {
            assert_eq!(c.dropped(*reason), 0, "{reason:?} shares a cell");
            c.drop(*reason);
            assert_eq!(c.dropped(*reason), 1);
        }
        let mut names: Vec<String> = c.list().into_iter().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "two counters share a name");
    }
}
