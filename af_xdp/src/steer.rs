//! The steering programs: which frames reach a socket.
//!
//! The sources are `steer.bpf.c` and `steer_all.bpf.c` in this directory. Their instructions are
//! included as text, so that the build needs no BPF compiler and a reviewer can read what is
//! loaded. They are the output of Debian clang 14.0.6 (`clang -O2 -target bpf -c steer.bpf.c`,
//! section `xdp.frags`). Where that clang is installed, a test compiles the sources and compares
//! every byte.

/// The frames of an interface that are steered to the sockets; the kernel's stack gets the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Traffic {
    /// RoCEv2 to a local address ([`STEER`]), for an endpoint. The kernel gets the rest, and still
    /// routes and bridges RoCEv2 to other hosts.
    #[default]
    RoceV2,
    /// All frames ([`STEER_ALL`]), for a switch. The kernel gets no frame of the queue.
    All,
}

/// The UDP destination port that is steered to the sockets: RoCEv2's, assigned by IANA.
pub const STEER_PORT: u16 = 4791;

/// The mark before the arrival time in the metadata that the programs write before a frame. Both
/// are eight bytes in the machine's byte order.
pub const ARRIVAL_MARK: [u8; 8] = *b"arrival\0";

/// The instructions of the steering program, each as the little-endian word of `struct bpf_insn`
/// (opcode in the low byte, then registers, offset, immediate).
///
/// Instruction [`STEER_XSKS_AT`] loads the address of the XSKMAP, [`STEER_ADDRESSES_AT`] that of
/// the map of local addresses; a loader must put the maps' descriptors there (see [`steer_for`]).
pub const STEER: [u64; 70] = [
    0x0000_0000_0000_16bf, //  0: r6 = r1
    0x0000_0002_0000_07b7, //  1: r7 = 2 ; XDP_PASS
    0x0000_0000_0004_6261, //  2: r2 = *(u32 *)(r6 + 4)
    0x0000_0000_0000_6161, //  3: r1 = *(u32 *)(r6 + 0)
    0x0000_0000_0000_13bf, //  4: r3 = r1
    0x0000_002a_0000_0307, //  5: r3 += 42
    0x0000_0000_003d_232d, //  6: if r3 > r2 goto 68 ; shorter than IPv4 + UDP
    0x0000_0000_000c_1369, //  7: r3 = *(u16 *)(r1 + 12)
    0x0000_0008_0010_0355, //  8: if r3 != 8 goto 25 ; not IPv4: try IPv6
    0x0000_0000_000e_1271, //  9: r2 = *(u8 *)(r1 + 14)
    0x0000_0045_0039_0255, // 10: if r2 != 69 goto 68 ; options
    0x0000_0000_0017_1271, // 11: r2 = *(u8 *)(r1 + 23)
    0x0000_0011_0037_0255, // 12: if r2 != 17 goto 68 ; not UDP
    0x0000_0000_0014_1269, // 13: r2 = *(u16 *)(r1 + 20)
    0x0000_ff3f_0000_0257, // 14: r2 &= 65343
    0x0000_0000_0034_0255, // 15: if r2 != 0 goto 68 ; a fragment
    0x0000_0000_0024_1269, // 16: r2 = *(u16 *)(r1 + 36)
    0x0000_b712_0032_0255, // 17: if r2 != 46866 goto 68 ; not 4791
    0xffff_0000_0000_0218, // 18: r2 = 4294901760 ; ::ffff: before an IPv4 address
    0x0000_0000_0000_0000, // 19: (second half)
    0x0000_0000_fff8_2a63, // 20: *(u32 *)(r10 - 8) = r2
    0x0000_0000_0000_02b7, // 21: r2 = 0
    0x0000_0000_fff0_2a7b, // 22: *(u64 *)(r10 - 16) = r2
    0x0000_0000_001e_1161, // 23: r1 = *(u32 *)(r1 + 30) ; IPv4 destination
    0x0000_0000_000f_0005, // 24: goto 40
    0x0000_dd86_002a_0355, // 25: if r3 != 56710 goto 68 ; not IPv6 either
    0x0000_0000_0000_13bf, // 26: r3 = r1
    0x0000_003e_0000_0307, // 27: r3 += 62
    0x0000_0000_0027_232d, // 28: if r3 > r2 goto 68 ; shorter than IPv6 + UDP
    0x0000_0000_0014_1271, // 29: r2 = *(u8 *)(r1 + 20)
    0x0000_0011_0025_0255, // 30: if r2 != 17 goto 68 ; extension header or not UDP
    0x0000_0000_0038_1269, // 31: r2 = *(u16 *)(r1 + 56)
    0x0000_b712_0023_0255, // 32: if r2 != 46866 goto 68 ; not 4791
    0x0000_0000_0026_1261, // 33: r2 = *(u32 *)(r1 + 38)
    0x0000_0000_fff0_2a63, // 34: *(u32 *)(r10 - 16) = r2
    0x0000_0000_002a_1261, // 35: r2 = *(u32 *)(r1 + 42)
    0x0000_0000_fff4_2a63, // 36: *(u32 *)(r10 - 12) = r2
    0x0000_0000_002e_1261, // 37: r2 = *(u32 *)(r1 + 46)
    0x0000_0000_fff8_2a63, // 38: *(u32 *)(r10 - 8) = r2
    0x0000_0000_0032_1161, // 39: r1 = *(u32 *)(r1 + 50) ; last word of the IPv6 destination
    0x0000_0000_fffc_1a63, // 40: *(u32 *)(r10 - 4) = r1
    0x0000_0000_0000_a2bf, // 41: r2 = r10
    0xffff_fff0_0000_0207, // 42: r2 += -16
    0x0000_0000_0000_0118, // 43: r1 = map ; the address map, set by the loader
    0x0000_0000_0000_0000, // 44: (second half)
    0x0000_0001_0000_0085, // 45: call 1 ; bpf_map_lookup_elem
    0x0000_0000_0015_0015, // 46: if r0 == 0 goto 68 ; not a local address
    0x0000_0000_0000_61bf, // 47: r1 = r6
    0xffff_fff0_0000_0218, // 48: r2 = 4294967280 ; metadata of 16 bytes
    0x0000_0000_0000_0000, // 49: (second half)
    0x0000_0036_0000_0085, // 50: call 54 ; bpf_xdp_adjust_meta
    0x0000_0000_000a_0055, // 51: if r0 != 0 goto 62 ; the driver has no metadata
    0x0000_0000_0000_6161, // 52: r1 = *(u32 *)(r6 + 0)
    0x0000_0000_0008_6761, // 53: r7 = *(u32 *)(r6 + 8) ; data_meta
    0x0000_0000_0000_72bf, // 54: r2 = r7
    0x0000_0010_0000_0207, // 55: r2 += 16
    0x0000_0000_0005_122d, // 56: if r2 > r1 goto 62 ; checks the bounds for the verifier
    0x6972_7261_0000_0118, // 57: r1 = 30506458687894113 ; "arrival", the mark
    0x006c_6176_0000_0000, // 58: (second half)
    0x0000_0000_0000_177b, // 59: *(u64 *)(r7 + 0) = r1
    0x0000_0005_0000_0085, // 60: call 5 ; bpf_ktime_get_ns
    0x0000_0000_0008_077b, // 61: *(u64 *)(r7 + 8) = r0
    0x0000_0000_0010_6261, // 62: r2 = *(u32 *)(r6 + 16) ; rx_queue_index
    0x0000_0000_0000_0118, // 63: r1 = map ; the XSKMAP, set by the loader
    0x0000_0000_0000_0000, // 64: (second half)
    0x0000_0002_0000_03b7, // 65: r3 = 2 ; XDP_PASS when the slot is empty
    0x0000_0033_0000_0085, // 66: call 51 ; bpf_redirect_map
    0x0000_0000_0000_07bf, // 67: r7 = r0
    0x0000_0000_0000_70bf, // 68: r0 = r7
    0x0000_0000_0000_0095, // 69: exit
];

