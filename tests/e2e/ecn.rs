//! An agent of a real switch that chooses marking thresholds: four processes of DCQCN at its
//! bottleneck.
//!
//! Its choices, intervals and errors are asserted in virtual time (unit tests of `switch`). Here
//! thresholds move, freeze, and no byte is lost.

use crate::cc::shared::Shared;
use crate::lab::until;
use serde_json::Value;

/// The round trip of the lab is 8 ms: 1000 times that of LAECN's network, at a 500th of its rate.
const AGENT: &str = "[port.a.queue.ecn]\nkmin_bytes = '10kB'\nkmax_bytes = '50kB'\n\
     [[agent]]\nkind = 'ecn'\nports = ['a']\nmodel = 'laecn'\nrtt = '8ms'\ninterval = '20ms'\n\
     flows = 8\n";

/// Senders that react to the marks.
const DCQCN: [&str; 6] = ["--mode", "rc", "--line-rate", "50Mbit", "--cc", "dcqcn-rnic"];

/// The agent, as `ctl show` has it.
struct Shown(Value);

impl Shown {
    fn of(shared: &Shared) -> Self {
        let shown = shared.ctl();
        let agents = shown["agents"].as_array().expect("a list");
        assert_eq!((agents.len(), &agents[0]["kind"]), (1, &"ecn".into()), "{shown}");
        Self(agents[0].clone())
    }

    fn count(&self, name: &str) -> u64 {
        self.0["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {}", self.0))
    }

    fn thresholds(&self) -> [u64; 3] {
        let of = |name: &str| self.0["gauges"][name].as_u64().expect("a value");
        ["kmin_bytes", "kmax_bytes", "pmax_ppm"].map(of)
    }
}

#[test]
fn laecn__thresholds_move_freeze_and_lose_nothing() {
    let Some(shared) = Shared::with(4, "", AGENT) else { return };
    // 80 KB, 320 KB and 0.2 of LAECN's network: twice that here, in proportion to rate and round
    // trip.
    let first = Shown::of(&shared);
    assert_eq!((first.thresholds(), first.count("decisions")), ([160_000, 640_000, 200_000], 0));
    let endless = ["-t", "86400", "-i", "0", "--window", "192"];
    let (servers, clients) = shared.start(&[&endless[..], &DCQCN].concat());
    until("thresholds move", || Shown::of(&shared).count("changes") > 0);
    shared.set("agent.0.hold=true");
    let held = Shown::of(&shared);
    let bytes = || {
        let shown = shared.ctl();
        shown["ports"][0]["counters"]["tx_bytes"].as_u64().expect("a count")
    };
    let before = bytes();
    until("traffic goes on", || bytes() > before + 2_000_000);
    let after = Shown::of(&shared);
    assert_eq!(after.thresholds(), held.thresholds());
    assert_eq!(after.count("decisions"), held.count("decisions"));
    shared.set("agent.0.hold=false");
    until("decisions go on", || Shown::of(&shared).count("decisions") > held.count("decisions"));
    let last = Shown::of(&shared);
    let decisions = last.count("decisions");
    assert_eq!(last.count("flops_decision"), decisions * 1024);
    assert_eq!(last.count("flops_policy"), last.count("activations") * 32_256);
    assert_eq!((last.count("nan"), last.count("skipped")), (0, 0));
    let flows = last.0["gauges"]["flows"].as_u64().expect("a value");
    assert!((1..=16).contains(&flows), "{flows}");
    clients.into_iter().for_each(|client| drop(client.end_with(libc::SIGINT).json()));
    servers.into_iter().for_each(|server| drop(server.end_with(libc::SIGTERM).json()));
    // No byte is lost to it.
    shared.run("1M", &DCQCN);
}
