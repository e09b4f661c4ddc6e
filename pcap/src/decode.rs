//! Decoder of frames: detects RoCE, parses the headers, checks the ICRC.
//!
//! Faults come from the parser of the receive path. A receiver stops at the first fault; the
//! decoder parses all remaining headers as far as there are bytes.

use crate::capture::Record;
use crate::ip::{BTH_LEN, ETHERNET_LEN, ICRC_LEN, Icrc, Ip, Other, UDP_LEN, check, start_frame};
use crate::link::{Linked, VLAN_MAX, unlink};
use crate::run::Run;
use crate::sr::Sr;
use spanwire_wire::{Bth, DropReason, Ecn, ExtHeaders, Opcode, Packet};
use std::net::IpAddr;

/// A decoder of frames.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The frame as an untagged Ethernet frame of full length, for the parser.
    frame: Vec<u8>,
}

/// A decoded frame.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Decoded<'a> {
    /// A packet to UDP port 4791.
    Roce(RocePacket<'a>),
    /// Anything else.
    Other(Other),
}

/// A packet to UDP port 4791, as far as it can be read.
#[derive(Clone, Copy, Debug)]
pub struct RocePacket<'a> {
    /// VLAN ids, outermost first.
    pub vlans: [Option<u16>; VLAN_MAX],
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// UDP source port: the entropy by which routers spread flows over paths.
    pub src_port: u16,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// The base transport header, if complete.
    pub bth: Option<Bth<'a>>,
    /// The opcode, if supported.
    pub opcode: Option<Opcode>,
    /// The extension headers of the opcode, if complete.
    pub ext: Option<ExtHeaders>,
    /// The SR header, if the opcode is of SR and the header is complete.
    pub sr_header: Option<Sr<'a>>,
    /// Bytes of payload without pad, by the length in the IP header; `None` if the length of the
    /// headers before it is unknown.
    pub payload_len: Option<usize>,
    /// The result of the ICRC check.
    pub icrc: Icrc,
    /// The reason other than the ICRC for which a receiver would drop the packet.
    pub fault: Option<DropReason>,
    /// The capture holds only the start of the packet.
    pub truncated: bool,
    /// Its place in a run of segments, if the capture has it as part of one.
    pub segment: Option<Segment>,
}

/// The place of a packet in a run of segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// From 1.
    pub number: usize,
    /// Segments of the run.
    pub of: usize,
}

