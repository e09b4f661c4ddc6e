//! The switch's process: its ports, its loop, and replies to control requests.

use super::file::{FilePort, PORT_FRAME_ROOM, SwitchFile};
use super::report::SwitchReport;
use super::set::set;
use crate::exit::{Exit, usage};
use crate::port_args::{self, Wait, preference};
use crate::report::{print_report, print_text};
use crate::signals::Interrupt;
use spanwire_base::{Dur, usize_from};
use spanwire_host::control::{Control, PendingRequest, Reply, Request};
use spanwire_host::fabric::{Error, interface};
use spanwire_host::file::{CONFIG_BYTES_MAX, read_text};
use spanwire_host::quantity::interval_or_none;
use spanwire_io::affinity;
use spanwire_io::clock::Clock;
use spanwire_io::driver::{Driver, Polling};
use spanwire_io::hotplug::HotplugPort;
use spanwire_io::xdp::{Traffic, XdpConfig, XdpPort, XdpPreference};
use spanwire_switch::Shaped;
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments of `spanwire switch` without a subcommand.
#[derive(clap::Args, Clone, Debug)]
pub struct RunArgs {
    /// Configuration file: ports, rates, delays, queues and faults (see docs/TOOLS.md)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Control socket for `spanwire switch ctl`; created at the start, removed at the end
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// XDP attach mode: native, copy or skb; auto tries native zero-copy, native copy, then generic
    #[arg(long, default_value = "auto", value_parser = preference)]
    xdp: XdpPreference,
    /// Polling: busy spins all the time, adaptive sleeps until a frame arrives or is due
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    poll: Wait,
    /// Pin the loop to this core
    #[arg(long)]
    core: Option<usize>,
    /// Print rates every SECONDS; 0 for never
    #[arg(short, long, default_value_t = 0.0, value_name = "SECONDS",
        value_parser = interval_or_none)]
    interval: f64,
    /// Print JSON: one object per interval, and one at the end
    #[arg(long)]
    json: bool,
}

/// A running switch.
struct Session {
    names: Vec<String>,
    ports: Vec<HotplugPort<XdpPort>>,
    shaped: Shaped,
    driver: Driver,
    control: Option<Control>,
}

/// Runs a switch until it is interrupted.
///
/// # Errors
/// The file is invalid, or a port cannot be opened. An interface that disappears later is no error.
pub(super) fn run(args: &RunArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let shown = args.config.display();
    let text = read_text(&args.config, "configurations", CONFIG_BYTES_MAX)
        .map_err(|e| usage(format!("cannot read {shown}: {e}")))?;
    let file = SwitchFile::parse(&text).map_err(|e| usage(format!("{shown}: {e}")))?;
    let every = port_args::interval(args.interval);
    if let Some(core) = args.core {
        affinity::pin(core)?;
    }
    let mut session = Session::open(args, &file)?;
    if !args.json {
        print_text(&format!("switching between {}\n", session.names.join(", ")));
    }
    let ended = session.forward(args, every, interrupt);
    let report = session.report();
    print_report(args.json, &report, SwitchReport::to_text)?;
    ended.map(|()| Exit::Success)
}

impl Session {
    fn open(args: &RunArgs, file: &SwitchFile) -> Result<Self, Error> {
        let hotplug = |port: &FilePort| {
            let (port, preference) = (port.clone(), args.xdp);
            HotplugPort::new(&port.device.clone(), Arc::new(move || open(&port, preference)))
        };
        let ports: Result<Vec<_>, Error> = file.ports().iter().map(hotplug).collect();
        // Create the control socket after the ports: if it accepts requests, the switch forwards.
        let ports = ports?;
        let shaped = Shaped::new(file.config().clone())?;
        let control = args.socket.as_deref().map(Control::listen).transpose()?;
        Ok(Self {
            names: file.ports().iter().map(|port| port.name.clone()).collect(),
            ports,
            shaped,
            driver: Driver::new(Clock::start(), args.poll.polling(Polling::Spin(SPIN))),
            control,
        })
    }

