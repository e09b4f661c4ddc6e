//! The same measurement of the engine's pacing in virtual time, independent of the machine.

use super::{Gaps, rate_of};
use crate::ends::{End, Ends, fixed_rate};
use crate::pacing::tap::Submitted;
use spanwire_base::{Dur, Node, PortId, Rng, Time};
use spanwire_transport::{Config, Endpoint, Mtu, QpCaps, RemoteAddr, Sge, WorkRequest, WrOp};
use spanwire_wire::Packet;

/// The rate of all queue pairs together, in 10^6 bits a second.
const MBIT: f64 = 20.0;

/// Bytes of the one WRITE of each queue pair: more than leave in the measured time.
const BYTES: u32 = 4 << 20;

/// An endpoint with `qps` queue pairs that are paced to [`MBIT`] together and never run out of
/// data. Nothing is acknowledged: the window is wide enough, and no retransmission timer runs.
fn paced(qps: u32) -> Endpoint {
    let default = Config::default();
    let config = Config {
        qp_window_pkts: 8192,
        endpoint_window_pkts: 8 * 8192,
        catch_up: Dur::from_us(250),
        ..default
    };
    let mut congestion = fixed_rate(Some(MBIT / f64::from(qps)), None).unwrap();
    congestion.algorithm.as_mut().unwrap().set("window_pkts", "8192").unwrap();
    let caps = QpCaps { max_send_wr: 1, max_recv_wr: 0, ..QpCaps::default() };
    let (qps, bytes) = (usize::try_from(qps).unwrap(), BYTES.into());
    let ends = Ends { config, qps, caps, cqe: 64, bytes, mtu: Mtu::B1024 };
    let ends = ends.connect(|_, rts| {
        (rts.timeout, rts.congestion) = (Some(0), Some(congestion));
    });
    let [End { mut ep, qpns, mr, .. }, _] = ends.unwrap();
    for qpn in qpns {
        let op = WrOp::Write { remote: RemoteAddr { va: 0, rkey: 1 } };
        let sge = Sge { addr: mr.addr, len: BYTES, lkey: mr.lkey };
        ep.post_send(qpn, &WorkRequest::new(0, op, std::slice::from_ref(&sge))).unwrap();
    }
    ep
}

/// Packets submitted within a second if each wake-up is up to `late` after its deadline.
fn submitted(qps: u32, late: Dur) -> Vec<Submitted> {
    let mut ep = paced(qps);
    let (mut now, mut rng, mut all) = (Time::ZERO, Rng::new(9), Vec::new());
    let mut frame = [0; 2048];
    while now < Time::ZERO + Dur::from_secs(1) {
        ep.handle_timeout(now);
        while let Some(meta) = ep.poll_transmit(now, PortId::HOST, &mut frame) {
            let packet = Packet::parse_unverified(&frame[..meta.len]).unwrap();
            let wire_bytes = u32::try_from(meta.len).unwrap() + 24;
            all.push(Submitted { at: now, qpn: packet.bth.dest_qp, wire_bytes });
        }
        let wake = ep.poll_timeout().expect("data are always left to send").max(now);
        now = wake + Dur::from_ns(rng.below(late.as_ns() + 1));
    }
    all
}

#[test]
fn paced__queue_pairs_keep_their_rate_and_their_gaps() {
    for qps in [1, 5] {
        let gaps = Gaps::of(&submitted(qps, Dur::ZERO), rate_of(MBIT / f64::from(qps))).unwrap();
        let (achieved, p99) = (gaps.achieved, gaps.quantile(0.99));
        assert!((achieved - 1.0).abs() < 0.001, "{qps}: {achieved} of the rate");
        // A gap of one of five queue pairs is 2,244 us.
        assert!(p99 < 2.0, "{qps}: {p99} us off");
    }
}

/// The next packets make up for the delay of a late wake-up within `catch_up`.
#[test]
fn paced__a_worker_that_wakes_late_keeps_the_rate() {
    for (late_us, qps) in [(50, 1), (200, 1), (50, 5), (200, 5)] {
        let late = Dur::from_us(late_us);
        let gaps = Gaps::of(&submitted(qps, late), rate_of(MBIT / f64::from(qps))).unwrap();
        let (achieved, p99) = (gaps.achieved, gaps.quantile(0.99));
        assert!((achieved - 1.0).abs() < 0.005, "{late_us} us late, {qps}: {achieved}");
        assert!(p99 < late.as_ns() as f64 / 1e3 + 2.0, "{late_us} us late, {qps}: {p99} us off");
    }
}
