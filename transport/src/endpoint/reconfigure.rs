//! Another configuration for an endpoint that has no port yet.

use super::Endpoint;
use super::port_rate::PortPacer;
use crate::blocks::BlockMemory;
use crate::config::ValidConfig;
use crate::schedule::Schedule;
use spanwire_base::u32_from;
use std::fmt;

/// The reason why an endpoint was not reconfigured; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReconfigureError {
    /// A queue pair was created: it has the configuration before, and perhaps a port.
    HasQueuePairs,
    /// It is the endpoint of another worker: its queues have numbers of that one.
    OtherWorker,
    /// More is in use than this field of the new [`Config`](crate::Config) allows.
    InUse(&'static str),
}

impl Endpoint {
    /// Replaces the configuration, until the first queue pair is created. What exists stays as it
    /// is: protection domains, memory regions with their keys, completion queues and their
    /// completions, shared receive queues and what is posted to them.
    ///
    /// A program may open a device, query it and register memory while another process has the
    /// port. The port is chosen with the first queue pair, and only it determines the MTU, the
    /// windows and the limits of the tables.
    ///
    /// ```
    /// use spanwire_transport::{Access, Config, Endpoint, QpCaps, QpInit, ValidConfig};
    /// let mut endpoint = Endpoint::new(ValidConfig::default(), [7; 32]);
    /// let (pd, cq) = (endpoint.alloc_pd()?, endpoint.create_cq(16)?);
    /// let mr = endpoint.reg_mr(pd, spanwire_mem::Region::zeroed(64), Access::ALL, None)?;
    ///
    /// let of_the_port = Config { fragments: true, batches: true, ..Config::default() };
    /// endpoint.reconfigure(of_the_port.validate()?)?;
    /// endpoint.create_qp(&QpInit::new(pd, cq, cq, QpCaps::default()))?;
    /// assert!(endpoint.config().fragments);
    /// assert!(endpoint.reconfigure(ValidConfig::default()).is_err());
    /// # endpoint.dereg_mr(mr.lkey).unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`ReconfigureError`].
    pub fn reconfigure(&mut self, config: ValidConfig) -> Result<(), ReconfigureError> {
        if !self.qps.is_untouched() {
            return Err(ReconfigureError::HasQueuePairs);
        }
        if config.worker != self.shared.config.worker {
            return Err(ReconfigureError::OtherWorker);
        }
        let srqs = self.shared.srqs.queues.objects().map(|q| q.info().max_wr);
        let in_use = [
            ("max_pds", u32_from(self.pds.len()), config.max_pds),
            ("max_mrs", u32_from(self.shared.mrs.len()), config.max_mrs),
            ("max_cqs", u32_from(self.shared.cqs.queues.len()), config.max_cqs),
            ("max_srqs", u32_from(self.shared.srqs.queues.len()), config.max_srqs),
            ("max_cqe", self.shared.cqs.max_capacity(), config.max_cqe),
            ("max_wr", srqs.max().unwrap_or(0), config.max_wr),
        ];
        if let Some((field, ..)) = in_use.into_iter().find(|(_, used, allowed)| used > allowed) {
            return Err(ReconfigureError::InUse(field));
        }
        self.pds.set_capacity(config.max_pds);
        self.shared.mrs.set_capacity(config.max_mrs);
        self.shared.cqs.queues.set_capacity(config.max_cqs);
        self.shared.srqs.queues.set_capacity(config.max_srqs);
        self.qps.set_capacity(config.max_qps);
        self.shared.block_memory = BlockMemory::new(config.block_bytes_peer);
        self.schedule = Schedule::new(config.turn_bytes);
        self.port = PortPacer::new(&config);
        self.shared.config = config;
        Ok(())
    }
}

impl fmt::Display for ReconfigureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HasQueuePairs => {
                f.write_str("an endpoint with queue pairs keeps its configuration")
            }
            Self::OtherWorker => f.write_str("an endpoint stays with its worker"),
            Self::InUse(field) => write!(f, "more is in use than the new {field} allows"),
        }
    }
}

impl std::error::Error for ReconfigureError {}
