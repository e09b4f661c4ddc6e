//! One AF_XDP socket: its rings, its binding to a queue, and the system calls that drive it.

mod config;
mod rings;

pub use config::{CopyMode, SocketConfig};

use crate::error::{Error, Place, Step};
use crate::ring::{CompletionRing, FillRing, RxRing, TxRing};
use crate::sys;
use crate::umem::Umem;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// An AF_XDP socket bound to one receive queue.
///
/// The rings are fields, so that one can be worked on while another is borrowed. One thread owns a
/// socket; it can be moved to another thread but not shared:
///
/// ```compile_fail
/// fn share<T: Sync>() {}
/// share::<af_xdp::Socket>();
/// ```
#[derive(Debug)]
pub struct Socket {
    /// First, so that it is closed before the memory it uses may go.
    fd: OwnedFd,
    /// Empty chunks to receive into.
    pub fill: FillRing,
    /// What was received.
    pub rx: RxRing,
    /// What to send.
    pub tx: TxRing,
    /// What has been sent.
    pub completion: CompletionRing,
    umem: Umem,
    place: Place,
    copy: CopyMode,
}

/// A way of binding that was refused before another one worked.
#[derive(Debug)]
pub struct Refusal<M> {
    /// What was tried.
    pub mode: M,
    /// Why it was refused.
    pub error: Error,
}

/// What [`Socket::wake_tx`] made the kernel do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kick {
    /// It took what it could take.
    Done,
    /// It stopped early (its budget or the socket's send buffer is spent); the rest is still in the
    /// TX ring. Wake it again, also when nothing was added.
    Again,
    /// It dropped a packet (the device had no room, or the packet is longer than the MTU) and
    /// stopped. The chunk completes. Wake it again.
    Dropped,
    /// It had no memory for a packet, which stays in the TX ring. Wake it again later.
    NoBuffers,
    /// The interface is down; packets stay in the TX ring.
    Down,
}

/// The kernel's counters of a socket (`XDP_STATISTICS`), since it was made.
///
/// Not counted here: frames on a queue without a socket, and what a veth drops when its own ring
/// is full (the device's `tx_dropped`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Received packets dropped for other reasons than a full RX ring: no chunk in the fill ring,
    /// or longer than a chunk on a socket without multi-buffer.
    pub rx_dropped: u64,
    /// Entries of the fill ring that were no chunk.
    pub rx_invalid_descs: u64,
    /// Entries of the TX ring that were no chunk.
    pub tx_invalid_descs: u64,
    /// Received packets dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// Times a chunk was wanted and the fill ring had none.
    pub rx_fill_ring_empty_descs: u64,
    /// Times the TX ring was found empty.
    pub tx_ring_empty_descs: u64,
}

impl Socket {
    /// Registers the UMEM and binds to the queue in the first copy mode that works. Also says which
    /// modes were refused before, and why.
    ///
    /// Frames arrive once the queue's slot in an attached map holds the socket
    /// ([`Steering::register`](crate::Steering::register)) and the fill ring holds frames.
    ///
    /// # Errors
    /// [`Error::Config`], or the refusal of the last mode. A cause that every mode shares (no
    /// privilege, no such interface, queue taken) ends the search at once.
    pub fn bind(
        umem: &Umem,
        config: &SocketConfig,
    ) -> Result<(Self, Vec<Refusal<CopyMode>>), Error> {
        config.check()?;
        let mut refused = Vec::new();
        let mut modes = config.copy_modes.iter().copied();
        let mut mode = modes.next().expect("checked: there is a mode");
        loop {
            let error = match Self::bind_as(umem, config, mode) {
                Ok(socket) => return Ok((socket, refused)),
                Err(error) => error,
            };
            match modes.next() {
                Some(next) if is_about_the_mode(&error) => {
                    refused.push(Refusal { mode, error });
                    mode = next;
                }
                _ => return Err(error),
            }
        }
    }

