//! One queue pair of a replay: both sides' recorded packets, and ours.

use super::capture::{Capture, Frame, Link};
use super::messages::{Message, messages};
use super::packet::{Lane, Logged, Sent};
use spanwire_transport::{
    Access, AddressVector, CongestionControl, CqId, Endpoint, Mtu, PdId, QpAttr, QpCaps, QpInit,
    Sge, SourcePort,
};
use spanwire_wire::{OpKind, Opcode, Psn, Qpn, Service, Syndrome};

/// One queue pair.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) link: Link,
    pub(super) mtu: u32,
    pub(super) qpn: Qpn,
    /// Requests of our side, and how many of them are posted.
    pub(super) messages: Vec<Message>,
    pub(super) posted: usize,
    /// Requests of the peer.
    pub(super) peer_messages: Vec<Message>,
    /// Responses of the peer.
    pub(super) peer_responses: Vec<Sent>,
    /// Recorded packets of our side, by lane, and how many requests have been passed.
    pub(super) recorded: [Vec<Logged>; 2],
    pub(super) requests_passed: usize,
    /// The PSN after the last of those.
    pub(super) next_recorded: Psn,
    pub(super) ours: [Vec<Logged>; 2],
    /// The buffer of each of our messages.
    pub(super) buffers: Vec<Sge>,
    /// Index of the frame before which the late receive requests are posted.
    pub(super) late_recvs_before: Option<usize>,
}

impl Conn {
    pub(super) fn new(capture: &Capture, me: usize, link: Link) -> Self {
        let of = |side: usize| -> Vec<(usize, &Frame)> {
            let to = link.qpns[1 - side];
            let frames = capture.frames.iter().enumerate();
            frames
                .filter(|(_, f)| capture.index(f.from) == side && Some(f.dest_qp) == to)
                .filter(|(_, f)| f.service == Some(Service::Rc))
                .collect()
        };
        let parsed = |side: usize, lane: Lane| -> Vec<(usize, &Sent)> {
            let frames =
                of(side).into_iter().filter_map(|(at, f)| Some((at, f.packet.as_ref().ok()?)));
            let in_default_partition = |s: &Sent| s.headers.bth.pkey & 0x7fff == 0x7fff;
            frames.filter(|(_, s)| s.lane() == Some(lane) && in_default_partition(s)).collect()
        };
        let requests = |side| -> Vec<&Sent> {
            parsed(side, Lane::Requests).into_iter().map(|(_, sent)| sent).collect()
        };
        let mtu = capture.scripts[me].mtu;
        let own = |lane| {
            let logged = |(at, sent): (usize, &Sent)| Logged { at, sent: sent.clone() };
            parsed(me, lane).into_iter().map(logged).collect()
        };
        Self {
            link,
            mtu,
            qpn: UNUSED_QPN,
            messages: messages(&requests(me), mtu),
            posted: 0,
            peer_responses: parsed(1 - me, Lane::Responses)
                .into_iter()
                .map(|(_, sent)| sent.clone())
                .collect(),
            peer_messages: messages(&requests(1 - me), mtu),
            recorded: [own(Lane::Requests), own(Lane::Responses)],
            requests_passed: 0,
            next_recorded: Psn::new(0),
            ours: [Vec::new(), Vec::new()],
            buffers: Vec::new(),
            late_recvs_before: late_recvs_before(&of(me), &of(1 - me)),
        }
    }

    /// Number of PSNs of a request packet.
    pub(super) fn span(&self, sent: &Sent) -> u32 {
        match (sent.headers.bth.opcode, sent.headers.ext.reth) {
            (Opcode::RcReadRequest, Some(reth)) => reth.dma_len.div_ceil(self.mtu).max(1),
            _ => 1,
        }
    }

    /// How many of `requests` carry, or request, the packet `psn`.
    pub(super) fn times(&self, psn: Psn, requests: &[Logged]) -> usize {
        let is_in = |l: &&Logged| psn.distance_from(l.sent.headers.bth.psn) < self.span(&l.sent);
        requests.iter().filter(is_in).count()
    }

    /// The result of our READ or atomic `message`, from the peer's responses.
    pub(super) fn result_of(&self, message: &Message) -> Option<Vec<u8>> {
        let of = |packet: u32| {
            let psn = message.first.plus(packet);
            self.peer_responses.iter().find(move |r| {
                let props = r.opcode().props();
                r.psn() == psn && matches!(props.kind, OpKind::ReadResponse | OpKind::AtomicAck)
            })
        };
        match message.kind {
            OpKind::ReadRequest => {
                let packets = (0..message.pkts).map(|i| of(i).map(|r| r.payload.as_slice()));
                Some(packets.collect::<Option<Vec<_>>>()?.concat())
            }
            OpKind::Atomic => Some(of(0)?.headers.ext.atomic_ack?.original.to_ne_bytes().to_vec()),
            _ => None,
        }
    }

