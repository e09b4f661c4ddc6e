//! The subjects of measurement: the rows of the table.

use crate::raw::Touch;
use crate::sample::Error;
use crate::tcp::Wait;
use serde::Serialize;
use spanwire_base::Rate;
use spanwire_host::fabric::{Attachment, Wrap};
use spanwire_host::oob::Op;
use spanwire_host::window::{self, CC_WINDOW_PKTS, WindowChoice};
use spanwire_io::net::{Ethtool, Host};
use spanwire_io::udp::UdpConfig;
use spanwire_io::xdp::XdpPreference;
use spanwire_transport::{Config, CongestionControl, ValidConfig, WireMode};

/// A subject of measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Raw AF_XDP one way.
    Raw {
        /// The treatment of the payload.
        touch: Touch,
        /// The most frames in flight.
        window: u64,
    },
    /// Kernel UDP with segmentation offload one way, without a transport.
    RawUdp {
        /// Bytes of memory that is sent in turn.
        source_bytes: u32,
    },
    /// Verified WRITEs of the engine.
    Write(Flow),
    /// READ or SEND of the engine, as `spanwire demo` runs them: RC over AF_XDP, messages of
    /// [`MESSAGE_BYTES`](crate::engine::MESSAGE_BYTES).
    Engine(Op),
    /// A kernel TCP stream, with all offloads or none.
    Tcp {
        /// TSO, GSO, GRO and checksums on both ends.
        offloads: bool,
    },
    /// Processor time of both ends of a flow at a rate.
    Cpu(Paced),
    /// Round trips of a small raw AF_XDP frame.
    RawPing {
        /// Both ends poll the interface themselves.
        side_poll: bool,
    },
    /// A small message of the engine: SEND and SEND back, or WRITE to its completion.
    EnginePing(Op),
    /// Round trips of a small kernel TCP message.
    TcpPing(Wait),
}

/// One way of the engine to move bulk data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The ports of both ends.
    pub fabric: Fabric,
    /// The wire mode.
    pub mode: WireMode,
    /// The congestion control.
    pub control: Control,
    /// Bytes of a message, whole pages.
    pub message_bytes: u32,
    /// Packets have an ICRC.
    pub icrc: bool,
}

/// A flow at a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paced {
    /// The ports of `spanwire perf`; none for kernel TCP.
    pub fabric: Option<Fabric>,
    /// The limit in 10^6 bits a second, if there is one.
    pub mbps: Option<u64>,
    /// Both ends run on the sender's core.
    pub one_core: bool,
}

/// A kind of port under the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Fabric {
    /// AF_XDP sockets.
    AfXdp,
    /// UDP sockets of the kernel.
    Udp,
}

/// A congestion control, with the window that `spanwire perf` gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// A static window.
    None,
    /// The default.
    Auto,
}

impl Subject {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> String {
        let op_name = |op| spanwire_bins::report::op_name(op).to_uppercase();
        match self {
            Self::Raw { touch: Touch::Copy, window } => {
                format!("raw AF_XDP, copying, window {window}")
            }
            Self::Raw { touch: Touch::Headers, window } => {
                format!("raw AF_XDP, headers only, window {window}")
            }
            Self::RawUdp { source_bytes: LARGE } => "raw UDP GSO, copying".to_owned(),
            Self::RawUdp { source_bytes } => format!("raw UDP GSO, of {} MiB", source_bytes >> 20),
            Self::Write(flow) => flow.name(),
            Self::Engine(op) => format!("spanwire AF_XDP RC {} 64 KiB", op_name(op)),
            Self::Tcp { offloads: true } => "kernel TCP, offloads on".to_owned(),
            Self::Tcp { offloads: false } => "kernel TCP, offloads off".to_owned(),
            Self::Cpu(paced) => paced.name(),
            Self::RawPing { side_poll: true } => "raw AF_XDP ping-pong".to_owned(),
            Self::RawPing { side_poll: false } => "raw AF_XDP ping-pong, no side poll".to_owned(),
            Self::EnginePing(Op::Send) => "spanwire SEND ping-pong".to_owned(),
            Self::EnginePing(op) => format!("spanwire {} to completion", op_name(op)),
            Self::TcpPing(Wait::Spin) => "kernel TCP ping-pong, spinning".to_owned(),
            Self::TcpPing(Wait::Block) => "kernel TCP ping-pong, blocking".to_owned(),
        }
    }

