//! Ports for several workers: a queue of the interface each.

use super::{
    Attachment, Error, Fabric, HopResolver, Terms, Wrap, around, interface, ip_room, widest,
};
use spanwire_base::usize_from;
use spanwire_io::clock::Clock;
use spanwire_io::net::{Ethtool, LinkInfo};
use spanwire_io::port::Port;
use spanwire_io::steered::{Handover, SteeredPort};
use spanwire_io::worker::Bell;
use spanwire_io::xdp::{XdpConfig, XdpDevice, XdpError, XdpPort, memlock_bytes};
use spanwire_transport::QpnWorkers;
use spanwire_wire::peek_dest_qp;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

impl Attachment {
    /// Attaches to `workers` queues of an interface by AF_XDP, from that of `config` on, in the
    /// network namespace of the calling thread. They have one steering program and one clock. The
    /// wrappers of each are [`Wrap::of_worker`].
    ///
    /// # Errors
    /// As [`Attachment::xdp_with`], and the interface has fewer queues, or the limit of locked
    /// memory has room for fewer ports.
    pub fn xdp_workers(config: &XdpConfig, wrap: &Wrap, workers: u32) -> Result<Vec<Self>, Error> {
        config.validate()?;
        let XdpConfig { ifname, queue, traffic, preference, .. } = config;
        let info = interface(ifname)?;
        if workers > 1 {
            check_queues(&info, *queue, workers)?;
        }
        let end = queue.saturating_add(workers);
        let device = XdpDevice::attach(ifname, end, *traffic, *preference)?;
        let clock = Clock::start();
        let open = |config: &XdpConfig| -> Result<Vec<Self>, Error> {
            let on = |(queue, worker)| {
                let config = XdpConfig { queue, ..config.clone() };
                xdp_on(&device, &config, &info, &wrap.of_worker(worker, workers), clock)
            };
            (*queue..end).zip(0..).map(on).collect()
        };
        match open(config) {
            // The first ports have taken what the last one lacks: each gets an equal part.
            Err(e) if workers > 1 && is_memlock(&e) => {
                let limit = memlock_bytes().unwrap_or(u64::MAX);
                let equal = config.within(limit / u64::from(workers)).ok_or_else(|| {
                    let kib = limit >> 10;
                    format!("{e}; {workers} workers share the limit of {kib} KiB: fewer --workers")
                })?;
                open(&equal)
            }
            opened => opened,
        }
    }
}

/// True if the limit of locked memory is the cause.
fn is_memlock(e: &Error) -> bool {
    matches!(e.downcast_ref(), Some(XdpError::Socket(of)) if of.is_memlock())
}

impl Attachment {
    /// The ports of several workers of one process, whose endpoints have the QPNs of `qpns`: each
    /// also delivers the frames of its worker that arrive at the others, which ring the bell of the
    /// same place. A single worker has its port as it is.
    #[must_use]
    pub fn steered(ports: Vec<Self>, bells: &[Arc<Bell>], qpns: QpnWorkers) -> Vec<Self> {
        if ports.len() < 2 {
            return ports;
        }
        let room = ports.iter().map(|port| port.port.frame_room()).max().unwrap_or(0);
        let handover = Handover::new(bells.to_vec(), room);
        let owner = move |frame: &[u8]| {
            peek_dest_qp(frame).map_or(0, |qpn| usize_from(qpns.worker_of(qpn).into()))
        };
        let steer = |(worker, Self { port, terms }): (usize, Self)| Self {
            port: Box::new(SteeredPort::new(port, Arc::clone(&handover), worker, owner)),
            terms,
        };
        ports.into_iter().enumerate().map(steer).collect()
    }
}

/// Attaches to the queue of `config` of an interface with an attached program.
fn xdp_on(
    device: &Arc<XdpDevice>,
    config: &XdpConfig,
    info: &LinkInfo,
    wrap: &Wrap,
    clock: Clock,
) -> Result<Attachment, Error> {
    let port = XdpPort::open_on(device, config)?;
    let path_mtu = widest(info.mtu, port.frame_room())
        .ok_or_else(|| format!("{}: MTU {} is too small for RoCEv2", info.name, info.mtu))?;
    let ip_bytes = info.mtu.min(ip_room(port.frame_room()));
    let mode = port.mode().as_str();
    let (port, capture) = around(port, wrap, clock)?;
    let terms = Terms {
        clock,
        fabric: Fabric::AfXdp,
        fallback: None,
        xdp_mode: Some(mode),
        path_mtu,
        receive_buffer: None,
        ip_bytes,
        capture,
        // On a veth, the sender's queue is the receiver's.
        rss: info.kind.as_deref() != Some("veth"),
        icrc: true,
        ifindex: Some(info.ifindex),
        resolver: HopResolver::Kernel { ifindex: info.ifindex },
    };
    Ok(Attachment { port, terms })
}

/// Checks that the interface has queues for all workers.
fn check_queues(info: &LinkInfo, first: u32, workers: u32) -> Result<(), Error> {
    let channels = Ethtool::open().and_then(|ethtool| ethtool.channels(&info.name)).ok();
    let (rx, tx) = channels.map_or((info.rx_queues, info.tx_queues), |c| (c.rx, c.tx));
    let (has, needs) = (rx.min(tx), first.saturating_add(workers));
    if has >= needs {
        return Ok(());
    }
    let name = &info.name;
    let most = channels.map_or(has, |c| c.rx_max.min(c.tx_max));
    let remedy = match channels.is_some_and(|c| c.combined) {
        _ if most < needs => format!("it can have {most}: fewer --workers"),
        true => format!("ethtool -L {name} combined {needs}"),
        false => format!("ethtool -L {name} rx {needs} tx {needs}"),
    };
    let last = needs - 1;
    Err(format!(
        "{workers} workers need a queue each ({first} to {last}), and {name} has {has}: {remedy}"
    )
    .into())
}

impl Wrap {
    /// The wrappers of worker `worker` of `workers`: with several, each has a capture of its own,
    /// with its number before the extension, and the next seed of faults.
    #[must_use]
    pub fn of_worker(&self, worker: u32, workers: u32) -> Self {
        let mut own = self.clone();
        if workers > 1 {
            own.pcap = own.pcap.map(|path| {
                let extension = path.extension().unwrap_or_default();
                let mut name = OsString::from(format!("{worker}."));
                name.push(extension);
                Path::new(&path).with_extension(name)
            });
            if let Some(faults) = &mut own.faults {
                faults.seed = faults.seed.wrapping_add(worker.into());
            }
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_io::fault::FaultConfig;

    #[test]
    fn of_worker__each_has_its_capture_and_its_seed() {
        let faults = Some(FaultConfig { seed: 5, ..FaultConfig::default() });
        let wrap = Wrap { faults, pcap: Some("dir/run.pcap".into()) };
        let own = wrap.of_worker(1, 2);
        assert_eq!(own.pcap.as_deref(), Some(Path::new("dir/run.1.pcap")));
        assert_eq!(own.faults.map(|faults| faults.seed), Some(6));
        let only = wrap.of_worker(0, 1);
        assert_eq!(only.pcap, wrap.pcap);
    }
}
