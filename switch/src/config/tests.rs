//! Tests of the configuration: accepted fields, and errors of rejected ones.

use super::*;
use crate::units::{Prob, Ratio};
use spanwire_base::Rate;
use spanwire_wire::MacAddr;

const WHOLE: &str = r#"{
  "ports": [
    {"rate": "100Gbit", "mac": "02:00:00:00:00:01", "int": true, "share": "packets",
     "class_to_queue": [0, 0, 0, 1, 0, 0, 0, 0],
     "queues": [
       {"limit_bytes": "1MB", "priority": 1, "alpha": "1/2",
        "ecn": {"kmin_bytes": "100kB", "kmax_bytes": "400kB", "pmax": "20%", "at": "enqueue"},
        "trim": {"dscp": 40, "queue": 1}},
       {"weight": 8, "phantom": {"drain": "20/21", "size_bytes": 22400515, "kmin_bytes": 448010,
         "kmax_bytes": 13440309}, "flows": {"rate": "25Gbit"}}],
     "pfc": {"priorities": [3, 4], "headroom_bytes": "50kB"}},
    {}],
  "buffer_bytes": "22MB", "seed": 7,
  "forwarding": {"routes": [{"to": "10.0.0.0/24", "via": [{"port": 1}], "spread": "random"}],
                 "macs": [{"mac": "02:00:00:00:00:09", "ports": [0, 1]}], "learning": false}
}"#;

fn read(text: &str) -> SwitchConfig {
    serde_json::from_str(text).unwrap()
}

#[test]
fn switch_config__reads_every_field_and_writes_it_back() {
    let config = read(WHOLE);
    config.validate().unwrap();
    let queues = &config.ports[0].queues;
    assert_eq!(queues[0].ecn.unwrap().pmax, Prob::from_ppm(200_000));
    assert_eq!(queues[1].phantom.unwrap().drain, Ratio::new(20, 21).unwrap());
    assert_eq!(config.set_aside_bytes(), 2 * (50_000 + 4_096));
    assert_eq!(config.ports[1], PortConfig::default());
    let again = serde_json::to_string(&config).unwrap();
    assert_eq!(read(&again), config);
}

#[test]
fn switch_config__rejects_unknown_fields() {
    for text in [
        r#"{"ports": [], "buffer": 1}"#,
        r#"{"ports": [{"rates": "1Gbit"}]}"#,
        r#"{"ports": [{"queues": [{"limit": 5}]}]}"#,
        r#"{"ports": [{"pfc": {"xoff": 5}}]}"#,
    ] {
        let error = serde_json::from_str::<SwitchConfig>(text).unwrap_err().to_string();
        assert!(error.contains("unknown field"), "{error}");
    }
}

#[test]
fn validate__names_field_problem_and_valid_values() {
    type Case = (fn(&mut SwitchConfig), &'static str);
    let cases: &[Case] = &[
        (|c| c.ports.clear(), "ports: has 0 entries; choose 1 to 128"),
        (|c| c.ports = vec![PortConfig::default(); 129], "ports: has 129"),
        (|c| c.buffer_bytes = 5, "buffer_bytes: is 5; choose 64000 to"),
        (|c| c.buffer_bytes = 100_000, "buffer_bytes: is 100kB, but the ports' pfc.reserve"),
        (|c| c.max_frame_bytes = 70_000, "max_frame_bytes: is 70000; choose 64 to 65549"),
        (|c| c.ports[1].queues.clear(), "ports[1].queues: has 0 entries; choose 1 to 8"),
        (|c| c.ports[0].class_to_queue[7] = 2, "ports[0].class_to_queue[7]: is 2, but"),
        (|c| c.ports[0].quantum_bytes = 1, "ports[0].quantum_bytes: is 1"),
        (|c| c.ports[0].queues[1].weight = 0, "ports[0].queues[1].weight: is 0; choose 1 to 1000"),
        (|c| c.ports[0].queues[0].limit_bytes = 0, "ports[0].queues[0].limit_bytes: is 0"),
        (
            |c| c.ports[0].queues[0].ecn.as_mut().unwrap().kmin_bytes = 1 << 20,
            "ports[0].queues[0].ecn.kmin_bytes: is 1048576, above kmax_bytes 400000",
        ),
        (
            |c| c.ports[0].queues[1].phantom.as_mut().unwrap().size_bytes = 1_000,
            "ports[0].queues[1].phantom.kmax_bytes: is above size_bytes",
        ),
        (
            |c| c.ports[0].queues[1].phantom.as_mut().unwrap().drain = Ratio::new(2, 1).unwrap(),
            "ports[0].queues[1].phantom.drain: is above 1",
        ),
        (|c| c.ports[1].queues[0].phantom = c.ports[0].queues[1].phantom, "needs the port's rate"),
        (|c| c.ports[1].pfc = Some(PfcConfig::default()), "ports[1].pfc: needs the port's rate"),
        (
            |c| c.ports[0].queues[0].trim = Some(TrimConfig { dscp: 64, queue: 1 }),
            "ports[0].queues[0].trim.dscp: is 64; choose 0 to 63",
        ),
        (
            |c| c.ports[0].queues[0].trim = Some(TrimConfig { dscp: 1, queue: 2 }),
            "ports[0].queues[0].trim.queue: is 2",
        ),
        (
            |c| c.ports[0].queues[1].flows.as_mut().unwrap().max_flows = 7,
            "ports[0].queues[1].flows.max_flows: is 7; choose 8 to 65536",
        ),
        (
            |c| c.ports[0].pfc.as_mut().unwrap().priorities = vec![3, 3],
            "ports[0].pfc.priorities[1]: is 3; name each of 0 to 7 at most once",
        ),
        (|c| c.ports[0].pfc.as_mut().unwrap().quanta = 1, "ports[0].pfc.quanta: is 1"),
        (|c| c.forwarding.routes[0].via[0].port = 2, "forwarding.routes[0].via: names port 2"),
        (|c| c.forwarding.routes[0].via.clear(), "forwarding.routes[0].via: its length is 0"),
        (
            |c| c.forwarding.routes.push(c.forwarding.routes[0].clone()),
            "forwarding.routes[1].to: repeats 10.0.0.0/24",
        ),
        (|c| c.forwarding.macs[0].ports[0] = 9, "forwarding.macs[0].ports: names port 9"),
        (
            |c| c.forwarding.macs[0].mac = MacAddr::BROADCAST,
            "forwarding.macs[0].mac: ff:ff:ff:ff:ff:ff repeats",
        ),
        (|c| c.forwarding.max_macs = 0, "forwarding.max_macs: is 0; choose 4 to 1048576"),
    ];
    for (change, want) in cases {
        let mut config = read(WHOLE);
        change(&mut config);
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(want), "wanted {want:?}, got {error:?}");
    }
}

#[test]
fn headroom_for__covers_both_directions() {
    // 25 Gbit/s and 1 us: 3125 bytes each way.
    let rate = Rate::from_gbps(25);
    let headroom = PfcConfig::headroom_for(rate, spanwire_base::Dur::from_us(1), 1_500);
    assert_eq!(headroom, 2 * 3_125 + 3 * 1_524 + 84 + 1);
}
