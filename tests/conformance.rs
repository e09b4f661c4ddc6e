//! Every capture of Linux rxe, with our engine in place of each side. Given the recorded peer's
//! packets, it must send what the recorded side sent.
//!
//! `docs/conformance.md` has the resulting table; `SPANWIRE_BLESS=1` regenerates it.
#![forbid(unsafe_code)]
#![expect(non_snake_case, reason = "tests are named function__case")]

#[path = "conformance/judge.rs"]
mod judge;
#[path = "conformance/rules.rs"]
mod rules;
#[path = "conformance/table.rs"]
mod table;

use judge::{Verdict, judge};
use rules::Rule;
use spanwire_tests::replay::{
    Capture, Host, Lane, Pace, Playback, captures, play, play_other_transport,
};
use spanwire_transport::{DropReason, Wc, WcOpcode, WcStatus};
use spanwire_wire::Service;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use table::Other;

/// All captures, parsed once.
fn all() -> &'static [Capture] {
    static ALL: OnceLock<Vec<Capture>> = OnceLock::new();
    ALL.get_or_init(captures)
}

fn named(name: &str) -> &'static Capture {
    all().iter().find(|c| c.name == name).expect("a capture of this name")
}

/// The verdicts on all sides of the captures that an implementation played. The hand-made endpoint
/// is no implementation to conform to.
fn verdicts() -> &'static [Verdict] {
    static VERDICTS: OnceLock<Vec<Verdict>> = OnceLock::new();
    VERDICTS.get_or_init(|| {
        let talking = all().iter().filter(|c| !c.links().is_empty());
        let sides = talking.flat_map(|c| c.hosts.map(|host| (c, host)));
        let real = sides.filter(|(c, host)| !c.is_hand_made(*host));
        real.map(|(capture, host)| judge(capture, host)).collect()
    })
}

fn others() -> Vec<Other> {
    let mut others = Vec::new();
    for capture in all() {
        let other = || [Service::Uc, Service::Ud].into_iter().flat_map(|s| capture.of_service(s));
        for host in capture.hosts {
            if !other().any(|frame| frame.from != host) {
                continue;
            }
            let (fed, counters) = play_other_transport(capture, host);
            let dropped = |reason| counters.dropped(reason);
            others.push(Other {
                capture: capture.name.clone(),
                host,
                fed,
                wrong_service: dropped(DropReason::WrongService),
                unknown_qpn: dropped(DropReason::UnknownQpn),
            });
        }
    }
    others
}

#[test]
fn captures__the_engine_sends_what_rxe_sent() {
    let verdicts = verdicts();
    let made = table::render(verdicts, &others());
    println!("{made}");

    let unresolved: Vec<&str> =
        verdicts.iter().flat_map(|v| &v.unresolved).map(String::as_str).collect();
    assert!(
        unresolved.is_empty(),
        "{} differences that no rule justifies:\n{}",
        unresolved.len(),
        unresolved.join("\n")
    );
    check_doc(&made);
}

/// Checks that `docs/conformance.md` is current.
fn check_doc(made: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance.md");
    let text = fs::read_to_string(&path).expect("docs/conformance.md is there");
    let fresh = table::splice(&text, made);
    if std::env::var_os("SPANWIRE_BLESS").is_some() {
        fs::write(&path, fresh).expect("docs/conformance.md can be written");
        return;
    }
    let stale = text.lines().zip(fresh.lines()).find(|(old, new)| old != new);
    assert!(
        text == fresh,
        "docs/conformance.md is stale, first at {stale:?}: review the change, then run this \
         test with SPANWIRE_BLESS=1"
    );
}

#[test]
fn rules__each_is_used() {
    for rule in Rule::ALL {
        let used = verdicts().iter().any(|v| v.justified.contains_key(&rule));
        assert!(used, "{rule:?} justifies nothing: remove it");
    }
}

