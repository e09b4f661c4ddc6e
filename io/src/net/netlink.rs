//! Requests over the kernel's routing family of netlink: sends a request and receives replies until
//! the kernel reports completion.

use super::error::{NetError, NetErrorKind};
use super::sys;
use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NLMSG_ALIGNTO, NetlinkHeader, NetlinkMessage, NetlinkPayload, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use spanwire_base::usize_from;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// A netlink socket in one network namespace, for reading and changing links, addresses, queueing
/// disciplines and routes. Requests are strictly sequential.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    /// Receive buffer; kept because it is large.
    buffer: Vec<u8>,
}

impl fmt::Debug for Netlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netlink")
            .field("socket", &self.socket)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

/// The cause of a failed request; [`RequestError::during`] adds the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestError {
    /// The kernel returned an error number, possibly with a message.
    Errno { errno: i32, text: Option<String> },
    /// The kernel did not reply within [`RECEIVE_TIMEOUT`].
    Timeout,
    /// The reply could not be parsed.
    Unreadable(String),
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The process has no descriptors or memory left, or no netlink (a sandbox).
    pub fn open() -> Result<Self, NetError> {
        let wrap = |e: io::Error| NetError::from_io("open a netlink socket", &e);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(wrap)?;
        socket.bind_auto().map_err(wrap)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(wrap)?;
        sys::set_receive_timeout(socket.as_fd(), RECEIVE_TIMEOUT).map_err(wrap)?;
        // Extended acknowledgements: errors include the kernel's message, without a copy of the
        // request.
        socket.set_ext_ack(true).map_err(wrap)?;
        socket.set_cap_ack(true).map_err(wrap)?;
        // Strict checking: the kernel filters dumps (by interface), and rejects unknown request
        // fields.
        socket.set_netlink_get_strict_chk(true).map_err(wrap)?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(RECEIVE_BYTES) })
    }

    /// Sends a request and returns the kernel's replies before its acknowledgement: none for a
    /// change, one for a query.
    pub(super) fn request(
        &mut self,
        flags: u16,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, RequestError> {
        self.send(NLM_F_REQUEST | NLM_F_ACK | flags, message)?;
        Ok(self.receive_all()?.messages)
    }

    /// Dumps a table. If the table changes during the dump, it is repeated a few times.
    pub(super) fn dump(
        &mut self,
        message: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, RequestError> {
        for _ in 0..DUMP_ATTEMPTS {
            self.send(NLM_F_REQUEST | NLM_F_DUMP, message.clone())?;
            let answers = self.receive_all()?;
            if !answers.interrupted {
                return Ok(answers.messages);
            }
        }
        Err(RequestError::Errno {
            errno: libc::EAGAIN,
            text: Some("the table kept changing during the dump".to_owned()),
        })
    }

    fn send(&mut self, flags: u16, message: RouteNetlinkMessage) -> Result<(), RequestError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(|e| RequestError::from(&e))?;
        Ok(())
    }

    /// Receives until the acknowledgement or the end of the dump of the current request.
    fn receive_all(&mut self) -> Result<Replies, RequestError> {
        let mut answers = Replies::default();
        loop {
            self.buffer.clear();
            let length = match self.socket.recv(&mut self.buffer, libc::MSG_TRUNC) {
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(RequestError::from(&e)),
            };
            if length > self.buffer.len() {
                return Err(RequestError::Unreadable(format!(
                    "a reply of {length} bytes exceeds {RECEIVE_BYTES}"
                )));
            }
            if answers.take(&self.buffer, self.sequence)? {
                return Ok(answers);
            }
        }
    }
}

/// Replies received for one request.
#[derive(Debug, Default)]
struct Replies {
    messages: Vec<RouteNetlinkMessage>,
    /// The table changed while the kernel dumped it (`NLM_F_DUMP_INTR`).
    interrupted: bool,
}

