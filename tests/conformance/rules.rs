//! Justified differences: each has a name, a reason and a test, as narrow as the capture's facts
//! allow.

use spanwire_tests::replay::{Capture, Difference, Field, Frame, LaneLog, Logged};
use spanwire_wire::{IpRepr, NakCode, OpKind, Opcode, Psn, Qpn, Syndrome};

/// The justification of a difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Rule {
    NotInFile,
    AlreadyAnswered,
    Overtaken,
    FirstAfterRnr,
    AckReqAgain,
    NakAfterRnr,
    TailAsFirst,
    HeadForgotten,
    RecvTooShort,
    UdpChecksum,
}

/// The facts that a difference is judged by.
pub(crate) struct Ground<'a> {
    pub(crate) capture: &'a Capture,
    pub(crate) log: &'a LaneLog,
    /// The number of our queue pair, as recorded.
    pub(crate) own: Option<Qpn>,
}

impl Rule {
    pub(crate) const ALL: [Self; 10] = [
        Self::NotInFile,
        Self::AlreadyAnswered,
        Self::Overtaken,
        Self::FirstAfterRnr,
        Self::AckReqAgain,
        Self::NakAfterRnr,
        Self::TailAsFirst,
        Self::HeadForgotten,
        Self::RecvTooShort,
        Self::UdpChecksum,
    ];

    /// Its name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NotInFile => "not in the file",
            Self::AlreadyAnswered => "already answered",
            Self::Overtaken => "overtaken by a NAK",
            Self::FirstAfterRnr => "First after RNR",
            Self::AckReqAgain => "AckReq of retransmissions",
            Self::NakAfterRnr => "NAK after RNR NAK",
            Self::TailAsFirst => "tail begins with First",
            Self::HeadForgotten => "head forgotten",
            Self::RecvTooShort => "receive too short",
            Self::UdpChecksum => "UDP checksum",
        }
    }

    /// The observation and its justification.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NotInFile => {
                "Our engine sends one additional packet: the one that the capture's loss line \
                 lists as dropped between B and A. The capture was taken on A's side of the \
                 filter, so B sent it too, but it is not in the file."
            }
            Self::AlreadyAnswered => {
                "rxe retransmits a request packet although a response that acknowledges it was \
                 captured before. The response had reached the guest's interface, but the guest, \
                 under software emulation, had not processed it yet. Our engine processes a \
                 response on arrival, so it retransmits nothing. The peer would only have \
                 acknowledged a duplicate."
            }
            Self::Overtaken => {
                "rxe sends a request packet although a NAK or RNR NAK of an earlier one was \
                 captured before and that one has not been retransmitted yet: the packet was \
                 already in the guest's queue. Its responder drops it without a response. Our \
                 engine retransmits, waits or fails as soon as the NAK arrives."
            }
            Self::FirstAfterRnr => {
                "After an RNR NAK of the last packet of a WRITE with immediate rxe retransmits \
                 the whole message, from First. The RNR NAK acknowledges everything before its \
                 PSN, so our engine retransmits from that PSN, as the specification requires. \
                 rxe's responder accepts that (it does after a sequence NAK too)."
            }
            Self::AckReqAgain => {
                "Retransmissions have the AckReq bit in other packets. rxe sets it on each \
                 message's last packet. Our engine sets it on the first retransmission, so that \
                 a living peer responds at once, and on the last posted packet \
                 (docs/decisions/0005), whose acknowledgement covers those in between. AckReq is \
                 the requester's choice."
            }
            Self::NakAfterRnr => {
                "rxe sends a sequence NAK of the same PSN after an RNR NAK, for the next packet \
                 in flight. Our responder has reported the expected PSN with the RNR NAK and \
                 does not repeat it. A requester must ignore the repeated NAK (rxe does)."
            }
            Self::TailAsFirst => {
                "rxe responds to a READ retransmitted from its middle with Middle or Last as \
                 first packet, as if it continued the first response; a Middle has no AETH. On \
                 the wire it is a new request, so our responder begins with First or Only, as \
                 the specification requires. rxe accepts both (capture 83), and so does our \
                 engine (capture 74)."
            }
            Self::HeadForgotten => {
                "rxe does not respond to a READ that is retransmitted from its start after a \
                 retransmission of its tail, because it no longer has the start of the READ. Our \
                 responder keeps the original request and responds to a retransmission of any \
                 tail, as the specification requires."
            }
            Self::RecvTooShort => {
                "A SEND longer than the receive request gets NAK 0x63 (remote operational error) \
                 from rxe 6.1, and NAK 0x61 (invalid request) from our engine, as in the \
                 specification and in ConnectX."
            }
            Self::UdpChecksum => {
                "The kernel drops a packet with a wrong UDP checksum and a right ICRC before \
                 rxe. Our engine ignores that checksum: the ICRC covers more, and on a veth pair \
                 the kernel delivers checksums that are only partly computed."
            }
        }
    }

    /// The rule that justifies `difference`.
    pub(crate) fn of(ground: &Ground<'_>, difference: &Difference) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.holds(ground, difference))
    }

    fn holds(self, g: &Ground<'_>, difference: &Difference) -> bool {
        let log = g.log;
        match (self, difference) {
            (Self::AlreadyAnswered, Difference::Missing { recorded, .. }) => {
                g.acknowledged_before(&log.recorded[*recorded]).is_some_and(|s| !is_rnr(s))
            }
            (Self::FirstAfterRnr, Difference::Missing { recorded, .. }) => {
                let packet = &log.recorded[*recorded];
                packet.sent.opcode().props().kind == OpKind::Write
                    && g.acknowledged_before(packet).is_some_and(is_rnr)
            }
            (Self::Overtaken, Difference::Missing { recorded, .. }) => {
                g.naked_before(&log.recorded[*recorded])
            }
            (Self::AckReqAgain, Difference::Changed { ours, fields, .. }) => {
                *fields == [Field::AckReq] && ack_req_again(&log.ours, *ours)
            }
            (Self::NakAfterRnr, Difference::Missing { recorded, .. }) => {
                nak_after_rnr(&log.recorded[..=*recorded])
            }
            (Self::TailAsFirst, Difference::Changed { recorded, ours, fields }) => {
                let (recorded, ours) = (&log.recorded[*recorded], &log.ours[*ours]);
                tail_as_first(recorded.sent.opcode(), ours.sent.opcode())
                    && fields.iter().all(|f| [Field::Opcode, Field::AethPresence].contains(f))
                    && g.requests_a_tail(ours.at)
            }
            (Self::HeadForgotten, Difference::Extra { ours, .. }) => {
                g.requests_a_forgotten_head(log.ours[*ours].at)
            }
            (Self::RecvTooShort, Difference::Changed { recorded, ours: ours_at, fields }) => {
                let [recorded, ours] =
                    [&log.recorded[*recorded], &log.ours[*ours_at]].map(|l| l.sent.syndrome());
                *fields == [Field::Syndrome]
                    && recorded == Some(Syndrome::Nak(NakCode::RemoteOperational))
                    && ours == Some(Syndrome::Nak(NakCode::InvalidRequest))
                    && g.send_is_too_long(log.ours[*ours_at].at)
            }
            (Self::UdpChecksum, Difference::Extra { ours, .. }) => {
                let ours = &log.ours[*ours];
                let frame = &g.capture.frames[ours.at];
                ours.sent.opcode() == Opcode::RcAck && udp_checksum_is_wrong(frame)
            }
            _ => false,
        }
    }
}

