//! One AF_XDP socket: its rings, its binding to a queue, and the system calls that drive it.

mod config;
mod rings;

pub(crate) use config::BUSY_TIMEOUT;
pub use config::{CopyMode, SocketConfig};

use crate::error::{Error, Place, Step};
use crate::fallback::{RejectedMode, first_mode};
use crate::layout::MmapOffsets;
use crate::ring::{CompletionRing, FillRing, RxRing, TxRing};
use crate::same_layout;
use crate::sockopt;
use crate::sys;
use crate::umem::Umem;
use bytemuck::{Pod, Zeroable};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// An AF_XDP socket bound to one receive queue.
///
/// The rings are fields, so that one can be used while another is borrowed. One thread owns a
/// socket; it can be moved to another thread but not shared:
///
/// ```compile_fail
/// fn share<T: Sync>() {}
/// share::<af_xdp::Socket>();
/// ```
#[derive(Debug)]
pub struct Socket {
    /// First, so that it is closed before the memory that it uses is freed.
    fd: OwnedFd,
    /// Empty chunks for reception.
    pub fill: FillRing,
    /// Received chunks.
    pub rx: RxRing,
    /// Chunks to send.
    pub tx: TxRing,
    /// Chunks that the kernel has sent.
    pub completion: CompletionRing,
    umem: Umem,
    place: Place,
    copy: CopyMode,
}

/// The result of [`Socket::wake_tx`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kick {
    /// The kernel took all packets that it could.
    Done,
    /// The kernel stopped early, because its budget or the socket's send buffer is exhausted. The
    /// rest is in the TX ring; call again even without new packets.
    Again,
    /// The kernel dropped a packet, because the device had no room or it exceeds the MTU, and
    /// stopped. The chunk completes; call again.
    Dropped,
    /// The kernel had no memory for a packet, which stays in the TX ring. Call again later.
    NoBuffers,
    /// The interface is down; packets stay in the TX ring.
    Down,
}

/// The kernel's counters of a socket (`XDP_STATISTICS`), since its creation.
///
/// They exclude frames on a queue without a socket, and frames that a veth drops because its ring
/// is full (the device's `tx_dropped`).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
pub struct Statistics {
    /// Received packets dropped for other reasons than a full RX ring: an empty fill ring, or
    /// longer than a chunk without multi-buffer.
    pub rx_dropped: u64,
    /// Invalid entries of the fill ring.
    pub rx_invalid_descs: u64,
    /// Invalid entries of the TX ring.
    pub tx_invalid_descs: u64,
    /// Received packets dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// Times the kernel needed a chunk and the fill ring was empty.
    pub rx_fill_ring_empty_descs: u64,
    /// Times the TX ring was empty.
    pub tx_ring_empty_descs: u64,
}

same_layout!(Statistics = libc::xdp_statistics {
    rx_dropped = rx_dropped,
    rx_invalid_descs = rx_invalid_descs,
    tx_invalid_descs = tx_invalid_descs,
    rx_ring_full = rx_ring_full,
    rx_fill_ring_empty_descs = rx_fill_ring_empty_descs,
    tx_ring_empty_descs = tx_ring_empty_descs,
});

