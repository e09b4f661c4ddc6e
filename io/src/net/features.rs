//! XDP features that drivers declare: the `netdev` family of generic netlink.
//!
//! Queries only: nothing is attached, bound or reset.

use super::error::{NetError, NetErrorKind};
use super::netns::NetNs;
use super::sys;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// XDP features that a driver declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpFeatures {
    /// Native XDP with redirection: programs run before a socket buffer exists.
    pub native: bool,
    /// Zero-copy AF_XDP.
    pub zero_copy: bool,
    /// Multi-buffer frames.
    pub multi_buffer: bool,
}

impl XdpFeatures {
    /// Queries the features of an interface of the calling thread's namespace.
    ///
    /// # Errors
    /// [`NetErrorKind::Unsupported`] from kernels before Linux 6.3, which have no such query; no
    /// such interface.
    pub fn read(ifindex: u32) -> Result<Self, NetError> {
        let wrap = |e: io::Error| NetError::from_io("open a generic netlink socket", &e);
        let mut socket = Socket::new(NETLINK_GENERIC).map_err(wrap)?;
        socket.bind_auto().map_err(wrap)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(wrap)?;
        sys::set_receive_timeout(socket.as_fd(), RECEIVE_TIMEOUT).map_err(wrap)?;

        let name = DefaultNla::new(CTRL_ATTR_FAMILY_NAME, b"netdev\0".to_vec());
        let question = Generic::new(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &name);
        let family = ask(&socket, question).and_then(|answer| {
            answer.attribute(CTRL_ATTR_FAMILY_ID).map(u16::from_ne_bytes).ok_or_else(short)
        });
        let family = family.map_err(|e| match e.raw_os_error() {
            Some(libc::ENOENT) => NetError::new(NetErrorKind::Unsupported, ASKED)
                .detail("the kernel has no netdev family (before Linux 6.3)"),
            _ => NetError::from_io(ASKED, &e),
        })?;

        let index = DefaultNla::new(NETDEV_A_DEV_IFINDEX, ifindex.to_ne_bytes().to_vec());
        let answer = ask(&socket, Generic::new(family, NETDEV_CMD_DEV_GET, &index))
            .map_err(|e| NetError::from_io(ASKED, &e).on(format!("index {ifindex}")))?;
        let bits = answer.attribute(NETDEV_A_DEV_XDP_FEATURES).map(u64::from_ne_bytes);
        Ok(Self::of(bits.ok_or_else(|| NetError::from_io(ASKED, &short()))?))
    }

    /// As [`XdpFeatures::read`] in a given namespace; the calling thread's namespace does not
    /// change.
    ///
    /// # Errors
    /// As [`XdpFeatures::read`], and when the process may not enter the namespace.
    pub fn read_in(ns: &NetNs, ifindex: u32) -> Result<Self, NetError> {
        let entered = ns.enter()?;
        let read = Self::read(ifindex);
        drop(entered);
        read
    }

    fn of(bits: u64) -> Self {
        let has = |all: u64| bits & all == all;
        Self {
            native: has(XDP_ACT_BASIC | XDP_ACT_REDIRECT),
            zero_copy: has(XDP_ACT_XSK_ZEROCOPY),
            multi_buffer: has(XDP_ACT_RX_SG),
        }
    }
}

/// Sends one request and receives its reply.
fn ask(socket: &Socket, question: Generic) -> io::Result<Generic> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    header.sequence_number = 1;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut bytes = Vec::with_capacity(RECEIVE_BYTES);
    let len = socket.recv(&mut bytes, libc::MSG_TRUNC)?;
    if len > bytes.len() {
        return Err(short());
    }
    let packet = NetlinkMessage::<Generic>::deserialize(&bytes)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
    match packet.payload {
        NetlinkPayload::InnerMessage(answer) => Ok(answer),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(short()),
    }
}

/// A generic netlink message: a family, a command, attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Generic {
    family: u16,
    command: u8,
    attributes: Vec<u8>,
}

