//! The receiving direction of SR: received packets, placement of their data, FEC decoding, ACKs.

pub(crate) mod ack;
pub(crate) mod credit_loop;
mod deadline;
pub(crate) mod decoder;
mod invariants;
pub(crate) mod received;
pub(crate) mod responder;

use crate::attr::QpAttr;
use crate::blocks::BlockMemory;
use crate::config::Config;
use crate::counters::Counters;
use crate::qp::common::Shared;
use crate::sr::crossing::AckDelay;
use crate::sr::number::{first_number, wrap};
use crate::timer::earlier;
use ack::AckState;
use credit_loop::CreditLoop;
use decoder::{Decoder, ExpiredBlock};
use received::Received;
use responder::Responder;
use spanwire_base::{Time, u64_from, usize_from};
use spanwire_cc::mlcc;
use spanwire_wire::{AckReason, BlockReports, SACK_WORDS_MAX, SackWord, SrAckRepr, SrCredit};
use std::net::{IpAddr, Ipv4Addr};

/// The state of the receiving direction.
#[derive(Debug)]
pub(crate) struct Rx {
    pub(super) received: Received,
    pub(super) ack: AckState,
    pub(super) responder: Responder,
    pub(super) decoder: Box<Decoder>,
    /// The receiver's part of MLCC, if the peer knows it and our congestion control is `mlcc`.
    pub(super) credit_loop: Option<Box<CreditLoop>>,
    /// The receive limit of the last ACK.
    advertised_receive_limit: u32,
    /// Bytes received less bytes of ACKs sent, until RTS. The source address may be forged before
    /// that. Its owner must not receive more bytes than were sent in its name: the
    /// anti-amplification limit of RFC 9000 8.1, with a factor of one.
    unvalidated_bytes: Option<u64>,
}

