//! The steering programs: what decides which frames a socket sees.
//!
//! The sources are `steer.bpf.c` and `steer_all.bpf.c` beside this file. Their instructions are
//! kept here as text, so that building needs no compiler for BPF and a reviewer can read what is
//! loaded. They are the output of Debian clang 14.0.6 (`clang -O2 -target bpf -c steer.bpf.c`,
//! section `xdp.frags`); a test compiles the sources again where that clang is installed and
//! compares every byte.

/// Which of an interface's frames are steered to the sockets; the kernel's stack gets the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Traffic {
    /// RoCEv2 to a local address ([`STEER`]): what an endpoint wants, beside a kernel that goes on
    /// as ever, also routing and bridging RoCEv2 to others.
    #[default]
    RoceV2,
    /// Everything ([`STEER_ALL`]): what a switch wants. The kernel hears nothing of the queue.
    All,
}

/// The UDP destination port that is steered to the sockets: RoCEv2's, assigned by IANA.
pub const STEER_PORT: u16 = 4791;

/// The instructions of the steering program, each as the little-endian word of `struct bpf_insn`
/// (opcode in the low byte, then registers, offset, immediate).
///
/// Instruction [`STEER_XSKS_AT`] loads the address of the XSKMAP, [`STEER_ADDRESSES_AT`] that of
/// the map of local addresses; a loader must put the maps' descriptors there (see [`steer_for`]).
pub const STEER: [u64; 56] = [
    0x0000_0000_0000_17bf, //  0: r7 = r1
    0x0000_0002_0000_06b7, //  1: r6 = 2 ; XDP_PASS
    0x0000_0000_0004_7261, //  2: r2 = *(u32 *)(r7 + 4)
    0x0000_0000_0000_7161, //  3: r1 = *(u32 *)(r7 + 0)
    0x0000_0000_0000_13bf, //  4: r3 = r1
    0x0000_002a_0000_0307, //  5: r3 += 42
    0x0000_0000_002f_232d, //  6: if r3 > r2 goto 54 ; shorter than IPv4 + UDP
    0x0000_0000_000c_1369, //  7: r3 = *(u16 *)(r1 + 12)
    0x0000_0008_000f_0355, //  8: if r3 != 8 goto 24 ; not IPv4: try IPv6
    0x0000_0000_000e_1271, //  9: r2 = *(u8 *)(r1 + 14)
    0x0000_0045_002b_0255, // 10: if r2 != 69 goto 54 ; options
    0x0000_0000_0017_1271, // 11: r2 = *(u8 *)(r1 + 23)
    0x0000_0011_0029_0255, // 12: if r2 != 17 goto 54 ; not UDP
    0x0000_0000_0014_1269, // 13: r2 = *(u16 *)(r1 + 20)
    0x0000_ff3f_0000_0257, // 14: r2 &= 65343
    0x0000_0000_0026_0255, // 15: if r2 != 0 goto 54 ; a fragment
    0x0000_0000_0024_1269, // 16: r2 = *(u16 *)(r1 + 36)
    0x0000_b712_0024_0255, // 17: if r2 != 46866 goto 54 ; not 4791
    0x0000_0000_0000_02b7, // 18: r2 = 0
    0x0000_0000_fff0_2a7b, // 19: *(u64 *)(r10 - 16) = r2
    0x0000_001e_0000_02b7, // 20: r2 = 30 ; IPv4 destination
    0xffff_0000_0000_0318, // 21: r3 = 4294901760 ; ::ffff: before an IPv4 address
    0x0000_0000_0000_0000, // 22: (second half)
    0x0000_0000_000e_0005, // 23: goto 38
    0x0000_dd86_001d_0355, // 24: if r3 != 56710 goto 54 ; not IPv6 either
    0x0000_0000_0000_13bf, // 25: r3 = r1
    0x0000_003e_0000_0307, // 26: r3 += 62
    0x0000_0000_001a_232d, // 27: if r3 > r2 goto 54 ; shorter than IPv6 + UDP
    0x0000_0000_0014_1271, // 28: r2 = *(u8 *)(r1 + 20)
    0x0000_0011_0018_0255, // 29: if r2 != 17 goto 54 ; extension header or not UDP
    0x0000_0000_0038_1269, // 30: r2 = *(u16 *)(r1 + 56)
    0x0000_b712_0016_0255, // 31: if r2 != 46866 goto 54 ; not 4791
    0x0000_0000_0026_1261, // 32: r2 = *(u32 *)(r1 + 38)
    0x0000_0000_fff0_2a63, // 33: *(u32 *)(r10 - 16) = r2
    0x0000_0000_002a_1261, // 34: r2 = *(u32 *)(r1 + 42)
    0x0000_0000_fff4_2a63, // 35: *(u32 *)(r10 - 12) = r2
    0x0000_0032_0000_02b7, // 36: r2 = 50 ; last word of the IPv6 destination
    0x0000_0000_002e_1361, // 37: r3 = *(u32 *)(r1 + 46)
    0x0000_0000_fff8_3a63, // 38: *(u32 *)(r10 - 8) = r3
    0x0000_0000_0000_210f, // 39: r1 += r2
    0x0000_0000_0000_1161, // 40: r1 = *(u32 *)(r1 + 0)
    0x0000_0000_fffc_1a63, // 41: *(u32 *)(r10 - 4) = r1
    0x0000_0000_0000_a2bf, // 42: r2 = r10
    0xffff_fff0_0000_0207, // 43: r2 += -16
    0x0000_0000_0000_0118, // 44: r1 = map ; the address map, set by the loader
    0x0000_0000_0000_0000, // 45: (second half)
    0x0000_0001_0000_0085, // 46: call 1 ; bpf_map_lookup_elem
    0x0000_0000_0006_0015, // 47: if r0 == 0 goto 54 ; not a local address
    0x0000_0000_0010_7261, // 48: r2 = *(u32 *)(r7 + 16) ; rx_queue_index
    0x0000_0000_0000_0118, // 49: r1 = map ; the XSKMAP, set by the loader
    0x0000_0000_0000_0000, // 50: (second half)
    0x0000_0002_0000_03b7, // 51: r3 = 2 ; XDP_PASS when the slot is empty
    0x0000_0033_0000_0085, // 52: call 51 ; bpf_redirect_map
    0x0000_0000_0000_06bf, // 53: r6 = r0
    0x0000_0000_0000_60bf, // 54: r0 = r6
    0x0000_0000_0000_0095, // 55: exit
];

