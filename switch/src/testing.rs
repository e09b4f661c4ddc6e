//! Frames for tests.

use spanwire_base::u32_from;
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, Headers, IpRepr, MacAddr, Opcode, Psn, Qpn, RethRepr,
    UdpRepr, seal,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The MAC address of host `n`.
pub(crate) fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn headers(dst: u8, is_v6: bool, entropy: u16) -> Headers {
    let addr = |n: u8| -> IpAddr {
        if is_v6 {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)).into()
        } else {
            Ipv4Addr::new(10, 0, 0, n).into()
        }
    };
    let mut ip = IpRepr::new(addr(0), addr(dst)).unwrap();
    ip.set_dscp_ecn(2);
    Headers {
        eth: EthernetRepr { dst: mac(dst), src: mac(0), ethertype: 0 },
        ip,
        udp: UdpRepr::new(entropy),
        bth: BthRepr::new(Opcode::RcWriteOnly, Qpn::new(5), Psn::new(6)),
        ext: ExtHeaders { reth: Some(RethRepr { va: 0, rkey: 1, dma_len: 0 }), ..ExtHeaders::NONE },
    }
}

fn emit(headers: &Headers, payload: usize) -> Vec<u8> {
    let mut frame = vec![0; headers.frame_len(payload)];
    headers.emit(&mut frame, payload).unwrap();
    let len = frame.len();
    seal(&mut frame, len);
    frame
}

/// A RoCE WRITE from host 0 to host `dst` over IPv4: 74 bytes and the payload.
pub(crate) fn roce_frame(dst: u8, payload: usize) -> Vec<u8> {
    emit(&headers(dst, false, 0xc000), payload)
}

/// The same with another UDP source port: another flow.
pub(crate) fn roce_frame_of(dst: u8, entropy: u16, payload: usize) -> Vec<u8> {
    emit(&headers(dst, false, entropy), payload)
}

/// The same over IPv6: 94 bytes and the payload.
pub(crate) fn roce_frame_v6(dst: u8, payload: usize) -> Vec<u8> {
    emit(&headers(dst, true, 0xc000), payload)
}

/// The same over IPv4 with its payload elided, and the number of elided bytes.
pub(crate) fn roce_frame_elided(dst: u8, payload: usize) -> (Vec<u8>, u32) {
    assert!(payload.is_multiple_of(4), "the payload needs no pad bytes");
    let headers = headers(dst, false, 0xc000);
    let mut frame = emit(&headers, payload);
    frame.truncate(headers.header_len() + 4);
    let len = frame.len();
    seal(&mut frame, len);
    (frame, u32_from(payload))
}
