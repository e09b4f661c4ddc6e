//! A probe for UDP sockets and their offloads.

use super::config::UdpConfig;
use super::{sources, sys};
use af_xdp::sockopt;
use std::io;

/// The features of UDP sockets that a port uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpFeatures {
    /// Several datagrams leave by one send (UDP_SEGMENT, since Linux 4.18).
    pub segments: bool,
    /// Several datagrams arrive by one call (UDP_GRO, since Linux 5.0).
    pub coalesces: bool,
    /// The receive buffer that the kernel grants, in bytes, its own overhead included.
    pub receive_buffer: u32,
}

/// Sets the options of a port on an unbound socket, and closes it again.
///
/// # Errors
/// No UDP socket can be made.
pub fn probe_udp() -> io::Result<UdpFeatures> {
    let socket = sys::open(false)?;
    let accepts = |name| sockopt::set(&socket, libc::SOL_UDP, name, &1u32).is_ok();
    let (force, ask) = (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF);
    sources::request_buffer(&socket, force, ask, UdpConfig::new("").receive_buffer)?;
    Ok(UdpFeatures {
        segments: accepts(libc::UDP_SEGMENT),
        coalesces: accepts(libc::UDP_GRO),
        receive_buffer: sockopt::get(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_udp__finds_the_features_of_this_kernel() {
        let features = probe_udp().expect("UDP sockets need no privilege");
        assert!(features.segments && features.coalesces, "{features:?}");
        assert!(features.receive_buffer >= 4096, "{features:?}");
    }
}