/// The index in [`STEER`] of the two-word instruction that loads the XSKMAP.
pub const STEER_XSKS_AT: usize = 49;

/// The index in [`STEER`] of the two-word instruction that loads the map of local addresses.
pub const STEER_ADDRESSES_AT: usize = 44;

/// The instructions of the program that steers every frame, in the same form.
///
/// Instruction [`STEER_ALL_XSKS_AT`] loads the address of the XSKMAP.
pub const STEER_ALL: [u64; 6] = [
    0x0000_0000_0010_1261, // 0: r2 = *(u32 *)(r1 + 16) ; rx_queue_index
    0x0000_0000_0000_0118, // 1: r1 = map ; the XSKMAP, set by the loader
    0x0000_0000_0000_0000, // 2: (second half)
    0x0000_0002_0000_03b7, // 3: r3 = 2 ; XDP_PASS when the slot is empty
    0x0000_0033_0000_0085, // 4: call 51 ; bpf_redirect_map
    0x0000_0000_0000_0095, // 5: exit
];

/// The index in [`STEER_ALL`] of the two-word instruction that loads the map.
pub const STEER_ALL_XSKS_AT: usize = 1;

const _: () = assert!(STEER[STEER_XSKS_AT] == LOAD_R1_IMM64);
const _: () = assert!(STEER[STEER_ADDRESSES_AT] == LOAD_R1_IMM64);
const _: () = assert!(STEER_ALL[STEER_ALL_XSKS_AT] == LOAD_R1_IMM64);

/// The maps a steering program reads, by their descriptors. Which of them decides what is steered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maps {
    /// [`STEER`]: RoCEv2 to the addresses of a map.
    RoceV2 {
        /// The XSKMAP.
        xsks: u32,
        /// The map of local addresses.
        addresses: u32,
    },
    /// [`STEER_ALL`]: everything.
    All {
        /// The XSKMAP.
        xsks: u32,
    },
}

/// The program over `maps` with their descriptors put in place, ready for `BPF_PROG_LOAD`.
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
