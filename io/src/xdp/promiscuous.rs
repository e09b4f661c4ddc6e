//! Promiscuous mode of an interface.

use super::XdpError;
use crate::net::NetError;
use af_xdp::{same_layout, sockopt};
use bytemuck::{Pod, Zeroable};
use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Holds an interface in promiscuous mode. The kernel counts the sockets that request it and
/// restores the interface when the last one is closed, even by a killed process.
#[derive(Debug)]
pub(super) struct Promiscuous {
    _socket: OwnedFd,
}

/// `struct packet_mreq`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Membership {
    ifindex: c_int,
    kind: u16,
    address_len: u16,
    address: [u8; 8],
}

same_layout!(Membership = libc::packet_mreq {
    ifindex = mr_ifindex,
    kind = mr_type,
    address_len = mr_alen,
    address = mr_address,
});

impl Promiscuous {
    /// Requests the mode on an interface of this thread's network namespace.
    ///
    /// # Errors
    /// No CAP_NET_RAW, or the interface was removed.
    pub(super) fn new(ifname: &str, ifindex: u32) -> Result<Self, XdpError> {
        let socket = Self::ask(ifindex).map_err(|e| {
            let asked = "set the interface to promiscuous mode";
            XdpError::Interface(NetError::from_io(asked, &e).on(ifname))
        })?;
        Ok(Self { _socket: socket })
    }

    fn ask(ifindex: u32) -> io::Result<OwnedFd> {
        // Protocol 0: the socket itself receives nothing.
        // SAFETY: socket takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, valid and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let membership = Membership {
            ifindex: c_int::try_from(ifindex)
                .map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?,
            kind: PROMISCUOUS,
            address_len: 0,
            address: [0; 8],
        };
        sockopt::set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        Ok(socket)
    }
}

/// `PACKET_MR_PROMISC` of linux/if_packet.h, in the field's width.
const PROMISCUOUS: u16 = 1;
const _: () = assert!(libc::PACKET_MR_PROMISC == 1);
