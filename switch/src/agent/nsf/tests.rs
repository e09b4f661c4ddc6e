use super::*;
use crate::agent::passing::SrData;
use crate::agent::testing::{at, passing};
use spanwire_base::Dur;

/// A packet that was sent `delay_us` before it arrives at `us`.
fn pass(nsf: &mut Nsf, us: u64, delay_us: u64) -> Outbox {
    let sent_ps = (at(us) - Dur::from_us(delay_us)).as_ps();
    let data = SrData { psn: u32::try_from(us).unwrap(), sent_ps };
    let mut out = Outbox::new();
    let passing = Passing { sr: Some(data), hop_limit: 62, ..passing(1, 2, 1000) };
    nsf.on_queued(at(us), &passing, Queued::default(), &mut out);
    out
}

#[test]
fn on_queued__a_late_packet_is_echoed() {
    let mut nsf = Nsf::new(&NsfConfig::default(), 3);
    assert!(pass(&mut nsf, 100, 5).is_empty(), "the threshold is not exceeded");
    let out = pass(&mut nsf, 106, 6);
    let echo_ps = at(100).as_ps();
    let kind = OrderKind::PseudoAck { psn: 106, echo_ps, hop_limit: 62 };
    assert_eq!(out.iter().map(|order| order.kind).collect::<Vec<_>>(), [kind]);
    assert!(pass(&mut nsf, 107, 7).is_empty(), "one in an interval");
    assert_eq!(pass(&mut nsf, 111, 1).len(), 1, "cooling");
    assert_eq!(nsf.counters(at(0)).counters[1], ("late_pkts", 2));
}

#[test]
fn on_queued__a_relative_clock_needs_none_in_common() {
    let relative =
        NsfConfig { clock: NsfClock::Relative, base: Dur::from_us(3), ..NsfConfig::default() };
    let mut nsf = Nsf::new(&relative, 3);
    // The sender's clock is 900 us behind. Base 3 us, threshold 5: more than 2 us above the least.
    assert!(pass(&mut nsf, 1_000, 900).is_empty());
    assert!(pass(&mut nsf, 1_010, 902).is_empty());
    assert_eq!(pass(&mut nsf, 1_020, 903).len(), 1);
}

#[test]
fn on_queued__ignores_packets_without_a_time() {
    let mut nsf = Nsf::new(&NsfConfig::default(), 3);
    let mut out = Outbox::new();
    nsf.on_queued(at(1_000), &passing(1, 2, 1000), Queued::default(), &mut out);
    assert!(out.is_empty() && nsf.counters(at(0)).counters[0] == ("data_pkts", 0));
}
