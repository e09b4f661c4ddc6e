//! Ports for several workers: a queue of the interface each.

use super::{
    Attachment, Error, Fabric, HopResolver, Terms, Wrap, around, interface, ip_room, widest,
};
use spanwire_base::{u32_from, usize_from};
use spanwire_io::clock::Clock;
use spanwire_io::net::{Ethtool, LinkInfo};
use spanwire_io::port::Port;
use spanwire_io::steered::{Handover, Owner, SteeredPort};
use spanwire_io::worker::Bell;
use spanwire_io::xdp::{XdpConfig, XdpDevice, XdpError, XdpPort, memlock_bytes};
use spanwire_transport::QpnWorkers;
use spanwire_wire::{peek_dest_qp, peek_dest_qp_word};
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
        let steer = |(worker, Self { port, terms }): (usize, Self)| Self {
            port: Box::new(SteeredPort::new(
                port,
                Arc::clone(&handover),
                worker,
                QpnOwner::new(qpns, worker),
            )),
            terms,
        };
        ports.into_iter().enumerate().map(steer).collect()
    }
}

/// Finds the worker of a frame by its destination QPN.
struct QpnOwner {
    qpns: QpnWorkers,
    /// The bits of the word in a frame that are the worker's number, and that of the port's worker
    /// there. Both are in network order.
    mask: u32,
    own: u32,
}

impl QpnOwner {
    fn new(qpns: QpnWorkers, worker: usize) -> Self {
        let (shift, mask) = qpns.shift_and_mask();
        let in_frame = |bits: u32| u32::from_ne_bytes((bits << shift).to_be_bytes());
        Self { qpns, mask: in_frame(mask), own: in_frame(u32_from(worker)) }
    }
}

impl Owner for QpnOwner {
    fn owner(&self, frame: &[u8]) -> usize {
        peek_dest_qp(frame).map_or(0, |qpn| usize_from(self.qpns.worker_of(qpn).into()))
    }

    #[inline]
    fn is_own(&self, frame: &[u8]) -> bool {
        peek_dest_qp_word(frame)
            .is_some_and(|word| u32::from_ne_bytes(word) & self.mask == self.own)
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
    use spanwire_transport::Config;

    #[test]
    fn is_own__is_true_of_the_frames_of_the_owner_only() {
        for workers in [2, 3, 16] {
            let config = Config::default().validate().unwrap();
            let qpns = config.of_worker(0, workers).unwrap().qpn_workers();
            let owners = [0, 1, 15].map(|worker| (worker, QpnOwner::new(qpns, worker)));
            for (kind, at, len) in [([8, 0], 46, 54), ([0x86, 0xdd], 66, 74)] {
                for bit in 0..32 {
                    // Any reserved byte before the number.
                    let mut frame = vec![0; len];
                    frame[12..14].copy_from_slice(&kind);
                    frame[at..at + 4].copy_from_slice(&(0x5000_0000_u32 ^ 1 << bit).to_be_bytes());
                    for (worker, owner) in &owners {
                        assert_eq!(owner.is_own(&frame), owner.owner(&frame) == *worker, "{bit}");
                        assert!(!owner.is_own(&frame[..len - 1]), "the first one has those");
                    }
                }
            }
            assert_eq!(owners[1].1.owner(&[0; 80]), 0, "neither IPv4 nor IPv6");
        }
    }

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
