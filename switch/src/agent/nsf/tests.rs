use super::*;
use crate::agent::passing::SrData;
use crate::agent::testing::{at, at_ports, passing};
use spanwire_base::Dur;

/// A packet that was sent `delay_us` before it arrives at `us`.
fn pass(nsf: &mut Nsf, us: u64, delay_us: u64) -> Option<Order> {
    let sent_ps = (at(us) - Dur::from_us(delay_us)).as_ps();
    let data = SrData { psn: u32::try_from(us).unwrap(), sent_ps };
    let passing = Passing { sr: Some(data), hop_limit: 62, ..passing(1, 2, 1000) };
    nsf.on_queued(at(us), &passing, Queued::default()).feedback
}

#[test]
fn on_queued__a_late_packet_is_echoed() {
    let mut nsf = at_ports(&[3], |site| Nsf::new(&NsfConfig::default(), site));
    assert!(pass(&mut nsf, 100, 5).is_none(), "the threshold is not exceeded");
    let out = pass(&mut nsf, 106, 6);
    let data = SrData { psn: 106, sent_ps: at(100).as_ps() };
    let kind = OrderKind::PseudoAck { data, hop_limit: 62 };
    assert_eq!(out.map(|order| order.kind), Some(kind));
    assert!(pass(&mut nsf, 107, 7).is_none(), "one in an interval");
    assert!(pass(&mut nsf, 111, 1).is_some(), "cooling");
    assert_eq!(nsf.counters(at(0))[0].counters[1], ("late_pkts", 2));
}

#[test]
fn on_queued__a_relative_clock_needs_none_in_common() {
    let relative =
        NsfConfig { clock: NsfClock::Relative, base: Dur::from_us(3), ..NsfConfig::default() };
    let mut nsf = at_ports(&[3], |site| Nsf::new(&relative, site));
    // The sender's clock is 900 us behind. Base 3 us, threshold 5: more than 2 us above the least.
    assert!(pass(&mut nsf, 1_000, 900).is_none());
    assert!(pass(&mut nsf, 1_010, 902).is_none());
    assert!(pass(&mut nsf, 1_020, 903).is_some());
}

#[test]
fn on_queued__ignores_packets_without_a_time() {
    let mut nsf = at_ports(&[3], |site| Nsf::new(&NsfConfig::default(), site));
    let effects = nsf.on_queued(at(1_000), &passing(1, 2, 1000), Queued::default());
    assert!(effects == Effects::NONE && nsf.counters(at(0))[0].counters[0] == ("data_pkts", 0));
}
