//! The arguments of all commands that open a port for queue pairs.

use crate::cc_args::CcArgs;
use crate::ec_args::EcArgs;
use crate::exit::usage;
use crate::output;
use crate::queues;
use crate::worker_args::WorkerArgs;
use clap::{ArgAction, ValueEnum};
use spanwire_base::Dur;
use spanwire_host::fabric::{Attachment, Error, Fabric, FabricChoice, Wrap};
use spanwire_host::quantity::size;
use spanwire_host::window::{self, WindowChoice};
use spanwire_io::driver::Polling;
use spanwire_io::fault::FaultConfig;
use spanwire_io::udp::UdpConfig;
use spanwire_io::xdp::XdpPreference;
use spanwire_stream::ModeChoice;
use spanwire_transport::{Balance, CongestionControl, ErasureCoding, ValidConfig};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A port, its window and its options.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PortArgs {
    /// Fabric: xdp (AF_XDP), udp (UDP sockets, without privileges), or auto: AF_XDP where it is
    /// possible, else UDP sockets
    #[arg(long, default_value = "auto", value_parser = fabric)]
    fabric: FabricChoice,
    /// UDP sockets: receive buffer to request in bytes [default: 8M]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    rcvbuf: Option<u64>,
    /// UDP sockets: accept IPv4 packets of any identification, as Linux rxe and adapters send them.
    /// Only 16 bits of the ICRC then detect a corrupted packet
    #[arg(long)]
    any_id: bool,
    /// UDP sockets: off offers SR packets without an ICRC, which the other end must offer, too.
    /// Only the kernel's UDP checksum then detects a corrupted packet
    #[arg(long, value_name = "on|off", default_value = "on", action = ArgAction::Set,
        value_parser = on_or_off)]
    icrc: bool,
    /// Receive queue of the interface; UDP port 4791 must arrive there (docs/TOOLS.md, Fabrics)
    #[arg(long, default_value_t = 0)]
    queue: u32,
    /// XDP attach mode: native, copy or skb; auto tries native zero-copy, native copy, then generic
    #[arg(long, default_value = "auto", value_parser = preference)]
    xdp: XdpPreference,
    /// Window: packets in flight; with --cc none a long path needs rate x RTT, at both ends
    /// [default: 16384, with --cc none 192]
    #[arg(long, value_name = "PKTS")]
    window: Option<u32>,
    #[command(flatten)]
    cc: CcArgs,
    #[command(flatten)]
    ec: EcArgs,
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
    /// Write all frames sent and received to a pcap file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

impl PortArgs {
    /// The engine's configuration for the window, the line rate of interface `dev`, and the
    /// limit of `--line-rate`.
    ///
    /// # Errors
    /// The window is out of range.
    pub(crate) fn config(&self, dev: &str) -> Result<ValidConfig, Error> {
        window::config(self.window(), self.cc.line_rate(dev), self.cc.port_rate()).map_err(usage)
    }

    /// The congestion control of `--cc`; `None` for the default.
    ///
    /// # Errors
    /// The algorithm is unknown, or a parameter is invalid.
    pub(crate) fn congestion(&self) -> Result<Option<CongestionControl>, Error> {
        self.cc.choice().map_err(usage)
    }

    /// The erasure coding of `--ec`, if given.
    ///
    /// # Errors
    /// The code is invalid.
    pub(crate) fn erasure(&self) -> Result<Option<ErasureCoding>, Error> {
        self.ec.erasure().map_err(usage)
    }

    /// The load balancing of `--lb`, if given.
    ///
    /// # Errors
    /// The system provides no random seed.
    pub(crate) fn balance(&self) -> Result<Option<Balance>, Error> {
        self.ec.balance()
    }