impl Generic {
    fn new(family: u16, command: u8, attribute: &DefaultNla) -> Self {
        let mut attributes = vec![0; attribute.buffer_len()];
        attribute.emit(&mut attributes);
        Self { family, command, attributes }
    }

    /// The value of an attribute, if it is present and has that size.
    fn attribute<const N: usize>(&self, kind: u16) -> Option<[u8; N]> {
        NlasIterator::new(&self.attributes)
            .map_while(Result::ok)
            .find(|nla| nla.kind() == kind)
            .and_then(|nla| nla.value().try_into().ok())
    }
}

impl NetlinkSerializable for Generic {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        HEADER_BYTES + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        // Command, version, and two reserved bytes.
        buffer[..HEADER_BYTES].copy_from_slice(&[self.command, VERSION, 0, 0]);
        buffer[HEADER_BYTES..].copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for Generic {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        let (head, attributes) = payload
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or_else(|| DecodeError::from("a generic netlink header cut short"))?;
        let attributes = attributes.to_vec();
        Ok(Self { family: header.message_type, command: head[0], attributes })
    }
}

fn short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the reply does not match the request")
}

const ASKED: &str = "query XDP features";
/// The kernel replies within the system call.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// A family with its commands, or one interface: some hundred bytes.
const RECEIVE_BYTES: usize = 32 << 10;
/// The length of `struct genlmsghdr`.
const HEADER_BYTES: usize = 4;
const VERSION: u8 = 1;

// linux/genetlink.h
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

// linux/netdev.h
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const XDP_ACT_BASIC: u64 = 1 << 0;
const XDP_ACT_REDIRECT: u64 = 1 << 1;
const XDP_ACT_XSK_ZEROCOPY: u64 = 1 << 3;
const XDP_ACT_RX_SG: u64 = 1 << 5;

#[cfg(test)]
mod tests {
    use super::super::hosts::{LabConfig, TwoHosts};
    use super::super::testing;
    use super::*;

    #[test]
    fn read__veth_is_native_without_zero_copy_and_lo_is_neither() {
        if testing::lacks_privilege("xdp_features") {
            return;
        }
        let hosts = TwoHosts::anonymous(&LabConfig::default()).expect("privileged");
        match XdpFeatures::read_in(&hosts.a.ns, hosts.a.ifindex) {
            Ok(veth) => assert!(veth.native && !veth.zero_copy, "{veth:?}"),
            Err(e) => {
                assert_eq!(e.kind(), NetErrorKind::Unsupported, "{e}");
                return;
            }
        }
        let lo = XdpFeatures::read_in(&hosts.a.ns, 1).expect("every namespace has lo");
        assert_eq!(lo, XdpFeatures::default());
        let error = XdpFeatures::read_in(&hosts.a.ns, 0x7fff_fff0).expect_err("no such interface");
        assert_eq!(error.kind(), NetErrorKind::NotFound, "{error}");
    }

    #[test]
    fn of__native_requires_redirection() {
        assert!(!XdpFeatures::of(XDP_ACT_BASIC).native);
        assert!(XdpFeatures::of(XDP_ACT_BASIC | XDP_ACT_REDIRECT).native);
        let all = XdpFeatures::of(u64::MAX);
        assert!(all.native && all.zero_copy && all.multi_buffer);
    }

    #[test]
    fn generic__deserializes_what_it_serialized() {
        let nla = DefaultNla::new(7, vec![1, 2, 3, 4]);
        let message = Generic::new(0x13, 2, &nla);
        let mut bytes = vec![0xaa; message.buffer_len()];
        message.serialize(&mut bytes);
        let mut header = NetlinkHeader::default();
        header.message_type = 0x13;
        let read = Generic::deserialize(&header, &bytes).expect("whole");
        assert_eq!(read, message);
        assert_eq!(read.attribute(7), Some([1, 2, 3, 4]));
        assert_eq!(read.attribute::<2>(7), None, "of another size");
        assert_eq!(read.attribute::<4>(8), None);
        assert!(Generic::deserialize(&header, &bytes[..3]).is_err());
    }
}
