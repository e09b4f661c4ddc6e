//! The endpoint itself: many queue pairs that always have data to write.

use super::load::CATCH_UP;
use crate::sample::Error;
use spanwire_base::{Dur, Node, PortId, Rate, RxMeta, Time};
use spanwire_cc::Algorithm;
use spanwire_transport::{
    Access, AddressVector, Config, CongestionControl, CqId, Endpoint, MemoryRegion, Mtu, Preset,
    QpAttr, QpCaps, QpInit, RemoteAddr, Sge, WcStatus, WorkRequest, WrOp,
};
use spanwire_wire::{MacAddr, Psn, Qpn};

/// The maximum of an endpoint is between this and a hundred thousand.
pub const QPS_MAX: u32 = 1 << 16;

/// Two directly connected endpoints; the first writes to the second on all queue pairs.
pub struct Flows {
    ends: [End; 2],
    frame: Vec<u8>,
    now: Time,
    /// Data packets that left the first end.
    sent: u64,
}

struct End {
    ep: Endpoint,
    cq: CqId,
    mr: MemoryRegion,
    qpns: Vec<Qpn>,
}

impl Flows {
    /// `qps` queue pairs, each paced to `rate` if there is one, with a message posted on each.
    ///
    /// # Errors
    /// The engine rejects the configuration.
    pub fn new(qps: u32, rate: Option<Rate>) -> Result<Self, Error> {
        let mut algorithm = Algorithm::named("fixed")?;
        if let Some(rate) = rate {
            algorithm.set("rate_mbps", &(rate.as_bps() as f64 / 1e6).to_string())?;
        }
        let congestion = CongestionControl {
            algorithm: Some(algorithm),
            base_rtt: Some(Dur::from_us(10)),
            preset: Preset::Paper,
            ..CongestionControl::NONE
        };
        let mut ends = [End::new(1, qps)?, End::new(2, qps)?];
        for q in 0..usize::try_from(qps)? {
            let qpns = [ends[0].qpns[q], ends[1].qpns[q]];
            for (me, peer) in [(0_u8, 1_u8), (1, 0)] {
                let av = AddressVector::new(
                    MacAddr::new([2, 0, 0, 0, 0, me]),
                    MacAddr::new([2, 0, 0, 0, 0, peer]),
                    [10, 0, 0, me].into(),
                    [10, 0, 0, peer].into(),
                );
                let [mine, theirs] = [me, peer].map(usize::from);
                let rtr = QpAttr::rtr(qpns[theirs], Psn::new(0), Mtu::B1024, av);
                let mut rts = QpAttr::rts(Psn::new(0));
                rts.congestion = Some(congestion);
                for attr in [QpAttr::init(Access::ALL), rtr, rts] {
                    ends[mine].ep.modify_qp(qpns[mine], &attr)?;
                }
            }
        }
        let mut flows = Self { ends, frame: vec![0; 8192], now: Time::ZERO, sent: 0 };
        for q in 0..usize::try_from(qps)? {
            flows.post(q)?;
        }
        Ok(flows)
    }

    /// Lets at least `count` data packets leave and arrive, and returns how many did.
    ///
    /// # Errors
    /// A message fails.
    pub fn packets(&mut self, count: u64) -> Result<u64, Error> {
        let before = self.sent;
        while self.sent - before < count {
            self.turn();
            while let Some(wc) = self.ends[0].ep.poll_cq(self.ends[0].cq)? {
                if wc.status != WcStatus::Success {
                    return Err(wc.status.name().into());
                }
                self.post(usize::try_from(wc.wr_id)?)?;
            }
        }
        Ok(self.sent - before)
    }

    /// The simulated time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Dur {
        self.now.since(Time::ZERO)
    }

    /// Advances to the next due time, and lets each side send what it may.
    fn turn(&mut self) {
        let due = self.ends.iter().filter_map(|end| end.ep.poll_timeout()).min();
        let latest = self.now + CATCH_UP / 4;
        self.now = due.map_or(latest, |due| due.clamp(self.now + Dur::from_ps(1), latest));
        for end in &mut self.ends {
            end.ep.handle_timeout(self.now);
        }
        for (from, to) in [(0, 1), (1, 0)] {
            for _ in 0..PACKETS_PER_TURN {
                let sender = &mut self.ends[from].ep;
                let Some(meta) = sender.poll_transmit(self.now, PortId::HOST, &mut self.frame)
                else {
                    break;
                };
                self.sent += u64::from(from == 0);
                let frame = &self.frame[..meta.len];
                self.ends[to].ep.handle_packet(
                    self.now,
                    PortId::HOST,
                    frame,
                    RxMeta::whole(self.now),
                );
            }
        }
    }

    fn post(&mut self, q: usize) -> Result<(), Error> {
        let peer = self.ends[1].mr;
        let op =
            WrOp::Write { remote: RemoteAddr { va: peer.addr, rkey: peer.rkey.ok_or("a key")? } };
        let end = &mut self.ends[0];
        let sges = [Sge { addr: end.mr.addr, len: MESSAGE_BYTES, lkey: end.mr.lkey }];
        let wr = WorkRequest::new(u64::try_from(q)?, op, &sges);
        Ok(end.ep.post_send(end.qpns[q], &wr)?)
    }
}

impl End {
    fn new(seed: u8, qps: u32) -> Result<Self, Error> {
        let config = Config {
            max_qps: qps,
            max_cqe: 2 * qps.max(32),
            // No window but each queue pair's own, and a turn for each packet, paced or not.
            endpoint_window_pkts: 1 << 24,
            turn_bytes: 1024,
            line_rate: Rate::from_gbps(400),
            ..Config::default()
        };
        let mut ep = Endpoint::new(config.validate()?, [seed; 32]);
        let pd = ep.alloc_pd()?;
        let cq = ep.create_cq(2 * qps.max(32))?;
        let region = spanwire_mem::Region::zeroed(usize::try_from(MESSAGE_BYTES)?);
        let mr = ep.reg_mr(pd, region, Access::ALL, Some(1 << 20))?;
        let caps = QpCaps { max_send_wr: 2, max_recv_wr: 0, ..QpCaps::default() };
        let qpns = (0..qps)
            .map(|_| ep.create_qp(&QpInit::new(pd, cq, cq, caps)))
            .collect::<Result<_, _>>()?;
        Ok(Self { ep, cq, mr, qpns })
    }
}

/// Sixteen packets, the last of which requests an acknowledgement.
const MESSAGE_BYTES: u32 = 16_384;
/// Packets that a worker sends before it polls for received ones.
const PACKETS_PER_TURN: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets__paced_ones_take_the_time_of_their_rate() {
        let mut flows = Flows::new(10, Some(Rate::from_gbps(1))).unwrap();
        flows.packets(1000).unwrap();
        let before = flows.elapsed();
        let sent = flows.packets(10_000).unwrap();
        // 1106 bytes at 10 Gbit/s are 885 ns.
        let per_packet = (flows.elapsed() - before).as_ps() / sent;
        assert!((870_000..900_000).contains(&per_packet), "{per_packet} ps");
    }

    #[test]
    fn new__as_many_as_an_endpoint_can_have() {
        assert!(End::new(1, QPS_MAX).is_ok());
        assert!(End::new(1, QPS_MAX + 1).is_err());
    }

    #[test]
    fn packets__without_a_rate_nothing_waits_for_it() {
        let mut flows = Flows::new(10, None).unwrap();
        let sent = flows.packets(10_000).unwrap();
        assert!(flows.elapsed().as_ps() / sent < 100_000);
    }
}
