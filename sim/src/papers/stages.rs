//! Fairness and total rate by stage: flows join and leave at the stages' beginnings.

use super::{arrived, mean_gbps, place};
use crate::record::Series;
use crate::sharing::jain;
use serde::{Deserialize, Serialize};
use spanwire_base::{Time, u64_from};

/// Stages of a run.
///
/// # Source
/// PACC V-A, figure 6.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stages {
    /// In their order.
    pub stages: Vec<Stage>,
}

/// A stage: a time in which the same flows are active.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// From when on it is measured: the flows have converged.
    pub from: Time,
    /// Its end.
    pub until: Time,
    /// The active flows, by their places in the list of all.
    pub flows: Vec<u32>,
}

/// Fairness and total rate by stage.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StagesReport {
    /// Jain's index of the mean rates of each stage's flows; `None` of a single flow.
    pub jain: Vec<Option<f64>>,
    /// The rate of all flows together, the mean of all stages, in Gbit/s.
    pub total_gbps: f64,
}

impl Stages {
    pub(super) fn report(&self, series: &Series) -> StagesReport {
        let rates = |stage: &Stage| -> Vec<f64> {
            let span = [place(series, stage.from), place(series, stage.until)];
            let rate = |flow: &u32| mean_gbps(series, &arrived(series, &[*flow]), span);
            stage.flows.iter().map(rate).collect()
        };
        let rates: Vec<Vec<f64>> = self.stages.iter().map(rates).collect();
        let total: f64 = rates.iter().flatten().sum();
        StagesReport {
            jain: rates.iter().map(|rates| jain(rates)).collect(),
            total_gbps: total / crate::record::to_f64(u64_from(rates.len()).max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::series;
    use super::*;
    use spanwire_base::Dur;

    #[test]
    fn report__each_stage_is_of_its_flows_after_they_converged() {
        let at = |us| Time::ZERO + Dur::from_us(us);
        let stage = |from, until, flows: &[u32]| {
            let (from, until) = (at(from), at(until));
            Stage { from, until, flows: flows.to_vec() }
        };
        let stages = vec![stage(20, 40, &[0]), stage(60, 80, &[0, 1]), stage(90, 100, &[1])];
        let (first, second) = (
            [1.0, 9.0, 8.0, 8.0, 8.0, 7.0, 6.0, 6.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 5.0, 10.0],
        );
        let report = Stages { stages }.report(&series(&[&first, &second], &[]));
        assert_eq!(report.jain, [None, Some(64.0 / (2.0 * 40.0)), None]);
        assert!((report.total_gbps - 26.0 / 3.0).abs() < 1e-12, "{report:?}");
    }
}
