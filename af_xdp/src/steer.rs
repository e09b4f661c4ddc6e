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
    /// RoCEv2 ([`STEER`]): what an endpoint wants, beside a kernel that goes on as ever.
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
/// Instruction [`STEER_MAP_AT`] loads the address of the XSKMAP; a loader must put the map's
/// descriptor there (see [`steer_for`]).
pub const STEER: [u64; 32] = [
    0x0000_0002_0000_00b7, //  0: r0 = 2 ; XDP_PASS
    0x0000_0000_0004_1361, //  1: r3 = *(u32 *)(r1 + 4)
    0x0000_0000_0000_1261, //  2: r2 = *(u32 *)(r1 + 0)
    0x0000_0000_0000_24bf, //  3: r4 = r2
    0x0000_002a_0000_0407, //  4: r4 += 42
    0x0000_0000_0019_342d, //  5: if r4 > r3 goto 31 ; shorter than IPv4 + UDP
    0x0000_0000_000c_2469, //  6: r4 = *(u16 *)(r2 + 12)
    0x0000_0008_000a_0455, //  7: if r4 != 8 goto 18 ; not IPv4: try IPv6
    0x0000_0000_000e_2371, //  8: r3 = *(u8 *)(r2 + 14)
    0x0000_0045_0015_0355, //  9: if r3 != 69 goto 31 ; options
    0x0000_0000_0017_2371, // 10: r3 = *(u8 *)(r2 + 23)
    0x0000_0011_0013_0355, // 11: if r3 != 17 goto 31 ; not UDP
    0x0000_0000_0014_2369, // 12: r3 = *(u16 *)(r2 + 20)
    0x0000_ff3f_0000_0357, // 13: r3 &= 65343
    0x0000_0000_0010_0355, // 14: if r3 != 0 goto 31 ; a fragment
    0x0000_0000_0024_2269, // 15: r2 = *(u16 *)(r2 + 36)
    0x0000_b712_0009_0215, // 16: if r2 == 46866 goto 26 ; 4791
    0x0000_0000_000d_0005, // 17: goto 31
    0x0000_dd86_000c_0455, // 18: if r4 != 56710 goto 31 ; not IPv6 either
    0x0000_0000_0000_24bf, // 19: r4 = r2
    0x0000_003e_0000_0407, // 20: r4 += 62
    0x0000_0000_0009_342d, // 21: if r4 > r3 goto 31 ; shorter than IPv6 + UDP
    0x0000_0000_0014_2371, // 22: r3 = *(u8 *)(r2 + 20)
    0x0000_0011_0007_0355, // 23: if r3 != 17 goto 31 ; extension header or not UDP
    0x0000_0000_0038_2269, // 24: r2 = *(u16 *)(r2 + 56)
    0x0000_b712_0005_0255, // 25: if r2 != 46866 goto 31 ; not 4791
    0x0000_0000_0010_1261, // 26: r2 = *(u32 *)(r1 + 16) ; rx_queue_index
    0x0000_0000_0000_0118, // 27: r1 = map ; the XSKMAP, set by the loader
    0x0000_0000_0000_0000, // 28: (second half)
    0x0000_0002_0000_03b7, // 29: r3 = 2 ; XDP_PASS when the slot is empty
    0x0000_0033_0000_0085, // 30: call 51 ; bpf_redirect_map
    0x0000_0000_0000_0095, // 31: exit
];

/// The index in [`STEER`] of the two-word instruction that loads the map.
pub const STEER_MAP_AT: usize = 27;

/// The instructions of the program that steers every frame, in the same form.
///
/// Instruction [`STEER_ALL_MAP_AT`] loads the address of the XSKMAP.
pub const STEER_ALL: [u64; 6] = [
    0x0000_0000_0010_1261, // 0: r2 = *(u32 *)(r1 + 16) ; rx_queue_index
    0x0000_0000_0000_0118, // 1: r1 = map ; the XSKMAP, set by the loader
    0x0000_0000_0000_0000, // 2: (second half)
    0x0000_0002_0000_03b7, // 3: r3 = 2 ; XDP_PASS when the slot is empty
    0x0000_0033_0000_0085, // 4: call 51 ; bpf_redirect_map
    0x0000_0000_0000_0095, // 5: exit
];

/// The index in [`STEER_ALL`] of the two-word instruction that loads the map.
pub const STEER_ALL_MAP_AT: usize = 1;

const _: () = assert!(STEER[STEER_MAP_AT] == LOAD_R1_IMM64);
const _: () = assert!(STEER_ALL[STEER_ALL_MAP_AT] == LOAD_R1_IMM64);

/// The program for `traffic` with the descriptor of an XSKMAP put in place, ready for
/// `BPF_PROG_LOAD`.
#[must_use]
pub fn steer_for(traffic: Traffic, map_fd: u32) -> Vec<u64> {
    let (plain, map_at): (&[u64], usize) = match traffic {
        Traffic::RoceV2 => (&STEER, STEER_MAP_AT),
        Traffic::All => (&STEER_ALL, STEER_ALL_MAP_AT),
    };
    let mut insns = plain.to_vec();
    insns[map_at] = LOAD_R1_IMM64 | PSEUDO_MAP_FD | u64::from(map_fd) << 32;
    insns
}

/// `BPF_LD | BPF_DW | BPF_IMM` into r1.
const LOAD_R1_IMM64: u64 = 0x118;
/// `BPF_PSEUDO_MAP_FD` as source register: the immediate is a descriptor, not an address.
const PSEUDO_MAP_FD: u64 = 1 << 12;

#[cfg(test)]
mod tests;
