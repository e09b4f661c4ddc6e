//! The wire between the two sides: loss, duplication, delay, corruption, and their end.

use super::{World, drawn};
use spanwire_base::{Checked, Dur, Rng, RxMeta, Time, usize_from};
use spanwire_wire::{AckReason, Opcode, Packet, SrAckRepr, SrDataRepr, ip_end};
use std::ops::Range;

/// A deliberate error, as if an engine lacked a safeguard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tamper {
    /// Retransmissions are not marked: a receiver adds them to the parity of first transmissions.
    UnmarkRetransmissions,
    /// An acknowledgement without SACK words becomes an RNR NAK.
    ForgeRnrNak,
    /// Timers are armed, but their expiry has no effect.
    IgnoreTimers,
}

/// Faults of the wire, in frames per thousand.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    /// Loss, by sending side.
    pub(super) lost: [u64; 2],
    /// Duplication; the copy is late.
    pub(super) duplicated: u64,
    pub(super) late: u64,
    pub(super) corrupt: u64,
    /// A mask of dead paths, a quarter of all, and the time during which they are dead.
    pub(super) dead: (u16, Range<Time>),
    /// One-way delay of frames that are not late.
    pub(super) delay: Dur,
    /// Maximum additional delay of late frames and copies.
    late_more: Dur,
    /// Frames arrive only at multiples of this, many at once; zero disables it.
    pub(super) grid: Dur,
    /// The longest time that hand-over to another engine of a side takes; zero with one engine.
    pub(super) handover: Dur,
    /// Frames sent at one time; the next ones are sent a little later.
    pub(super) burst: usize,
    /// The local ACK timeout in minimum round trips without faults; with few, many timeouts are
    /// spurious.
    timeout_rtts: u64,
    /// End of the faults: from then on every frame arrives once and in order.
    pub(super) until: Time,
}

/// A frame in flight.
pub(super) struct InFlight {
    /// The side that receives it.
    to: usize,
    bytes: Vec<u8>,
    /// When it arrived; it may have been handed over since.
    at: Time,
    /// It flips after the port has received the frame.
    bit_error: Option<BitError>,
}

/// A flipped bit.
#[derive(Clone, Copy, Debug)]
struct BitError {
    at: usize,
    bit: u64,
}

impl Faults {
    /// The wire of a seed. If packets are sent slowly, timeouts are short and many frames are
    /// duplicated, with the copy after later packets. Timeouts then appear spurious while packets
    /// wait for the pacer.
    pub(super) fn drawn(rng: &mut Rng, dead: (u16, Range<Time>), is_slow: bool) -> Self {
        let mut pick = |of: &[u64]| of[usize_from(rng.below(of.len() as u64))];
        let loss = [0, 0, 10, 50, 150, 300, 600, 900];
        let delays = if is_slow { [20, 100, 100, 100, 300] } else { [1, 5, 5, 20, 100] };
        let delay = Dur::from_us(pick(&delays));
        Self {
            lost: [(); 2].map(|()| if is_slow { pick(&[150, 300]) } else { pick(&loss) }),
            duplicated: if is_slow { 400 } else { pick(&[0, 20, 100, 400]) },
            late: if is_slow { pick(&[0, 0, 50]) } else { pick(&[0, 50, 250, 600]) },
            corrupt: pick(&[0, 0, 20]),
            dead,
            delay,
            late_more: if is_slow { LATE_SLOW } else { Dur::ZERO },
            grid: Dur::from_us(pick(&[0, 0, 2, 10])),
            handover: Dur::ZERO,
            burst: usize_from(pick(&[1, 3, 64, 64, 64])),
            timeout_rtts: if is_slow { 1 } else { pick(&[1, 3, 3, 100]) },
            until: Time::ZERO
                + if is_slow { SLOW_FAULTS } else { delay * pick(&[60, 200, 600, 2000]) },
        }
    }

    /// Maximum additional delay of a frame during the faults: three round trips, and if packets are
    /// sent slowly some pacing gaps.
    fn late_max(&self) -> Dur {
        self.delay * 6 + self.late_more
    }

    /// The longest round trip.
    pub(super) fn longest_rtt(&self) -> Dur {
        (self.delay + self.late_max() + self.grid + self.handover) * 2
    }

    /// The code of the local ACK timeout.
    pub(super) fn timeout(&self) -> u8 {
        let least = self.fault_free_rtt() * self.timeout_rtts;
        let fits = |code: &u8| Dur::from_ns(4_096) * (1 << code) >= least;
        (1..=31).find(fits).expect("no wire is that long")
    }

    /// The round trip without faults.
    pub(super) fn fault_free_rtt(&self) -> Dur {
        (self.delay + self.grid + self.handover) * 2
    }

    /// When the last frame sent during the faults has arrived.
    pub(super) fn faults_end(&self) -> Time {
        self.until + self.delay + self.late_max() + self.grid + self.handover
    }
}

