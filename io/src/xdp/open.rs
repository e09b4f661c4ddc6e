//! Opening of a port: memory, socket, fill ring, and then the steering of its queue.

use super::stock::Stock;
use super::{XdpConfig, XdpCounters, XdpDevice, XdpError, XdpMode, XdpPort};
use crate::port::Port;
use af_xdp::{CopyMode, Frame, RejectedMode, Socket, SocketConfig, Umem};
use rustix::process::{Resource, getrlimit};
use spanwire_base::{Time, usize_from};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl XdpPort {
    /// Opens the only port of an interface: attaches the steering program and binds to the queue,
    /// in the best mode that the preference allows. Every refused mode is logged with its error.
    ///
    /// # Errors
    /// [`XdpError`].
    pub fn open(config: &XdpConfig) -> Result<Self, XdpError> {
        config.validate()?;
        let XdpConfig { ifname, queue, traffic, preference, .. } = config;
        let device = XdpDevice::attach(ifname, queue + 1, *traffic, *preference)?;
        Self::open_on(&device, config)
    }

    /// Opens a port on a queue of an interface with an attached program. The device determines
    /// interface, traffic and preference; those of `config` are ignored. The receive ring is
    /// shorter, with a warning, if the limit of locked memory requires it
    /// ([`XdpConfig::within`]).
    ///
    /// # Errors
    /// [`XdpError`]; also when the device was attached for fewer queues.
    pub fn open_on(device: &Arc<XdpDevice>, config: &XdpConfig) -> Result<Self, XdpError> {
        config.validate()?;
        let (config, Bound { umem, mut frames, socket, rejected }) = bind_within(device, config)?;
        for tried in rejected {
            // Most drivers have no zero-copy, so this is no warning.
            tracing::info!(
                interface = device.ifname(),
                queue = config.queue,
                mode = XdpMode::of(device.attach_mode(), tried.mode).as_str(),
                reason = %tried.error,
                "AF_XDP mode refused, trying the next"
            );
        }
        let free = frames.split_off(usize_from(config.fill_size.into()));
        let mut port = Self {
            mode: XdpMode::of(device.attach_mode(), socket.copy_mode()),
            taken: (0..umem.chunks()).map(|_| None).collect(),
            socket,
            umem,
            device: Arc::clone(device),
            queue: config.queue,
            need_wakeup: config.need_wakeup,
            side_poll: None,
            rx_is_busy: false,
            just_sent: false,
            unfilled: frames,
            stock: Stock::new(config.fill_size),
            free,
            taken_count: 0,
            quiet_flushes: 0,
            empty_at: Time::ZERO,
            counters: XdpCounters::default(),
        };
        port.refill();
        port.socket.fill.publish();
        device.register(config.queue, &port.socket)?;
        port.log_open();
        Ok(port)
    }

    fn log_open(&self) {
        let ifname = self.device.ifname();
        tracing::info!(
            interface = ifname,
            queue = self.queue,
            mode = self.mode.as_str(),
            "AF_XDP port open"
        );
        let longest = usize_from(self.mtu().into()) + ETHERNET_HEADER;
        if longest > self.frame_room() {
            tracing::warn!(
                interface = ifname,
                mtu = self.mtu(),
                room = self.frame_room(),
                "the MTU allows frames longer than a buffer, which will be dropped"
            );
        }
    }
}

/// A bound socket and its memory.
struct Bound {
    umem: Umem,
    frames: Vec<Frame>,
    socket: Socket,
    rejected: Vec<RejectedMode<CopyMode>>,
}

/// Binds a socket of `wanted`, with a shorter receive ring if the limit of locked memory requires
/// it. Returns the configuration that it has.
///
/// The limit is one for all processes of a user, and the kernel counts the memory of a closed
/// socket for some tens of milliseconds more. So memory that the limit has room for is requested
/// for a while before less is.
fn bind_within(device: &XdpDevice, wanted: &XdpConfig) -> Result<(XdpConfig, Bound), XdpError> {
    let limit = memlock_bytes().unwrap_or(u64::MAX);
    let mut config = wanted.clone();
    let mut start = Instant::now();
    loop {
        let error = match bind(device, &config) {
            Err(XdpError::Socket(error)) if error.is_memlock() => error,
            Err(error) => return Err(error),
            Ok(bound) => {
                if config != *wanted {
                    warn_of_ring(device, wanted, &config, limit);
                }
                return Ok((config, bound));
            }
        };
        let bytes = config.umem_bytes();
        if bytes <= limit && start.elapsed() < RELEASE_TIME {
            std::thread::sleep(RELEASE_PAUSE);
            continue;
        }
        let Some(shorter) = config.within(limit.min(bytes - 1)) else { return Err(error.into()) };
        (config, start) = (shorter, Instant::now());
    }
}

fn bind(device: &XdpDevice, config: &XdpConfig) -> Result<Bound, XdpError> {
    let (umem, frames) = Umem::with_frames(config.frames, config.chunk)?;
    let socket_config = SocketConfig {
        fill_size: config.fill_size,
        rx_size: config.rx_size,
        tx_size: config.tx_size,
        completion_size: config.completion_size,
        copy_modes: device.preference().copy_modes(device.attach_mode()),
        need_wakeup: config.need_wakeup,
        tx_budget: config.tx_budget,
        ..SocketConfig::new(device.ifindex(), config.queue)
    };
    let (socket, rejected) = Socket::bind(&umem, &socket_config)?;
    Ok(Bound { umem, frames, socket, rejected })
}

fn warn_of_ring(device: &XdpDevice, wanted: &XdpConfig, config: &XdpConfig, limit: u64) {
    tracing::warn!(
        interface = device.ifname(),
        "the receive ring holds {} packets instead of {}: {} KiB of locked memory do not fit the \
         limit of {} KiB for all processes of this user (raise it by `ulimit -l`, or grant \
         CAP_IPC_LOCK)",
        config.fill_size,
        wanted.fill_size,
        wanted.umem_bytes() >> 10,
        limit >> 10,
    );
}

/// The soft limit of locked memory of this process (`RLIMIT_MEMLOCK`) in bytes; `None` for no
/// limit. It does not apply with CAP_IPC_LOCK.
#[must_use]
pub fn memlock_bytes() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// How long memory of closed sockets may be counted: usually some tens of milliseconds, on a busy
/// machine longer.
const RELEASE_TIME: Duration = Duration::from_millis(500);
const RELEASE_PAUSE: Duration = Duration::from_millis(5);

/// Addresses and type.
const ETHERNET_HEADER: usize = 14;