impl Decoder {
    /// Decodes one frame: a packet, or each segment of a run that was captured as one packet.
    pub fn decode<'a>(&mut self, record: &Record<'a>) -> Vec<Decoded<'a>> {
        let linked = match unlink(record.link, record.bytes) {
            None => return vec![Decoded::Other(Other::Cut)],
            Some(linked) => linked,
        };
        let ip = match Ip::read(&linked) {
            Err(other) => return vec![Decoded::Other(other)],
            Ok(ip) => ip,
        };
        let cut = record.bytes.len() < record.original_len;
        let packet = self.roce(&linked, &ip, cut);
        let segments = match packet.icrc {
            Icrc::Bad { .. } => self.segments(&linked, &ip),
            Icrc::Good | Icrc::Unchecked => Vec::new(),
        };
        match segments.is_empty() {
            true => vec![Decoded::Roce(packet)],
            false => segments.into_iter().map(Decoded::Roce).collect(),
        }
    }

    /// Decodes a packet to UDP port 4791. `cut`: the capture has only part of the frame.
    fn roce<'a>(&mut self, linked: &Linked<'a>, ip: &Ip, cut: bool) -> RocePacket<'a> {
        let captured = linked.payload;
        let whole = captured.get(..ip.total_len);
        let transport = whole.unwrap_or(captured).get(ip.header_len + UDP_LEN..);
        let (icrc, headers) = match (whole, transport) {
            (Some(packet), Some(transport)) if transport.len() >= BTH_LEN + ICRC_LEN => {
                (check(packet), transport.get(..transport.len() - ICRC_LEN))
            }
            _ => (Icrc::Unchecked, transport),
        };
        let truncated = cut && whole.is_none();
        let has_bth = headers.is_some_and(|h| Bth::new(h).is_ok());
        let fault = self.fault(linked, ip, truncated, has_bth);
        packet(linked, ip, headers, Verdict { icrc, fault, truncated })
    }

    /// The packets of a run of segments, as segmentation and receive offloads (GSO, GRO) show them
    /// to a capture; empty if it is none.
    fn segments<'a>(&mut self, linked: &Linked<'a>, ip: &Ip) -> Vec<RocePacket<'a>> {
        let Some(run) = Run::find(linked, ip, &mut self.frame) else {
            return Vec::new();
        };
        let mut packets = Vec::with_capacity(run.count());
        for number in 0..run.count() {
            let icrc = run.check(number, &mut self.frame);
            let fault = Packet::parse_unverified(&self.frame).err();
            let transport = run.transport(number);
            let headers = transport.get(..transport.len() - ICRC_LEN);
            let ip = Ip { total_len: ip.header_len + UDP_LEN + transport.len(), ..*ip };
            let verdict = Verdict { icrc, fault, truncated: false };
            let segment = Some(Segment { number: number + 1, of: run.count() });
            packets.push(RocePacket { segment, ..packet(linked, &ip, headers, verdict) });
        }
        packets
    }

    /// The parser's drop reason for the packet in an untagged Ethernet frame. The missing part of a
    /// truncated packet is filled with zeros, which does not affect checks of the captured headers
    /// and of lengths.
    fn fault(
        &mut self,
        linked: &Linked<'_>,
        ip: &Ip,
        truncated: bool,
        has_bth: bool,
    ) -> Option<DropReason> {
        if truncated && !has_bth {
            return None;
        }
        start_frame(&mut self.frame, linked);
        self.frame.extend(linked.payload);
        if truncated {
            self.frame.resize(ETHERNET_LEN + ip.total_len, 0);
        }
        Packet::parse_unverified(&self.frame).err()
    }
}

/// The result of the checks of a packet.
#[derive(Clone, Copy)]
struct Verdict {
    icrc: Icrc,
    fault: Option<DropReason>,
    truncated: bool,
}

/// The packet whose transport headers and payload, up to the ICRC, are `headers`.
fn packet<'a>(
    linked: &Linked<'a>,
    ip: &Ip,
    headers: Option<&'a [u8]>,
    verdict: Verdict,
) -> RocePacket<'a> {
    let Verdict { icrc, fault, truncated } = verdict;
    let bth = headers.and_then(|h| Bth::new(h).ok());
    let opcode = bth.and_then(|bth| Opcode::from_u8(bth.opcode()));
    let behind_bth = headers.and_then(|h| h.get(BTH_LEN..));
    let ext = opcode
        .zip(behind_bth)
        .and_then(|(opcode, bytes)| ExtHeaders::parse(opcode, bytes).ok().map(|(ext, _)| ext));
    let src = opcode
        .zip(bth)
        .zip(behind_bth)
        .and_then(|((opcode, bth), bytes)| Sr::read(opcode, bth.psn().get(), bytes));
    let sr_fault = src.and_then(Result::err).filter(|_| !truncated);
    let sr_header = src.and_then(Result::ok);
    let payload_len = opcode.zip(bth).and_then(|(opcode, bth)| {
        let ext_len = opcode.ext_len() + sr_header.map_or(0, |src| src.header_len());
        let overhead = ip.header_len + UDP_LEN + BTH_LEN + ext_len + ICRC_LEN;
        ip.total_len.checked_sub(overhead + usize::from(bth.pad()))
    });
    RocePacket {
        vlans: linked.vlans,
        src: ip.src,
        dst: ip.dst,
        src_port: ip.src_port,
        ecn: ip.ecn,
        bth,
        opcode,
        ext,
        sr_header,
        payload_len,
        icrc,
        fault: fault.or(sr_fault),
        truncated,
        segment: None,
    }
}

#[cfg(test)]
mod tests;
