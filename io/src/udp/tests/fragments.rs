//! Datagrams that may be fragmented.

use super::*;

#[test]
fn flush__a_frame_that_may_be_fragmented_arrives_whole_with_a_right_checksum() {
    for is_v6 in [false, true] {
        let [mut a, mut b] = pair(is_v6);
        let frames: Vec<Vec<u8>> = (0..4).map(|n| frame(&a, &b, 2, n, 1400)).collect();
        for (n, frame) in frames.iter().enumerate() {
            let mut slot = reserve(&mut a).expect("a free buffer");
            slot.bytes()[..frame.len()].copy_from_slice(frame);
            // Two in the middle are sent alone.
            let may_fragment = (n == 1 || n == 2).into();
            slot.commit(TxMeta { may_fragment, ..TxMeta::whole(frame.len()) });
        }
        a.flush(Time::ZERO).expect("the interface is there");
        let received = receive(&mut b, 4, 64);
        for (sent, (arrived, _)) in frames.iter().zip(&received) {
            assert!(is_sealed(arrived) && comparable(arrived) == comparable(sent));
        }
        let counters = a.counters();
        assert_eq!((counters.tx_calls, counters.tx_fragmented), (4, 2));
        let source = a.sender.sources.find(Time::ZERO, SRC_PORT, is_v6).expect("bound");
        let (level, option, probe) = match is_v6 {
            false => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            true => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
        };
        let discover: i32 =
            sockopt::get(a.sender.sources.socket(source), level, option).expect("a socket");
        assert_eq!(discover, probe, "DF again");
    }
}

#[test]
fn flush_by__what_is_longer_than_the_interfaces_mtu_leaves_as_fragments() {
    let [mut a, b] = pair(false);
    let of = |len| -> Vec<Vec<u8>> { (0..3).map(|n| frame(&a, &b, 2, n, len)).collect() };
    let (long, short) = (of(1000), of(300));
    let mut counters = UdpCounters::default();
    // The calls: whether each is a run. The kernel refuses the first `refused` of them.
    let mut flush = |sender: &mut Sender, refused: usize| {
        let mut calls = Vec::new();
        let flushed = sender.flush_by(Time::ZERO, &mut counters, &mut |_, _, control, _| {
            calls.push(control.messages().any(|(_, kind, _)| kind == libc::UDP_SEGMENT));
            match calls.len() > refused {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
            }
        });
        flushed.expect("no device");
        (calls, counters.tx_frames, counters.tx_fragmented)
    };
    long.iter().for_each(|frame| commit(&mut a, frame));
    // A run, the first datagram alone, and then each as fragments.
    assert_eq!(flush(&mut a.sender, 2), (vec![true, false, false, false, false], 3, 3));
    // Later ones at once, and shorter ones in runs as before.
    long.iter().chain(&short).for_each(|frame| commit(&mut a, frame));
    assert_eq!(flush(&mut a.sender, 0), (vec![false, false, false, true], 9, 6));
    // What is too long even so is lost, and counted.
    commit(&mut a, &long[0]);
    assert_eq!(flush(&mut a.sender, 1), (vec![false], 9, 6));
    assert_eq!(counters.tx_too_long, 1);
}
