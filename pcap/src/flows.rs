//! Counts by flow: packets from one address to one queue pair of another.

use crate::decode::RocePacket;
use crate::ip::Icrc;
use crate::sr::Sr;
use serde::Serialize;
use spanwire_wire::{Ecn, OpClass, OpKind, Opcode, Psn, Qpn, Service, Syndrome};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The flows of one file.
#[derive(Debug, Default)]
pub struct Flows {
    flows: BTreeMap<(IpAddr, IpAddr, Qpn), Flow>,
    /// Packets of flows beyond the limit.
    uncounted: u64,
}

/// One flow, as `flows[]` in JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FlowRow {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination queue pair.
    pub qp: u32,
    /// The counts.
    #[serde(flatten)]
    pub flow: Flow,
}

/// The counts of a flow.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Flow {
    /// Packets, bad ones included.
    pub packets: u64,
    /// Bytes of payload.
    pub payload_bytes: u64,
    /// Requests of RC and data of SR whose PSN is not above the highest one before:
    /// retransmissions, or packets out of order.
    pub retransmissions: u64,
    /// Positive Acknowledge packets; in SR those without a NAK.
    pub acks: u64,
    /// Acknowledge packets with a NAK.
    pub naks: u64,
    /// Acknowledge packets with an RNR NAK.
    pub rnr_naks: u64,
    /// Congestion notification packets.
    pub cnps: u64,
    /// Packets marked congestion experienced.
    pub ce: u64,
    /// Packets with a bad ICRC.
    pub icrc_bad: u64,
    /// Highest PSN of RC requests.
    #[serde(skip)]
    highest_psn: Option<Psn>,
    /// Highest PSN of SR data.
    #[serde(skip)]
    sr_highest_psn: Option<u32>,
}

impl Flows {
    /// Counts one packet. A packet without a complete BTH belongs to no flow.
    pub fn note(&mut self, packet: &RocePacket<'_>) {
        let Some(bth) = &packet.bth else {
            return;
        };
        let key = (packet.src, packet.dst, bth.dest_qp());
        if self.flows.len() == FLOWS_MAX && !self.flows.contains_key(&key) {
            self.uncounted += 1;
            return;
        }
        self.flows.entry(key).or_default().note(packet, bth.psn());
    }

    /// The flows, by address and queue pair.
    #[must_use]
    pub fn rows(&self) -> Vec<FlowRow> {
        self.flows
            .iter()
            .map(|((src, dst, qp), flow)| FlowRow {
                src: *src,
                dst: *dst,
                qp: qp.get(),
                flow: flow.clone(),
            })
            .collect()
    }

    /// The flows as a table.
    #[must_use]
    pub fn to_text(&self) -> String {
        let rows = self.rows();
        let from: Vec<String> = rows.iter().map(|r| format!("{} -> {}", r.src, r.dst)).collect();
        let width = from.iter().map(String::len).max().unwrap_or(0).max("flow".len());
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:<width$}  {:>8} {:>9} {:>13} {:>7} {:>7} {:>5} {:>7} {:>5} {:>5} {:>7}",
            "flow",
            "qp",
            "packets",
            "payload",
            "retrans",
            "acks",
            "naks",
            "rnr",
            "cnps",
            "ce",
            "bad"
        );
        for (row, from) in rows.iter().zip(from) {
            let f = &row.flow;
            let _ = writeln!(
                out,
                "{from:<width$}  {:#08x} {:>9} {:>13} {:>7} {:>7} {:>5} {:>7} {:>5} {:>5} {:>7}",
                row.qp,
                f.packets,
                f.payload_bytes,
                f.retransmissions,
                f.acks,
                f.naks,
                f.rnr_naks,
                f.cnps,
                f.ce,
                f.icrc_bad
            );
        }
        if self.uncounted > 0 {
            let _ = writeln!(out, "and {} packets of more than {FLOWS_MAX} flows", self.uncounted);
        }
        out
    }
}

impl Flow {
    fn note(&mut self, packet: &RocePacket<'_>, psn: Psn) {
        self.packets += 1;
        self.ce += u64::from(packet.ecn == Ecn::Ce);
        if let Icrc::Bad { .. } = packet.icrc {
            // Its other fields may be corrupt.
            self.icrc_bad += 1;
            return;
        }
        let Some(props) = packet.opcode.map(Opcode::props) else {
            return;
        };
        self.cnps += u64::from(props.kind == OpKind::Cnp);
        if props.payload {
            let len = packet.payload_len.and_then(|len| u64::try_from(len).ok());
            self.payload_bytes += len.unwrap_or(0);
        }
        if props.kind == OpKind::Ack {
            match packet.ext.and_then(|ext| ext.aeth).map(|aeth| aeth.syndrome) {
                Some(Syndrome::Ack { .. }) => self.acks += 1,
                Some(Syndrome::RnrNak { .. }) => self.rnr_naks += 1,
                Some(Syndrome::Nak(_)) => self.naks += 1,
                Some(Syndrome::Reserved(_)) | None => {}
            }
        }
        match &packet.sr_header {
            Some(Sr::Ack(ack)) if ack.nak.is_some() => self.naks += 1,
            Some(Sr::Ack(_)) => self.acks += 1,
            Some(Sr::Data(header)) => match self.sr_highest_psn {
                Some(highest_psn) if header.psn.wrapping_sub(highest_psn).cast_signed() <= 0 => {
                    self.retransmissions += 1;
                }
                _ => self.sr_highest_psn = Some(header.psn),
            },
            Some(Sr::Near(_)) | None => {}
        }
        // Responses carry the PSNs of the peer's requests. Only RC retransmits.
        if props.class == OpClass::Request && props.service == Service::Rc {
            match self.highest_psn {
                Some(highest_psn) if psn.since(highest_psn) <= 0 => self.retransmissions += 1,
                _ => self.highest_psn = Some(psn),
            }
        }
    }
}

