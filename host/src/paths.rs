//! The paths that a connection's packets take.

use spanwire_base::Time;
use spanwire_loadbalance::{Balancer, Counters, PathReport};
use spanwire_transport::{Agreed, Balance, Endpoint, ErasureCoding};
use spanwire_wire::Qpn;

/// The paths of what one connection sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionPaths {
    /// The queue pair's number here.
    pub qpn: u32,
    /// What happened on all of them together.
    pub counters: Counters,
    /// The last 64 paths, the first used first.
    pub paths: Vec<PathReport>,
}

/// How a job's packets were sent, and the paths that they took.
#[derive(Clone, PartialEq, Debug)]
pub struct SentPaths {
    /// How the queue pairs spoke.
    pub agreed: Agreed,
    /// Erasure coding that was wanted.
    pub erasure: Option<ErasureCoding>,
    /// Load balancing that was wanted.
    pub balance: Option<Balance>,
    /// The paths of each queue pair that was told to balance.
    pub qps: Vec<ConnectionPaths>,
}

impl ConnectionPaths {
    /// Those of queue pair `qpn` as they are at `now`; `None` unless it was told to balance.
    #[must_use]
    pub fn look(endpoint: &Endpoint, qpn: Qpn, now: Time) -> Option<Self> {
        let balancer: &Balancer = endpoint.qp_paths(qpn)?;
        let paths = balancer.paths(now).collect();
        Some(Self { qpn: qpn.get(), counters: balancer.counters(), paths })
    }
}
