//! Several ports at one address: SO_REUSEPORT, and a classic BPF program by which the kernel
//! chooses the port of a datagram.

use super::config::UdpGroup;
use super::sys;
use std::io;
use std::os::fd::OwnedFd;

/// Lets a socket share its address with others, before it is bound.
pub(super) fn share(socket: &OwnedFd) -> io::Result<()> {
    af_xdp::sockopt::set(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1u32)
}

/// Sets the program of the group that a bound socket is in.
pub(super) fn select(socket: &OwnedFd, group: UdpGroup) {
    let UdpGroup { shift, mask } = group;
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let program = [
        step(LOAD_WORD_AT, 4),
        step(SHIFT_RIGHT_BY, shift.min(31)),
        step(AND_WITH, mask),
        step(RETURN_IT, 0),
    ];
    if let Err(e) = sys::attach_reuseport(socket, &program) {
        tracing::warn!("datagrams may arrive at another worker, which hands them over: {e}");
    }
}

/// BPF_LD | BPF_W | BPF_ABS, and three more of `linux/bpf_common.h`, which has no type for them.
const LOAD_WORD_AT: u16 = 0x20;
/// BPF_ALU | BPF_RSH | BPF_K.
const SHIFT_RIGHT_BY: u16 = 0x74;
/// BPF_ALU | BPF_AND | BPF_K.
const AND_WITH: u16 = 0x54;
/// BPF_RET | BPF_A.
const RETURN_IT: u16 = 0x16;