/// Limit of flows. It bounds memory; more flows indicate a scan or forged packets.
const FLOWS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;
    use crate::decode::{Decoded, Decoder};
    use spanwire_wire::{
        AethRepr, BthRepr, EthernetRepr, ExtHeaders, Headers, IpRepr, NakCode, UdpRepr, seal,
    };

    /// A frame from 10.0.0.1 to queue pair `qp` of 10.0.0.2.
    fn frame(opcode: Opcode, qp: u32, psn: u32, ext: ExtHeaders, ecn: Ecn) -> Vec<u8> {
        let mut ip = IpRepr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).unwrap();
        ip.set_dscp_ecn(ecn.bits());
        let headers = Headers {
            eth: EthernetRepr::default(),
            ip,
            udp: UdpRepr::new(0xc000),
            bth: BthRepr::new(opcode, Qpn::new(qp), Psn::new(psn)),
            ext,
        };
        let payload = if opcode.props().payload { 6 } else { 0 };
        let len = headers.frame_len(payload);
        let mut frame = vec![0; len];
        headers.emit(&mut frame, payload).unwrap();
        seal(&mut frame, len);
        frame
    }

    fn send(psn: u32) -> Vec<u8> {
        frame(Opcode::RcSendOnly, 5, psn, ExtHeaders::NONE, Ecn::NotEct)
    }

    fn ack(syndrome: Syndrome) -> Vec<u8> {
        let ext = ExtHeaders { aeth: Some(AethRepr { syndrome, msn: 1 }), ..ExtHeaders::NONE };
        frame(Opcode::RcAck, 5, 9, ext, Ecn::NotEct)
    }

    fn note(flows: &mut Flows, frame: &[u8]) {
        let record = Record { at_ns: None, link: 1, original_len: frame.len(), bytes: frame };
        match Decoder::default().decode(&record)[..] {
            [Decoded::Roce(packet)] => flows.note(&packet),
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn note__counts_retransmissions_across_the_wrap() {
        let mut flows = Flows::default();
        for psn in [0xff_fffe, 0xff_ffff, 0, 0xff_ffff, 0, 1] {
            note(&mut flows, &send(psn));
        }
        // An ACK has the PSN of the peer's request, and datagrams are never retransmitted.
        note(&mut flows, &ack(Syndrome::Ack { credits: 31 }));
        for _ in 0..2 {
            let deth = Some(spanwire_wire::DethRepr::default());
            let ext = ExtHeaders { deth, ..ExtHeaders::NONE };
            note(&mut flows, &frame(Opcode::UdSendOnly, 5, 1, ext, Ecn::Ce));
        }
        let rows = flows.rows();
        assert_eq!(rows.len(), 1);
        let f = &rows[0].flow;
        assert_eq!((rows[0].qp, f.packets, f.retransmissions, f.ce), (5, 9, 2, 2));
        assert_eq!((f.payload_bytes, f.acks), (8 * 6, 1));
    }

    #[test]
    fn note__counts_acknowledgements_by_syndrome() {
        let mut flows = Flows::default();
        note(&mut flows, &ack(Syndrome::Nak(NakCode::SequenceError)));
        note(&mut flows, &ack(Syndrome::RnrNak { timer: 12 }));
        note(&mut flows, &ack(Syndrome::Reserved(0x40)));
        note(&mut flows, &frame(Opcode::Cnp, 5, 0, ExtHeaders::NONE, Ecn::NotEct));
        let mut bad = send(1);
        *bad.last_mut().unwrap() ^= 1;
        note(&mut flows, &bad);
        note(&mut flows, &frame(Opcode::RcSendOnly, 6, 0, ExtHeaders::NONE, Ecn::NotEct));
        let rows = flows.rows();
        let f = &rows[0].flow;
        assert_eq!((f.acks, f.naks, f.rnr_naks, f.cnps, f.icrc_bad), (0, 1, 1, 1, 1));
        assert_eq!((f.payload_bytes, f.packets), (0, 5), "a bad packet's words do not count");
        assert_eq!((rows[1].qp, rows[1].flow.packets), (6, 1));
        let text = flows.to_text();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("10.0.0.1 -> 10.0.0.2  0x000006"), "{text}");
    }

    #[test]
    fn note__the_number_of_flows_is_limited() {
        let mut flows = Flows::default();
        let base = frame(Opcode::RcSendOnly, 0, 0, ExtHeaders::NONE, Ecn::NotEct);
        for qp in 0..u32::try_from(FLOWS_MAX).unwrap() + 2 {
            let mut frame = base.clone();
            frame[47..50].copy_from_slice(&qp.to_be_bytes()[1..]);
            note(&mut flows, &frame);
        }
        note(&mut flows, &base);
        assert_eq!((flows.rows().len(), flows.uncounted), (FLOWS_MAX, 2));
        assert_eq!(flows.rows()[0].flow.packets, 2);
    }
}