    /// Binds a further socket, on another queue or interface, to the UMEM of `first`
    /// (`XDP_SHARED_UMEM`): the memory is pinned once and frames may move between the sockets. The
    /// modes are those of `first`; `copy_modes`, `need_wakeup` and `multi_buffer` do not count.
    ///
    /// # Errors
    /// As [`Socket::bind`]. The queue `first` is bound to cannot be shared: two sockets would need
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
        Self::finish(first.umem.clone(), config, fd, &address)
    }

    fn bind_as(umem: &Umem, config: &SocketConfig, mode: CopyMode) -> Result<Self, Error> {
        let fd = open(config)?;
        let registration = umem.registration();
        set(fd.as_fd(), libc::XDP_UMEM_REG, &registration, Step::RegisterUmem, config)?;
        let mut flags = match mode {
            CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
            CopyMode::Copy => libc::XDP_COPY,
        };
        if config.need_wakeup {
            flags |= libc::XDP_USE_NEED_WAKEUP;
        }
        if config.multi_buffer {
            flags |= libc::XDP_USE_SG;
        }
        let address = libc::sockaddr_xdp { sxdp_flags: flags, ..address(config) };
        Self::finish(umem.clone(), config, fd, &address)
    }

    /// Sizes and maps the rings, then binds: the common part of every way to make a socket.
    fn finish(
        umem: Umem,
        config: &SocketConfig,
        fd: OwnedFd,
        address: &libc::sockaddr_xdp,
    ) -> Result<Self, Error> {
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
        let offsets: libc::xdp_mmap_offsets =
            sys::option(fd.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
                .map_err(|error| Error::os(Step::MapRing, place, error))?;
        let mapped = rings::map(fd.as_fd(), config, &offsets)
            .map_err(|error| Error::os(Step::MapRing, place, error))?;
        let is_busy = |error: &io::Error| error.raw_os_error() == Some(libc::EBUSY);
        while_busy(config.busy_patience, is_busy, || sys::bind(fd.as_fd(), address))
            .map_err(|error| Error::os(Step::Bind, place, error))?;
        let options: u32 = sys::option(fd.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS)
            .map_err(|error| Error::os(Step::Option, place, error))?;
        let (fill, completion, rx, tx) = mapped;
        Ok(Self {
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

    /// The memory the socket's frames are in.
    #[must_use]
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Who moves the bytes, as the kernel reports it (`XDP_OPTIONS`).
    #[must_use]
    pub fn copy_mode(&self) -> CopyMode {
        self.copy
    }

    /// Makes the kernel look at the TX ring. Needed when [`TxRing::needs_wakeup`] says so, or
    /// always on a socket bound without `need_wakeup`.
    ///
    /// # Errors
    /// The socket has lost its interface (`ENXIO`, `ENODEV`) or something unforeseen happened.
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

    /// Makes the kernel look at the fill ring. Needed when [`FillRing::needs_wakeup`] says so;
    /// copy mode never asks for it.
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
    /// [`Error::Os`], when the socket is unusable.
    pub fn statistics(&self) -> Result<Statistics, Error> {
        let read: libc::xdp_statistics =
            sys::option(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS)
                .map_err(|error| Error::os(Step::Option, self.place, error))?;
        Ok(Statistics {
            rx_dropped: read.rx_dropped,
            rx_invalid_descs: read.rx_invalid_descs,
            tx_invalid_descs: read.tx_invalid_descs,
            rx_ring_full: read.rx_ring_full,
            rx_fill_ring_empty_descs: read.rx_fill_ring_empty_descs,
            tx_ring_empty_descs: read.tx_ring_empty_descs,
        })
    }

    /// Lets system calls on the socket poll the device for up to that long (`SO_BUSY_POLL`). Does
    /// nothing on devices whose queues have no NAPI id; see [`Socket::napi_id`].
    ///
    /// # Errors
    /// [`Error::Os`]; `EPERM` above the system's limit without CAP_NET_ADMIN.
    pub fn set_busy_poll(&self, time: Duration) -> Result<(), Error> {
        let micros = u32::try_from(time.as_micros())
            .map_err(|_| Error::config("busy_poll", "longer than an hour"))?;
        self.set_socket_option(libc::SO_BUSY_POLL, micros)
    }

    /// Prefers this thread's polling over interrupts (`SO_PREFER_BUSY_POLL`).
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

    /// The id of the queue's NAPI, 0 when it has none (veth): busy polling this socket does nothing
    /// then.
    ///
    /// # Errors
    /// [`Error::Os`].
    pub fn napi_id(&self) -> Result<u32, Error> {
        sys::option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID)
            .map_err(|error| Error::os(Step::Option, self.place, error))
    }

    fn set_socket_option(&self, option: libc::c_int, value: u32) -> Result<(), Error> {
        sys::set_option(self.fd.as_fd(), libc::SOL_SOCKET, option, &value)
            .map_err(|error| Error::os(Step::Option, self.place, error))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether another copy mode may fare better.
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

fn set<T: sys::Plain>(
    fd: BorrowedFd<'_>,
    option: libc::c_int,
    value: &T,
    step: Step,
    config: &SocketConfig,
) -> Result<(), Error> {
    sys::set_option(fd, libc::SOL_XDP, option, value)
        .map_err(|error| Error::os(step, config.place(), error))
}

/// Retries while `is_busy`, for at most `patience`. The kernel frees a queue or interface some time
/// after `close` has returned or its process was killed.
pub(crate) fn while_busy<T, E>(
    patience: Duration,
    is_busy: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && start.elapsed() < patience => {
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

/// uapi/linux/if_xdp.h; not in libc yet.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// How long the kernel may take to free a queue or interface: some tens of milliseconds, and more
/// where other processes keep its cores busy.
pub(crate) const BUSY_PATIENCE: Duration = Duration::from_secs(2);

const fn is_send<T: Send>() {}
const _: () = is_send::<Socket>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_about_the_mode__only_what_another_mode_may_cure() {
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