    /// Forwards until interrupted, with pauses for control requests and interval reports.
    fn forward(
        &mut self,
        args: &RunArgs,
        every: Option<Dur>,
        interrupt: &Interrupt,
    ) -> Result<(), Error> {
        let clock = self.driver.clock();
        let mut before = self.report();
        let mut next = every.map(|every| clock.now() + every);
        while !interrupt.is_set() {
            let mut pending = None;
            let Self { driver, shaped, ports, control, .. } = self;
            driver.run_ports_until(shaped, ports, |_| {
                pending = control.as_ref().and_then(Control::poll);
                pending.is_some() || interrupt.is_set() || next.is_some_and(|at| clock.now() >= at)
            })?;
            if let Some(pending) = pending {
                self.handle_request(pending);
            }
            if let (Some(at), Some(every)) = (next, every)
                && clock.now() >= at
            {
                let report = self.report();
                print_report(args.json, &report, |_| report.interval(&before))?;
                before = report;
                next = Some((at + every).max(clock.now()));
            }
        }
        Ok(())
    }

    fn handle_request(&mut self, pending: PendingRequest) {
        let reply = match &pending.request {
            Request::Show {} => {
                let report = self.report();
                Reply { text: report.to_text(), report: to_json(&report), error: None }
            }
            Request::Set { changes } => {
                let now = self.driver.clock().now();
                match set(&mut self.shaped, now, &self.names, changes) {
                    Ok(text) => Reply { text, report: to_json(&self.report()), error: None },
                    Err(error) => Reply { error: Some(error.to_string()), ..Reply::default() },
                }
            }
        };
        pending.answer(reply);
    }

    fn report(&self) -> SwitchReport {
        let clock = self.driver.clock();
        let at = (clock.now(), clock);
        SwitchReport::of(at, &self.names, &self.shaped, &self.ports, self.driver.counters())
    }
}

/// Opens a port that receives all frames of its interface.
fn open(port: &FilePort, preference: XdpPreference) -> Result<XdpPort, Error> {
    let FilePort { name, device } = port;
    let of = |e: Error| -> Error { format!("port.{name}: {e}").into() };
    let link = interface(device).map_err(of)?;
    let longest = link.mtu.saturating_add(ETHERNET_AND_VLAN_BYTES);
    if longest > PORT_FRAME_ROOM {
        let most = PORT_FRAME_ROOM - ETHERNET_AND_VLAN_BYTES;
        let mtu = link.mtu;
        return Err(format!("port.{name}: {device} has MTU {mtu}; a port carries {most}").into());
    }
    let small = usize_from(longest.into()) + XDP_HEADROOM_BYTES <= 2048;
    let config = XdpConfig {
        traffic: Traffic::All,
        preference,
        chunk: if small { 2048 } else { 4096 },
        // The rings must hold all frames that arrive while the core runs other work. They must also
        // hold a window of 1 Gbit/s x 20 ms that a sender sends in one burst.
        fill_size: 4096,
        rx_size: 4096,
        tx_size: 1024,
        completion_size: 1024,
        frames: 4096 + 1024 + 512,
        ..XdpConfig::new(device)
    };
    XdpPort::open(&config).map_err(|e| of(e.into()))
}

fn to_json(report: &SwitchReport) -> serde_json::Value {
    serde_json::to_value(report).unwrap_or_default()
}

/// Time to spin before sleeping. It is short, because the switch may share its core with the hosts
/// that it connects, which do not run while it spins.
const SPIN: Dur = Dur::from_us(5);

/// Ethernet header with a VLAN tag, which the MTU does not include.
const ETHERNET_AND_VLAN_BYTES: u32 = 18;

/// Headroom of the kernel before a received frame (`XDP_PACKET_HEADROOM`).
const XDP_HEADROOM_BYTES: usize = 256;