impl World {
    /// The next frame for `side` that is due.
    pub(super) fn arrive(&mut self, side: usize) -> Option<(Vec<u8>, RxMeta)> {
        let due = self.flight.range(..=(self.now, u64::MAX)).find(|(_, frame)| frame.to == side);
        let key = *due?.0;
        let InFlight { bytes: frame, at, bit_error, .. } = self.flight.remove(&key)?;
        let checked = if self.has_checking_ports { Checked::of(&frame) } else { Checked::NONE };
        let meta = RxMeta { checked, ..RxMeta::whole(at) };
        let Some(BitError { at, bit }) = bit_error else { return Some((frame, meta)) };
        let mut bad = frame.clone();
        bad[at] ^= 1 << bit;
        assert!(Packet::parse(&bad).is_err(), "a bit error was not detected");
        Some((bad, meta))
    }

    /// Prints a frame, if the world is traced.
    pub(super) fn trace(&self, side: usize, does: &str, p: &Packet<'_>) {
        if !self.is_traced {
            return;
        }
        let what = match p.bth.opcode {
            Opcode::SrAck => format!("{:?}", SrAckRepr::parse(p.bth.psn.get(), p.payload)),
            Opcode::SrData => format!("{:?}", SrDataRepr::parse(p.bth.psn.get(), p.payload)),
            _ => format!("{:?}, {} bytes", p.ext, p.payload.len()),
        };
        let (opcode, psn, qpn) = (p.bth.opcode, p.bth.psn, p.bth.dest_qp);
        eprintln!("{:?}: {side} {does} {opcode:?} {psn:?} to {qpn:?}: {what}", self.now);
    }

    fn tamper_with(&self, frame: &mut [u8]) {
        if self.tamper.is_none() {
            return;
        }
        let p = Packet::parse(frame).expect("an engine wrote it");
        let (psn, end) = (p.bth.psn.get(), ip_end(frame, 0).expect("an IP packet"));
        let at = BTH_AT + BTH_BYTES;
        let emitted = match (self.tamper, p.bth.opcode) {
            (Some(Tamper::UnmarkRetransmissions), Opcode::SrData) => {
                let (mut header, _) = SrDataRepr::parse(psn, p.payload).expect("one of its own");
                header.is_retransmission = false;
                header.emit(&mut frame[at..][..header.header_len()])
            }
            (Some(Tamper::ForgeRnrNak), Opcode::SrAck) => {
                let bytes = p.payload.to_vec();
                let mut ack = SrAckRepr::parse(psn, &bytes).expect("one of its own");
                if ack.words.as_slice().is_empty() {
                    ack.reason = AckReason::NoReceive;
                }
                ack.emit(&mut frame[at..][..ack.header_len()])
            }
            _ => return,
        };
        emitted.expect("as long as before");
        spanwire_wire::seal(frame, end);
    }

    pub(super) fn transmit(&mut self, side: usize, mut frame: Vec<u8>) {
        let p = Packet::parse(&frame).expect("an engine wrote it");
        let path = p.udp.src_port;
        self.trace(side, "sends", &p);
        if matches!(p.bth.opcode, Opcode::SrData | Opcode::SrParity) {
            let q = self.ends[1 - side].qps.iter().position(|q| q.qpn == p.bth.dest_qp);
            self.model.send_sr(side, q.expect("sent to one of them"), &p);
        }
        self.tamper_with(&mut frame);
        let is_bad = self.now < self.faults.until;
        let Faults { lost, duplicated, late, corrupt, ref dead, delay, grid, .. } = self.faults;
        let hit = |wire: &mut Rng, rate: u64| is_bad && wire.below(1000) < rate;
        let is_dead = is_bad && path % 4 == dead.0 && dead.1.contains(&self.now);
        if hit(&mut self.wire, lost[side]) || is_dead {
            return;
        }
        let bit_error = hit(&mut self.wire, corrupt).then(|| {
            // In the BTH and after it, which the ICRC covers; its fifth byte is masked.
            let end = ip_end(&frame, 0).expect("an IP packet");
            let at = BTH_AT + 5 + usize_from(self.wire.below((end - BTH_AT - 5) as u64));
            BitError { at, bit: self.wire.below(8) }
        });
        drawn::stamp(&mut self.wire, self.now, &mut frame);
        let copies = 1 + u64::from(hit(&mut self.wire, duplicated));
        for copy in 0..copies {
            let by = match copy > 0 || hit(&mut self.wire, late) {
                true => Dur::from_ns(self.wire.below(self.faults.late_max().as_ns())),
                false => Dur::ZERO,
            };
            let at = self.now + delay + by;
            let behind = at.as_ps() % grid.as_ps().max(1);
            let at = if behind > 0 { at + Dur::from_ps(grid.as_ps() - behind) } else { at };
            self.sent += 1;
            let due = at + self.handover(1 - side, path, &frame);
            let frame = InFlight { to: 1 - side, bytes: frame.clone(), at, bit_error };
            self.flight.insert((due, self.sent), frame);
        }
    }
}

/// Four packets of 256 bytes at 1 Mbit/s.
const LATE_SLOW: Dur = Dur::from_ms(10);
/// Slow senders have sent most packets by then.
const SLOW_FAULTS: Dur = Dur::from_ms(500);
/// Ethernet, IPv4 and UDP precede the BTH.
const BTH_AT: usize = 14 + 20 + 8;
const BTH_BYTES: usize = 12;
