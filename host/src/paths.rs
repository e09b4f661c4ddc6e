//! The paths that a connection's packets take.

use spanwire_base::Time;
use spanwire_loadbalance::{Balancer, Counters, PathReport};
use spanwire_transport::{Agreed, Balance, Endpoint, ErasureCoding};
use spanwire_wire::Qpn;

/// The paths of one queue pair's packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionPaths {
    /// The number of the local queue pair.
    pub qpn: u32,
    /// Counters of all paths together.
    pub counters: Counters,
    /// The last 64 paths, in the order of their first use.
    pub paths: Vec<PathReport>,
}

/// How a job's packets were sent, and the paths that they took.
#[derive(Clone, PartialEq, Debug)]
pub struct SentPaths {
    /// Wire mode and its terms.
    pub agreed: Agreed,
    /// Configured erasure coding.
    pub erasure: Option<ErasureCoding>,
    /// Configured load balancing.
    pub balance: Option<Balance>,
    /// The paths of each queue pair with a load balancer.
    pub qps: Vec<ConnectionPaths>,
}

impl ConnectionPaths {
    /// The paths of queue pair `qpn` at `now`; `None` without a load balancer.
    #[must_use]
    pub fn look(endpoint: &Endpoint, qpn: Qpn, now: Time) -> Option<Self> {
        let balancer: &Balancer = endpoint.qp_paths(qpn)?;
        let paths = balancer.paths(now).collect();
        Some(Self { qpn: qpn.get(), counters: balancer.counters(), paths })
    }
}