    /// The port of each worker on interface `dev`, for endpoints of `config`, with `faults`
    /// injected. UDP sockets receive at `local`, if it is known. Prints a line if they replace
    /// AF_XDP, and a warning if packets may arrive on a queue that AF_XDP does not serve.
    ///
    /// # Errors
    /// The port cannot be opened.
    pub(crate) fn attach(
        &self,
        dev: &str,
        local: Option<IpAddr>,
        faults: Option<FaultConfig>,
        config: &ValidConfig,
    ) -> Result<Vec<Attachment>, Error> {
        if self.fabric == FabricChoice::Pipe {
            return Err(usage("--fabric pipe has both ends in one process: it is for `demo` only"));
        }
        let port = window::port(dev, self.queue, self.xdp, self.window());
        let wrap = Wrap { faults, pcap: self.pcap.clone() };
        let udp = UdpConfig { local, any_id: self.any_id, ..UdpConfig::new(dev) };
        let receive_buffer = self.rcvbuf.map_or(udp.receive_buffer, saturated);
        let udp = UdpConfig { receive_buffer, ..udp };
        let workers = self.workers.count();
        let of = (workers, config.of_worker(0, workers)?.qpn_workers());
        let ports = Attachment::open_workers(self.fabric, &port, &udp, &wrap, of)?;
        for (port, worker) in ports.iter().zip(0..) {
            let path = wrap.of_worker(worker, workers).pcap;
            if let (Some(path), Some(error)) = (path, &port.capture) {
                output::watch_capture(path, error.clone());
            }
        }
        let first = ports.first().ok_or("a process has a worker")?;
        if let Some(why) = &first.fallback {
            output::print_error(&format!(
                "AF_XDP is unavailable ({why}); using UDP sockets instead"
            ));
        }
        if first.fabric == Fabric::AfXdp && workers == 1 {
            queues::warn(dev, self.queue);
        }
        let refused = |e| usage(format!("--icrc off: {e}"));
        let offered = |port: Attachment| match self.icrc {
            true => Ok(port),
            false => port.without_icrc().map_err(refused),
        };
        ports.into_iter().map(offered).collect()
    }

    /// The engine's configuration `config` for `attachment`, see [`Attachment::fit`].
    pub(crate) fn fit(&self, config: ValidConfig, attachment: &Attachment) -> ValidConfig {
        let choice = match (self.window, self.cc.window()) {
            (Some(_), _) => WindowChoice::Explicit,
            (None, Some(_)) => WindowChoice::Controlled,
            (None, None) => WindowChoice::Static,
        };
        attachment.fit(config, choice)
    }

    /// Packets have an ICRC unless both ends leave it out.
    pub(crate) fn icrc(&self) -> bool {
        self.icrc
    }

    /// The receive queue that the port serves.
    pub(crate) fn queue(&self) -> u32 {
        self.queue
    }

    fn window(&self) -> Option<u32> {
        self.window.or_else(|| self.cc.window())
    }
}

/// Polling of a worker, as an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Wait {
    Busy,
    Adaptive,
}

impl Wait {
    /// The polling of this process; `adaptive` unless it is busy.
    pub(crate) fn polling(self, adaptive: Polling) -> Polling {
        match self {
            Self::Busy => Polling::Busy,
            Self::Adaptive => {
                sleep_precisely();
                adaptive
            }
        }
    }
}

/// Parses an XDP mode.
pub(crate) fn preference(text: &str) -> Result<XdpPreference, String> {
    XdpPreference::from_name(text)
        .ok_or_else(|| format!("{text} is no XDP mode (auto, native, copy, skb)"))
}

/// Parses a fabric.
pub(crate) fn fabric(text: &str) -> Result<FabricChoice, String> {
    FabricChoice::from_name(text)
        .ok_or_else(|| format!("{text} is no fabric (auto, xdp, udp, pipe)"))
}

/// Parses a switch.
fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("{other} is neither on nor off")),
    }
}

/// Parses a wire mode.
pub(crate) fn mode(text: &str) -> Result<ModeChoice, String> {
    ModeChoice::from_name(text).ok_or_else(|| format!("{text} is no wire mode (auto, rc, sr)"))
}

fn saturated(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The interval of reports in seconds, as of [`interval_or_none`]; `None` for zero.
///
/// [`interval_or_none`]: spanwire_host::quantity::interval_or_none
pub(crate) fn interval(seconds: f64) -> Option<Dur> {
    let us = u64::try_from(Duration::from_secs_f64(seconds).as_micros()).ok();
    us.filter(|us| *us > 0).map(Dur::from_us)
}

/// Sets the kernel's timer slack of this process to 1 us. With the default of 50 us a sleep may
/// end late by four frames at 1 Gbit/s.
fn sleep_precisely() {
    if let Err(e) = std::fs::write("/proc/self/timerslack_ns", "1000") {
        tracing::info!("sleeps may end 50 us late: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preference__errors_list_the_modes() {
        assert!(preference("skb").is_ok());
        assert!(preference("turbo").unwrap_err().contains("auto, native, copy, skb"));
    }

    #[test]
    fn fabric__errors_list_the_choices() {
        assert_eq!(fabric("udp"), Ok(FabricChoice::Udp));
        assert!(fabric("dpdk").unwrap_err().contains("auto, xdp, udp, pipe"));
    }

    #[test]
    fn mode__errors_list_the_modes() {
        assert_eq!(mode("sr"), Ok(ModeChoice::Sr));
        assert_eq!(mode("src"), Ok(ModeChoice::Sr), "its former name");
        assert!(mode("uc").unwrap_err().contains("auto, rc, sr"));
    }
}