impl Socket {
    /// Registers the UMEM and binds to the queue in the first copy mode that succeeds. Also returns
    /// the modes refused before, with their errors.
    ///
    /// Frames arrive once the queue's slot in an attached map holds the socket
    /// ([`Steering::register`](crate::Steering::register)) and the fill ring holds frames.
    ///
    /// # Errors
    /// [`Error::Config`], or the error of the last mode. An error common to all modes (no
    /// privilege, no such interface, queue in use) is returned at once.
    pub fn bind(
        umem: &Umem,
        config: &SocketConfig,
    ) -> Result<(Self, Vec<RejectedMode<CopyMode>>), Error> {
        config.check()?;
        let fd = open(config)?;
        // Once for all modes: the kernel counts the memory until some time after a socket is
        // closed, so a socket for each mode would need as much locked memory again.
        register(fd.as_fd(), umem)
            .map_err(|error| Error::os(Step::RegisterUmem, config.place(), error))?;
        let unbound = Unbound::new(umem.clone(), config, fd)?;
        let (socket_flags, address) = (flags(config), address(config));
        let ((), rejected) = first_mode(config.copy_modes, is_about_the_mode, |mode| {
            let mode = match mode {
                CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
                CopyMode::Copy => libc::XDP_COPY,
            };
            unbound.bind(&libc::sockaddr_xdp { sxdp_flags: socket_flags | mode, ..address })
        })?;
        Ok((unbound.finish()?, rejected))
    }

    /// Binds a further socket, on another queue or interface, to the UMEM of `first`
    /// (`XDP_SHARED_UMEM`): the memory is pinned once and frames may move between the sockets. The
    /// modes are those of `first`; `copy_modes`, `need_wakeup` and `multi_buffer` are ignored.
    ///
    /// # Errors
    /// As [`Socket::bind`]. The queue of `first` cannot be shared, because two sockets would need
    /// one fill ring.
    pub fn bind_shared(first: &Self, config: &SocketConfig) -> Result<Self, Error> {
        config.check()?;
        if first.place == config.place() {
            return Err(Error::config("queue", "is the first socket's own"));
        }
        let fd = open(config)?;
        let shared_fd = std::os::fd::AsRawFd::as_raw_fd(&first.fd);
        let address = libc::sockaddr_xdp {
            sxdp_flags: libc::XDP_SHARED_UMEM,
            sxdp_shared_umem_fd: u32::try_from(shared_fd).expect("an open descriptor"),
            ..address(config)
        };
        let unbound = Unbound::new(first.umem.clone(), config, fd)?;
        unbound.bind(&address)?;
        unbound.finish()
    }

    /// The UMEM of the socket's frames.
    #[must_use]
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// The copy mode that the kernel reports (`XDP_OPTIONS`).
    #[must_use]
    pub fn copy_mode(&self) -> CopyMode {
        self.copy
    }

