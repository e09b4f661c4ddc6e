//! The hosts of one MTU.

use super::flow;
use super::plan::{Plan, Variant};
use super::subject::Subject;
use crate::engine;
use crate::raw::{self, Blast};
use crate::rtt;
use crate::sample::{Error, Sample};
use crate::tcp::{self, Bulk};
use crate::udp;
use spanwire_base::{u32_from, usize_from};
use spanwire_io::net::{LabConfig, Offloads, TwoHosts};
use std::time::Duration;

/// Two pairs of hosts on veth pairs of one MTU. An XDP program at one end of a veth pair disables
/// the segmentation offload of the other, and the steering program takes RoCEv2's port, so kernel
/// TCP and UDP have a pair of their own, with veth's own default of no queue.
pub(super) struct Lab {
    link_mtu: u32,
    ports: TwoHosts,
    kernel: TwoHosts,
    /// The reason why AF_XDP cannot be used on this link.
    no_af_xdp: Option<String>,
}

impl Lab {
    /// Creates the hosts, and tries AF_XDP on them.
    ///
    /// # Errors
    /// No privilege, or no AF_XDP at an MTU whose frames fit one buffer.
    pub(super) fn new(link_mtu: u32) -> Result<Self, Error> {
        let config = LabConfig { mtu: link_mtu, ..LabConfig::default() };
        let ports = TwoHosts::anonymous(&config)?;
        let no_af_xdp = match raw::open_ports(&ports, false) {
            Ok(_) => None,
            Err(why) if link_mtu <= ONE_BUFFER_MTU => return Err(why),
            Err(why) => Some(why.to_string()),
        };
        let kernel = TwoHosts::anonymous(&LabConfig { pfifo: None, ..config })?;
        Ok(Self { link_mtu, ports, kernel, no_af_xdp })
    }

    pub(super) fn link_mtu(&self) -> u32 {
        self.link_mtu
    }

    /// The reason why `subject` cannot be measured here.
    pub(super) fn obstacle(&self, subject: Subject) -> Option<String> {
        self.no_af_xdp.clone().filter(|_| subject.is_af_xdp())
    }

    /// One sample.
    ///
    /// # Errors
    /// It fails.
    pub(super) fn measure(&self, plan: &Plan, variant: Variant) -> Result<Sample, Error> {
        let (cores, time) = (plan.cores(), Duration::from_millis(plan.ms));
        let payload = usize_from(variant.path_mtu.into());
        let hosts = if variant.subject.is_af_xdp() { &self.ports } else { &self.kernel };
        if !variant.subject.is_af_xdp() {
            tcp::set_offloads(&self.kernel, &Offloads::ON)?;
        }
        match variant.subject {
            Subject::Raw { touch, window } => {
                raw::blast(hosts, cores, Blast { payload, touch, window, time })
            }
            Subject::RawUdp { source_bytes } => {
                let source_bytes = usize_from(source_bytes.into());
                udp::blast(hosts, cores, (variant.link_mtu, source_bytes), time)
            }
            Subject::Write(flow) => flow::measure(hosts, cores, flow, time),
            Subject::Engine(op) => {
                engine::run(hosts, cores, engine::bandwidth(op, variant.path_mtu, time))
            }
            Subject::Tcp { offloads } => {
                let offloads = if offloads { Offloads::ON } else { Offloads::OFF };
                let bulk = Bulk { bytes: tcp::CHUNK_BYTES, bps: None, time };
                tcp::stream(hosts, cores, &offloads, bulk)
            }
            Subject::RawPing { side_poll } => {
                rtt::ping_pong(hosts, cores, PING_BYTES, side_poll, time)
            }
            Subject::EnginePing(op) => {
                let job = engine::latency(op, u32_from(PING_BYTES), variant.path_mtu, time);
                engine::run(hosts, cores, job)
            }
            Subject::Cpu(paced) => {
                paced.measure(plan.common.path(), hosts, cores, time * PROCESS_TIMES)
            }
            Subject::TcpPing(wait) => tcp::ping_pong(hosts, cores, PING_BYTES, wait, time),
        }
    }
}

/// Bytes of a small message.
pub const PING_BYTES: usize = 64;
/// How many times as long a sample of processes takes: they sleep, so less happens in a time.
pub(super) const PROCESS_TIMES: u32 = 4;
/// The largest MTU whose frames fit one AF_XDP buffer on a veth pair.
const ONE_BUFFER_MTU: u32 = 3506;
