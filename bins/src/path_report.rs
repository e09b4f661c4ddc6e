//! Erasure coding and paths in reports.

use serde::Serialize;
use spanwire_base::Dur;
use spanwire_host::oob::Coding;
use spanwire_host::paths::{ConnectionPaths, SentPaths};
use spanwire_loadbalance::{PathReport, PathState};
use spanwire_transport::{Agreed, Balance, ErasureCoding};

/// `ec`, `lb` and `paths` of a report in JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathsReport {
    /// Erasure coding of sent data; null if none was requested.
    pub ec: Option<EcRow>,
    /// Load balancing of sent data; null if none was requested.
    pub lb: Option<LbRow>,
    /// The paths that a load balancer chose: the last 64 of each queue pair, at most 1024.
    pub paths: Vec<PathRow>,
}

/// The requested erasure coding.
#[derive(Clone, Debug, Serialize)]
pub struct EcRow {
    /// The code and its block size.
    #[serde(flatten)]
    pub coding: Coding,
    /// Both ends support it. With `from_base_rtt_ns`, coding also needs that base RTT.
    pub in_force: bool,
    /// The reason if it is not in force.
    pub why_not: Option<&'static str>,
}

/// The requested load balancing, and its totals of all paths.
#[derive(Clone, Debug, Serialize)]
pub struct LbRow {
    /// Name, and the parameters that differ from their defaults.
    pub name: String,
    /// Both ends support it.
    pub in_force: bool,
    /// The reason if it is not in force.
    pub why_not: Option<&'static str>,
    /// Packets for which a path was selected.
    pub packets: u64,
    /// Of these, retransmissions.
    pub retransmits: u64,
    /// Reroutes: a path of a flow, or of one of its subflows, was replaced by another.
    pub reroutes: u64,
    /// Reroutes of a whole flow.
    pub moves: u64,
    /// Packets presumed lost, on any path.
    pub presumed_lost_packets: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

/// One path of one queue pair.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PathRow {
    /// The queue pair's number.
    pub qp: u32,
    /// The path: the UDP source port.
    pub port: u16,
    /// `live`, `suspect`, `bad` or `retired` (docs/loadbalance.md).
    pub state: &'static str,
    /// Packets sent on it.
    pub sent_packets: u64,
    /// Packets acknowledged.
    pub acked_packets: u64,
    /// Packets presumed lost. Some may have arrived later.
    pub presumed_lost_packets: u64,
    /// Of the acknowledged packets, those with a CE mark.
    pub marked_packets: u64,
    /// Smoothed RTT; null before the first sample.
    pub srtt_us: Option<f64>,
    /// Minimum RTT; null before the first sample.
    pub min_rtt_us: Option<f64>,
    /// Reroutes from this path to another.
    pub left: u64,
}

impl PathsReport {
    /// The report of the requested coding and balancing, in force if `agreed` allows them, and of
    /// the paths of the queue pairs.
    #[must_use]
    pub fn of(
        agreed: &Agreed,
        erasure: Option<&ErasureCoding>,
        balance: Option<&Balance>,
        qps: &[ConnectionPaths],
    ) -> Self {
        let (no_erasure, no_balance) = (agreed.why_no_erasure(), agreed.why_no_balance());
        let ec = erasure.map(|erasure| EcRow {
            coding: Coding::from(erasure),
            in_force: no_erasure.is_none(),
            why_not: no_erasure,
        });
        let lb = balance.map(|balance| LbRow::of(balance, no_balance, qps));
        let rows = qps.iter().flat_map(|qp| qp.paths.iter().map(|path| PathRow::of(qp.qpn, path)));
        Self { ec, lb, paths: rows.take(PATHS_MAX).collect() }
    }

    /// A line of text; `None` if neither was requested.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let ec = self.ec.as_ref().map(
            |EcRow { coding: Coding { data, parity, .. }, why_not, .. }| match why_not {
                None => format!("blocks of {data} and {parity}"),
                Some(why) => format!("not coded: {why}"),
            },
        );
        let lb = self.lb.as_ref().map(|lb| match lb.why_not {
            None => {
                let LbRow { name, reroutes, presumed_lost_packets, .. } = lb;
                let paths = self.paths.len();
                format!(
                    "{name}: {paths} paths, {reroutes} reroutes, {presumed_lost_packets} packets \
                     presumed lost"
                )
            }
            Some(why) => format!("not balanced: {why}"),
        });
        let parts: Vec<String> = ec.into_iter().chain(lb).collect();
        (!parts.is_empty()).then(|| format!("  {}\n", parts.join("; ")))
    }
}

impl From<&SentPaths> for PathsReport {
    fn from(sent: &SentPaths) -> Self {
        let SentPaths { agreed, erasure, balance, qps } = sent;
        Self::of(agreed, erasure.as_ref(), balance.as_ref(), qps)
    }
}

