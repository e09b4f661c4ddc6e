//! Two endpoints with connected queue pairs, in one process and without I/O.

use crate::sample::Error;
use spanwire_base::{Dur, usize_from};
use spanwire_cc::Algorithm;
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, Config, CongestionControl, CqId, Endpoint, MemoryRegion, Mtu, Preset,
    QpAttr, QpCaps, QpInit,
};
use spanwire_wire::{MacAddr, Psn, Qpn};

/// One of them.
pub(crate) struct End {
    pub(crate) ep: Endpoint,
    pub(crate) cq: CqId,
    pub(crate) qpns: Vec<Qpn>,
    /// Memory that the peer may access.
    pub(crate) mr: MemoryRegion,
}

/// The configuration of both.
pub(crate) struct Ends {
    pub(crate) config: Config,
    pub(crate) qps: usize,
    pub(crate) caps: QpCaps,
    /// Entries of the completion queue.
    pub(crate) cqe: u32,
    /// Bytes of the memory.
    pub(crate) bytes: u64,
    pub(crate) mtu: Mtu,
}

impl Ends {
    /// Makes and connects them, with the common attributes as `change` leaves them.
    ///
    /// # Errors
    /// The engine rejects the configuration.
    pub(crate) fn connect(
        self,
        change: impl Fn(&mut QpAttr, &mut QpAttr),
    ) -> Result<[End; 2], Error> {
        let mut ends = [self.end(1)?, self.end(2)?];
        for (me, peer) in [(0_u8, 1_u8), (1, 0)] {
            let mac = |n| MacAddr::new([2, 0, 0, 0, 0, n]);
            let ip = |n| [10, 0, 0, n].into();
            let av = AddressVector::new(mac(me), mac(peer), ip(me), ip(peer));
            for n in 0..self.qps {
                let remote = ends[usize::from(peer)].qpns[n];
                let mut rtr = QpAttr::rtr(remote, Psn::new(0), self.mtu, av);
                let mut rts = QpAttr::rts(Psn::new(0));
                change(&mut rtr, &mut rts);
                let End { ep, qpns, .. } = &mut ends[usize::from(me)];
                for attr in [QpAttr::init(Access::ALL), rtr, rts] {
                    ep.modify_qp(qpns[n], &attr)?;
                }
            }
        }
        Ok(ends)
    }

    pub(crate) fn end(&self, seed: u8) -> Result<End, Error> {
        let mut ep = Endpoint::new(self.config.clone().validate()?, [seed; 32]);
        let pd = ep.alloc_pd()?;
        let cq = ep.create_cq(self.cqe)?;
        let mr =
            ep.reg_mr(pd, Region::zeroed(usize_from(self.bytes)), Access::ALL, Some(1 << 20))?;
        let init = QpInit::new(pd, cq, cq, self.caps);
        let qpns = (0..self.qps).map(|_| ep.create_qp(&init)).collect::<Result<_, _>>()?;
        Ok(End { ep, cq, qpns, mr })
    }
}

/// Congestion control that sends at a constant rate of `mbps` 10^6 bits a second, or at that of the
/// line.
pub(crate) fn fixed_rate(
    mbps: Option<f64>,
    base_rtt: Option<Dur>,
) -> Result<CongestionControl, Error> {
    let mut algorithm = Algorithm::named("fixed")?;
    if let Some(mbps) = mbps {
        algorithm.set("rate_mbps", &mbps.to_string())?;
    }
    let (algorithm, preset) = (Some(algorithm), Preset::Paper);
    Ok(CongestionControl { algorithm, base_rtt, preset, ..CongestionControl::NONE })
}
