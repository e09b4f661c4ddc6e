//! Flow statistics of a job: window, rate, RTT, marks, and what limits the flows.

use crate::congestion::FlowCongestion;
use serde::Serialize;
use spanwire_base::{Dur, Time};
use spanwire_transport::{Config, Endpoint, FlowLimit, LimitTimes, Mtu};
use spanwire_wire::Qpn;

/// Totals over the flows of a job's queue pairs at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flows {
    /// The time.
    pub at: Time,
    qps: u32,
    /// Queue pairs with congestion control, and those with a rate.
    controlled: u32,
    paced: u32,
    cwnd_bytes: u64,
    rate_bps: u64,
    /// Sum of smoothed RTTs, and the number of queue pairs with one.
    srtt: Dur,
    timed: u32,
    delivered_bytes: u64,
    marked_bytes: u64,
    /// CNPs received.
    cnps: u64,
    times: [Dur; FlowLimit::ALL.len()],
    /// How long the port's transmit ring was full while packets were ready.
    port_full: Dur,
    /// The congestion control of the first queue pair.
    congestion: Option<FlowCongestion>,
    is_rc: bool,
}

/// Flow statistics of an interval, for reports. Over several queue pairs, windows and rates are
/// sums; RTTs and fractions are means.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FlowRow {
    /// Congestion window in payload bytes, at the end.
    pub cwnd_bytes: u64,
    /// Rate at the end; null if only the window limits.
    pub rate_gbps: Option<f64>,
    /// Smoothed RTT at the end; null without a sample.
    pub srtt_us: Option<f64>,
    /// Marked fraction of acknowledged bytes, 0 to 1. Null without congestion control, and in RC,
    /// which reports `cnps` instead.
    pub marked: Option<f64>,
    /// CNPs received (RC).
    pub cnps: u64,
    /// The largest of `limited`; null without congestion control.
    pub limited_by: Option<&'static str>,
    /// Fractions of time spent in each limit; null without congestion control.
    pub limited: Option<Shares>,
    /// The signals of congestion control at the end.
    #[serde(skip)]
    pub congestion: Option<FlowCongestion>,
}

/// Fractions of time spent in each limit; their sum is one.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Shares {
    /// The congestion window was full.
    pub window: f64,
    /// The pacer delayed packets that the window allowed.
    pub pacer: f64,
    /// The peer had no receive request, or no room for packets beyond a gap.
    pub receiver: f64,
    /// The port's transmit ring was full.
    pub ring: f64,
    /// Packets were ready, but the worker was busy.
    pub cpu: f64,
    /// Nothing was posted.
    pub application: f64,
    /// The window that all queue pairs of the endpoint share was full.
    pub endpoint: f64,
}

impl Flows {
    /// Totals over the flows `qpns` at `now`. The port has been full for `port_full` so far.
    pub(super) fn of(
        now: Time,
        ep: &Endpoint,
        config: &Config,
        qpns: &[Qpn],
        port_full: Dur,
    ) -> Self {
        let cnps = ep.counters().rp_cnp_handled;
        let mut sum = Self { at: now, cnps, port_full, ..Self::default() };
        for info in qpns.iter().filter_map(|qpn| ep.query_qp(*qpn)) {
            sum.qps += 1;
            if let Some(srtt) = info.srtt {
                (sum.srtt, sum.timed) = (sum.srtt + srtt, sum.timed + 1);
            }
            let mtu = info.attr.path_mtu.map_or(0, Mtu::bytes);
            let sr = info.attr.sr();
            let packet = sr.and_then(|sr| sr.segment_bytes).unwrap_or(mtu);
            sum.is_rc |= sr.is_none();
            let own = u64::from(config.qp_window_pkts) * u64::from(packet);
            let Some(flow) = info.flow else {
                sum.cwnd_bytes += own;
                continue;
            };
            sum.controlled += 1;
            sum.congestion.get_or_insert_with(|| FlowCongestion::from(&flow));
            sum.cwnd_bytes += flow.cwnd_bytes.min(own);
            sum.delivered_bytes += flow.delivered_bytes;
            sum.marked_bytes += flow.marked_bytes;
            if let Some(rate) = flow.rate {
                (sum.rate_bps, sum.paced) = (sum.rate_bps + rate.as_bps(), sum.paced + 1);
            }
            sum.add_times(&flow.times_at(now));
        }
        sum
    }

    fn add_times(&mut self, times: &LimitTimes) {
        for limit in FlowLimit::ALL {
            let sum = &mut self.times[limit as usize];
            *sum = *sum + times.by(limit);
        }
    }