impl LbRow {
    fn of(balance: &Balance, why_not: Option<&'static str>, qps: &[ConnectionPaths]) -> Self {
        let sum = |of: fn(&spanwire_loadbalance::Counters) -> u64| -> u64 {
            qps.iter().map(|qp| of(&qp.counters)).sum()
        };
        Self {
            name: balance.choice.to_string(),
            in_force: why_not.is_none(),
            why_not,
            packets: sum(|c| c.picks),
            retransmits: sum(|c| c.retransmits),
            reroutes: sum(|c| c.reroutes),
            moves: sum(|c| c.path_changes),
            presumed_lost_packets: sum(|c| c.presumed_lost_packets),
            timeouts: sum(|c| c.timeouts),
        }
    }
}

impl PathRow {
    fn of(qp: u32, path: &PathReport) -> Self {
        Self {
            qp,
            port: path.path.port(),
            state: match path.state {
                PathState::Live => "live",
                PathState::Suspect => "suspect",
                PathState::Bad => "bad",
                PathState::Retired => "retired",
            },
            sent_packets: path.sent_packets,
            acked_packets: path.acked_packets,
            presumed_lost_packets: path.presumed_lost_packets,
            marked_packets: path.marked_packets,
            srtt_us: path.srtt.map(microseconds),
            min_rtt_us: path.min_rtt.map(microseconds),
            left: path.reroutes,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a report's figure")]
fn microseconds(d: Dur) -> f64 {
    d.as_ns() as f64 / 1e3
}

/// Limit of paths in a report: bounds its size with a thousand queue pairs.
const PATHS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_loadbalance::{Choice, Counters, Entropy};
    use spanwire_transport::{Config, Offer, agree};

    fn path(port: u16) -> PathReport {
        PathReport {
            path: Entropy::from_port(port),
            state: PathState::Suspect,
            sent_packets: 9,
            sent_bytes: 9_000,
            acked_packets: 7,
            acked_bytes: 7_000,
            marked_packets: 1,
            presumed_lost_packets: 2,
            presumed_lost_bytes: 2_000,
            srtt: Some(Dur::from_us(10_500)),
            min_rtt: None,
            feedback_at: None,
            reroutes: 3,
        }
    }

    fn wanted() -> (ErasureCoding, Balance) {
        let choice = Choice::parse("unolb,subflows=4").unwrap();
        (ErasureCoding::new(8, 2), Balance { choice, seed: 1 })
    }

    #[test]
    fn of__adds_queue_pairs_up_and_lists_their_paths() {
        let offer = Offer::of(&Config::default(), Some(1408));
        let agreed = agree(&offer, &offer).unwrap();
        let (erasure, balance) = wanted();
        let counters =
            Counters { picks: 9, reroutes: 2, presumed_lost_packets: 2, ..Counters::default() };
        let qps: Vec<_> = [(7, 0xc001), (8, 0xffff)]
            .map(|(qpn, port)| ConnectionPaths { qpn, counters, paths: vec![path(port)] })
            .into();
        let report = PathsReport::of(&agreed, Some(&erasure), Some(&balance), &qps);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["ec"]["scheme"], "pq");
        assert_eq!((&json["ec"]["data"], &json["ec"]["in_force"]), (&8.into(), &true.into()));
        assert_eq!((&json["lb"]["packets"], &json["lb"]["reroutes"]), (&18.into(), &4.into()));
        assert_eq!(json["paths"][1]["port"], 0xffff);
        assert_eq!(
            (&json["paths"][0]["qp"], &json["paths"][0]["state"]),
            (&7.into(), &"suspect".into())
        );
        assert_eq!(
            (&json["paths"][0]["srtt_us"], json["paths"][0]["min_rtt_us"].is_null()),
            (&10_500.0.into(), true)
        );
        let text = report.text().unwrap();
        let words = "blocks of 8 and 2; unolb,subflows=4: 2 paths, 4 reroutes";
        assert!(text.contains(words), "{text}");
    }

    #[test]
    fn of__has_the_reason_if_not_in_force() {
        let (erasure, balance) = wanted();
        let report = PathsReport::of(&Agreed::Rc, Some(&erasure), Some(&balance), &[]);
        let json = serde_json::to_value(&report).unwrap();
        for what in ["ec", "lb"] {
            assert_eq!(json[what]["in_force"], false);
            assert_eq!(json[what]["why_not"], "the connection speaks RC");
        }
        assert!(report.text().unwrap().contains("not coded: the connection speaks RC; not bal"));
        let none = PathsReport::of(&Agreed::Rc, None, None, &[]);
        assert!(none.ec.is_none() && none.lb.is_none() && none.text().is_none());
    }
}
