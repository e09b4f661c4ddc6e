//! The endpoint itself: many queue pairs that always have data to write.

use super::load::CATCH_UP;
use crate::ends::{End, Ends, fixed_rate};
use crate::sample::Error;
use spanwire_base::{Dur, Node, PortId, Rate, RxMeta, Time};
use spanwire_transport::{Config, Mtu, QpCaps, RemoteAddr, Sge, WcStatus, WorkRequest, WrOp};

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

impl Flows {
    /// `qps` queue pairs, each paced to `rate` if there is one, with a message posted on each.
    ///
    /// # Errors
    /// The engine rejects the configuration.
    pub fn new(qps: u32, rate: Option<Rate>) -> Result<Self, Error> {
        let mbps = rate.map(|rate| rate.as_bps() as f64 / 1e6);
        let congestion = Some(fixed_rate(mbps, Some(Dur::from_us(10)))?);
        let ends = setup(qps)?.connect(|_, rts| rts.congestion = congestion)?;
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
                let rx = RxMeta::whole(self.now);
                self.ends[to].ep.handle_packet(self.now, PortId::HOST, frame, &rx);
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

fn setup(qps: u32) -> Result<Ends, Error> {
    let cqe = 2 * qps.max(32);
    let config = Config {
        max_qps: qps,
        max_cqe: cqe,
        // No window but each queue pair's own, and a turn for each packet, paced or not.
        endpoint_window_pkts: 1 << 24,
        turn_bytes: 1024,
        line_rate: Rate::from_gbps(400),
        ..Config::default()
    };
    let caps = QpCaps { max_send_wr: 2, max_recv_wr: 0, ..QpCaps::default() };
    let (qps, bytes) = (usize::try_from(qps)?, MESSAGE_BYTES.into());
    Ok(Ends { config, qps, caps, cqe, bytes, mtu: Mtu::B1024 })
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
        assert!(setup(QPS_MAX).unwrap().end(1).is_ok());
        assert!(setup(QPS_MAX + 1).unwrap().end(1).is_err());
    }

    #[test]
    fn packets__without_a_rate_nothing_waits_for_it() {
        let mut flows = Flows::new(10, None).unwrap();
        let sent = flows.packets(10_000).unwrap();
        assert!(flows.elapsed().as_ps() / sent < 100_000);
    }
}
