//! Forged packets: valid ones of both wire modes, and changes to them.

use spanwire_host::fabric::FabricChoice;
use spanwire_io::net::Host;
use spanwire_wire::{
    AethRepr, BthRepr, DethRepr, EthernetRepr, ExtHeaders, Headers, IpRepr, MacAddr, Opcode, Psn,
    Qpn, SrAckRepr, SrDataRepr, Syndrome, UdpRepr, icrc, seal,
};

/// One forged frame.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) frame: Vec<u8>,
    /// Its counter over AF_XDP.
    xdp: Counter,
    /// Its counter over UDP sockets, where the kernel checks the outer headers.
    udp: Counter,
}

/// A counter that a forged frame increments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counter {
    /// One of the report.
    Ours(&'static str),
    /// One of a protocol of the kernel, which discards the frame.
    Kernel(&'static str),
}

impl Attack {
    /// Its counter over that fabric.
    pub(super) fn counter(&self, fabric: FabricChoice) -> Counter {
        if fabric == FabricChoice::Udp { self.udp } else { self.xdp }
    }

    /// Over UDP sockets the kernel discards it, and increments `counter`.
    pub(super) fn or_kernel(self, counter: &'static str) -> Self {
        Self { udp: Counter::Kernel(counter), ..self }
    }

    /// Over UDP sockets it increments another counter of ours.
    pub(super) fn or_counted(self, counter: &'static str) -> Self {
        Self { udp: Counter::Ours(counter), ..self }
    }
}

/// Builds frames that appear to be from one host to the other.
pub(super) struct Forge {
    headers: Headers,
}

impl Forge {
    pub(super) fn new(from: &Host, to: &Host, qpn: Qpn) -> Self {
        Self {
            headers: Headers {
                eth: EthernetRepr {
                    dst: MacAddr::new(to.mac),
                    src: MacAddr::new(from.mac),
                    ethertype: EthernetRepr::IPV4,
                },
                ip: IpRepr::new(from.v4.into(), to.v4.into()).expect("one version"),
                udp: UdpRepr::new(0xc0de),
                bth: BthRepr::new(Opcode::RcSendOnly, qpn, Psn::new(0)),
                ext: ExtHeaders::NONE,
            },
        }
    }

    pub(super) fn packet(&self, opcode: Opcode, psn: Psn, ext: ExtHeaders, len: usize) -> Vec<u8> {
        let bth = BthRepr { opcode, psn, ack_req: true, ..self.headers.bth };
        emit(&Headers { bth, ext, ..self.headers }, len)
    }

    /// A packet of this opcode at `psn`, with the DETH or AETH and the payload that it requires.
    pub(super) fn plain(&self, opcode: Opcode, psn: Psn) -> Vec<u8> {
        let props = opcode.props();
        let deth = props.deth.then_some(DethRepr { qkey: 0x1111_1111, src_qp: Qpn::GSI });
        let aeth = props.aeth.then_some(AethRepr { syndrome: ACK, msn: 1 });
        let len = if props.payload { 64 } else { 0 };
        self.packet(opcode, psn, ExtHeaders { deth, aeth, ..ExtHeaders::NONE }, len)
    }

    /// A valid SEND at `psn` with one `change`, with recomputed IPv4 checksum and ICRC.
    pub(super) fn resealed_with(&self, psn: Psn, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        resealed_with(self.packet(Opcode::RcSendOnly, psn, ExtHeaders::NONE, 64), change)
    }

    /// A datagram to RoCE's port with this payload.
    pub(super) fn datagram(&self, inside: &[u8]) -> Vec<u8> {
        self.resealed_with(Psn::new(0), |f| {
            f.truncate(42);
            f.extend(inside);
            let total = u16::try_from(f.len() - 14).expect("short");
            f[16..18].copy_from_slice(&total.to_be_bytes());
            f[38..40].copy_from_slice(&(total - 20).to_be_bytes());
            // `resealed_with` seals frames that are long enough for an ICRC.
        })
    }

    pub(super) fn sr(&self, header: &SrDataRepr, len: usize) -> Vec<u8> {
        let is_parity = header.block.is_some_and(|block| block.is_parity());
        let opcode = if is_parity { Opcode::SrParity } else { Opcode::SrData };
        let (psn, len) = (Psn::new(header.psn), header.header_len() + len);
        resealed_with(self.packet(opcode, psn, ExtHeaders::NONE, len), |f| {
            header.emit(&mut f[INSIDE..]).expect("as long as it says");
        })
    }

    pub(super) fn sr_ack(&self, ack: &SrAckRepr<'_>) -> Vec<u8> {
        let (psn, len) = (Psn::new(ack.next), ack.header_len());
        resealed_with(self.packet(Opcode::SrAck, psn, ExtHeaders::NONE, len), |f| {
            ack.emit(&mut f[INSIDE..]).expect("as long as it says");
        })
    }

    /// Copies of the valid frame `right`, each with one wrong address, and packets at `psn` of
    /// services that no queue pair has.
    pub(super) fn misplaced(&self, right: &[u8], psn: Psn) -> Vec<Attack> {
        let resealed_with = |change: fn(&mut Vec<u8>)| resealed_with(right.to_vec(), change);
        let mut unsealed = resealed_with(|f| f[BTH + 5] ^= 0x40);
        unsealed[BTH + 30] ^= 1;
        let rows = [
            ("a wrong QPN", resealed_with(|f| f[BTH + 5] ^= 0x40), "drop_unknown_qpn"),
            ("a wrong QPN without an ICRC", unsealed, "drop_unknown_qpn"),
            ("another source", resealed_with(|f| f[29] ^= 0x40), "drop_wrong_peer"),
            ("another partition", resealed_with(|f| f[BTH + 2] = 0x12), "drop_bad_pkey"),
            ("UC", self.plain(Opcode::UcSendOnly, psn), "drop_wrong_service"),
            ("UD", self.plain(Opcode::UdSendOnly, psn), "drop_wrong_service"),
        ];
        rows.map(|(name, frame, counter)| counted(name, frame, counter)).into()
    }
}

/// A frame over IPv4 with a change, and recomputed checksum and ICRC.
pub(super) fn resealed_with(mut frame: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut frame);
    frame[24..26].fill(0);
    let sum = u16::try_from(folded(&frame[14..34])).expect("folded");
    frame[24..26].copy_from_slice(&(!sum).to_be_bytes());
    let len = frame.len();
    if icrc(&frame[14..len - 4]).is_some() {
        seal(&mut frame, len);
    }
    frame
}