    /// True for raw AF_XDP in one direction, with this treatment of the payload.
    #[must_use]
    pub fn is_raw(self, wanted: Touch) -> bool {
        matches!(self, Self::Raw { touch, .. } if touch == wanted)
    }

    /// True for a throughput.
    #[must_use]
    pub fn is_rate(self) -> bool {
        !matches!(
            self,
            Self::Cpu(_) | Self::RawPing { .. } | Self::EnginePing(_) | Self::TcpPing(_)
        )
    }

    /// True if it needs AF_XDP sockets, whose program disables offloads of kernel TCP and UDP.
    #[must_use]
    pub fn is_af_xdp(self) -> bool {
        match self {
            Self::Write(flow) => flow.fabric == Fabric::AfXdp,
            Self::Cpu(paced) => paced.fabric == Some(Fabric::AfXdp),
            Self::RawUdp { .. } | Self::Tcp { .. } | Self::TcpPing(_) => false,
            Self::Raw { .. } | Self::RawPing { .. } | Self::Engine(_) | Self::EnginePing(_) => true,
        }
    }

    /// The throughputs at one MTU of the link, in the order of the table.
    pub(super) fn rates(link_mtu: u32, is_quick: bool) -> Vec<Self> {
        let raw = |touch, window| Self::Raw { touch, window };
        let is_measured_in_detail = link_mtu <= LINK_MTU_DETAILED && !is_quick;
        let mut rates = vec![raw(Touch::Copy, 200)];
        if is_measured_in_detail {
            // The windows: of the engine without congestion control, and of a veth's ring.
            rates = vec![raw(Touch::Copy, 128), raw(Touch::Copy, 200), raw(Touch::Headers, 200)];
        }
        // Memory of one message, and of all sixteen messages of a flow.
        rates.extend([LARGE, 16 * LARGE].map(|source_bytes| Self::RawUdp { source_bytes }));
        rates.extend([Self::Tcp { offloads: true }, Self::Tcp { offloads: false }]);
        rates.extend(Flow::all(LARGE).map(Self::Write));
        rates.push(Self::Write(Flow::without_icrc()));
        if is_measured_in_detail {
            let is_first = |flow: &Flow| *flow == Flow::of_shares();
            let small = Flow::all(SMALL).filter(|flow| link_mtu == MTU_OF_SMALL || is_first(flow));
            rates.extend(small.map(Self::Write));
            rates.extend([Self::Engine(Op::Read), Self::Engine(Op::Send)]);
        }
        rates
    }

    /// The latencies, which do not depend on the MTU.
    pub(super) const LATENCIES: [Self; 6] = [
        Self::RawPing { side_poll: true },
        Self::RawPing { side_poll: false },
        Self::EnginePing(Op::Send),
        Self::EnginePing(Op::Write),
        Self::TcpPing(Wait::Spin),
        Self::TcpPing(Wait::Block),
    ];
}

impl Flow {
    /// All flows with messages of this size.
    pub(super) fn all(message_bytes: u32) -> impl Iterator<Item = Self> {
        Fabric::ALL.into_iter().flat_map(move |fabric| {
            [WireMode::Rc, WireMode::Sr].into_iter().flat_map(move |mode| {
                [Control::None, Control::Auto].map(|control| Self {
                    fabric,
                    mode,
                    control,
                    message_bytes,
                    icrc: true,
                })
            })
        })
    }

    /// The flow without a checksum in user space, and without a copy at the sender.
    fn without_icrc() -> Self {
        let (fabric, mode, control) = (Fabric::Udp, WireMode::Sr, Control::None);
        Self { fabric, mode, control, message_bytes: LARGE, icrc: false }
    }

    /// The flow whose packets are counted beside raw AF_XDP's: as many and as large in flight.
    pub(super) fn of_shares() -> Self {
        let (fabric, mode, control) = (Fabric::AfXdp, WireMode::Rc, Control::None);
        Self { fabric, mode, control, message_bytes: SMALL, icrc: true }
    }

    fn name(self) -> String {
        let Self { fabric, mode, control, message_bytes, icrc } = self;
        let mode = mode.name().to_uppercase();
        let control = match control {
            Control::None => "none",
            Control::Auto => "auto",
        };
        let size = match message_bytes {
            bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
            bytes => format!("{} KiB", bytes >> 10),
        };
        let icrc = if icrc { "" } else { ", no ICRC" };
        format!("spanwire {} {mode} {control} WRITE {size}{icrc}", fabric.name())
    }
}

