//! A capture with every feature of SR: two engines, a wire with loss and marking, invalid packets,
//! and two engines with MLCC.

use spanwire_base::{Dur, Node, PortId, RxMeta, Time};
use spanwire_cc::Algorithm;
use spanwire_loadbalance::Choice;
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, Balance, Config, CongestionControl, CqId, Endpoint, ErasureCoding,
    MemoryRegion, Mtu, Preset, QpAttr, QpCaps, QpInit, RecvRequest, RemoteAddr, Sge, SrOptions,
    Wire, WireMode, WorkRequest, WrOp,
};
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, Headers, INT_FULL_LEN, IntCredit, IntFormat, IntHop,
    IntRecords, IntStack, IpRepr, MacAddr, NearKind, Opcode, Packet, Psn, Qpn, SrAckRepr,
    SrDataRepr, SrNearRepr, UdpRepr, int_push, int_restart_credit, ip_end, mark_ce, seal,
};

/// The capture of SR with its wrong packets and telemetry in `format`, then of MLCC, as a pcap file
/// with nanoseconds.
pub(crate) fn capture(format: IntFormat) -> Vec<u8> {
    let frames = played(WireMode::Sr, format);
    let last = frames.last().map_or(Time::ZERO, |(at, _)| *at);
    let wrong = wrong_packets(&frames, format);
    let wrong = (1..).zip(wrong).map(|(i, frame)| (last + Dur::from_us(i), frame));
    let wrong: Vec<_> = wrong.collect();
    let mut mlcc = Scene::of_mlcc(format, last + Dur::from_ms(1));
    mlcc.play_mlcc();
    pcap(frames.into_iter().chain(wrong).chain(mlcc.frames))
}

/// The capture of the same requests in RC.
pub(crate) fn capture_rc() -> Vec<u8> {
    pcap(played(WireMode::Rc, IntFormat::Full))
}

fn played(mode: WireMode, format: IntFormat) -> Vec<(Time, Vec<u8>)> {
    let mut scene = Scene::new(mode, format);
    scene.play();
    scene.frames
}

