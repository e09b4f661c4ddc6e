//! Network namespaces and veth pairs for tests, over raw netlink. They need no installed tool, and
//! the kernel removes them with their descriptors, however a test ends.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

/// An anonymous network namespace; the kernel removes it with its last descriptor, thread and
/// socket.
pub(crate) struct Netns(File);

/// Two namespaces joined by a veth pair, both ends up: `va` at 10.77.0.1 in `a`, `vb` at 10.77.0.2
/// in `b`.
pub(crate) struct Pair {
    pub(crate) a: Netns,
    pub(crate) b: Netns,
}

impl Netns {
    /// A new namespace with nothing but a loopback that is down.
    pub(crate) fn new() -> io::Result<Self> {
        let thread = std::thread::spawn(|| {
            // SAFETY: no pointers; only this thread, which ends after the call, changes its
            // namespace.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            File::open("/proc/thread-self/ns/net").map(Self)
        });
        thread.join().expect("the thread does not panic")
    }

    /// Moves the calling thread into the namespace permanently.
    pub(crate) fn enter(&self) {
        // SAFETY: no pointers; a descriptor that this namespace owns.
        let result = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "setns: {}", io::Error::last_os_error());
    }

    /// Runs `work` in the namespace, on a thread of its own.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                work()
            });
            match thread.join() {
                Ok(value) => value,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// For a child process, which can enter through /proc/PID/fd.
impl AsRawFd for Netns {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Pair {
    /// A pair with that MTU and number of queues each way, or the reason why there is none.
    pub(crate) fn new(mtu: u32, queues: u32) -> Result<Self, String> {
        let pair = || -> io::Result<Self> {
            let (a, b) = (Netns::new()?, Netns::new()?);
            let peer_ns = b.0.as_raw_fd();
            a.run(|| create_veth("va", "vb", peer_ns, mtu, queues))?;
            a.run(|| set_up("va", [10, 77, 0, 1]))?;
            b.run(|| set_up("vb", [10, 77, 0, 2]))?;
            Ok(Self { a, b })
        };
        pair().map_err(|error| format!("no veth pair: {error}"))
    }
}

/// The pair, or `None` with the reason on stderr; panics if SPANWIRE_REQUIRE_E2E=1.
pub(crate) fn pair_or_skip(mtu: u32, queues: u32) -> Option<Pair> {
    match Pair::new(mtu, queues) {
        Ok(pair) => Some(pair),
        Err(reason) => {
            skip(&reason);
            None
        }
    }
}

/// Prints why a test does not run, and panics if it must.
pub(crate) fn skip(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|value| value == "1");
    assert!(!required, "SPANWIRE_REQUIRE_E2E=1, but skipped: {reason}");
}

/// Removes an interface of this thread's namespace.
pub(crate) fn remove(name: &str) -> io::Result<()> {
    let mut message = link_message(libc::RTM_DELLINK, 0, name);
    request(&mut message)
}

/// Takes an interface of this thread's namespace up or down.
pub(crate) fn set_link(name: &str, up: bool) -> io::Result<()> {
    let index = index_of(name)?;
    let flag = u32::try_from(libc::IFF_UP).expect("a bit");
    let mut message = Message::new(libc::RTM_NEWLINK, 0);
    message.link_header(index, if up { flag } else { 0 }, flag);
    request(&mut message)
}

fn create_veth(name: &str, peer: &str, peer_ns: i32, mtu: u32, queues: u32) -> io::Result<()> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut message = link_message(libc::RTM_NEWLINK, flags, name);
    message.link_sizes(mtu, queues);
    let info = message.open(libc::IFLA_LINKINFO);
    message.attribute(libc::IFLA_INFO_KIND, b"veth");
    let data = message.open(libc::IFLA_INFO_DATA);
    let peer_info = message.open(VETH_INFO_PEER);
    message.link_header(0, 0, 0);
    message.string(libc::IFLA_IFNAME, peer);
    message.link_sizes(mtu, queues);
    message.attribute(libc::IFLA_NET_NS_FD, &peer_ns.to_ne_bytes());
    message.close(peer_info);
    message.close(data);
    message.close(info);
    request(&mut message)
}