/// The index in [`STEER`] of the two-word instruction that loads the XSKMAP.
pub const STEER_XSKS_AT: usize = 63;

/// The index in [`STEER`] of the two-word instruction that loads the map of local addresses.
pub const STEER_ADDRESSES_AT: usize = 43;

/// The instructions of the program that steers every frame, in the same form.
///
/// Instruction [`STEER_ALL_XSKS_AT`] loads the address of the XSKMAP.
pub const STEER_ALL: [u64; 21] = [
    0x0000_0000_0000_16bf, //  0: r6 = r1
    0xffff_fff0_0000_0218, //  1: r2 = 4294967280 ; metadata of 16 bytes
    0x0000_0000_0000_0000, //  2: (second half)
    0x0000_0036_0000_0085, //  3: call 54 ; bpf_xdp_adjust_meta
    0x0000_0000_000a_0055, //  4: if r0 != 0 goto 15 ; the driver has no metadata
    0x0000_0000_0000_6161, //  5: r1 = *(u32 *)(r6 + 0)
    0x0000_0000_0008_6761, //  6: r7 = *(u32 *)(r6 + 8) ; data_meta
    0x0000_0000_0000_72bf, //  7: r2 = r7
    0x0000_0010_0000_0207, //  8: r2 += 16
    0x0000_0000_0005_122d, //  9: if r2 > r1 goto 15 ; checks the bounds for the verifier
    0x6972_7261_0000_0118, // 10: r1 = 30506458687894113 ; "arrival", the mark
    0x006c_6176_0000_0000, // 11: (second half)
    0x0000_0000_0000_177b, // 12: *(u64 *)(r7 + 0) = r1
    0x0000_0005_0000_0085, // 13: call 5 ; bpf_ktime_get_ns
    0x0000_0000_0008_077b, // 14: *(u64 *)(r7 + 8) = r0
    0x0000_0000_0010_6261, // 15: r2 = *(u32 *)(r6 + 16) ; rx_queue_index
    0x0000_0000_0000_0118, // 16: r1 = map ; the XSKMAP, set by the loader
    0x0000_0000_0000_0000, // 17: (second half)
    0x0000_0002_0000_03b7, // 18: r3 = 2 ; XDP_PASS when the slot is empty
    0x0000_0033_0000_0085, // 19: call 51 ; bpf_redirect_map
    0x0000_0000_0000_0095, // 20: exit
];

