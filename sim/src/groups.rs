//! Statistics of completion times by group of flows and by size.

use crate::flow_report::FlowReport;
use crate::record::to_f64;
use crate::workload::Flow;
use serde::{Deserialize, Serialize};
use spanwire_base::{u64_from, usize_from};

/// Groups of flows in statistics. The default has none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Groups {
    /// Their names; [`Flow::group`](crate::workload::Flow::group) is a place in this list. If there
    /// are several, a group `all` of their union comes first.
    pub names: Vec<&'static str>,
    /// Ranges of flow sizes, which may overlap: above the first and up to the second, in bytes.
    pub sizes: Vec<[u64; 2]>,
}

/// Statistics of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// Of all its flows.
    #[serde(flatten)]
    pub all: FctStats,
    /// By size, in the order of [`Groups::sizes`].
    pub by_size: Vec<SizeReport>,
}

/// Statistics of the flows of a range of sizes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SizeReport {
    /// They have more bytes than this.
    pub above_bytes: u64,
    /// They have at most this many bytes; `None` for any number.
    pub upto_bytes: Option<u64>,
    /// Of these flows.
    #[serde(flatten)]
    pub flows: FctStats,
}

/// Statistics of flows.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct FctStats {
    /// Number of flows.
    pub n: u64,
    /// Those of them that did not complete. They have no FCT.
    pub failed: u64,
    /// FCT in us; `None` if none completed.
    pub fct_us: Option<Spread>,
    /// Normalized FCT: relative to the ideal FCT of the same size alone on the same path.
    pub nfct: Option<Spread>,
}

/// Mean and percentiles. Percentile `p` of `n` values is the one of rank `p n`, rounded up.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
}

impl Groups {
    /// The statistics of each group; `reports` are those of `flows`.
    pub(crate) fn report(&self, flows: &[Flow], reports: &[FlowReport]) -> Vec<GroupReport> {
        let of = |name: &str, is_in: &dyn Fn(usize) -> bool| {
            let is_in = |flow: &&(&Flow, &FlowReport)| {
                flow.0.group.is_some_and(|group| is_in(group.into()))
            };
            let all: Vec<_> = flows.iter().zip(reports).collect();
            let members: Vec<&FlowReport> = all.iter().filter(is_in).map(|(_, r)| *r).collect();
            let by_size = self.sizes.iter().map(|[above, upto]| {
                let range = *above + 1..=*upto;
                let sized: Vec<_> =
                    members.iter().copied().filter(|r| range.contains(&r.bytes)).collect();
                SizeReport {
                    above_bytes: *above,
                    upto_bytes: Some(*upto).filter(|upto| *upto < u64::MAX),
                    flows: FctStats::of(&sized),
                }
            });
            GroupReport {
                name: name.to_owned(),
                all: FctStats::of(&members),
                by_size: by_size.collect(),
            }
        };
        let several = (self.names.len() > 1).then(|| of("all", &|_| true));
        let single = (0..).zip(&self.names).map(|(i, name)| of(name, &|group| group == i));
        several.into_iter().chain(single).collect()
    }
}

impl FctStats {
    fn of(flows: &[&FlowReport]) -> Self {
        let is_complete = |f: &&&FlowReport| f.failed.is_none() && f.fct_us.is_some();
        let complete: Vec<&&FlowReport> = flows.iter().filter(is_complete).collect();
        let (n, done) = (u64_from(flows.len()), u64_from(complete.len()));
        Self {
            n,
            failed: n - done,
            fct_us: Spread::of(complete.iter().filter_map(|f| f.fct_us).collect()),
            nfct: Spread::of(complete.iter().filter_map(|f| f.slowdown).collect()),
        }
    }
}

impl Spread {
    /// The spread of values; `None` of none.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let n = u64_from(values.len());
        // Rank `permille n / 1000`, rounded up, counted from 1.
        let at = |permille: u64| {
            values.get(usize_from((n * permille).div_ceil(1000).saturating_sub(1))).copied()
        };
        let mean = values.iter().sum::<f64>() / to_f64(n.max(1));
        Some(Self { mean, p50: at(500)?, p99: at(990)?, p999: at(999)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::FlowOp;
    use spanwire_base::Time;

    /// A flow of a group with its report: an FCT in us, or failed.
    fn flow(group: Option<u8>, bytes: u64, fct_us: Option<f64>) -> (Flow, FlowReport) {
        let flow = Flow { group, ..Flow::new(0, 1, Time::ZERO, bytes) };
        let report = FlowReport {
            src: 0,
            dst: 1,
            bytes,
            op: FlowOp::Write,
            start_us: Some(0.0),
            fct_us,
            messages_us: Vec::new(),
            goodput_gbps: None,
            slowdown: fct_us.map(|us| us / 2.0),
            is_timed: false,
            failed: fct_us.is_none().then_some("RETRY_EXC_ERR"),
        };
        (flow, report)
    }

    #[test]
    fn report__counts_each_group_and_their_union_without_those_of_none() {
        let groups = Groups { names: vec!["near", "far"], sizes: vec![[0, 10], [10, u64::MAX]] };
        let (flows, reports): (Vec<Flow>, Vec<FlowReport>) = [
            flow(Some(0), 10, Some(4.0)),
            flow(Some(0), 11, Some(8.0)),
            flow(Some(1), 11, None),
            flow(None, 10, Some(100.0)),
        ]
        .into_iter()
        .unzip();
        let all = groups.report(&flows, &reports);
        let counts: Vec<_> = all.iter().map(|g| (g.name.as_str(), g.all.n, g.all.failed)).collect();
        assert_eq!(counts, [("all", 3, 1), ("near", 2, 0), ("far", 1, 1)]);
        let (fct, nfct) = (all[1].all.fct_us.unwrap(), all[1].all.nfct.unwrap());
        assert_eq!((fct.mean, fct.p50, fct.p99, nfct.mean), (6.0, 4.0, 8.0, 3.0));
        assert_eq!(all[2].all.fct_us, None);
        let sizes: Vec<_> = all[0].by_size.iter().map(|s| (s.upto_bytes, s.flows.n)).collect();
        assert_eq!(sizes, [(Some(10), 1), (None, 2)]);
        assert_eq!(Groups::default().report(&flows, &reports), []);
    }

    #[test]
    fn report__is_one_level_deep_as_json() {
        let groups = Groups { names: vec!["all"], sizes: vec![[0, 10]] };
        let (flow, report) = flow(Some(0), 10, Some(4.0));
        let json = serde_json::to_value(groups.report(&[flow], &[report])).unwrap();
        assert_eq!((&json[0]["name"], &json[0]["n"]), (&"all".into(), &1.into()));
        assert_eq!(json[0]["by_size"][0]["nfct"]["p999"], 2.0);
        assert_eq!(json.as_array().map(Vec::len), Some(1), "one group needs no union");
    }

    #[test]
    fn spread__ranks_are_rounded_up() {
        let of = |n: u32| Spread::of((1..=n).rev().map(f64::from).collect()).unwrap();
        let s = of(1000);
        assert_eq!((s.mean, s.p50, s.p99, s.p999), (500.5, 500.0, 990.0, 999.0));
        let s = of(2);
        assert_eq!((s.p50, s.p99, s.p999), (1.0, 2.0, 2.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
