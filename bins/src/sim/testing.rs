//! Sample reports for tests.

use spanwire_sim::workload::FlowOp;
use spanwire_sim::{FlowReport, FlowSeries, QueueReport, QueueSeries, Report, Series};
use spanwire_switch::QueueCounters;
use std::collections::BTreeMap;

/// A report of `flows` without violations.
pub(super) fn report(flows: Vec<FlowReport>) -> Report {
    Report {
        scenario: "incast-32".to_owned(),
        seed: 7,
        event_hash: "00000000deadbeef".to_owned(),
        checkers_ok: true,
        events: 2_000,
        packet_hops: 1_000,
        simulated_us: 123.0,
        measure: spanwire_sim::Measure::default(),
        ideal_us: None,
        flows,
        queues: Vec::new(),
        drops: BTreeMap::new(),
        engine: BTreeMap::new(),
        workers: None,
        pfc_pauses: 0,
        agents: Vec::new(),
        sharing: None,
        groups: Vec::new(),
        metric: None,
        over_time: Vec::new(),
        violations: Vec::new(),
        series: None,
    }
}

/// A flow with completion time `fct_us`.
pub(super) fn flow(src: u32, dst: u32, bytes: u64, fct_us: f64) -> FlowReport {
    FlowReport {
        src,
        dst,
        bytes,
        op: FlowOp::Write,
        start_us: Some(0.0),
        fct_us: Some(fct_us),
        messages_us: Vec::new(),
        goodput_gbps: Some(80.0),
        slowdown: Some(1.25),
        is_timed: false,
        failed: None,
    }
}

/// A queue with a maximum length of `max_bytes`.
pub(super) fn queue(name: &str, max_bytes: u64) -> QueueReport {
    let counters = QueueCounters { max_bytes, ..QueueCounters::default() };
    QueueReport { name: name.to_owned(), mean_bytes: 0.0, drops: 0, marks: 0, counters }
}

/// Two samples, 1 ms apart, of `flows` flows and one queue with one mark and no drop.
pub(super) fn series(flows: u32) -> Series {
    let flow = |flow| FlowSeries {
        flow,
        goodput_gbps: vec![0.0, f64::from(flow) + 1.0],
        acked_gbps: vec![0.0, f64::from(flow) + 1.0],
        in_flight_pkts: vec![5, 0],
        done_bytes: vec![0, 1 << 20],
    };
    Series {
        agents: Vec::new(),
        at_us: vec![0.0, 1_000.0],
        flows: (0..flows).map(flow).collect(),
        queues: vec![QueueSeries {
            name: "s0, port 2".to_owned(),
            bytes: vec![0, 9_000],
            marks: vec![0, 1],
            drops: vec![0, 0],
        }],
        drops: vec![0, 0],
        pauses: vec![0, 0],
        jain: Vec::new(),
        dci: None,
    }
}