impl Replies {
    /// Parses one datagram of one or more messages; returns true if the request is complete.
    /// Messages of another sequence number belong to an abandoned request and are ignored.
    fn take(&mut self, mut datagram: &[u8], sequence: u32) -> Result<bool, RequestError> {
        while datagram.len() >= HEADER_BYTES {
            let length = usize_from(u64::from(u32::from_ne_bytes([
                datagram[0],
                datagram[1],
                datagram[2],
                datagram[3],
            ])));
            if length < HEADER_BYTES || length > datagram.len() {
                return Err(RequestError::Unreadable(format!(
                    "a message of {length} bytes in {} bytes",
                    datagram.len()
                )));
            }
            let of_sequence =
                u32::from_ne_bytes([datagram[8], datagram[9], datagram[10], datagram[11]]);
            if of_sequence == sequence && self.take_one(&datagram[..length])? {
                return Ok(true);
            }
            let padded = length.next_multiple_of(usize::from(NLMSG_ALIGNTO));
            datagram = &datagram[padded.min(datagram.len())..];
        }
        Ok(false)
    }

    fn take_one(&mut self, bytes: &[u8]) -> Result<bool, RequestError> {
        let packet = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes)
            .map_err(|e| RequestError::Unreadable(e.to_string()))?;
        self.interrupted |= packet.header.flags & NLM_F_DUMP_INTR != 0;
        match packet.payload {
            NetlinkPayload::InnerMessage(message) => {
                self.messages.push(message);
                Ok(false)
            }
            NetlinkPayload::Error(error) => match error.code {
                None => Ok(true),
                Some(code) => Err(RequestError::Errno {
                    errno: code.get().saturating_abs(),
                    text: kernel_text(packet.header.flags, &error),
                }),
            },
            NetlinkPayload::Done(done) if done.code < 0 => {
                Err(RequestError::Errno { errno: done.code.saturating_abs(), text: None })
            }
            NetlinkPayload::Done(_) => Ok(true),
            NetlinkPayload::Overrun(_) => {
                Err(RequestError::Unreadable("the kernel lost data".to_owned()))
            }
            _ => Ok(false),
        }
    }
}

impl RequestError {
    /// The error number, if the kernel gave one.
    pub(super) fn errno(&self) -> Option<i32> {
        match self {
            Self::Errno { errno, .. } => Some(*errno),
            Self::Timeout | Self::Unreadable(_) => None,
        }
    }

    /// The error of a caller's request: `operation` continues the sentence "cannot ...".
    pub(super) fn during(self, operation: impl Into<String>) -> NetError {
        match self {
            Self::Errno { errno, text } => {
                let error = NetError::from_errno(operation, errno);
                match text {
                    Some(text) => error.detail(text),
                    None => error,
                }
            }
            Self::Timeout => NetError::new(NetErrorKind::Timeout, operation)
                .detail(format!("no reply within {RECEIVE_TIMEOUT:?}")),
            Self::Unreadable(text) => NetError::new(NetErrorKind::Protocol, operation).detail(text),
        }
    }
}

impl From<&io::Error> for RequestError {
    fn from(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::Timeout,
            Some(errno) => Self::Errno { errno, text: None },
            None => Self::Unreadable(error.to_string()),
        }
    }
}

/// The message that the kernel attached to an error (`NLMSGERR_ATTR_MSG`), if any.
///
/// The error code is followed by the header of the request, by the whole request unless the reply
/// is capped, and by attributes.
fn kernel_text(flags: u16, error: &ErrorMessage) -> Option<String> {
    const NLMSGERR_ATTR_MSG: u16 = 1;
    let echoed = error.header.get(..HEADER_BYTES)?;
    let request = if flags & NLM_F_CAPPED != 0 {
        HEADER_BYTES
    } else {
        let length = u32::from_ne_bytes([echoed[0], echoed[1], echoed[2], echoed[3]]);
        usize_from(u64::from(length)).next_multiple_of(usize::from(NLMSG_ALIGNTO))
    };
    let attributes = error.header.get(request..)?;
    let text = NlasIterator::new(attributes)
        .map_while(Result::ok)
        .find(|nla| nla.kind() == NLMSGERR_ATTR_MSG)?;
    let text = String::from_utf8_lossy(text.value());
    Some(text.trim_end_matches('\0').to_owned())
}

/// Maximum time for a reply. The kernel replies within the system call, unless another process
/// holds the routing lock while it waits for hardware.
pub(super) const RECEIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Receive buffer size: dumps arrive in at most 32 KiB, and one interface with its statistics takes
/// 1 to 2 KiB.
const RECEIVE_BYTES: usize = 128 << 10;

/// Maximum attempts to dump a table that changes during the dump.
const DUMP_ATTEMPTS: usize = 8;

