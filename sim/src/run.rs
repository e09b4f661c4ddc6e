//! A run of a network with its faults, checked throughout.

use crate::check::{check_end, check_now};
use crate::ids::LinkId;
use crate::liveness::Liveness;
use crate::network::{Network, NetworkError};
use crate::papers::{CnpCount, Metric};
use crate::plan::{Fault, Plan};
use crate::record::{Keep, Recorder};
use crate::report::Report;
use crate::world::{Observer, Stop};
use spanwire_base::{RxMeta, Time, TxMeta};
#[cfg(feature = "train")]
use spanwire_switch::EcnStep;
use spanwire_switch::Impairments;

/// Options of observing a run. They do not change its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// Records time series of rates, windows and queues: [`Report::series`].
    pub series: bool,
    /// Events between two checks, above 0. The checks also run at the end.
    pub check_every: u64,
}

impl Default for Watch {
    fn default() -> Self {
        Self { series: false, check_every: 100_000 }
    }
}

impl Plan {
    /// Runs the plan to its end. `observer` sees every frame; `&mut ()` ignores them.
    ///
    /// # Errors
    /// See [`NetworkError`]: the network cannot be built.
    pub fn run(&self, watch: Watch, observer: &mut impl Observer) -> Result<Report, NetworkError> {
        let mut run = Run::new(self, watch)?;
        run.run(observer);
        Ok(run.report())
    }
}

impl Plan {
    /// Runs the plan until its end or the first violation, and returns the decisions about
    /// thresholds that agents have recorded, switch by switch.
    ///
    /// # Errors
    /// See [`NetworkError`].
    #[cfg(feature = "train")]
    pub(crate) fn run_for_steps(&self) -> Result<Vec<Vec<EcnStep>>, NetworkError> {
        let mut run = Run::new(self, Watch::default())?;
        run.run(&mut ());
        Ok(run
            .network
            .switches()
            .map(|(_, switch)| switch.ecn_steps().cloned().collect())
            .collect())
    }
}

/// A run in progress.
#[derive(Debug)]
struct Run<'a> {
    plan: &'a Plan,
    watch: Watch,
    network: Network,
    recorder: Recorder,
    liveness: Option<Liveness>,
    cnps: Option<CnpCount>,
    violations: Vec<String>,
    faults_ended: bool,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, watch: Watch) -> Result<Self, NetworkError> {
        let (topology, flows) = (plan.topology.clone(), plan.flows.clone());
        let mut network = Network::new(topology, flows, plan.setup.clone())?;
        for Fault { link, backwards, impairments } in &plan.faults {
            let id = network.directions(*link)[usize::from(*backwards)];
            network.impair(id, impairments.clone())?;
        }
        for (host, storm) in &plan.storms {
            network.set_storm(*host, *storm);
        }
        let keep = match &plan.metric {
            _ if watch.series || plan.sharing.is_some() => Keep::Everything,
            Some(metric) => metric.keep(),
            None => Keep::Means,
        };
        let dci = plan.metric.as_ref().and_then(Metric::dci);
        let recorder = Recorder::new(&network, keep, dci);
        let span = plan.metric.as_ref().and_then(Metric::counts_cnps);
        let cnps = span.map(|span| CnpCount::new(&network, span));
        let liveness = plan.liveness.map(|bounds| Liveness::new(&network, bounds));
        let (violations, faults_ended) = (Vec::new(), plan.faults_end.is_none());
        Ok(Self { plan, watch, network, recorder, liveness, cnps, violations, faults_ended })
    }

    fn run(&mut self, observer: &mut impl Observer) {
        let mut next_sample = Time::ZERO + self.plan.sample_every;
        // Checks are counted in events, because samples may be close together.
        let mut next_check = self.watch.check_every;
        while self.violations.is_empty() {
            let faults_end = self.plan.faults_end.filter(|_| !self.faults_ended);
            let until = faults_end.into_iter().chain([next_sample, self.plan.until]).min();
            let until = until.unwrap_or(self.plan.until);
            let left = next_check - self.network.world.counters().events;
            let (liveness, cnps) = (self.liveness.as_mut(), self.cnps.as_mut());
            let mut both = RunObserver { other: &mut *observer, liveness, cnps };
            match self.network.world.run(until, left, &mut both) {
                Stop::Idle => break,
                Stop::Events => {
                    next_check += self.watch.check_every;
                    self.check();
                    if self.network.world.counters().events >= self.plan.max_events {
                        self.violations.push("events without end".to_owned());
                    }
                }
                Stop::Time if until == self.plan.until => break,
                Stop::Time if until == next_sample => {
                    self.recorder.sample(&self.network, self.plan.series_until);
                    next_sample += self.plan.sample_every;
                }
                Stop::Time => self.end_faults(),
            }
        }
        self.recorder.sample(&self.network, self.plan.series_until);
        self.check();
        if self.violations.is_empty() && self.plan.sharing.is_none() {
            self.violations = self.stamped(check_end(&self.network, self.plan.may_fail_until));
        }
        if self.plan.faults.is_empty() {
            self.violations.extend(self.stamped(self.check_headroom()));
        }
    }

    /// No lossless frame may be lost as long as no pause frame can be lost.
    fn check_headroom(&self) -> Vec<String> {
        let lost = self.network.switches().filter_map(|(node, switch)| {
            let ports = switch.counters().ports;
            let lost: u64 = ports.iter().map(|port| port.drop_headroom_full).sum();
            let name = self.network.topology().name(u32::try_from(node.index()).ok()?);
            (lost > 0).then(|| format!("{name} lost {lost} lossless frames: too little headroom"))
        });
        lost.collect()
    }

    /// Ends all faults.
    fn end_faults(&mut self) {
        self.faults_ended = true;
        for link in self.network.world.links() {
            if let Err(e) = self.network.impair(link, Impairments::default()) {
                self.violations.push(e.to_string());
            }
        }
    }

    fn check(&mut self) {
        let mut found = check_now(&self.network);
        found.extend(self.liveness.iter_mut().flat_map(|l| l.check(&self.network)));
        self.violations.extend(self.stamped(found));
    }

    fn stamped(&self, found: Vec<String>) -> Vec<String> {
        let now = self.network.world.now();
        found.into_iter().map(|v| format!("{now:?}: {v}")).collect()
    }

    fn report(self) -> Report {
        let Self { plan, network, recorder, violations, watch, cnps, .. } = self;
        let means = recorder.mean_bytes();
        let mut report = Report::new(plan, &network, &means, violations);
        let mut series = recorder.into_series();
        if let Some(sharing) = &plan.sharing {
            series.jain = sharing.jain_over_time(&network, &series);
            report.sharing = Some(sharing.report(&network, &series));
        }
        report.metric = plan.metric.as_ref().map(|m| m.report(&network, &series, cnps.as_ref()));
        report.over_time = plan.metric.iter().flat_map(|m| m.over_time(&series)).collect();
        report.series = watch.series.then_some(series);
        report
    }
}