fn pcap(frames: impl IntoIterator<Item = (Time, Vec<u8>)>) -> Vec<u8> {
    let mut file = Vec::new();
    // Version 2.4, no offset, 65535 bytes of each frame, Ethernet.
    for word in [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 65_535, 1u32] {
        file.extend(word.to_le_bytes());
    }
    for (at, frame) in frames {
        let ns = at.since(Time::ZERO).as_ns();
        let len = u64::try_from(frame.len()).expect("short");
        for word in [ns / 1_000_000_000, ns % 1_000_000_000, len, len] {
            file.extend(u32::try_from(word).expect("a short run").to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

struct Scene {
    ends: [End; 2],
    now: Time,
    frames: Vec<(Time, Vec<u8>)>,
    sent: u64,
    /// The largest credit of an acknowledgement.
    credit: u32,
}

struct End {
    ep: Endpoint,
    cq: CqId,
    qpn: Qpn,
    mr: MemoryRegion,
    /// A region that its peer may invalidate.
    given: MemoryRegion,
}

impl Scene {
    fn new(mode: WireMode, format: IntFormat) -> Self {
        let mut ends = [1, 2].map(|seed| End::new(seed, format));
        let qpns = [ends[0].qpn, ends[1].qpn];
        for (me, peer) in [(0, 1), (1, 0)] {
            let av = AddressVector::new(mac(me), mac(peer), ip(me), ip(peer));
            let mut rtr = QpAttr::rtr(qpns[peer], PSNS[peer], Mtu::B256, av);
            let mut options = SrOptions { segment_bytes: Some(64), ..SrOptions::default() };
            if me == 0 {
                options.near = true;
                // Its responses use the default path.
                let choice = Choice::named("unolb").expect("there is one");
                options.balance = Some(Balance { choice, seed: 1 });
                options.erasure = Some(ErasureCoding::new(4, 2));
            }
            rtr.wire = (mode == WireMode::Sr).then_some(Wire::Sr(options));
            // It requests telemetry, and its window exceeds the bytes of this run.
            let algorithm = Algorithm::named("hpcc").expect("there is one");
            let base_rtt = Some(Dur::from_us(20));
            let mut rts = QpAttr::rts(PSNS[me]);
            rts.congestion = Some(CongestionControl {
                algorithm: Some(algorithm),
                base_rtt,
                preset: Preset::Paper,
                ..CongestionControl::NONE
            });
            for attr in [QpAttr::init(Access::ALL), rtr, rts] {
                let end = &mut ends[me];
                end.ep.modify_qp(end.qpn, &attr).expect("the usual transitions");
            }
        }
        Self { ends, now: Time::from_ns(1_000), frames: Vec::new(), sent: 0, credit: 0 }
    }

    /// Two engines with MLCC, whose wire is a switch that releases the packets of both.
    fn of_mlcc(format: IntFormat, now: Time) -> Self {
        let mut ends = [3, 4].map(|seed| End::new(seed, format));
        let qpns = [ends[0].qpn, ends[1].qpn];
        for (me, peer) in [(0, 1), (1, 0)] {
            let av = AddressVector::new(mac(me), mac(peer), ip(me), ip(peer));
            let mut rtr = QpAttr::rtr(qpns[peer], PSNS[peer], Mtu::B256, av);
            let (segment_bytes, near, credit) = (Some(64), true, true);
            let options = SrOptions { segment_bytes, near, credit, ..SrOptions::default() };
            rtr.wire = Some(Wire::Sr(options));
            let algorithm = Algorithm::parse("mlcc,rtt_c_us=40,rtt_d_us=10").expect("in range");
            let mut rts = QpAttr::rts(PSNS[me]);
            let algorithm = Some(algorithm);
            rts.congestion = Some(CongestionControl { algorithm, ..CongestionControl::NONE });
            for attr in [QpAttr::init(Access::ALL), rtr, rts] {
                let end = &mut ends[me];
                end.ep.modify_qp(end.qpn, &attr).expect("the usual transitions");
            }
        }
        Self { ends, now, frames: Vec::new(), sent: 0, credit: 0 }
    }

    fn play_mlcc(&mut self) {
        let mr = self.ends[1].mr;
        let remote = RemoteAddr { va: mr.addr, rkey: mr.rkey.expect("it has one") };
        self.post(WrOp::Write { remote }, 64 * 40);
        self.post(WrOp::Read { remote }, 64 * 40);
        self.run();
    }

    fn play(&mut self) {
        for i in 0..4 {
            let end = &mut self.ends[1];
            let sge = Sge { addr: end.mr.addr + 0x8000 + i * 256, len: 256, lkey: end.mr.lkey };
            let wr = RecvRequest { wr_id: i, sges: &[sge] };
            end.ep.post_recv(end.qpn, &wr).expect("there is room");
        }
        let (mr, given) = (self.ends[1].mr, self.ends[1].given);
        let remote = RemoteAddr { va: mr.addr, rkey: mr.rkey.expect("it has one") };
        let at = |ahead| RemoteAddr { va: remote.va + ahead, ..remote };
        let rkey = given.rkey.expect("it has one");
        self.post(WrOp::Send, 200);
        self.post(WrOp::SendImm { imm: 0x1122_3344 }, 10);
        self.post(WrOp::SendInv { rkey }, 0);
        self.post(WrOp::WriteImm { remote: at(64), imm: 7 }, 100);
        self.post(WrOp::FetchAdd { remote: at(8), add: 5 }, 8);
        self.post(WrOp::CmpSwap { remote: at(8), compare: 5, swap: 9 }, 8);
        self.post(WrOp::Read { remote: at(0x100) }, 1000);
        self.run();
        // Across the wrap of the 32-bit PSN.
        self.post(WrOp::Write { remote: at(0x400) }, 64 * 280);
        self.run();
        self.post(WrOp::Write { remote: RemoteAddr { rkey: rkey ^ 1, ..at(0) } }, 8);
        self.run();
    }

    fn post(&mut self, op: WrOp, len: u32) {
        let end = &mut self.ends[0];
        let sge = Sge { addr: end.mr.addr, len, lkey: end.mr.lkey };
        end.ep.post_send(end.qpn, &WorkRequest::new(1, op, &[sge])).expect("there is room");
    }

    /// Runs for 50 ms, after which everything has completed.
    fn run(&mut self) {
        let until = self.now + Dur::from_ms(50);
        let mut wire: Vec<(Time, usize, Vec<u8>)> = Vec::new();
        while self.now < until {
            for side in [0, 1] {
                self.transmit(side, &mut wire);
            }
            let arrival = wire.iter().map(|(at, ..)| *at).min();
            let timers = self.ends.iter().filter_map(|end| end.ep.poll_timeout());
            let Some(next) = timers.chain(arrival).min() else { break };
            self.now = self.now.max(next);
            let now = self.now;
            let (due, later) = wire.into_iter().partition(|(at, ..)| *at <= now);
            wire = later;
            for (_, to, frame) in due {
                if is_feedback(&frame) {
                    // The capture is that of the hosts.
                    self.frames.push((now, frame.clone()));
                }
                let end = &mut self.ends[to];
                end.ep.handle_packet(now, PortId::HOST, &frame, &RxMeta::whole(now));
            }
            for end in &mut self.ends {
                end.ep.handle_timeout(now);
                while end.ep.poll_cq(end.cq).is_ok_and(|wc| wc.is_some()) {}
            }
        }
        self.now = until;
    }

    /// Sends the frames of an end. Three packets of 20 are lost, one in five is marked, and each
    /// takes 7 us.
    fn transmit(&mut self, side: usize, wire: &mut Vec<(Time, usize, Vec<u8>)>) {
        let mut frame = vec![0; 2048];
        while let Some(meta) = self.ends[side].ep.poll_transmit(self.now, PortId::HOST, &mut frame)
        {
            let mut frame = frame[..meta.len].to_vec();
            self.sent += 1;
            if self.sent.is_multiple_of(5) {
                mark_ce(&mut frame);
            }
            self.release(&mut frame);
            self.stamp(&mut frame);
            self.frames.push((self.now, frame.clone()));
            // A switch near the sender.
            if let Some(feedback) = feedback(&frame).filter(|_| self.sent.is_multiple_of(32)) {
                wire.push((self.now + Dur::from_us(2), side, feedback));
            }
            if self.sent % 20 > 2 {
                wire.push((self.now + Dur::from_us(7), 1 - side, frame));
            }
            self.now += Dur::from_ns(100);
        }
    }
}

impl Scene {
    /// Reads the credit of an acknowledgement, and begins anew the telemetry of data that request a
    /// credit.
    fn release(&mut self, frame: &mut Vec<u8>) {
        let packet = Packet::parse(frame).expect("ours");
        if packet.bth.opcode == Opcode::SrAck {
            let ack = SrAckRepr::parse(packet.bth.psn.get(), packet.payload).expect("ours");
            self.credit = self.credit.max(ack.credit.map_or(0, |credit| credit.credit));
        }
        let (len, credit) = (frame.len(), IntCredit { credit: self.credit, waiting_bytes: 4096 });
        let end = int_restart_credit(frame, len, 0, credit);
        frame.truncate(end.unwrap_or(len));
    }

    /// Adds the telemetry of zero, one or two switches.
    fn stamp(&self, frame: &mut Vec<u8>) {
        for switch in 0..self.sent % 3 {
            let hop = IntHop {
                time_ps: self.now.as_ps() + switch,
                tx_bytes: self.sent * 1_000,
                queue_bytes: 17,
                link_rate_mbps: 100_000,
            };
            let len = frame.len();
            frame.resize(len + INT_FULL_LEN, 0);
            let stamped = int_push(frame, len, 0, &hop);
            frame.truncate(stamped.unwrap_or(len));
        }
    }
}

/// Feedback of a switch about a data packet whose sender requests it.
fn feedback(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = Packet::parse(frame).expect("ours");
    if packet.bth.opcode != Opcode::SrData {
        return None;
    }
    let parsed = SrDataRepr::parse(packet.bth.psn.get(), packet.payload);
    let (data, _) = parsed.expect("what we send parses");
    // For each second packet the telemetry that it has.
    let echo = IntStack::parse(packet.trailer).filter(|stack| !stack.is_empty());
    let echo = echo.filter(|_| data.psn.is_multiple_of(2));
    let echo = echo.map(|stack| [&stack.echo_header()[..], stack.records()].concat());
    let near = SrNearRepr {
        kind: if echo.is_some() { NearKind::Telemetry } else { NearKind::PseudoAck },
        psn: data.psn,
        hop_limit: 62,
        echo_ps: data.sent_ps,
        int: IntRecords::parse(echo.as_deref().unwrap_or_default()),
    };
    let (src, dst) = (packet.eth.dst, packet.eth.src);
    let headers = Headers {
        eth: EthernetRepr { dst, src, ethertype: EthernetRepr::IPV4 },
        ip: IpRepr::new(packet.ip.dst(), packet.ip.src())?,
        udp: UdpRepr::new(packet.udp.src_port),
        bth: BthRepr::new(Opcode::SrNear, data.source_qpn?, Psn::new(data.psn & Psn::MASK)),
        ext: ExtHeaders::NONE,
    };
    let mut out = vec![0; headers.frame_len(near.header_len())];
    let at = headers.emit(&mut out, near.header_len()).expect("it has this length");
    near.emit(&mut out[at]).expect("it has this length");
    Some(resealed(out))
}

fn is_feedback(frame: &[u8]) -> bool {
    Packet::parse(frame).expect("ours").bth.opcode == Opcode::SrNear
}

impl End {
    fn new(seed: u8, int_format: IntFormat) -> Self {
        let config = Config { int_format, ..Config::default() };
        let mut ep = Endpoint::new(config.validate().expect("valid"), [seed; 32]);
        let pd = ep.alloc_pd().expect("within the limits");
        let cq = ep.create_cq(64).expect("within the limits");
        let mut region = |bytes, access, iova| {
            ep.reg_mr(pd, Region::zeroed(bytes), access, Some(iova)).expect("within the limits")
        };
        let mr = region(0x1_0000, Access::ALL, 0x1000_0000_0000);
        let given = region(64, Access::ALL.and(Access::REMOTE_INVALIDATE), 0x2000_0000_0000);
        let qpn = ep.create_qp(&QpInit::new(pd, cq, cq, QpCaps::default()));
        let qpn = qpn.expect("within the limits");
        Self { ep, cq, qpn, mr, given }
    }
}

/// Packets of the capture, each with one error.
fn wrong_packets(frames: &[(Time, Vec<u8>)], format: IntFormat) -> Vec<Vec<u8>> {
    let of = |opcode, is_it: &dyn Fn(&[u8]) -> bool| {
        let found = frames.iter().map(|(_, frame)| frame).find(|frame| {
            let packet = Packet::parse(frame).expect("ours");
            packet.bth.opcode == opcode && is_it(packet.payload)
        });
        found.expect("there is one").clone()
    };
    let parity = of(Opcode::SrParity, &|header| header.len() >= 32);
    let block_at = |frame: &[u8]| {
        let packet = Packet::parse(frame).expect("ours");
        let (header, _) =
            SrDataRepr::parse_parity(packet.bth.psn.get(), packet.payload).expect("it is parity");
        header.header_len() - 8
    };
    let reported = of(Opcode::SrAck, &|header| header[3] == 4 && header[0] & 0xf == 0);
    let data = of(Opcode::SrData, &|header| header.len() >= 24);
    let ack = of(Opcode::SrAck, &|header| header[0] & 0xf > 0 && header[3] == 0);
    // Only telemetry follows the fixed part.
    let one_hop = INT_AT + 4 + format.record_len();
    // The same length without telemetry is one of a compact record and one of a SACK word.
    let is_int = |header: &[u8]| format == IntFormat::Full || header[3] == 1;
    let with_telemetry = of(Opcode::SrAck, &|header| header.len() == one_hop && is_int(header));
    let near = of(Opcode::SrNear, &|header| header.len() == SrNearRepr::LEN);
    let bend = |frame: &[u8], at: usize, value: u8| {
        let mut frame = frame[..ip_end(frame, 0).expect("an IP packet")].to_vec();
        frame[HEADER_AT + at] = value;
        resealed(frame)
    };
    let of_format = match format {
        IntFormat::Full => vec![],
        IntFormat::Compact => vec![bend(&with_telemetry, INT_AT + 1, 2)],
    };
    let of_all = vec![
        bend(&data, 0, 2 << 4),
        bend(&data, 0, 1 << 4 | 12),
        bend(&data, 2, 0x80),
        bend(&ack, 0, 3 << 4),
        bend(&ack, 3, 2),
        bend(&ack, 3, 16),
        bend(&with_telemetry, INT_AT, 0),
        bend(&with_telemetry, INT_AT, 17),
        bend(&ack, 10, 9),
        bend(&ack, 0, 1 << 4 | 15),
        bend(&ack, 0, 1 << 4),
        bend(&ack, 63, 1),
        bend(&parity, block_at(&parity) + 1, 63),
        bend(&parity, block_at(&parity), 6),
        bend(&reported, INT_AT, 5),
        bend(&reported, INT_AT + 4 + 4, 3),
        bend(&near, 0, 2 << 4),
        bend(&near, 0, 1 << 4 | 2),
        bend(&near, 0, 1 << 4 | 1),
    ];
    [of_all, of_format].concat()
}

fn resealed(mut frame: Vec<u8>) -> Vec<u8> {
    let len = frame.len();
    seal(&mut frame, len);
    frame
}

fn mac(i: usize) -> MacAddr {
    MacAddr::new([2, 0, 0, 0, 0, u8::try_from(i).expect("0 or 1")])
}

fn ip(i: usize) -> std::net::IpAddr {
    [10, 0, 0, u8::try_from(i + 1).expect("0 or 1")].into()
}

/// The first PSN is 256 packets before the wrap.
const PSNS: [Psn; 2] = [Psn::new(0xff_ffff), Psn::new(0x12_3456)];
/// After Ethernet, IPv4, UDP and the BTH.
const HEADER_AT: usize = 14 + 20 + 8 + 12;
/// Offset of telemetry in the header of an acknowledgement without SACK words.
const INT_AT: usize = 60;