fn emit(headers: &Headers, len: usize) -> Vec<u8> {
    let mut frame = vec![0; headers.frame_len(len)];
    let at = headers.emit(&mut frame, len).expect("as long as it says");
    frame[at].fill(0x66);
    let len = frame.len();
    seal(&mut frame, len);
    frame
}

/// An attack that a counter of ours counts over both fabrics.
pub(super) fn counted(name: &'static str, frame: Vec<u8>, counter: &'static str) -> Attack {
    let counter = Counter::Ours(counter);
    Attack { name, frame, xdp: counter, udp: counter }
}

/// An attack that reaches the kernel over both fabrics: the steering program passes it.
pub(super) fn discarded(name: &'static str, frame: Vec<u8>, counter: &'static str) -> Attack {
    let counter = Counter::Kernel(counter);
    Attack { name, frame, xdp: counter, udp: counter }
}

/// A wrong UDP checksum for a frame over IPv4.
pub(super) fn wrong_udp_checksum(frame: &[u8]) -> [u8; 2] {
    // Pseudo header: addresses, protocol and length (RFC 768). The checksum of the frame is zero.
    let udp = &frame[34..];
    let length = u32::try_from(udp.len()).expect("short");
    let sum = folded(&frame[26..34]) + 17 + length + folded(udp);
    let right = !u16::try_from(fold(sum)).expect("folded");
    // Zero means that there is none.
    let wrong = if right == 0xffff { 1 } else { right + 1 };
    wrong.to_be_bytes()
}

/// The sum of the 16-bit words of `bytes`, folded (RFC 1071). An odd last byte is the high one.
fn folded(bytes: &[u8]) -> u32 {
    let word = |w: &[u8]| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)]));
    fold(bytes.chunks(2).map(word).sum())
}

fn fold(sum: u32) -> u32 {
    let once = (sum & 0xffff) + (sum >> 16);
    (once & 0xffff) + (once >> 16)
}

pub(super) const ACK: Syndrome = Syndrome::Ack { credits: 31 };
/// Offset of the BTH in a frame over IPv4.
pub(super) const BTH: usize = 14 + 20 + 8;
/// Offset of SR's header.
pub(super) const INSIDE: usize = BTH + 12;
