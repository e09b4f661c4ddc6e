//! Promiscuous mode of an interface.

use super::XdpError;
use crate::net::NetError;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Holds an interface in promiscuous mode. The kernel counts the sockets that request it and
/// restores the interface when the last one is closed, even by a killed process.
#[derive(Debug)]
pub(super) struct Promiscuous {
    _socket: OwnedFd,
}

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
        let membership = libc::packet_mreq {
            mr_ifindex: c_int::try_from(ifindex)
                .map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?,
            mr_type: PROMISCUOUS,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let len = libc::socklen_t::try_from(size_of_val(&membership)).expect("16");
        // SAFETY: the kernel reads `len` bytes of `membership`, which is all of it.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const membership).cast(),
                len,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(socket)
    }
}

/// `PACKET_MR_PROMISC` of linux/if_packet.h, in the field's width.
const PROMISCUOUS: u16 = 1;
const _: () = assert!(libc::PACKET_MR_PROMISC == 1);
