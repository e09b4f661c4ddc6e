//! The UDP sockets bound to a port, and their owners, by the kernel's socket monitoring
//! (`sock_diag(7)`).

use super::error::{NetError, NetErrorKind};
use super::netlink::RECEIVE_TIMEOUT;
use super::sys;
use bytemuck::{Pod, Zeroable};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};
use spanwire_base::usize_from;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::Path;

/// A UDP socket of any process, or of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpSocketInfo {
    /// Its address; unspecified for all.
    pub local: IpAddr,
    /// The only interface that it receives from; 0 for all.
    pub ifindex: u32,
    /// The user that it belongs to.
    pub uid: u32,
    inode: u32,
}

/// The owner of a socket, as far as this process may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SocketOwner {
    /// A process.
    Process {
        /// Its number.
        pid: u32,
        /// The name of its program, at most 15 bytes.
        program: String,
    },
    /// A process that is not visible.
    User(u32),
    /// Soft-RoCE of the kernel, whose sockets have no process.
    Rxe(RxeDevice),
}

/// An RDMA device of Soft-RoCE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RxeDevice {
    /// Its name.
    pub name: String,
    /// Its interface.
    pub ifname: String,
}

/// The UDP sockets at `port` in the network namespace of the calling thread.
///
/// # Errors
/// The kernel has no socket monitoring for UDP (`CONFIG_INET_UDP_DIAG`), or does not reply.
pub fn udp_sockets(port: u16) -> Result<Vec<UdpSocketInfo>, NetError> {
    let wrap = |e: io::Error| NetError::from_io("list the UDP sockets", &e);
    let mut socket = Socket::new(NETLINK_SOCK_DIAG).map_err(wrap)?;
    socket.bind_auto().map_err(wrap)?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(wrap)?;
    sys::set_receive_timeout(socket.as_fd(), RECEIVE_TIMEOUT).map_err(wrap)?;
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let id = SocketId { source_port: port.to_be_bytes(), ..SocketId::zeroed() };
        let request = Request {
            header: Header {
                len: u32::try_from(size_of::<Request>()).expect("some tens of bytes"),
                kind: SOCK_DIAG_BY_FAMILY,
                flags: netlink_packet_core::NLM_F_REQUEST | netlink_packet_core::NLM_F_DUMP,
                ..Header::zeroed()
            },
            family: u8::try_from(family).expect("a small constant"),
            protocol: u8::try_from(libc::IPPROTO_UDP).expect("a small constant"),
            states: u32::MAX,
            id,
            ..Request::zeroed()
        };
        socket.send(bytemuck::bytes_of(&request), 0).map_err(wrap)?;
        loop {
            let mut datagram = Vec::with_capacity(RECEIVE_BYTES);
            socket.recv(&mut datagram, 0).map_err(wrap)?;
            if take(&datagram, port, &mut found)? {
                break;
            }
        }
    }
    Ok(found)
}

/// Parses a datagram of the dump; returns true at its end.
fn take(mut datagram: &[u8], port: u16, found: &mut Vec<UdpSocketInfo>) -> Result<bool, NetError> {
    let odd = || NetError::new(NetErrorKind::Protocol, "list the UDP sockets");
    while !datagram.is_empty() {
        let header: Header = start_of(datagram).ok_or_else(odd)?;
        let len = usize_from(header.len.into());
        let body = datagram.get(size_of::<Header>()..len).ok_or_else(odd)?;
        match header.kind {
            netlink_packet_core::NLMSG_DONE => return Ok(true),
            netlink_packet_core::NLMSG_ERROR => {
                let code: i32 = start_of(body).ok_or_else(odd)?;
                return Err(NetError::from_errno("list the UDP sockets", code.saturating_abs()));
            }
            SOCK_DIAG_BY_FAMILY => {
                let reply: Reply = start_of(body).ok_or_else(odd)?;
                // Kernels that do not filter by port return all.
                if reply.id.source_port == port.to_be_bytes() {
                    found.push(reply.info());
                }
            }
            _ => {}
        }
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn start_of<T: Pod>(bytes: &[u8]) -> Option<T> {
    bytes.get(..size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

impl UdpSocketInfo {
    /// True if the socket receives packets to one of `addresses`, those of interface `ifindex`,
    /// that arrive there.
    #[must_use]
    pub fn receives_on(&self, ifindex: u32, addresses: &[IpAddr]) -> bool {
        (self.ifindex == 0 || self.ifindex == ifindex)
            && (self.local.is_unspecified() || addresses.contains(&self.local))
    }

    /// The owner.
    #[must_use]
    pub fn owner(&self) -> SocketOwner {
        let rxe = || Some(SocketOwner::Rxe(rxe_device(Path::new("/sys/class/infiniband"))?));
        // A process that may not look into others cannot tell the kernel's sockets from theirs.
        let kernel = || (self.uid == 0).then(rxe)?;
        process_of(self.inode).or_else(kernel).unwrap_or(SocketOwner::User(self.uid))
    }
}

/// The process that has the socket open, if it is visible.
fn process_of(inode: u32) -> Option<SocketOwner> {
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find_map(|pid| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        let is_wanted =
            |fd: &fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|to| to == Path::new(&wanted));
        fds.into_iter().find(is_wanted)?;
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some(SocketOwner::Process { pid, program: program.trim().to_owned() })
    })
}

/// A device of Soft-RoCE: only its devices have the attribute `parent`.
fn rxe_device(class: &Path) -> Option<RxeDevice> {
    fs::read_dir(class).ok()?.flatten().find_map(|device| {
        let ifname = fs::read_to_string(device.path().join("parent")).ok()?;
        let name = device.file_name().to_string_lossy().into_owned();
        Some(RxeDevice { name, ifname: ifname.trim().to_owned() })
    })
}

impl fmt::Display for SocketOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, program } => write!(f, "{program} (pid {pid})"),
            Self::User(uid) => write!(f, "another process (uid {uid})"),
            Self::Rxe(RxeDevice { name, ifname }) => write!(f, "the kernel's {name} on {ifname}"),
        }
    }
}