    /// Makes the kernel process the TX ring. Needed if [`TxRing::needs_wakeup`], or always on a
    /// socket bound without `need_wakeup`.
    ///
    /// # Errors
    /// The socket has lost its interface (`ENXIO`, `ENODEV`), or an unexpected error.
    pub fn wake_tx(&self) -> io::Result<Kick> {
        let Err(error) = sys::kick_tx(self.fd.as_fd()) else {
            return Ok(Kick::Done);
        };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(Kick::Again),
            Some(libc::EBUSY | libc::EMSGSIZE) => Ok(Kick::Dropped),
            Some(libc::ENOBUFS | libc::ENOMEM) => Ok(Kick::NoBuffers),
            Some(libc::ENETDOWN) => Ok(Kick::Down),
            _ => Err(error),
        }
    }

    /// Makes the kernel process the fill ring. Needed if [`FillRing::needs_wakeup`]; never in copy
    /// mode.
    ///
    /// # Errors
    /// As [`Socket::wake_tx`].
    pub fn wake_rx(&self) -> io::Result<()> {
        match sys::kick_rx(self.fd.as_fd()) {
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN | libc::EBUSY | libc::ENOBUFS) => {
                    Ok(())
                }
                _ => Err(error),
            },
            Ok(()) => Ok(()),
        }
    }

    /// The kernel's counters.
    ///
    /// # Errors
    /// [`Error::Os`], if the socket is unusable.
    pub fn statistics(&self) -> Result<Statistics, Error> {
        sockopt::get(&self.fd, libc::SOL_XDP, libc::XDP_STATISTICS)
            .map_err(|error| Error::os(Step::Option, self.place, error))
    }

    /// Allows system calls on the socket to busy-poll the device for up to `time` (`SO_BUSY_POLL`).
    /// Has no effect on devices whose queues have no NAPI id; see [`Socket::napi_id`].
    ///
    /// # Errors
    /// [`Error::Os`]; `EPERM` above the system's limit without CAP_NET_ADMIN.
    pub fn set_busy_poll(&self, time: Duration) -> Result<(), Error> {
        let micros = u32::try_from(time.as_micros())
            .map_err(|_| Error::config("busy_poll", "longer than an hour"))?;
        self.set_socket_option(libc::SO_BUSY_POLL, micros)
    }

    /// Prefers busy polling by this thread over interrupts (`SO_PREFER_BUSY_POLL`).
    ///
    /// # Errors
    /// [`Error::Os`]; `EPERM` without CAP_NET_ADMIN.
    pub fn set_prefer_busy_poll(&self, on: bool) -> Result<(), Error> {
        self.set_socket_option(libc::SO_PREFER_BUSY_POLL, u32::from(on))
    }

    /// Packets one busy poll may handle (`SO_BUSY_POLL_BUDGET`).
    ///
    /// # Errors
    /// [`Error::Os`]; `EPERM` without CAP_NET_ADMIN.
    pub fn set_busy_poll_budget(&self, packets: u16) -> Result<(), Error> {
        self.set_socket_option(libc::SO_BUSY_POLL_BUDGET, u32::from(packets))
    }

    /// The NAPI id of the queue, 0 if it has none (veth). Busy polling has no effect then.
    ///
    /// # Errors
    /// [`Error::Os`].
    pub fn napi_id(&self) -> Result<u32, Error> {
        sockopt::get(&self.fd, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID)
            .map_err(|error| Error::os(Step::Option, self.place, error))
    }

    fn set_socket_option(&self, option: libc::c_int, value: u32) -> Result<(), Error> {
        sockopt::set(&self.fd, libc::SOL_SOCKET, option, &value)
            .map_err(|error| Error::os(Step::Option, self.place, error))
    }
}

/// A socket whose rings are mapped, before it is bound.
struct Unbound {
    /// First, as in [`Socket`].
    fd: OwnedFd,
    rings: rings::Mapped,
    umem: Umem,
    place: Place,
    busy_timeout: Duration,
}