impl Ground<'_> {
    /// Packets of the peer before frame `at`, newest first.
    fn peer_packets_before(&self, at: usize) -> impl Iterator<Item = Logged> + '_ {
        let own = self.own;
        let before = self.capture.frames[..at].iter().enumerate().rev();
        before.filter(move |(_, f)| Some(f.dest_qp) == own).filter_map(|(at, f)| {
            let sent = f.packet.as_ref().ok()?.clone();
            sent.syndrome()?;
            Some(Logged { at, sent })
        })
    }

    /// The syndrome of the newest response captured before `packet` that acknowledges it.
    fn acknowledged_before(&self, packet: &Logged) -> Option<Syndrome> {
        let psn = packet.sent.psn();
        self.peer_packets_before(packet.at).find_map(|answer| {
            let syndrome = answer.sent.syndrome()?;
            let ahead = answer.sent.psn().since(psn);
            let least = if matches!(syndrome, Syndrome::Ack { .. }) { 0 } else { 1 };
            (ahead >= least).then_some(syndrome)
        })
    }

    /// True if the newest response captured before `packet` is a NAK of it or of an earlier one
    /// that has not been retransmitted since.
    fn naked_before(&self, packet: &Logged) -> bool {
        let Some(answer) = self.peer_packets_before(packet.at).next() else {
            return false;
        };
        let refused = answer.sent.psn();
        let names_earlier = packet.sent.psn().since(refused) > 0;
        let is_nak = !matches!(answer.sent.syndrome(), Some(Syndrome::Ack { .. }) | None);
        let sent_again = self
            .log
            .recorded
            .iter()
            .any(|l| l.at > answer.at && l.at < packet.at && l.sent.psn() == refused);
        is_nak && names_earlier && !sent_again
    }

    /// The READ that the frame at `at` requests, as (first PSN, bytes).
    fn read_at(&self, at: usize) -> Option<(Psn, u32)> {
        let frame = &self.capture.frames[at];
        let sent = frame.packet.as_ref().ok().filter(|_| Some(frame.dest_qp) == self.own)?;
        let len = sent.headers.ext.reth?.dma_len;
        (sent.opcode() == Opcode::RcReadRequest).then(|| (sent.psn(), len))
    }

    /// True if the frame at `at` requests the tail of an earlier READ.
    fn requests_a_tail(&self, at: usize) -> bool {
        let Some((psn, len)) = self.read_at(at) else {
            return false;
        };
        (0..at).filter_map(|i| self.read_at(i)).any(|(first, bytes)| {
            let ahead = psn.since(first);
            ahead > 0 && len < bytes && i64::from(ahead) < i64::from(bytes)
        })
    }

    /// True if the frame at `at` requests the start of a READ whose tail was requested again
    /// before.
    fn requests_a_forgotten_head(&self, at: usize) -> bool {
        let Some((psn, _)) = self.read_at(at) else {
            return false;
        };
        let earlier: Vec<usize> = (0..at).filter(|i| self.read_at(*i).is_some()).collect();
        let is_repeat = earlier.iter().any(|i| self.read_at(*i).is_some_and(|(p, _)| p == psn));
        let tail_replayed = earlier.iter().any(|i| {
            self.requests_a_tail(*i) && self.read_at(*i).is_some_and(|(p, _)| p.since(psn) > 0)
        });
        is_repeat && tail_replayed && self.no_response_recorded(at)
    }

    /// True if the frame at `at` is a SEND that exceeds its receive request.
    fn send_is_too_long(&self, at: usize) -> bool {
        let frame = &self.capture.frames[at];
        let me = self.capture.hosts.into_iter().find(|h| *h != frame.from);
        let room = me.and_then(|host| self.capture.first_recv_len(host));
        frame.packet.as_ref().is_ok_and(|sent| {
            let len = u32::try_from(sent.payload.len()).unwrap_or(u32::MAX);
            sent.opcode() == Opcode::RcSendOnly && room.is_some_and(|room| len > room)
        })
    }

    /// True if the recorded side sent no packet between frame `at` and its peer's next one.
    fn no_response_recorded(&self, at: usize) -> bool {
        let from = self.capture.frames[at].from;
        let next = self.capture.frames.get(at + 1);
        next.is_some_and(|f| f.from == from)
    }
}

