//! Floods by a blind third party, without knowledge of the PSNs: CNPs, and requests of any PSN.

use super::forge::Forge;
use super::{Injector, Lab, Numbers, Tap, await_server};
use crate::lab::Running;
use serde_json::Value;
use spanwire_base::Rng;
use spanwire_wire::{ExtHeaders, Opcode, Psn, RethRepr};
use std::time::Duration;

/// A server, an RC client with a transfer, and the parameters that they exchanged.
fn transfer(lab: &Lab, more: &[&str]) -> (Running, Running, Numbers) {
    let server = lab.start(&lab.hosts.a.ns, &["perf", "server", "--dev", "sw0", "--json"]);
    await_server(lab);
    let mut tap = Tap::new(&lab.hosts.b);
    let args =
        ["--transfer", "512M", "--size", "256K", "--timeout", "16", "--json", "--mode", "rc"];
    let client = lab.start_client(lab.v4(), &[&args[..], more].concat());
    let numbers = tap.capture_numbers();
    (server, client, numbers)
}

#[test]
fn hostile__a_flood_of_cnps_is_rate_limited() {
    const BURSTS: u64 = 20;
    const BURST: u64 = 64;
    let Some(lab) = Lab::new(1500) else { return };
    let (server, mut client, numbers) = transfer(&lab, &["--cc", "dcqcn"]);
    let forge = Forge::new(&lab.hosts.a, &lab.hosts.b, numbers.client_qpn);
    let cnp = forge.packet(Opcode::Cnp, Psn::new(0), ExtHeaders::NONE, 0);
    let mut from_a = Injector::new(&lab.hosts.a);
    for _ in 0..BURSTS {
        for _ in 0..BURST {
            from_a.send(&cnp);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(client.is_running(), "the transfer ended before the attack did");
    let report = client.wait().json();
    assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
    let count = |name: &str| report["counters"][name].as_u64().unwrap_or(0);
    let (handled, ignored) = (count("rp_cnp_handled"), count("drop_ignored_cnp"));
    assert!(handled > 0 && handled + ignored <= BURSTS * BURST, "{handled} and {ignored}");
    assert!(ignored > 2 * handled, "{ignored} ignored and {handled} not: {report}");
    server.end_with(libc::SIGTERM);
}

/// Blind reset: requests with a wrong key at random future PSNs, except near the expected one.
#[test]
fn hostile__a_blind_spray_causes_no_reset_and_no_retransmission() {
    const SPRAY: u64 = 4_000;
    let Some(lab) = Lab::new(1500) else { return };
    let (server, mut client, numbers) = transfer(&lab, &[]);
    let forge = Forge::new(&lab.hosts.b, &lab.hosts.a, numbers.server_qpn);
    let mut from_b = Injector::new(&lab.hosts.b);
    let mut rng = Rng::new(15);
    let reth = Some(RethRepr { va: numbers.va, rkey: numbers.rkey ^ 1, dma_len: 64 });
    let ext = ExtHeaders { reth, ..ExtHeaders::NONE };
    for n in 0..SPRAY {
        // The transfer takes 2^19 packets; half of the PSNs are ahead of all of them.
        let away = u32::try_from(rng.below((1 << 23) - (2 << 20))).expect("24 bits");
        let psn = Psn::new(numbers.client_psn).plus(1 << 20).plus(away);
        from_b.send(&forge.packet(Opcode::RcWriteOnly, psn, ext, 64));
        if n % 64 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(client.is_running(), "the transfer ended before the attack did");
    let report = client.wait().json();
    assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
    let served = server.end_with(libc::SIGTERM);
    let served: Value = serde_json::from_str(&served.stdout).expect("one line per job");
    let count = |name: &str| served["counters"][name].as_u64().unwrap_or(0);
    assert!(count("drop_beyond_psn_limit") > SPRAY / 2, "{served}");
    assert_eq!(count("tx_fatal_naks"), 0, "{served}");
    // A busy machine loses some packets of its own; each forged one used to count as a gap.
    assert!(count("out_of_sequence") < SPRAY / 20, "{served}");
}
