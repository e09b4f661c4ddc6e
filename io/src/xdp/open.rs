//! Opening of a port: memory, socket, fill ring, and then the steering of its queue.

use super::stock::Stock;
use super::{XdpConfig, XdpCounters, XdpDevice, XdpError, XdpMode, XdpPort};
use crate::port::Port;
use af_xdp::{Socket, SocketConfig, Umem};
use spanwire_base::{Time, usize_from};
use std::sync::Arc;

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
    /// interface, traffic and preference; those of `config` are ignored.
    ///
    /// # Errors
    /// [`XdpError`]; also when the device was attached for fewer queues.
    pub fn open_on(device: &Arc<XdpDevice>, config: &XdpConfig) -> Result<Self, XdpError> {
        config.validate()?;
        let (umem, mut frames) = Umem::with_frames(config.frames, config.chunk)?;
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

/// Addresses and type.
const ETHERNET_HEADER: usize = 14;