fn is_rnr(syndrome: Syndrome) -> bool {
    matches!(syndrome, Syndrome::RnrNak { .. })
}

/// True for a retransmission with another AckReq bit. With AckReq, it is the first retransmission;
/// without, more requests are posted behind it: a later packet was sent before, or is the next one.
fn ack_req_again(ours: &[Logged], i: usize) -> bool {
    let psn = ours[i].sent.psn();
    if !ours[..i].iter().any(|l| l.sent.psn() == psn) {
        return false;
    }
    if ours[i].sent.headers.bth.ack_req {
        return ours[i - 1].sent.psn().next() != psn;
    }
    let is_behind = |l: &Logged| psn.is_before(l.sent.psn());
    ours[..i].iter().any(is_behind) || ours.get(i + 1).is_some_and(is_behind)
}

/// True if the last packet is a sequence NAK with the PSN and MSN of the preceding RNR NAK.
fn nak_after_rnr(recorded: &[Logged]) -> bool {
    let [.., rnr, nak] = recorded else {
        return false;
    };
    let same = |f: fn(&Logged) -> (Psn, Option<u32>)| f(rnr) == f(nak);
    rnr.sent.syndrome().is_some_and(is_rnr)
        && nak.sent.syndrome() == Some(Syndrome::Nak(NakCode::SequenceError))
        && same(|l| (l.sent.psn(), l.sent.headers.ext.aeth.map(|a| a.msn)))
}

fn tail_as_first(recorded: Opcode, ours: Opcode) -> bool {
    use Opcode::{
        RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle, RcReadResponseOnly,
    };
    matches!(
        (recorded, ours),
        (RcReadResponseMiddle, RcReadResponseFirst) | (RcReadResponseLast, RcReadResponseOnly)
    )
}

/// True if the frame has a wrong UDP checksum over IPv4.
fn udp_checksum_is_wrong(frame: &Frame) -> bool {
    let Ok(sent) = &frame.packet else {
        return false;
    };
    let IpRepr::V4(ip) = sent.headers.ip else {
        return false;
    };
    if sent.headers.udp.checksum == 0 {
        return false;
    }
    let udp_len = u16::from_be_bytes([frame.bytes[38], frame.bytes[39]]);
    let udp = &frame.bytes[34..34 + usize::from(udp_len)];
    let mut covered = Vec::new();
    covered.extend(ip.src.octets());
    covered.extend(ip.dst.octets());
    covered.extend([0, 17]);
    covered.extend(udp_len.to_be_bytes());
    covered.extend(udp);
    covered.resize(covered.len().next_multiple_of(2), 0);
    let sum: u32 =
        covered.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let mut folded = sum;
    while folded > 0xffff {
        folded = (folded & 0xffff) + (folded >> 16);
    }
    folded != 0xffff
}