/// The observer of a run, with its liveness check and its count of CNPs if it has them.
struct RunObserver<'a, O> {
    other: &'a mut O,
    liveness: Option<&'a mut Liveness>,
    cnps: Option<&'a mut CnpCount>,
}

impl<O: Observer> Observer for RunObserver<'_, O> {
    fn on_sent(&mut self, now: Time, link: LinkId, frame: &[u8], meta: TxMeta) {
        self.other.on_sent(now, link, frame, meta);
    }

    fn on_arrived(&mut self, now: Time, link: LinkId, frame: &[u8], meta: RxMeta) {
        self.other.on_arrived(now, link, frame, meta);
        if let Some(liveness) = &mut self.liveness {
            liveness.on_arrived(now, link, frame, meta);
        }
        if let Some(cnps) = &mut self.cnps {
            cnps.on_arrived(now, link, frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Setup;
    use crate::topology::Topology;
    use crate::workload::Flow;
    use spanwire_base::{Dur, Rate};
    use spanwire_switch::Prob;

    fn plan(bytes: u64) -> Plan {
        let topology = Topology::pair(Rate::from_gbps(10), Dur::from_us(1));
        let flows = vec![Flow::new(0, 1, Time::ZERO, bytes)];
        Plan::new("test", topology, flows, Setup::default())
    }

    fn run(plan: &Plan) -> Report {
        plan.run(Watch { series: true, check_every: 10 }, &mut ()).unwrap()
    }

    #[test]
    fn run__ends_when_nothing_is_left_to_do() {
        let report = run(&plan(100_000));
        assert!(report.checkers_ok, "{:?}", report.violations);
        assert!(report.flows[0].fct_us.is_some_and(|us| (80.0..100.0).contains(&us)));
    }

    #[test]
    fn run__not_to_be_done_in_time_is_a_violation() {
        let report = run(&Plan { until: Time::from_ns(20_000), ..plan(100_000) });
        assert!(!report.checkers_ok);
        assert!(report.violations[0].contains("flow 0 is not done"), "{:?}", report.violations);
        assert_eq!(report.flows[0].fct_us, None);
    }

    #[test]
    fn run__events_without_end_are_a_violation() {
        let report = run(&Plan { max_events: 50, ..plan(100_000) });
        assert!(report.violations.contains(&"events without end".to_owned()));
    }

    #[test]
    fn run__faults_end_when_it_becomes_calm() {
        let all_lost = Impairments { loss: Prob::ONE, ..Impairments::default() };
        let faults_end = Some(Time::from_ns(500_000));
        let bad = Plan { faults_end, ..plan(100_000).with_fault(0, &all_lost) };
        let report = run(&bad);
        assert!(report.checkers_ok, "{:?}", report.violations);
        assert!(report.drops["line_loss"] > 0);
        assert!(report.flows[0].fct_us.is_some_and(|us| us > 500.0));
    }

    #[test]
    fn run__a_failure_after_may_fail_until_is_a_violation() {
        let all_lost = Impairments { loss: Prob::ONE, ..Impairments::default() };
        let mut bad = plan(100_000).with_fault(0, &all_lost);
        let report = run(&bad);
        assert!(report.violations[0].contains("RETRY_EXC_ERR"), "{:?}", report.violations);
        bad.may_fail_until = bad.until;
        let report = run(&bad);
        assert!(report.checkers_ok, "{:?}", report.violations);
        assert_eq!(report.flows[0].failed, Some("RETRY_EXC_ERR"));
    }

    #[test]
    fn run__watching_changes_nothing() {
        let looks_away = plan(100_000).run(Watch::default(), &mut ()).unwrap();
        let watches = run(&plan(100_000));
        assert_eq!(looks_away.event_hash, watches.event_hash);
        assert_eq!(looks_away, Report { series: None, ..watches });
    }
}