/// The index in [`STEER_ALL`] of the two-word instruction that loads the map.
pub const STEER_ALL_XSKS_AT: usize = 16;

const _: () = assert!(STEER[STEER_XSKS_AT] == LOAD_R1_IMM64);
const _: () = assert!(STEER[STEER_ADDRESSES_AT] == LOAD_R1_IMM64);
const _: () = assert!(STEER_ALL[STEER_ALL_XSKS_AT] == LOAD_R1_IMM64);

/// The maps of a steering program, by their descriptors. The variant selects the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maps {
    /// [`STEER`]: RoCEv2 to the addresses of a map.
    RoceV2 {
        /// The XSKMAP.
        xsks: u32,
        /// The map of local addresses.
        addresses: u32,
    },
    /// [`STEER_ALL`]: all frames.
    All {
        /// The XSKMAP.
        xsks: u32,
    },
}

/// The program for `maps`, with their descriptors inserted, ready for `BPF_PROG_LOAD`.
#[must_use]
pub fn steer_for(maps: Maps) -> Vec<u64> {
    let with = |plain: &[u64], loads: &[(usize, u32)]| {
        let mut insns = plain.to_vec();
        for &(at, fd) in loads {
            insns[at] = LOAD_R1_IMM64 | PSEUDO_MAP_FD | u64::from(fd) << 32;
        }
        insns
    };
    match maps {
        Maps::RoceV2 { xsks, addresses } => {
            with(&STEER, &[(STEER_XSKS_AT, xsks), (STEER_ADDRESSES_AT, addresses)])
        }
        Maps::All { xsks } => with(&STEER_ALL, &[(STEER_ALL_XSKS_AT, xsks)]),
    }
}

/// `BPF_LD | BPF_DW | BPF_IMM` into r1.
const LOAD_R1_IMM64: u64 = 0x118;
/// `BPF_PSEUDO_MAP_FD` as source register: the immediate is a descriptor, not an address.
const PSEUDO_MAP_FD: u64 = 1 << 12;

#[cfg(test)]
mod tests;