impl Reply {
    fn info(&self) -> UdpSocketInfo {
        let [a, b, c, d, ..] = self.id.source;
        let local = match i32::from(self.family) {
            libc::AF_INET => Ipv4Addr::new(a, b, c, d).into(),
            _ => Ipv6Addr::from(self.id.source).to_canonical(),
        };
        UdpSocketInfo { local, ifindex: self.id.ifindex, uid: self.uid, inode: self.inode }
    }
}

/// `struct nlmsghdr`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Header {
    len: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}

/// `struct inet_diag_sockid` of linux/inet_diag.h. Ports and addresses are in network order.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SocketId {
    source_port: [u8; 2],
    destination_port: [u8; 2],
    source: [u8; 16],
    destination: [u8; 16],
    ifindex: u32,
    cookie: [u32; 2],
}

/// `struct inet_diag_req_v2` of linux/inet_diag.h after its header.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Request {
    header: Header,
    family: u8,
    protocol: u8,
    extensions: u8,
    pad: u8,
    states: u32,
    id: SocketId,
}

/// `struct inet_diag_msg` of linux/inet_diag.h.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Reply {
    family: u8,
    state: u8,
    timer: u8,
    retransmissions: u8,
    id: SocketId,
    expires: u32,
    receive_queue: u32,
    send_queue: u32,
    uid: u32,
    inode: u32,
}

/// linux/sock_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// A dump arrives in at most 32 KiB.
const RECEIVE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::super::NetNs;
    use super::super::testing::lacks_privilege;
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn udp_sockets__lists_those_at_the_port_and_their_owner() {
        if lacks_privilege("udp_sockets") {
            return;
        }
        let ns = NetNs::new_anonymous().expect("privileged");
        ns.run(|| {
            super::super::Netlink::open().and_then(|mut n| n.set_up("lo")).expect("privileged");
            assert_eq!(udp_sockets(4791), Ok(Vec::new()));
            let bind = |at: &str| UdpSocket::bind(at).expect("free");
            let _sockets = ["127.0.0.1:4791", "[::]:4792", "[::1]:4791", "0.0.0.0:4793"].map(bind);
            let found = udp_sockets(4791).expect("this kernel has it");
            let locals: Vec<String> = found.iter().map(|info| info.local.to_string()).collect();
            assert_eq!(locals, ["127.0.0.1", "::1"]);
            for info in found {
                let us = std::process::id();
                assert!(matches!(info.owner(), SocketOwner::Process { pid, .. } if pid == us));
            }
            assert_eq!(udp_sockets(4792).expect("again")[0].local, Ipv6Addr::UNSPECIFIED);
        })
        .expect("namespace");
    }

    #[test]
    fn take__nonsense_is_an_error() {
        let header = |len, kind| Header { len, kind, ..Header::zeroed() };
        for (len, kind) in [(0, 3), (15, 3), (17, 3), (u32::MAX, 20), (16, 20), (16, 2)] {
            let bytes = bytemuck::bytes_of(&header(len, kind)).to_vec();
            assert!(take(&bytes, 4791, &mut Vec::new()).is_err(), "{len} {kind}");
        }
        let done = header(16, netlink_packet_core::NLMSG_DONE);
        assert_eq!(take(bytemuck::bytes_of(&done), 4791, &mut Vec::new()), Ok(true));
        assert_eq!(take(&[], 4791, &mut Vec::new()), Ok(false));
    }

    #[test]
    fn receives_on__by_address_and_device() {
        let ours: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        for (local, ifindex, expected) in [
            ("0.0.0.0", 0, true),
            ("::", 7, true),
            ("::", 8, false),
            ("10.0.0.1", 0, true),
            ("fd00::1", 7, true),
            ("10.0.0.1", 8, false),
            ("10.0.0.2", 0, false),
            ("127.0.0.1", 0, false),
        ] {
            let info = UdpSocketInfo { local: local.parse().unwrap(), ifindex, uid: 0, inode: 0 };
            assert_eq!(info.receives_on(7, &ours), expected, "{info:?}");
        }
    }

    #[test]
    fn rxe_device__is_the_one_with_a_parent() {
        let class = std::env::temp_dir().join(super::super::testing::unique_name("infiniband"));
        for device in ["mlx5_0", "rxe0"] {
            fs::create_dir_all(class.join(device)).expect("ours");
        }
        assert_eq!(rxe_device(&class), None);
        fs::write(class.join("rxe0/parent"), "eth3\n").expect("ours");
        let rxe = rxe_device(&class).expect("it is there");
        assert_eq!((&*rxe.name, &*rxe.ifname), ("rxe0", "eth3"));
        fs::remove_dir_all(&class).expect("ours");
        assert_eq!(rxe_device(&class), None);
    }

    #[test]
    fn owner__without_a_process_is_a_user() {
        let info = UdpSocketInfo {
            local: Ipv4Addr::UNSPECIFIED.into(),
            ifindex: 0,
            uid: 12_345,
            inode: u32::MAX,
        };
        assert_eq!(info.owner().to_string(), "another process (uid 12345)");
    }
}
