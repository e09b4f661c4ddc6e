//! Values over time, as figures show them.

use super::{Metric, arrived, queue_bytes, smooth};
use crate::record::{DciSeries, FlowSeries, Series, to_f64, us};
use serde::{Deserialize, Serialize};
use spanwire_base::{Time, u64_from};

/// A value over time, in regular samples.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Trace {
    /// `queue`, or `flow N` by its place in the list of all.
    pub name: String,
    /// Of its values.
    pub unit: TraceUnit,
    /// The time of the first one, us.
    pub from_us: f64,
    /// From one to the next, us.
    pub every_us: f64,
    /// The values.
    pub values: Vec<f64>,
}

/// The unit of a [`Trace`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceUnit {
    /// Bytes.
    Bytes,
    /// Gbit/s.
    Gbps,
}

impl Trace {
    fn new(name: String, unit: TraceUnit, series: &Series, mut values: Vec<f64>) -> Self {
        let (from_us, every_us) = match series.at_us[..] {
            [first, second, ..] => (first, second - first),
            [only] => (only, 0.0),
            [] => (0.0, 0.0),
        };
        // A run ends with a sample at any time.
        let is_regular = |(i, at): &(usize, &f64)| {
            (*at - from_us - to_f64(u64_from(*i)) * every_us).abs() < every_us / 2.0 + 1e-9
        };
        values.truncate(series.at_us.iter().enumerate().take_while(is_regular).count());
        Self { name, unit, from_us, every_us, values }
    }

    fn queue(series: &Series, bytes: &[u64]) -> Self {
        Self::bytes("queue".to_owned(), series, bytes)
    }

    fn bytes(name: String, series: &Series, bytes: &[u64]) -> Self {
        Self::new(name, TraceUnit::Bytes, series, bytes.iter().copied().map(to_f64).collect())
    }

    fn rate(flow: u32, series: &Series, gbps: Vec<f64>) -> Self {
        Self::new(format!("flow {flow}"), TraceUnit::Gbps, series, gbps)
    }

    /// Times in us, and values.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let at = |i| self.from_us + self.every_us * to_f64(u64_from(i));
        self.values.iter().enumerate().map(move |(i, value)| (at(i), *value))
    }

    /// Its value at a time in us, between two samples in proportion; `None` before the first and
    /// after the last.
    #[must_use]
    pub fn at(&self, us: f64) -> Option<f64> {
        let place = self.points().take_while(|(time, _)| *time <= us).count().checked_sub(1)?;
        let (time, value) = self.points().nth(place)?;
        match self.values.get(place + 1) {
            Some(next) => Some(value + (next - value) * (us - time) / self.every_us),
            None => (us == time).then_some(value),
        }
    }

    /// From `at` on, which is its zero.
    fn after(mut self, at: Time) -> Self {
        let zero = us(at);
        let before = self.points().take_while(|(time, _)| *time < zero).count();
        self.values.drain(..before);
        self.from_us += self.every_us * to_f64(u64_from(before)) - zero;
        self
    }

    /// The same with at most `values_max` values, each the mean of as many, with four significant
    /// digits: small enough to be stored for each seed.
    #[must_use]
    pub fn thinned(&self, values_max: usize) -> Self {
        let each = self.values.len().div_ceil(values_max.max(1)).max(1);
        let mean = |part: &[f64]| rounded(part.iter().sum::<f64>() / to_f64(u64_from(part.len())));
        Self {
            from_us: self.from_us + self.every_us * to_f64(u64_from(each - 1)) / 2.0,
            every_us: self.every_us * to_f64(u64_from(each)),
            values: self.values.chunks(each).map(mean).collect(),
            ..self.clone()
        }
    }
}

