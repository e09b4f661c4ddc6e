//! A model of both streams of an SR connection.

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::setup::{REORDER_PKTS, Setup};
use spanwire_base::u64_from;
use spanwire_wire::{
    AtomicEthRepr, IntRecords, Opcode, Packet, Psn, SrAckRepr, SrDataRepr, SrNearRepr,
};
use std::collections::{BTreeMap, BTreeSet};

/// The part after the BTH of an SR packet, parsed again from the frame.
pub(super) enum Inside {
    /// Data or parity.
    Data(Box<SrDataRepr>, Vec<u8>),
    /// An acknowledgement without its telemetry, which does not affect the model.
    Ack(Box<SrAckRepr<'static>>),
    /// Feedback of a switch.
    Near(SrNearRepr<'static>),
}

/// A model of both streams of a connection.
pub(super) struct Streams {
    /// The lowest number of the peer's that has not arrived.
    pub(super) next: u64,
    /// Arrived numbers above that.
    ahead: BTreeSet<u64>,
    /// Operations that are executed once everything before them has arrived.
    pub(super) atomics: BTreeMap<u64, AtomicEthRepr>,
    /// The same for keys, and whether it may have been executed already: parity that may not have
    /// arrived is not waited for.
    pub(super) invalidations: BTreeMap<u64, (u32, bool)>,
    /// Blocks of the peer's.
    pub(super) incoming: Incoming,
    /// The queue pair has failed, by a NAK or by itself: the last packets may not count.
    pub(super) has_failed: bool,
    /// The number of our next new packet, and of those before it.
    pub(super) snd_nxt: u32,
    pub(super) outgoing: Outgoing,
    /// Responses that may still leave for the first time.
    pub(super) responses_left: u64,
    /// Payload of a full packet of ours.
    pub(super) segment_bytes: u32,
    /// The credit of our last acknowledgement.
    pub(super) credit: Option<u32>,
    /// Bytes that the last packet left of its buffer.
    pub(super) room: usize,
    /// Before RTS: bytes received minus bytes sent.
    unproven: Option<u64>,
}

impl Setup {
    /// The streams of SR as they begin.
    pub(super) fn streams(&self) -> Streams {
        let [rq_psn, sq_psn] = [self.rq_psn, self.sq_psn].map(|psn| psn.get() << 8);
        Streams::new(self, [rq_psn, sq_psn]).unproven(self.only_receives)
    }
}

impl Inside {
    pub(super) fn of(packet: &Packet<'_>) -> Option<Self> {
        let psn = packet.bth.psn.get();
        match packet.bth.opcode {
            opcode @ (Opcode::SrData | Opcode::SrParity) => {
                let (header, data) = match opcode {
                    Opcode::SrParity => SrDataRepr::parse_parity(psn, packet.payload),
                    _ => SrDataRepr::parse(psn, packet.payload),
                }
                .ok()?;
                Some(Self::Data(Box::new(header), data.to_vec()))
            }
            Opcode::SrAck => {
                let ack = SrAckRepr::parse(psn, packet.payload).ok()?;
                Some(Self::Ack(Box::new(SrAckRepr { int: IntRecords::NONE, ..ack })))
            }
            Opcode::SrNear => {
                let near = SrNearRepr::parse(psn, packet.payload).ok()?;
                Some(Self::Near(SrNearRepr { int: IntRecords::NONE, ..near }))
            }
            _ => None,
        }
    }
}

impl Streams {
    pub(super) fn new(setup: &Setup, [rq_psn, sq_psn]: [u32; 2]) -> Self {
        Self {
            // A turn ahead, so that nothing underflows.
            next: u64::from(rq_psn) + (1 << 32),
            ahead: BTreeSet::new(),
            atomics: BTreeMap::new(),
            invalidations: BTreeMap::new(),
            incoming: Incoming::default(),
            has_failed: false,
            snd_nxt: sq_psn,
            outgoing: Outgoing::new(setup),
            responses_left: 0,
            segment_bytes: setup.segment_bytes(),
            credit: None,
            room: 0,
            unproven: None,
        }
    }

    /// Limits output to input, until [`Streams::prove`].
    pub(super) fn unproven(self, is_unproven: bool) -> Self {
        Self { unproven: is_unproven.then_some(0), ..self }
    }

    pub(super) fn is_proven(&self) -> bool {
        self.unproven.is_none()
    }

    pub(super) fn prove(&mut self) {
        self.unproven = None;
    }

    /// A frame was delivered.
    pub(super) fn on_received(&mut self, frame_len: usize) {
        self.unproven = self.unproven.map(|bytes| bytes + u64_from(frame_len));
    }

    /// A frame left.
    pub(super) fn on_sent(&mut self, frame_len: usize) {
        if let Some(bytes) = &mut self.unproven {
            let left = bytes.checked_sub(u64_from(frame_len));
            *bytes = left.expect("more bytes leave than arrived, before RTS");
        }
    }

    /// The next number in its wire form.
    pub(super) fn expected(&self) -> u32 {
        low(self.next)
    }

    /// The number nearest to `next` with these bits on the wire.
    pub(super) fn number(&self, psn: u32) -> u64 {
        self.next.wrapping_add_signed(i64::from(psn.wrapping_sub(self.expected()).cast_signed()))
    }

    pub(super) fn has(&self, number: u64) -> bool {
        number < self.next || self.ahead.contains(&number)
    }

    pub(super) fn is_new(&self, number: u64) -> bool {
        number < self.next + u64::from(REORDER_PKTS) && !self.has(number)
    }

    pub(super) fn arrive(&mut self, number: u64) {
        self.ahead.insert(number);
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
    }

    /// A new packet was accepted.
    pub(super) fn take(&mut self, number: u64, header: &SrDataRepr, data: &[u8]) {
        let Self { incoming, next, ahead, .. } = self;
        incoming.on_packet(number, header, data, |n| n < *next || ahead.contains(&n));
        self.arrive(number);
    }

    /// Timers have expired.
    pub(super) fn time_passed(&mut self) {
        let Self { incoming, next, ahead, .. } = self;
        incoming.time_passed(|n| n < *next || ahead.contains(&n));
    }

    /// The engine expects a number with these low bits: all skipped numbers are settled.
    pub(super) fn expects(&mut self, psn: Psn) {
        while self.expected() & Psn::MASK != psn.get() {
            let is_right = self.incoming.was_settled(self.next);
            assert!(is_right, "{:#x} has not arrived, but {psn:?} is next", self.next);
            self.arrive(self.next);
        }
    }

    /// The engine's expected number is no longer known: at most the one that follows if everything
    /// that may be settled is.
    pub(super) fn may_expect(&mut self) {
        while self.incoming.was_settled(self.next) {
            self.arrive(self.next);
        }
    }

    /// Below this, everything may have been executed.
    pub(super) fn due(&self) -> u64 {
        let has = |n| self.has(n);
        let passes = |n: &u64| has(*n) || self.incoming.may_be_idle(*n, has);
        (self.next..).find(|n| !passes(n)).unwrap_or(self.next)
    }
}

fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("masked")
}