impl Paced {
    /// All, those of one rate next to each other.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let ends = [Some(Fabric::AfXdp), Some(Fabric::Udp), None];
        RATES_MBPS.into_iter().flat_map(move |mbps| {
            [false, true]
                .into_iter()
                .flat_map(move |one_core| ends.map(|fabric| Self { fabric, mbps, one_core }))
        })
    }

    /// Its name in reports.
    pub(super) fn name(self) -> String {
        let rate = self.mbps.map_or("full speed".to_owned(), |mbps| format!("{mbps} Mbit/s"));
        let cores = if self.one_core { ", one core" } else { "" };
        format!("cpu {rate}{cores}: {}", self.fabric.map_or("kernel TCP", Fabric::name))
    }

    /// Kernel TCP at the same rate.
    pub(super) fn reference(self) -> Self {
        Self { fabric: None, ..self }
    }
}

impl Fabric {
    const ALL: [Self; 2] = [Self::AfXdp, Self::Udp];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AfXdp => "AF_XDP",
            Self::Udp => "UDP",
        }
    }

    /// The attachment of `host`, as `spanwire perf` makes it for this congestion control. The
    /// calling thread is in the host's namespace.
    ///
    /// # Errors
    /// As [`Attachment::xdp_with`] and [`Attachment::udp`].
    pub(super) fn attach(self, host: &Host, control: Control) -> Result<Attachment, Error> {
        match self {
            Self::AfXdp => {
                let window = control.window();
                let port = window::port(&host.ifname, 0, XdpPreference::Auto, window);
                Attachment::xdp_with(&port, &Wrap::default())
            }
            Self::Udp => {
                let config =
                    UdpConfig { local: Some(host.v4.into()), ..UdpConfig::new(&host.ifname) };
                Attachment::udp(&config, &Wrap::default())
            }
        }
    }

    /// The port's counters of packets sent and of the system calls that sent them.
    pub(super) fn call_counters(self) -> [&'static str; 2] {
        match self {
            Self::AfXdp => ["xdp_tx_completions", "xdp_tx_kicks"],
            Self::Udp => ["udp_tx_frames", "udp_tx_calls"],
        }
    }
}

impl Control {
    /// `--cc`.
    pub(super) fn choice(self) -> Option<CongestionControl> {
        match self {
            Self::None => Some(CongestionControl::NONE),
            Self::Auto => None,
        }
    }

    /// `--window`, by default.
    fn window(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Auto => Some(CC_WINDOW_PKTS),
        }
    }

    /// The engine's configuration on `host` with this attachment, as of `spanwire perf`. The
    /// calling thread is in the host's namespace.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub(super) fn config(self, host: &Host, attachment: &Attachment) -> Result<ValidConfig, Error> {
        let mbps = Ethtool::open().and_then(|ethtool| ethtool.speed_mbps(&host.ifname));
        let speed = mbps.ok().flatten().map(|mbps| Rate::from_bps(u64::from(mbps) * 1_000_000));
        let line_rate = speed.unwrap_or(Config::default().line_rate);
        let config = window::config(self.window(), line_rate, None)?;
        Ok(attachment.fit(config, WindowChoice::of(self.choice().as_ref())))
    }
}

/// Bytes of a large message, and of a small one.
pub(super) const LARGE: u32 = 1 << 20;
const SMALL: u32 = 1 << 16;
/// The MTU at which small messages have all rows, since their packets are many.
const MTU_OF_SMALL: u32 = 1500;
/// The largest MTU with rows of all windows of raw AF_XDP, and of READ and SEND: the largest whose
/// frames fit one buffer.
const LINK_MTU_DETAILED: u32 = 3506;
/// Rates as a service has them, in 10^6 bits a second, and all that the machine can.
const RATES_MBPS: [Option<u64>; 4] = [Some(20), Some(200), Some(1000), None];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all__have_names_of_their_own_and_their_reference() {
        let all: Vec<Paced> = Paced::all().collect();
        let names: BTreeSet<String> = all.iter().map(|paced| paced.name()).collect();
        assert_eq!((all.len(), names.len()), (24, 24));
        for name in ["cpu 20 Mbit/s: AF_XDP", "cpu full speed, one core: kernel TCP"] {
            assert!(names.contains(name), "{names:?}");
        }
        assert!(all.iter().all(|paced| all.contains(&paced.reference())));
    }
}