impl Metric {
    /// The queues and rates that its figure shows over time; none of metrics without one.
    pub(crate) fn over_time(&self, series: &Series) -> Vec<Trace> {
        match self {
            // A seed draws when the burst begins: times are from then on.
            Self::Burst(burst) => {
                let queue = Trace::queue(series, &queue_bytes(series, &burst.queue));
                let gbps = smooth(series, &arrived(series, &[burst.long]));
                [queue, Trace::rate(burst.long, series, gbps)].map(|t| t.after(burst.at)).into()
            }
            Self::Steady(steady) => {
                vec![Trace::queue(series, &queue_bytes(series, &steady.queue))]
            }
            Self::Stages(_) => {
                let rate = |f: &FlowSeries| Trace::rate(f.flow, series, f.goodput_gbps.clone());
                series.flows.iter().map(rate).collect()
            }
            Self::Dci(_) => series.dci.iter().flat_map(|dci| dci_traces(series, dci)).collect(),
            Self::Recover(_) | Self::Isolated | Self::Bins(_) => Vec::new(),
        }
    }
}

/// The queue of the switch, and what waits there of each flow.
fn dci_traces(series: &Series, dci: &DciSeries) -> Vec<Trace> {
    let waiting = dci.flows.iter().filter(|flow| !flow.waiting_bytes.is_empty());
    let waiting = waiting
        .map(|flow| Trace::bytes(format!("flow {}", flow.flow), series, &flow.waiting_bytes));
    [Trace::queue(series, &dci.bytes)].into_iter().chain(waiting).collect()
}

/// With four significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::super::testing::series;
    use super::super::{Burst, Stages};
    use super::*;
    use crate::record::DciFlowSeries;
    use spanwire_base::Dur;

    #[test]
    fn over_time__is_the_queue_and_the_rates_of_the_metric() {
        let s = series(&[&[1.0, 1.0, 4.0], &[2.0, 2.0, 2.0]], &[0, 70, 60]);
        let (queue, at) = ("hub:0".to_owned(), Time::ZERO + Dur::from_us(20));
        let burst = Burst { queue, at, until: at, long: 1, short: vec![0] };
        let [queue, long] = &Metric::Burst(burst).over_time(&s)[..] else { panic!("two traces") };
        assert_eq!((queue.name.as_str(), queue.unit), ("queue", TraceUnit::Bytes));
        let points: Vec<_> = queue.points().collect();
        assert_eq!(points, [(0.0, 70.0), (10.0, 60.0)], "from the burst on");
        assert_eq!((long.name.as_str(), &long.values[..]), ("flow 1", &[2.0, 2.0][..]));
        let rates = Metric::Stages(Stages::default()).over_time(&s);
        assert_eq!((rates.len(), &rates[0].values[..]), (2, &[1.0, 1.0, 4.0][..]));
        assert_eq!(Metric::Isolated.over_time(&s), []);
    }

    #[test]
    fn dci_traces__are_of_flows_that_wait() {
        let mut s = series(&[], &[0; 2]);
        let flow =
            |flow, waiting_bytes| DciFlowSeries { flow, waiting_bytes, ..Default::default() };
        let flows = vec![flow(4, vec![3, 5]), flow(5, Vec::new())];
        s.dci = Some(DciSeries { bytes: vec![7, 9], flows, ..DciSeries::default() });
        let traces = dci_traces(&s, s.dci.as_ref().expect("it was set"));
        let all: Vec<_> = traces.iter().map(|t| (t.name.as_str(), t.values.clone())).collect();
        assert_eq!(all, [("queue", vec![7.0, 9.0]), ("flow 4", vec![3.0, 5.0])]);
    }

    #[test]
    fn thinned__is_means_of_neighbours() {
        let mut s = series(&[&[0.0; 11]], &[]);
        s.at_us[10] = 101.0;
        let values = (0..11u32).map(|i| f64::from(i * i) * 1000.0).collect();
        let trace = Trace::new("queue".to_owned(), TraceUnit::Bytes, &s, values);
        assert_eq!((trace.from_us, trace.every_us, trace.values.len()), (10.0, 10.0, 10));
        let thin = trace.thinned(4);
        let points: Vec<_> = thin.points().collect();
        assert_eq!(points, [(20.0, 1667.0), (50.0, 16670.0), (80.0, 49670.0), (110.0, 81000.0)]);
        let at = [19.0, 20.0, 35.0, 110.0, 111.0].map(|us| thin.at(us));
        assert_eq!(at, [None, Some(1667.0), Some(9168.5), Some(81000.0), None]);
        assert_eq!((trace.thinned(10), trace.thinned(0).values.len()), (trace.clone(), 1));
    }
}
