//! The arguments of `spanwire copy`, and the configuration that follows from them.

use crate::exit::{Failed, usage};
use crate::interface;
use crate::path_report::PathsReport;
use crate::port_args::{self, PortArgs};
use spanwire_copy::grant::Grant;
use spanwire_copy::{DEFAULT_PORT, connection};
use spanwire_host::dial::address;
use spanwire_host::fabric::{Error, Fabric};
use spanwire_host::peer::{Peer, ZonedIp};
use spanwire_host::quantity::{duration, ppm};
use spanwire_io::fault::FaultConfig;
use spanwire_stream::{
    Config, CongestionReport, ConnectOptions, Connection, ModeChoice, Network, NetworkOptions,
    SetupError,
};
use spanwire_transport::{Agreed, Balance, ErasureCoding};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `spanwire copy`.
#[derive(clap::Args, Clone, Debug)]
pub struct CopyArgs {
    #[command(subcommand)]
    pub(super) command: CopyCommand,
}

#[derive(clap::Subcommand, Clone, Debug)]
pub(super) enum CopyCommand {
    /// Wait for senders and receive their files, one sender at a time
    Receive(ReceiveArgs),
    /// Send files and directories to a receiver
    Send(SendArgs),
}

/// Arguments of both ends.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct CommonArgs {
    #[command(flatten)]
    pub(super) port: PortArgs,
    /// Wire mode: auto (SR if both ends support it, else RC), rc, or sr
    #[arg(long, default_value = "auto", value_parser = port_args::mode)]
    pub(super) mode: ModeChoice,
    /// Local address of the connection: the sender connects from it, the receiver listens at it
    /// only [default: that of the route, and all of the interface]
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// Drop this share of the frames received, in percent
    #[arg(long, default_value = "0", value_parser = ppm, value_name = "PERCENT")]
    pub(super) loss: u32,
    /// Seed of this loss
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// The receiver reads every file back from disk, once it is synced, and compares it with its
    /// hash. Costs a read of every file that is sent
    #[arg(long)]
    pub(super) verify_disk: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print nothing but errors
    #[arg(short, long, conflicts_with = "json")]
    pub(super) quiet: bool,
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct ReceiveArgs {
    /// Network interface [default: the only one that is up and has an address]
    #[arg(long)]
    pub(super) dev: Option<String>,
    /// Existing directory to copy into; nothing outside of it is touched
    #[arg(long, value_name = "DIR")]
    pub(super) into: PathBuf,
    /// TCP port of the side connection
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    pub(super) port: u16,
    /// Accept senders from this address only
    #[arg(long, value_name = "ADDR")]
    pub(super) from: Option<IpAddr>,
    /// Replace existing files
    #[arg(long)]
    pub(super) overwrite: bool,
    /// End after one sender
    #[arg(long)]
    pub(super) once: bool,
    /// End a copy after this long without progress; 0.1 to 3600
    #[arg(long, value_parser = stall_timeout, default_value = "30", value_name = "SECONDS")]
    pub(super) stall_timeout: Duration,
    /// Limit of half-open connections, 1 to 1000; beyond it the one that has been silent for
    /// longest is dropped
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_half_open: u32,
    /// Limit of half-open connections per peer address
    #[arg(long, value_name = "N", default_value_t = 8)]
    max_half_open_per_peer: u32,
    /// Time limit for setting up a connection; 0.01 to 60
    #[arg(long, value_parser = handshake_timeout, default_value = "5", value_name = "SECONDS")]
    handshake_timeout: Duration,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct SendArgs {
    /// Files and directories
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// The receiver: HOST, HOST:PORT or [IPV6]:PORT; a link-local address with its zone, as
    /// fe80::1%eth0
    #[arg(required = true)]
    pub(super) to: Peer,
    /// Network interface [default: that of the route to the receiver]
    #[arg(long)]
    pub(super) dev: Option<String>,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// A network, and its settings for the report.
pub(super) struct CopyNetwork {
    pub(super) network: Network,
    pub(super) fabric: Fabric,
    /// AF_XDP's mode.
    pub(super) xdp_mode: Option<&'static str>,
    erasure: Option<ErasureCoding>,
    balance: Option<Balance>,
}

impl CopyNetwork {
    /// The paths of the queue pairs `qpns`, which ended last or are open, and whose negotiated
    /// terms are `agreed`.
    pub(super) fn paths(&self, agreed: &Agreed, qpns: &[u32]) -> PathsReport {
        let mut ended = self.network.paths();
        ended.retain(|connection| qpns.contains(&connection.qpn));
        PathsReport::of(agreed, self.erasure.as_ref(), self.balance.as_ref(), &ended)
    }

    /// The congestion control of queue pair `qpn`, which ended last or is open.
    pub(super) fn congestion(&self, qpn: u32) -> Option<CongestionReport> {
        let of_all = self.network.congestion();
        of_all.into_iter().find(|connection| connection.qpn == qpn).map(|found| found.report)
    }
}

impl CommonArgs {
    /// The network that these arguments describe, on interface `dev`, with the limits of
    /// connections in `limits`.
    pub(super) fn network(&self, dev: &str, limits: &Config) -> Result<CopyNetwork, Error> {
        let engine = self.port.config(dev)?;
        let congestion = self.port.congestion()?;
        let cores = self.port.workers.assign()?.into_iter().flatten().collect();
        let ports = self.port.attach(dev, self.address, self.faults(), &engine)?;
        let first = ports.first().ok_or("a worker has a port")?;
        let engine = self.port.fit(engine, first);
        let (fabric, xdp_mode) = (first.fabric, first.xdp_mode);
        let (erasure, balance) = (self.port.erasure()?, self.port.balance()?);
        let config = Config { congestion, erasure, balance, ..limits.clone() };
        let config = config.validate().map_err(usage)?;
        let address = self.address;
        let options =
            NetworkOptions { config, engine, address, cores, ..NetworkOptions::default() };
        let network = Network::over_workers(ports, dev, options)?;
        Ok(CopyNetwork { network, fabric, xdp_mode, erasure, balance })
    }

    fn faults(&self) -> Option<FaultConfig> {
        let loss_ppm = self.loss;
        let config = FaultConfig { seed: self.seed, loss_ppm, ..FaultConfig::default() };
        (loss_ppm > 0).then_some(config)
    }
}

impl ReceiveArgs {
    /// The grant for senders.
    pub(super) fn grant(&self) -> Grant {
        let Self { overwrite, stall_timeout, .. } = *self;
        let connections = self.common.port.workers.count();
        Grant { overwrite, verify_disk: self.common.verify_disk, stall_timeout, connections }
    }

    /// The network that these arguments describe, on interface `dev`.
    pub(super) fn network(&self, dev: &str) -> Result<CopyNetwork, Error> {
        let Self { max_half_open, max_half_open_per_peer, handshake_timeout, .. } = *self;
        let more = 7 + self.common.port.workers.count();
        let (limits, per_peer) =
            (connection::limits(), max_half_open_per_peer.saturating_add(more).min(1000));
        let limits = Config {
            // Room for the sender being served, for senders being rejected as busy, and for
            // handshakes that were dropped and whose threads have not ended.
            max_connections: max_half_open.saturating_mul(2).saturating_add(2 * more).min(1000),
            max_half_open,
            // One address must not use up all connections.
            max_connections_per_peer: per_peer,
            max_ring_bytes_per_peer: u64::from(per_peer) * u64::from(limits.ring_bytes),
            max_half_open_per_peer: max_half_open_per_peer.min(max_half_open),
            handshake_timeout,
            ..limits
        };
        self.common.network(dev, &limits)
    }
}

impl SendArgs {
    /// Connects to the receiver through `--dev`, else through the interface of the route to it;
    /// returns also its address.
    pub(super) fn reach_receiver(&self) -> Result<(CopyNetwork, Connection, SocketAddr), Error> {
        let port = self.to.port.unwrap_or(DEFAULT_PORT);
        let mut why: Error = "the receiver has no address".into();
        for peer in self.to.addresses()? {
            match self.dial(&peer, port) {
                Ok(reached) => return Ok(reached),
                Err(e) => why = e,
            }
        }
        Err(why)
    }

    /// The options of connection `index`, which has the worker of this number.
    pub(super) fn options(&self, index: u32) -> ConnectOptions {
        ConnectOptions { worker: Some(index), ..connection::options(self.common.mode) }
    }

    fn dial(
        &self,
        peer: &ZonedIp,
        port: u16,
    ) -> Result<(CopyNetwork, Connection, SocketAddr), Error> {
        if let Some(local) = self.common.address
            && local.is_ipv4() != peer.ip.is_ipv4()
        {
            return Err(usage(format!("--address {local}: the address of the receiver is {peer}")));
        }
        let dev = interface::of_route(self.dev.as_deref(), peer)?;
        // Check the interface first: a wrong name is the likelier mistake.
        let ifindex = spanwire_host::fabric::interface(&dev)?.ifindex;
        let address = address(peer.ip, port, ifindex);
        let network = self.common.network(&dev, &connection::limits())?;
        match network.network.connect(address, &self.options(0)) {
            Ok(connection) => Ok((network, connection, address)),
            Err(why) => {
                // Release the interface: the next address may use it as well.
                let _ = network.network.shutdown(Duration::ZERO);
                Err(cannot_reach(peer, port, why))
            }
        }
    }
}

fn stall_timeout(text: &str) -> Result<Duration, String> {
    let stall_timeout = duration(text, 0.1..=3600.0)?;
    Grant { stall_timeout, ..Grant::default() }.validate().map(|grant| grant.stall_timeout)
}

fn handshake_timeout(text: &str) -> Result<Duration, String> {
    duration(text, 0.01..=60.0)
}

fn cannot_reach(peer: &ZonedIp, port: u16, why: SetupError) -> Error {
    let advice = match &why {
        SetupError::Io(_, e) if e.kind() == ErrorKind::ConnectionRefused => {
            "; is `spanwire copy receive` running there?"
        }
        SetupError::Io(..) => "; is the address right, and reachable through this interface?",
        _ => "",
    };
    let text = format!("cannot copy to {peer} on TCP port {port}: {why}{advice}");
    Failed::with_cause(why, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_timeout__is_within_its_range() {
        assert_eq!(stall_timeout("30"), Ok(Grant::default().stall_timeout));
        assert_eq!(stall_timeout("0.1"), Ok(Duration::from_millis(100)));
        for bad in ["0", "0.09", "3601", "-1", "NaN", "inf", "1e30", "", "x"] {
            assert!(stall_timeout(bad).is_err(), "{bad}");
        }
    }
}