    /// The statistics of the interval since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> FlowRow {
        let is_controlled = self.controlled > 0;
        let acked = self.delivered_bytes - before.delivered_bytes;
        let marked = self.marked_bytes - before.marked_bytes;
        let limited = self.shares(before).filter(|_| is_controlled);
        FlowRow {
            cwnd_bytes: self.cwnd_bytes,
            rate_gbps: (self.paced > 0).then(|| real(self.rate_bps) / 1e9),
            srtt_us: (self.timed > 0)
                .then(|| real(self.srtt.as_ns()) / 1e3 / f64::from(self.timed)),
            marked: (is_controlled && !self.is_rc).then(|| real(marked) / real(acked.max(1))),
            cnps: self.cnps - before.cnps,
            limited_by: limited.map(|shares| shares.largest()),
            limited,
            congestion: self.congestion,
        }
    }

    /// The fractions of time since `before`; `None` while no flow has begun.
    ///
    /// The engine's limit `Port` means that a flow was ready and waited for its worker. Of that
    /// time, the ring's share is the time for which the port was full, and the CPU's share is the
    /// rest.
    fn shares(&self, before: &Self) -> Option<Shares> {
        let spent = |limit: FlowLimit| {
            real((self.times[limit as usize] - before.times[limit as usize]).as_ns())
        };
        let total: f64 = FlowLimit::ALL.into_iter().map(spent).sum();
        if total <= 0.0 {
            return None;
        }
        let part = |limit| spent(limit) / total;
        let port = part(FlowLimit::Port);
        let elapsed = real(self.at.since(before.at).as_ns()).max(1.0);
        let ring = (real((self.port_full - before.port_full).as_ns()) / elapsed).min(port);
        Some(Shares {
            window: part(FlowLimit::Window),
            pacer: part(FlowLimit::Pacer),
            receiver: part(FlowLimit::Receiver),
            ring,
            cpu: port - ring,
            application: part(FlowLimit::Application),
            endpoint: part(FlowLimit::Endpoint),
        })
    }
}

impl Shares {
    /// All fractions with their names.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("window", self.window),
            ("pacer", self.pacer),
            ("receiver", self.receiver),
            ("ring", self.ring),
            ("cpu", self.cpu),
            ("application", self.application),
            ("endpoint", self.endpoint),
        ]
    }

    /// The name of the largest fraction.
    #[must_use]
    pub fn largest(&self) -> &'static str {
        let named = self.named();
        let largest = named.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        largest.map_or("application", |(name, _)| name)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a report's figure")]
fn real(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    /// Totals of two queue pairs after `us` microseconds, with the port full for `full` of them.
    fn flows(us: u64, times_us: [u64; 6], full: u64) -> Flows {
        Flows {
            at: at(us),
            qps: 2,
            controlled: 2,
            paced: 1,
            cwnd_bytes: 5_000,
            rate_bps: 250_000_000,
            srtt: Dur::from_us(300),
            timed: 2,
            delivered_bytes: us * 10,
            marked_bytes: us,
            cnps: us / 100,
            times: times_us.map(Dur::from_us),
            port_full: Dur::from_us(full),
            is_rc: false,
            congestion: None,
        }
    }

    #[test]
    fn since__is_the_difference_and_adds_up_to_one() {
        let before = flows(1_000, [50, 50, 50, 50, 50, 50], 10);
        // Application, window, pacer, receiver, endpoint, port: 2000 us in total, 100 of them full.
        let after = flows(2_000, [150, 1_050, 150, 50, 50, 850], 110);
        let row = after.since(&before);
        assert_eq!((row.cwnd_bytes, row.cnps), (5_000, 10));
        assert_eq!((row.rate_gbps, row.srtt_us), (Some(0.25), Some(150.0)));
        assert_eq!(row.marked, Some(0.1));
        assert_eq!(row.limited_by, Some("window"));
        let limited = row.limited.expect("controlled");
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} for {b} in {limited:?}");
        near(limited.window, 0.5);
        near(limited.pacer, 0.05);
        near(limited.application, 0.05);
        near(limited.ring, 0.1);
        near(limited.cpu, 0.3);
        near(limited.named().iter().map(|(_, part)| part).sum(), 1.0);
    }

    #[test]
    fn since__omits_what_was_not_measured() {
        let none = Flows { qps: 1, cwnd_bytes: 7, is_rc: true, ..Flows::default() };
        let row = Flows { at: at(9), ..none }.since(&none);
        assert_eq!((row.cwnd_bytes, row.rate_gbps, row.srtt_us), (7, None, None));
        assert_eq!((row.marked, row.limited_by, row.limited), (None, None, None));
    }

    #[test]
    fn shares__a_port_is_never_full_longer_than_flows_waited_for_it() {
        let before = flows(0, [0; 6], 0);
        let shares = flows(100, [0, 150, 0, 0, 0, 50], 90).shares(&before).unwrap();
        assert!((shares.ring - 0.25).abs() < 1e-9 && shares.cpu.abs() < 1e-9, "{shares:?}");
    }
}