/// The length of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

const _: () = assert!(RECEIVE_BYTES >= 32 << 10);

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::LinkMessage;
    use spanwire_base::u32_from;

    /// One message: header with length, type, flags, sequence, port; then `payload`.
    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&u32_from(HEADER_BYTES + payload.len()).to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&0_u32.to_ne_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    /// An NLMSG_ERROR payload: code, echoed header, and the text as an attribute.
    fn error_reply(errno: i32, text: &str) -> Vec<u8> {
        let mut payload = (-errno).to_ne_bytes().to_vec();
        payload.extend_from_slice(&[0; HEADER_BYTES]);
        let length = u16::try_from(4 + text.len() + 1).expect("short");
        payload.extend_from_slice(&length.to_ne_bytes());
        payload.extend_from_slice(&1_u16.to_ne_bytes());
        payload.extend_from_slice(text.as_bytes());
        payload.push(0);
        while !payload.len().is_multiple_of(4) {
            payload.push(0);
        }
        payload
    }

    #[test]
    fn open__queries_the_running_kernel() {
        let mut netlink = Netlink::open().expect("netlink needs no privilege");
        let mut query = LinkMessage::default();
        query.header.index = 1;
        let answers = netlink
            .request(0, RouteNetlinkMessage::GetLink(query))
            .expect("every namespace has lo");
        assert_eq!(answers.len(), 1);
        assert!(matches!(answers[0], RouteNetlinkMessage::NewLink(_)));
    }

    #[test]
    fn request__unknown_interface_is_enodev() {
        let mut netlink = Netlink::open().expect("netlink needs no privilege");
        let mut query = LinkMessage::default();
        query.header.index = 0x7fff_fff0;
        let error =
            netlink.request(0, RouteNetlinkMessage::GetLink(query)).expect_err("no such interface");
        assert_eq!(error.errno(), Some(libc::ENODEV));
    }

    #[test]
    fn take__acknowledgement_completes() {
        let datagram = message(2, 0, 7, &[0; 4 + HEADER_BYTES]);
        assert_eq!(Replies::default().take(&datagram, 7), Ok(true));
    }

    #[test]
    fn take__another_sequence_is_ignored() {
        let mut datagram = message(2, 0, 6, &error_reply(libc::EPERM, "old"));
        assert_eq!(Replies::default().take(&datagram, 7), Ok(false));
        datagram.extend_from_slice(&message(3, 0, 7, &[0; 4]));
        assert_eq!(Replies::default().take(&datagram, 7), Ok(true));
    }

    #[test]
    fn take__an_error_has_the_kernels_message() {
        let datagram = message(2, NLM_F_CAPPED, 7, &error_reply(libc::EINVAL, "mtu too small"));
        assert_eq!(
            Replies::default().take(&datagram, 7),
            Err(RequestError::Errno {
                errno: libc::EINVAL,
                text: Some("mtu too small".to_owned())
            })
        );
    }

    #[test]
    fn take__failed_dump_is_an_error() {
        let datagram = message(3, 0, 1, &(-libc::ENODEV).to_ne_bytes());
        let error = Replies::default().take(&datagram, 1).expect_err("done with an error");
        assert_eq!(error.errno(), Some(libc::ENODEV));
    }

    #[test]
    fn take__interrupted_dump_is_remembered() {
        let mut answers = Replies::default();
        let datagram = message(3, NLM_F_DUMP_INTR, 1, &[0; 4]);
        assert_eq!(answers.take(&datagram, 1), Ok(true));
        assert!(answers.interrupted);
    }

    #[test]
    fn take__an_invalid_length_is_an_error_not_a_panic() {
        for length in [0_u32, 15, 4000] {
            let mut datagram = message(3, 0, 1, &[0; 4]);
            datagram[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(matches!(
                Replies::default().take(&datagram, 1),
                Err(RequestError::Unreadable(_))
            ));
        }
    }

    #[test]
    fn kernel_text__truncated_answers_have_none() {
        let whole = error_reply(libc::EINVAL, "why");
        for cut in 4..whole.len() - 4 {
            let mut error = ErrorMessage::default();
            error.header = whole[4..cut].to_vec();
            assert_eq!(kernel_text(NLM_F_CAPPED, &error), None, "cut at {cut}");
        }
    }
}