impl Rx {
    /// The state before the first packet. `attr` holds all attributes in force.
    pub(super) fn new(attr: &QpAttr, config: &Config) -> Self {
        let peer = attr.av.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |av| av.dst_ip);
        Self {
            received: Received::new(
                first_number(attr.rq_psn.unwrap_or_default()),
                config.reorder_pkts,
            ),
            ack: AckState::new(),
            responder: Responder::new(attr.max_dest_rd_atomic.unwrap_or(0)),
            decoder: Box::new(Decoder::new(peer, config.block_bytes_qp)),
            credit_loop: None,
            advertised_receive_limit: 0,
            unvalidated_bytes: Some(0),
        }
    }

    /// Applies the attributes that may change in SQD.
    pub(super) fn modify(&mut self, attr: &QpAttr) {
        self.responder.set_rd_atomic_max(attr.max_dest_rd_atomic.unwrap_or(0));
    }

    /// Counts a received packet of `bytes` bytes of IP towards the anti-amplification limit.
    pub(super) fn on_ip_bytes(&mut self, bytes: u64) {
        if let Some(unvalidated) = &mut self.unvalidated_bytes {
            *unvalidated = unvalidated.saturating_add(bytes);
        }
    }

    /// Validates the peer's address: the queue pair is in RTS, so the application has connected it.
    pub(super) fn validate_peer(&mut self) {
        self.unvalidated_bytes = None;
    }

    /// The peer's address is validated: ACKs may have any length, and responses may be sent.
    pub(super) fn is_peer_valid(&self) -> bool {
        self.unvalidated_bytes.is_none()
    }

    /// SACK words that an ACK may have with `outside` bytes of other headers. `None` if not even an
    /// ACK without SACK words may be sent yet.
    pub(super) fn sack_words_allowed(&self, outside: usize) -> Option<usize> {
        let Some(bytes) = self.unvalidated_bytes else { return Some(SACK_WORDS_MAX) };
        let fixed = u64_from(LINK_BYTES + outside + SrAckRepr::WORDLESS_LEN);
        let words = bytes.checked_sub(fixed)? / u64_from(SackWord::LEN);
        Some(usize_from(words.min(u64_from(SACK_WORDS_MAX))))
    }

    /// Counts an ACK of `bytes` bytes of IP against the anti-amplification limit.
    pub(super) fn on_ack_sent(&mut self, bytes: usize) {
        if let Some(unvalidated) = &mut self.unvalidated_bytes {
            *unvalidated = unvalidated.saturating_sub(u64_from(LINK_BYTES + bytes));
        }
    }

    /// The next ACK, without block reports and INT. `reachable` receive requests are unused.
    pub(super) fn acknowledgement(&mut self, now: Time, reachable: u32) -> SrAckRepr<'static> {
        let receive_limit = self.responder.first_receive().wrapping_add(reachable);
        self.advertised_receive_limit = receive_limit;
        let mut ack = SrAckRepr {
            next: wrap(self.received.next()),
            psn_limit: wrap(self.received.limit()),
            receive_limit,
            words: self.received.words(),
            ..SrAckRepr::default()
        };
        self.ack.fill_ack(now, &mut ack);
        ack
    }

    /// Starts the credit loop with `receiver`, or ends it. A loop that runs is kept, because its
    /// peer and the switch between them know its rounds.
    pub(crate) fn set_credit_loop(&mut self, receiver: Option<mlcc::Receiver>) {
        let running = self.credit_loop.take();
        self.credit_loop =
            receiver.map(|receiver| running.unwrap_or_else(|| Box::new(CreditLoop::new(receiver))));
    }

    /// The credit of the next ACK.
    pub(super) fn credit(&self) -> Option<SrCredit> {
        self.credit_loop.as_ref()?.credit()
    }

    /// The block reports of the next ACK.
    pub(super) fn block_reports(&mut self) -> BlockReports {
        if self.is_peer_valid() { self.decoder.reports() } else { BlockReports::default() }
    }

    /// The peer has used, or tried to use, all receive requests that were advertised to it.
    pub(super) fn peer_may_lack_credit(&self) -> bool {
        self.responder.exhausts(self.advertised_receive_limit)
    }

    /// A receive request was posted. A peer that may lack receive credit gets an ACK.
    pub(crate) fn on_receive_posted(&mut self) {
        if self.ack.has_received() && self.peer_may_lack_credit() {
            self.ack.request_ack(AckReason::Limit);
        }
    }

    /// Repeats a NAK if the peer continues to send: the ACK with it may have been lost.
    pub(super) fn repeat_nak(&mut self, now: Time, delay: AckDelay) {
        if self.ack.may_repeat_nak() {
            self.ack.request_ack_limited(now, delay);
        }
    }

    /// The time of the next [`Rx::handle_timeout`].
    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let deadline = earlier(self.ack.next(), self.decoder.next_deadline());
        match &self.credit_loop {
            None => deadline,
            Some(credit_loop) => earlier(deadline, credit_loop.next_deadline()),
        }
    }

    /// Handles the timers that are due at `now`: block deadlines, delayed ACKs and rounds of MLCC.
    pub(super) fn handle_timeout(&mut self, now: Time, sh: &mut Shared) {
        if self.decoder.next_deadline().is_some_and(|at| at <= now) {
            self.on_block_deadline(now, sh);
        }
        self.ack.handle_timeout(now);
        if let Some(credit_loop) = &mut self.credit_loop
            && credit_loop.handle_timeout(now)
        {
            self.ack.request_ack(AckReason::Time);
        }
    }

    fn on_block_deadline(&mut self, now: Time, sh: &mut Shared) {
        while let Some(expired) = self.decoder.pop_expired(now, &mut sh.block_memory) {
            if let ExpiredBlock::Settle(numbers) = expired {
                self.received.settle(numbers);
            }
            self.ack.request_ack(AckReason::Block);
        }
        self.count_blocks(&mut sh.counters);
    }

    /// Frees the memory of FEC blocks and ends the credit loop, after the last packet was received.
    pub(crate) fn free_blocks(&mut self, memory: &mut BlockMemory) {
        self.credit_loop = None;
        self.decoder.clear(memory);
    }

    pub(super) fn count_blocks(&mut self, counters: &mut Counters) {
        let new = self.decoder.take_counters();
        counters.ec_blocks_rebuilt += new.recovered;
        counters.ec_blocks_plain += new.uncoded;
        counters.ec_block_nacks += new.nacks;
    }
}

/// The Ethernet header, counted for ACKs sent and not for packets received. Therefore neither many
/// small ACKs of few large packets nor one large ACK of many small packets exceeds the bytes
/// received.
const LINK_BYTES: usize = 14;