fn set_up(name: &str, address: [u8; 4]) -> io::Result<()> {
    let index = index_of(name)?;
    let mut message = Message::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
    // ifaddrmsg: family, prefix length, flags, scope, index.
    let family = u8::try_from(libc::AF_INET).expect("2");
    message.bytes.extend([family, 24, 0, 0]);
    message.bytes.extend(index.to_ne_bytes());
    message.attribute(libc::IFA_LOCAL, &address);
    message.attribute(libc::IFA_ADDRESS, &address);
    request(&mut message)?;
    set_link("lo", true)?;
    set_link(name, true)
}

fn index_of(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: a terminated string, borrowed for the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Serialises tests that share the machine's two cores and this kernel's network.
pub(crate) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A UDP/IPv4 Ethernet frame to port 4791 of 10.77.0.2 with that payload, without checksums.
pub(crate) fn roce_frame(payload: &[u8], into: &mut [u8]) -> usize {
    const HEADERS: usize = 42;
    let len = HEADERS + payload.len();
    let ip_len = u16::try_from(len - 14).expect("an IPv4 packet");
    let frame = &mut into[..len];
    frame[..HEADERS].fill(0);
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
    frame[20] = 0x40;
    frame[22] = 64;
    frame[23] = 17;
    frame[26..30].copy_from_slice(&[10, 77, 0, 1]);
    frame[30..34].copy_from_slice(&[10, 77, 0, 2]);
    frame[34..36].copy_from_slice(&49152u16.to_be_bytes());
    frame[36..38].copy_from_slice(&4791u16.to_be_bytes());
    frame[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    frame[HEADERS..].copy_from_slice(payload);
    len
}

/// A netlink request being written.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: i32) -> Self {
        let flags = flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK;
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(u16::try_from(flags).expect("sixteen bits").to_ne_bytes());
        bytes.extend([0; 8]);
        Self { bytes }
    }

    /// ifinfomsg: family, pad, type, index, flags, mask of flags.
    fn link_header(&mut self, index: u32, flags: u32, change: u32) {
        self.bytes.extend([0; 4]);
        for word in [index, flags, change] {
            self.bytes.extend(word.to_ne_bytes());
        }
    }

    fn link_sizes(&mut self, mtu: u32, queues: u32) {
        self.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
        self.attribute(libc::IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes());
        self.attribute(libc::IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes());
    }

    fn string(&mut self, kind: u16, value: &str) {
        let value = CString::new(value).expect("no zero inside");
        self.attribute(kind, value.as_bytes_with_nul());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let start = self.open(kind);
        self.bytes.extend(value);
        self.close(start);
    }

    /// Starts an attribute, which contains all that follows until `close`.
    fn open(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        start
    }

    fn close(&mut self, start: usize) {
        let len = u16::try_from(self.bytes.len() - start).expect("a short message");
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn link_message(kind: u16, flags: i32, name: &str) -> Message {
    let mut message = Message::new(kind, flags);
    message.link_header(0, 0, 0);
    message.string(libc::IFLA_IFNAME, name);
    message
}

/// Sends a request from this thread's namespace and waits for the kernel's reply.
fn request(message: &mut Message) -> io::Result<()> {
    let len = u32::try_from(message.bytes.len()).expect("a short message");
    message.bytes[..4].copy_from_slice(&len.to_ne_bytes());
    // SAFETY: no pointers.
    let fd = unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, with no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let bytes = &message.bytes;
    // SAFETY: `bytes` is borrowed for the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0u8; 1024];
    // SAFETY: `answer` has the length given.
    let got = unsafe { libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    if got < 20 {
        return Err(io::Error::last_os_error());
    }
    // nlmsghdr (16 bytes), then the error of nlmsgerr, negative.
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

const VETH_INFO_PEER: u16 = 1;