impl Unbound {
    /// Sizes and maps the rings.
    fn new(umem: Umem, config: &SocketConfig, fd: OwnedFd) -> Result<Self, Error> {
        let place = config.place();
        let sizes = [
            (libc::XDP_UMEM_FILL_RING, config.fill_size),
            (libc::XDP_UMEM_COMPLETION_RING, config.completion_size),
            (libc::XDP_RX_RING, config.rx_size),
            (libc::XDP_TX_RING, config.tx_size),
        ];
        for (option, size) in sizes {
            set(fd.as_fd(), option, &size, Step::SizeRing, config)?;
        }
        if let Some(budget) = config.tx_budget {
            set(fd.as_fd(), XDP_MAX_TX_SKB_BUDGET, &budget, Step::Option, config)?;
        }
        let offsets: MmapOffsets = sockopt::get(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
            .map_err(|error| Error::os(Step::MapRing, place, error))?;
        let rings = rings::map(fd.as_fd(), config, &offsets)
            .map_err(|error| Error::os(Step::MapRing, place, error))?;
        Ok(Self { fd, rings, umem, place, busy_timeout: config.busy_timeout })
    }

    /// Binds the socket. After an error it can be bound again.
    fn bind(&self, address: &libc::sockaddr_xdp) -> Result<(), Error> {
        let is_busy = |error: &io::Error| error.raw_os_error() == Some(libc::EBUSY);
        while_busy(self.busy_timeout, is_busy, || sys::bind(self.fd.as_fd(), address))
            .map_err(|error| Error::os(Step::Bind, self.place, error))
    }

    /// The bound socket.
    fn finish(self) -> Result<Socket, Error> {
        let Self { fd, rings, umem, place, .. } = self;
        let options: u32 = sockopt::get(&fd, libc::SOL_XDP, libc::XDP_OPTIONS)
            .map_err(|error| Error::os(Step::Option, place, error))?;
        let (fill, completion, rx, tx) = rings;
        Ok(Socket {
            fill: FillRing::new(fill, umem.clone()),
            rx: RxRing::new(rx, umem.clone()),
            tx: TxRing::new(tx, umem.clone()),
            completion: CompletionRing::new(completion, umem.clone()),
            umem,
            place,
            copy: match options & libc::XDP_OPTIONS_ZEROCOPY {
                0 => CopyMode::Copy,
                _ => CopyMode::ZeroCopy,
            },
            fd,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// True if another copy mode may succeed.
fn is_about_the_mode(error: &Error) -> bool {
    let shared = [libc::EPERM, libc::EACCES, libc::EBUSY, libc::ENODEV, libc::ENXIO];
    match error {
        Error::Os { step: Step::Bind, source, .. } => {
            source.raw_os_error().is_some_and(|errno| !shared.contains(&errno))
        }
        _ => false,
    }
}

fn open(config: &SocketConfig) -> Result<OwnedFd, Error> {
    sys::xdp_socket().map_err(|error| Error::os(Step::OpenSocket, config.place(), error))
}

fn address(config: &SocketConfig) -> libc::sockaddr_xdp {
    libc::sockaddr_xdp {
        sxdp_family: libc::sa_family_t::try_from(libc::AF_XDP).expect("a small constant"),
        sxdp_flags: 0,
        sxdp_ifindex: config.ifindex,
        sxdp_queue_id: config.queue,
        sxdp_shared_umem_fd: 0,
    }
}

/// The flags of `bind(2)` beside the copy mode.
fn flags(config: &SocketConfig) -> u16 {
    let need_wakeup = if config.need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
    need_wakeup | if config.multi_buffer { libc::XDP_USE_SG } else { 0 }
}

/// Registers the UMEM with a socket that holds it as long as it is open.
fn register(fd: BorrowedFd<'_>, umem: &Umem) -> io::Result<()> {
    let registration = umem.registration();
    let value = bytemuck::bytes_of(&registration);
    // SAFETY: `registration` describes the area of `umem`, whose bytes are reached only through
    // frames, and the socket keeps `umem` alive.
    unsafe { sockopt::set_with_addresses(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, value) }
}

fn set<T: Pod>(
    fd: BorrowedFd<'_>,
    option: libc::c_int,
    value: &T,
    step: Step,
    config: &SocketConfig,
) -> Result<(), Error> {
    sockopt::set(fd, libc::SOL_XDP, option, value)
        .map_err(|error| Error::os(step, config.place(), error))
}

/// Retries while `is_busy`, for at most `timeout`. The kernel frees a queue or interface some time
/// after `close` returned or its process was killed.
pub(crate) fn while_busy<T, E>(
    timeout: Duration,
    is_busy: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && start.elapsed() < timeout => {
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

/// uapi/linux/if_xdp.h; not in libc yet.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

const fn is_send<T: Send>() {}
const _: () = is_send::<Socket>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_about_the_mode__only_errors_specific_to_a_mode() {
        let bind = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            Error::os(Step::Bind, Place::default(), source)
        };
        assert!(is_about_the_mode(&bind(libc::EOPNOTSUPP)));
        assert!(is_about_the_mode(&bind(libc::EINVAL)));
        for errno in [libc::EBUSY, libc::EPERM, libc::ENODEV] {
            assert!(!is_about_the_mode(&bind(errno)));
        }
        let source = io::Error::from_raw_os_error(libc::ENOBUFS);
        let memory = Error::os(Step::RegisterUmem, Place::default(), source);
        assert!(!is_about_the_mode(&memory));
    }
}
