//! The way to the peer: the headers every packet starts with, its entropy, and the round trip
//! measured on it (*which way*). Congestion control and path selection will live here.

use crate::attr::AddressVector;
use spanwire_base::{Dur, Time};
use spanwire_wire::{Packet, Qpn, Template};

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    av: AddressVector,
    template: Template,
    rtt: Rtt,
}

/// A smoothed round trip, from one timed packet at a time.
#[derive(Debug, Default)]
struct Rtt {
    /// The packet being timed: its unwrapped PSN, and when it left.
    timed: Option<(u64, Time)>,
    srtt: Option<Dur>,
}

impl Path {
    /// The path of `av`, or `None` when its addresses are of two IP versions.
    pub(crate) fn new(av: AddressVector, local: Qpn, remote: Qpn) -> Option<Self> {
        let port = av.udp_src_port.unwrap_or_else(|| entropy(local, remote));
        let template = Template::new(av.ethernet(), av.ip()?, port);
        Some(Self { av, template, rtt: Rtt::default() })
    }

    pub(crate) fn template(&self) -> &Template {
        &self.template
    }

    /// The packet comes from the peer and is addressed to us.
    pub(crate) fn matches(&self, p: &Packet<'_>) -> bool {
        p.ip.src() == self.av.dst_ip && p.ip.dst() == self.av.src_ip
    }

    /// A packet left for the first time. True when it is the one that is timed.
    pub(crate) fn on_sent(&mut self, now: Time, number: u64) -> bool {
        let is_timed = self.rtt.timed.is_none();
        if is_timed {
            self.rtt.timed = Some((number, now));
        }
        is_timed
    }

    /// Everything before `upto` was acknowledged. Returns when the packet left that was timed, if
    /// it is among it.
    pub(crate) fn on_acked(&mut self, now: Time, upto: u64) -> Option<Time> {
        let (_, at) = self.rtt.timed.filter(|(number, _)| *number < upto)?;
        self.rtt.timed = None;
        let sample = now.since(at);
        // RFC 6298: srtt moves an eighth of the way to each sample.
        self.rtt.srtt = Some(self.rtt.srtt.map_or(sample, |s| (s * 7 + sample) / 8));
        Some(at)
    }

    /// Packets are sent again: an acknowledgement would not say which sending it is of (Karn).
    pub(crate) fn on_rewind(&mut self) {
        self.rtt.timed = None;
    }

    /// The smoothed round trip, once there was one.
    pub(crate) fn srtt(&self) -> Option<Dur> {
        self.rtt.srtt
    }
}

/// The UDP source port Linux derives for a queue pair with flow label 0: both ends get the same.
///
/// # Source
/// Seen in the rxe captures and checked there: 20 bits of the product of both QPNs folded to 14.
fn entropy(local: Qpn, remote: Qpn) -> u16 {
    let mut v = u64::from(local.get()) * u64::from(remote.get());
    v ^= v >> 20;
    v ^= v >> 40;
    let label = v & 0xf_ffff;
    let port = ((label & 0x3fff) ^ (label >> 14)) | 0xc000;
    u16::try_from(port).expect("14 bits and the two above them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_wire::MacAddr;
    use std::net::Ipv4Addr;

    fn path() -> Path {
        let av = AddressVector {
            src_mac: MacAddr::new([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr::new([2, 0, 0, 0, 0, 2]),
            src_ip: Ipv4Addr::new(10, 0, 0, 1).into(),
            dst_ip: Ipv4Addr::new(10, 0, 0, 2).into(),
            udp_src_port: None,
            traffic_class: 0,
            hop_limit: 64,
        };
        Path::new(av, Qpn::new(17), Qpn::new(18)).expect("one IP version")
    }

    #[test]
    fn on_acked__smooths_by_an_eighth() {
        let mut p = path();
        p.on_sent(Time::from_ns(0), 4);
        p.on_sent(Time::from_ns(50), 5);
        p.on_acked(Time::from_ns(60), 4);
        assert_eq!(p.srtt(), None, "4 itself is not acknowledged by upto 4");
        p.on_acked(Time::from_ns(80), 6);
        assert_eq!(p.srtt(), Some(Dur::from_ns(80)));
        p.on_sent(Time::from_ns(100), 6);
        p.on_acked(Time::from_ns(260), 7);
        assert_eq!(p.srtt(), Some(Dur::from_ns(90)));
    }

    #[test]
    fn on_rewind__gives_up_the_timing() {
        let mut p = path();
        p.on_sent(Time::from_ns(0), 0);
        p.on_rewind();
        p.on_acked(Time::from_ns(500), 9);
        assert_eq!(p.srtt(), None);
    }

    #[test]
    fn entropy__is_symmetric_and_in_the_ephemeral_range() {
        for (a, b) in [(17, 18), (0xff_ffff, 2), (0x12_3456, 0x65_4321)] {
            let (a, b) = (Qpn::new(a), Qpn::new(b));
            assert_eq!(entropy(a, b), entropy(b, a));
            assert!(entropy(a, b) >= 0xc000);
        }
    }
}