#[test]
fn completions__have_the_status_of_rxe() {
    // The failures that vprobe printed; all other requests succeeded.
    let failed: &[(&str, Host, WcStatus)] = &[
        ("51_rnr_retry_exceeded", Host::A, WcStatus::RnrRetryExcErr),
        ("60_bad_rkey_write", Host::A, WcStatus::RemAccessErr),
        ("61_bad_rkey_write_multi", Host::A, WcStatus::RemAccessErr),
        ("62_bad_rkey_read", Host::A, WcStatus::RemAccessErr),
        ("63_bad_rkey_atomic", Host::A, WcStatus::RemAccessErr),
        ("64_bad_address", Host::A, WcStatus::RemAccessErr),
        ("66_recv_too_short", Host::A, WcStatus::RemOpErr),
        ("66_recv_too_short", Host::B, WcStatus::LocLenErr),
        ("67_send_then_badkey_pipelined", Host::A, WcStatus::RemAccessErr),
        ("79_loss_all", Host::A, WcStatus::RetryExcErr),
    ];
    for v in verdicts() {
        let want = failed.iter().find(|(name, host, _)| *name == v.capture && *host == v.host);
        let completions = &v.playback.completions;
        let errors: Vec<WcStatus> = completions
            .iter()
            .map(|wc| wc.status)
            .filter(|s| !matches!(s, WcStatus::Success | WcStatus::WrFlushErr))
            .collect();
        let at = format!("{} {}", v.capture, v.host);
        assert_eq!(errors, Vec::from_iter(want.map(|(.., s)| *s)), "{at}");
        let of_send_queue =
            |wc: &&Wc| !matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        let ended = completions.iter().filter(of_send_queue).count();
        assert_eq!(ended, v.playback.requests_posted, "{at}: completed requests");
    }
}

#[test]
fn other_services__are_counted_without_a_response() {
    let others = others();
    let names: Vec<&str> = others.iter().map(|o| &*o.capture).collect();
    for name in ["14_send_ud", "15_send_uc", "16_write_uc", "21_ud_pingpong", "33_v6_ud"] {
        assert!(names.contains(&name), "{name}");
    }
    for o in &others {
        let fed = u64::try_from(o.fed).expect("few");
        assert_eq!((o.wrong_service, o.unknown_qpn), (fed, fed), "{} {}", o.capture, o.host);
    }
}

#[test]
fn recovery__begins_when_the_loss_is_detectable() {
    // The requester's causes of retransmission: sequence NAKs, gaps among responses, timeouts. rxe
    // also waits for its timer in 74, 78 and 83.
    let cases = [
        ("70_loss_write_middle", [1, 0, 0]),
        ("71_loss_send_only", [1, 0, 0]),
        ("72_loss_tail", [0, 0, 1]),
        ("73_loss_ack", [0, 0, 1]),
        ("74_loss_read_middle", [0, 1, 0]),
        ("75_loss_read_last", [0, 0, 1]),
        ("76_loss_read_request", [1, 0, 0]),
        ("77_loss_atomic_ack", [0, 0, 1]),
        ("78_loss_atomic_ack_pipelined", [0, 2, 0]),
        ("79_loss_all", [0, 0, 3]),
        ("83_probe_readgap_first", [0, 1, 0]),
        ("85_probe_nakseq", [1, 0, 0]),
    ];
    for (name, want) in cases {
        let c = play(named(name), Host::A, Pace::Packets, true).counters;
        let found = [c.packet_seq_err, c.implied_nak_seq_err, c.local_ack_timeout_err];
        assert_eq!(found, want, "{name}");
    }
}

#[test]
fn fast_paths__change_nothing() {
    for verdict in verdicts() {
        let general = play(named(&verdict.capture), verdict.host, Pace::Packets, false);
        let name = &verdict.capture;
        let counters = |play: &Playback| format!("{:?}", play.counters);
        assert_eq!(counters(&general), counters(&verdict.playback), "{name}");
        assert_eq!(general.completions, verdict.playback.completions, "{name}");
        for (general, fast) in general.lanes.iter().zip(&verdict.playback.lanes) {
            assert_eq!(general.ours, fast.ours, "{name}");
        }
    }
}

#[test]
fn bursts__coalesce_acknowledgements_and_change_nothing_else() {
    // If packets arrive in bursts, one ACK covers several. Our responses then are a subsequence of
    // rxe's, up to its last one.
    let (mut recorded_acks, mut our_acks) = (0, 0);
    for verdict in verdicts().iter().filter(|v| v.justified.is_empty()) {
        let lanes = play(named(&verdict.capture), verdict.host, Pace::Bursts, true).lanes;
        for log in lanes.iter().filter(|l| l.lane == Lane::Responses) {
            let at = format!("{} {}", verdict.capture, verdict.host);
            let mut rest = log.recorded.iter();
            for ours in &log.ours {
                let found = rest.any(|recorded| recorded.sent == ours.sent);
                assert!(found, "{at}: rxe did not send {}", ours.sent);
            }
            assert_eq!(rest.count(), 0, "{at}: the last response is missing");
            recorded_acks += log.recorded.len();
            our_acks += log.ours.len();
        }
    }
    assert!(our_acks < recorded_acks, "nothing was coalesced: {our_acks} of {recorded_acks}");
}
