//! Adapts a recorded frame to our endpoint. Each endpoint draws its queue pair number and memory
//! key at random, so the recorded ones are replaced and the ICRC is recomputed.

use spanwire_wire::{Opcode, Qpn, seal};

/// Readdresses the frame to our `qpn`, with the key of a RETH or AtomicETH replaced by `rkey`. A
/// frame with a wrong ICRC keeps the same error: swapped bytes.
pub(super) fn rewrite(
    frame: &[u8],
    qpn: Qpn,
    icrc_is_good: bool,
    rkey: impl Fn(u32) -> u32,
) -> Vec<u8> {
    let ip = &frame[14..];
    let (header_len, ip_len) = match ip[0] >> 4 {
        4 => (20, usize::from(u16::from_be_bytes([ip[2], ip[3]]))),
        _ => (40, 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]]))),
    };
    let len = 14 + ip_len;
    let bth = 14 + header_len + 8;
    let mut out = frame[..len].to_vec();
    out[bth + 5..bth + 8].copy_from_slice(&qpn.get().to_be_bytes()[1..]);
    let props = Opcode::from_u8(out[bth]).map(Opcode::props);
    if props.is_some_and(|p| p.reth || p.atomic) {
        // Both begin with an address of eight bytes.
        let key = &mut out[bth + 12 + 8..bth + 12 + 12];
        let recorded = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
        key.copy_from_slice(&rkey(recorded).to_be_bytes());
    }
    seal(&mut out, len);
    if !icrc_is_good {
        out[len - 4..].reverse();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{captures, rxe_dir};
    use spanwire_wire::{DropReason, Packet};

    /// The frame of `capture` at `index`, rewritten.
    fn rewritten(capture: &str, index: usize, icrc_is_good: bool) -> Vec<u8> {
        assert!(rxe_dir().join(format!("{capture}.pcap")).exists());
        let all = captures();
        let capture = all.iter().find(|c| c.name == capture).expect("a capture");
        let bytes = &capture.frames[index].bytes;
        rewrite(bytes, Qpn::new(0xab_cdef), icrc_is_good, |key| key ^ 0xffff_0000)
    }

    #[test]
    fn rewrite__replaces_number_and_key_and_seals() {
        for (capture, v6) in [("04_write_mtu1024", false), ("31_v6_write", true)] {
            let out = rewritten(capture, 0, true);
            let packet = Packet::parse(&out).expect("a good packet");
            assert_eq!(packet.bth.dest_qp, Qpn::new(0xab_cdef));
            let key = packet.ext.reth.expect("a WRITE First").rkey;
            assert_eq!(key >> 16, 0xffff, "{key:#x}");
            assert_eq!(packet.ip.src().is_ipv6(), v6);
        }
        let out = rewritten("09_atomic_faa", 0, true);
        let packet = Packet::parse(&out).expect("a good packet");
        assert_eq!(packet.ext.atomic.expect("an atomic").rkey >> 16, 0xffff);
    }

    #[test]
    fn rewrite__a_bad_icrc_stays_bad() {
        let out = rewritten("82_probe_req", 2, false);
        assert_eq!(Packet::parse(&out), Err(DropReason::BadIcrc));
    }
}