    /// The peer's message that a request packet is part of.
    pub(super) fn peer_message(&self, sent: &Sent) -> Option<&Message> {
        let holds = |m: &&Message| sent.psn().distance_from(m.first) < m.pkts;
        (sent.lane() == Some(Lane::Requests)).then(|| self.peer_messages.iter().find(holds))?
    }

    /// Creates our queue pair and connects it to the recorded peer's.
    pub(super) fn connect(
        &mut self,
        capture: &Capture,
        me: usize,
        ep: &mut Endpoint,
        pd: PdId,
        cq: CqId,
    ) {
        let caps = QpCaps { max_send_wr: 512, max_recv_wr: 512, ..QpCaps::default() };
        let init = QpInit::new(pd, cq, cq, caps);
        self.qpn = ep.create_qp(&init).expect("a queue pair");
        let script = &capture.scripts[me];
        let mtu = Mtu::from_bytes(script.mtu).expect("a path MTU");
        let first = |side: &[Message]| side.first().map_or(Psn::new(0), |m| m.first);
        let av = self.address_vector(capture, me);
        let dest = self.link.qpns[1 - me].unwrap_or(UNUSED_QPN);
        let rtr = QpAttr {
            max_dest_rd_atomic: Some(script.rd_atomic),
            min_rnr_timer: Some(script.min_rnr_timer),
            ..QpAttr::rtr(dest, first(&self.peer_messages), mtu, av)
        };
        let rts = QpAttr {
            max_rd_atomic: Some(script.rd_atomic),
            timeout: Some(script.timeout),
            retry_cnt: Some(script.retry_cnt),
            rnr_retry: Some(script.rnr_retry),
            // rxe has none: its packets leave as soon as they are posted.
            congestion: Some(CongestionControl::NONE),
            ..QpAttr::rts(first(&self.messages))
        };
        for attr in [QpAttr::init(Access::ALL), rtr, rts] {
            ep.modify_qp(self.qpn, &attr).expect("a transition");
        }
    }

    /// The address vector of our side's packets, taken from them or from the peer's.
    fn address_vector(&self, capture: &Capture, me: usize) -> AddressVector {
        let own = self.recorded.iter().flatten().next();
        let peer = capture.frames.iter().find(|f| capture.index(f.from) != me);
        match (own, peer) {
            (Some(logged), _) => {
                let h = &logged.sent.headers;
                // A flow label determines the source port, and only the connection manager knows
                // it.
                let given = capture.scripts[me].by_cm.then_some(h.udp.src_port);
                AddressVector {
                    src_mac: h.eth.src,
                    dst_mac: h.eth.dst,
                    src_ip: h.ip.src(),
                    dst_ip: h.ip.dst(),
                    udp_src_port: given.map_or(SourcePort::Derived, SourcePort::Fixed),
                    traffic_class: h.ip.dscp_ecn(),
                    hop_limit: HOP_LIMIT,
                    takes_fragments: false,
                }
            }
            (None, Some(frame)) => {
                let h = &frame.packet.as_ref().expect("a good frame").headers;
                AddressVector {
                    src_mac: h.eth.dst,
                    dst_mac: h.eth.src,
                    src_ip: h.ip.dst(),
                    dst_ip: h.ip.src(),
                    udp_src_port: SourcePort::Derived,
                    traffic_class: 0,
                    hop_limit: HOP_LIMIT,
                    takes_fragments: false,
                }
            }
            (None, None) => panic!("{}: no packets", capture.name),
        }
    }
}

/// The index of the frame before which the recorded side posted further receive requests: the
/// retransmission of the packet that got its last RNR NAK.
fn late_recvs_before(own: &[(usize, &Frame)], peer: &[(usize, &Frame)]) -> Option<usize> {
    let rnr = own.iter().rev().find_map(|(index, frame)| {
        let sent = frame.packet.as_ref().ok()?;
        let refused = matches!(sent.syndrome(), Some(Syndrome::RnrNak { .. }));
        refused.then_some((*index, sent.headers.bth.psn))
    });
    let (after, psn) = rnr?;
    let again = |f: &Frame| f.packet.as_ref().is_ok_and(|s| s.headers.bth.psn == psn);
    peer.iter().find(|(index, f)| *index > after && again(f)).map(|(index, _)| *index)
}

/// The UDP source port that Linux uses in both directions of a connection without flow label: the
/// product of the numbers, folded to 20 bits and to 14.
///
/// # Source
/// The captures: every connection but those of the connection manager uses it.
pub(super) fn linux_src_port(a: Qpn, b: Qpn) -> u16 {
    let product = u64::from(a.get()) * u64::from(b.get());
    let folded = product ^ (product >> 20);
    let label = (folded ^ (folded >> 40)) & 0xf_ffff;
    let port = 0xc000 | (label & 0x3fff) ^ (label >> 14);
    u16::try_from(port).expect("16 bits")
}

/// A queue pair number to which no packet was sent.
pub(super) const UNUSED_QPN: Qpn = Qpn::new(0x3f_ffff);
/// rxe's hop limit (the route's).
const HOP_LIMIT: u8 = 64;
