//! The engine objects of a channel.

use super::rings::Rings;
use crate::config::Shape;
use spanwire_host::queue_pair::{self, QpParams};
use spanwire_transport::{
    Access, CqId, CreateError, Endpoint, MemoryRegion, PdId, QpCaps, QpInit, RecvRequest,
};
use spanwire_wire::Qpn;

/// A protection domain and the objects in it.
///
/// With one domain per connection, the rkey of one connection's ring grants no access to the peer
/// of another: a WRITE with it is a remote access error (IBTA 10.2.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Objects {
    pd: PdId,
    pub(super) cq: CqId,
    pub(super) qpn: Qpn,
    /// Its number and first PSN, for the peer.
    pub(super) qp: QpParams,
    pub(super) send_mr: MemoryRegion,
    pub(super) receive_mr: MemoryRegion,
}

impl Objects {
    /// A queue pair in INIT for connections of `shape`, and `rings` registered.
    pub(super) fn new(
        endpoint: &mut Endpoint,
        shape: Shape,
        rings: &Rings,
    ) -> Result<Self, CreateError> {
        let pd = endpoint.alloc_pd()?;
        let made = Self::in_domain(endpoint, pd, shape, rings);
        made.inspect_err(|_| {
            endpoint.dealloc_pd(pd);
        })
    }

    fn in_domain(
        endpoint: &mut Endpoint,
        pd: PdId,
        shape: Shape,
        rings: &Rings,
    ) -> Result<Self, CreateError> {
        let requests = shape.fragments + CONTROLS_MAX;
        let caps = QpCaps { max_send_wr: requests, max_recv_wr: requests, ..QpCaps::default() };
        let access = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE);
        // The peer may write to the receive ring, not to the send ring.
        let receive_mr = endpoint.reg_mr(pd, rings.receive.clone(), access, IOVA)?;
        let undo = |endpoint: &mut Endpoint, mrs: &[MemoryRegion]| {
            for mr in mrs {
                let _ = endpoint.dereg_mr(mr.lkey);
            }
        };
        let send_mr = endpoint
            .reg_mr(pd, rings.send.clone(), Access::LOCAL_WRITE, IOVA)
            .inspect_err(|_| undo(endpoint, &[receive_mr]))?;
        let mrs = [receive_mr, send_mr];
        let cq = endpoint.create_cq(2 * requests).inspect_err(|_| undo(endpoint, &mrs))?;
        let made = queue_pair::create(endpoint, &QpInit::new(pd, cq, cq, caps), access);
        let qp = made.inspect_err(|_| {
            endpoint.destroy_cq(cq);
            undo(endpoint, &mrs);
        })?;
        Ok(Self { pd, cq, qpn: Qpn::new(qp.qpn), qp, send_mr, receive_mr })
    }

    /// Destroys the objects.
    pub(super) fn remove(&self, endpoint: &mut Endpoint) {
        endpoint.destroy_qp(self.qpn);
        endpoint.destroy_cq(self.cq);
        for mr in [self.send_mr, self.receive_mr] {
            // Cannot fail, because the key is deregistered only here.
            let _ = endpoint.dereg_mr(mr.lkey);
        }
        let is_free = endpoint.dealloc_pd(self.pd);
        debug_assert!(is_free, "nothing else was made in the connection's domain");
    }
}

/// Rings have the virtual address 0, so that the peer learns no address of this process.
const IOVA: Option<u64> = Some(0);

/// A receive request without memory: a WRITE with immediate data consumes it.
pub(super) const NOTHING: RecvRequest<'static> = RecvRequest { wr_id: 0, sges: &[] };

/// Limit of control messages in flight in each direction: the credits below, one `Finish` and one
/// `Drained`.
pub(super) const CONTROLS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use spanwire_transport::{Config as EngineConfig, ValidConfig};

    const SHAPE: Shape =
        Shape { ring_bytes: 4096, fragment_bytes: 1000, fragments: 16, max_message_bytes: 3000 };

    fn engine(config: EngineConfig) -> Endpoint {
        Endpoint::new(config.validate().unwrap(), [1; 32])
    }

    fn rings() -> Rings {
        Rings::new(SHAPE.ring_bytes).unwrap()
    }

    #[test]
    fn new__discloses_no_address_of_this_process() {
        let mut endpoint = engine(EngineConfig::default());
        let made = Objects::new(&mut endpoint, SHAPE, &rings()).unwrap();
        assert_eq!((made.receive_mr.addr, made.send_mr.addr), (0, 0));
    }

    #[test]
    fn remove__destroys_all_objects() {
        let one =
            EngineConfig { max_qps: 1, max_cqs: 1, max_pds: 1, max_mrs: 2, ..engine_config() };
        let mut endpoint = engine(one);
        for _ in 0..3 {
            let made = Objects::new(&mut endpoint, SHAPE, &rings()).unwrap();
            let e = Objects::new(&mut endpoint, SHAPE, &rings()).unwrap_err();
            assert_eq!(e, CreateError::Limit("max_pds"));
            made.remove(&mut endpoint);
        }
    }

    #[test]
    fn new__an_error_at_any_step_leaves_no_object() {
        for (limit, field) in [
            (EngineConfig { max_qps: 1, ..engine_config() }, "max_qps"),
            (EngineConfig { max_cqs: 1, ..engine_config() }, "max_cqs"),
            (EngineConfig { max_mrs: 2, ..engine_config() }, "max_mrs"),
            (EngineConfig { max_mrs: 3, ..engine_config() }, "max_mrs"),
        ] {
            let mut endpoint = engine(EngineConfig { max_pds: 2, ..limit });
            let first = Objects::new(&mut endpoint, SHAPE, &rings()).unwrap();
            for _ in 0..3 {
                let e = Objects::new(&mut endpoint, SHAPE, &rings()).unwrap_err();
                assert_eq!(e, CreateError::Limit(field));
            }
            first.remove(&mut endpoint);
            Objects::new(&mut endpoint, SHAPE, &rings()).unwrap();
        }
    }

    #[test]
    fn default__the_engine_has_room_for_as_many_connections_as_a_network() {
        let (engine, network) = (ValidConfig::default(), Config::default());
        let least = [engine.max_qps, engine.max_cqs, engine.max_pds, engine.max_mrs / 2];
        assert!(least.iter().all(|limit| *limit >= network.max_connections), "{least:?}");
    }

    fn engine_config() -> EngineConfig {
        EngineConfig::default()
    }
}
