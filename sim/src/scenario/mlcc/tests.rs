use super::*;
use crate::record::to_f64;
use crate::run::Watch;
use std::collections::VecDeque;

const ALL: [&Scenario; 7] = [&FIG2, &FIG3, &FIG4, &FIG7, &FIG8, &FIG9, &FIG10];

fn plan_of(scenario: &Scenario, set: &[(&str, &str)]) -> Plan {
    scenario.plan(1, set.iter().copied()).unwrap()
}

#[test]
fn plan__every_scheme_of_every_figure_can_be_built() {
    for scenario in ALL {
        for scheme in SCHEMES {
            let plan = plan_of(scenario, &[("scheme", scheme)]);
            let crosses = |flow: &&Flow| flow.src / 128 != flow.dst / 128;
            let cross = plan.flows.iter().filter(crosses).count();
            let want = if matches!(scenario.name, "mlcc-fig4" | "mlcc-fig7") { 8 } else { 4 };
            assert_eq!(cross, want, "{}", scenario.name);
            crate::network::Network::new(plan.topology, plan.flows, plan.setup).unwrap();
        }
    }
}

#[test]
fn plan__parameters_reach_the_controllers() {
    let set = [("theta", "6ms"), ("target", "500us"), ("far", "1ms"), ("scheme", "mlcc")];
    let plan = plan_of(&FIG9, &set);
    let (_, Algorithm::Mlcc(far)) = plan.setup.congestion.far.unwrap() else { panic!("MLCC") };
    assert_eq!((far.theta_ms, far.target_us), (6.0, 500.0));
    assert_eq!((far.rtt_c_us, far.rtt_d_us), (2_044.0, 22.0));
    let plan = plan_of(&FIG9, &[("scheme", "dcqcn"), ("dci_mark", "1MB")]);
    let port = plan.setup.port_of(Role::Border, Rate::from_gbps(100));
    let ecn = port.queues[0].ecn.unwrap();
    assert_eq!((ecn.kmin_bytes, ecn.kmax_bytes), (1_000_000, 4_000_000));
}

/// One flow into a host that already receives one: the queue's peak is what arrives in a round
/// trip above the credit rate, and nothing is lost.
#[test]
fn fig9__one_flow_fills_the_queue_of_its_dci_switch_and_loses_nothing() {
    let plan = plan_of(&FIG9, &[("cross", "1"), ("time", "30ms"), ("far", "500us")]);
    let report = plan.run(Watch::default(), &mut ()).unwrap();
    assert!(report.checkers_ok, "{:?}", report.violations);
    let Some(crate::papers::MetricReport::Dci(dci)) = report.metric else { panic!("a metric") };
    // (25 - 11.9 Gbit/s) x 1.044 ms, with packets of the intra flow in between.
    assert!((1_200_000..2_200_000).contains(&dci.dci_peak_bytes), "{dci:?}");
    assert_eq!(report.engine.get("retransmitted_packets").copied().unwrap_or(0), 0);
    assert_eq!(dci.dci_flows.len(), 1);
}

/// The queue of a flow at its DCI switch by a fluid model of queue management, in bytes each 22 us.
/// It is given the credit rates, in bytes per nanosecond, of the same times.
fn fluid(theta_ns: f64, credit: &[f64]) -> Vec<f64> {
    const STEP: f64 = 22_000.0;
    const RTT_C: f64 = 6_044_000.0;
    const TARGET: f64 = 1e6;
    const PACKET: f64 = 1024.0;
    let line = 25.0 / 8.0;
    let (mut bytes, mut rate, mut packets) = (0.0_f64, line, 0.0_f64);
    let mut flying: VecDeque<f64> = vec![line; 274].into();
    let mut suggested: VecDeque<f64> = VecDeque::new();
    let mut out = Vec::new();
    for credit in credit {
        let arrived = flying.pop_front().unwrap_or(line) * STEP;
        bytes = (bytes + arrived - credit * STEP).max(0.0);
        let missing = f64::from(274 - i32::try_from(suggested.len()).unwrap());
        let mean = (suggested.iter().sum::<f64>() + missing * credit) / 274.0;
        let delay = ((mean - credit) * RTT_C + bytes).max(0.0) / credit;
        let goal = (credit * (1.0 - (delay - TARGET) / theta_ns)).clamp(0.0, line);
        let part = (goal / rate / 2.0).min(1.0);
        let (least, most) = ((line / 100.0 - credit), (line - credit));
        packets += credit * STEP / PACKET * (2.0 * part - 1.0);
        packets = packets.clamp(least.min(0.0) * RTT_C / PACKET, most.max(0.0) * RTT_C / PACKET);
        rate = (credit + packets * PACKET / RTT_C).clamp(line / 100.0, line);
        flying.push_back(rate);
        suggested.push_back(rate);
        if suggested.len() > 274 {
            suggested.pop_front();
        }
        out.push(bytes);
    }
    out
}

/// The simulated queue of one flow is that of the fluid model, given the simulated credit rate.
fn follows_the_fluid_model(theta: &str, theta_ns: f64) {
    let plan = plan_of(&FIG9, &[("cross", "1"), ("theta", theta), ("sample", "22us")]);
    let report = plan.run(Watch { series: true, ..Watch::default() }, &mut ()).unwrap();
    assert!(report.checkers_ok, "{:?}", report.violations);
    let dci = report.series.unwrap().dci.unwrap();
    let flow = &dci.flows[0];
    // From the first packet at the switch on.
    let first = flow.credit_gbps.iter().position(|gbps| *gbps > 0.0).unwrap();
    let credit: Vec<f64> = flow.credit_gbps[first..].iter().map(|gbps| gbps / 8.0).collect();
    let fluid = fluid(theta_ns, &credit);
    let peak = fluid.iter().fold(0.0_f64, |most, bytes| most.max(*bytes));
    let (mut apart, mut all) = (0.0, 0.0);
    for (fluid, waiting) in fluid.iter().zip(&flow.waiting_bytes[first..]) {
        let waiting = to_f64(*waiting);
        apart += (fluid - waiting).abs();
        all += fluid;
        assert!((fluid - waiting).abs() < 0.2 * peak, "{theta}: {fluid} {waiting}");
    }
    assert!(apart < 0.2 * all, "{theta}: apart by {} of the queue on average", apart / all);
}

#[test]
fn fig9__the_queue_is_that_of_the_fluid_model_at_6_ms() {
    follows_the_fluid_model("6ms", 6e6);
}

#[test]
fn fig9__the_queue_is_that_of_the_fluid_model_at_18_ms() {
    follows_the_fluid_model("18ms", 18e6);
}

#[test]
fn fig9__the_queue_is_that_of_the_fluid_model_at_30_ms() {
    follows_the_fluid_model("30ms", 30e6);
}
