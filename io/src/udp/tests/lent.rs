//! Payload that is sent from where it is.

use super::*;
use crate::port::Burst;
use spanwire_base::TxBurst as _;
use spanwire_mem::Region;

/// Commits `frame` with its bytes from `at` on, but for the checksum, lent from `region`.
fn commit_lent(port: &mut UdpPort, frame: &[u8], at: usize, region: &Region) {
    let end = frame.len() - 4;
    region.copy_in(100, &frame[at..end]).unwrap();
    let bytes = region.lend(100, end - at).expect("within");
    let mut burst = Burst::new(port, 1);
    let buffer = burst.buffer().expect("a free buffer");
    buffer[..at].copy_from_slice(&frame[..at]);
    buffer[at..end].fill(0xee);
    buffer[end..frame.len()].copy_from_slice(&frame[end..]);
    burst.commit(TxMeta::whole(frame.len()), Some(LentPayload { at, bytes }));
}

#[test]
fn flush__lent_payload_is_sent_from_where_it_is() {
    for is_v6 in [false, true] {
        let [mut a, mut b] = pair(is_v6);
        assert!(a.sends_lent());
        let frames: Vec<_> = (0..70).map(|n| frame(&a, &b, 2, n, 900)).collect();
        let regions: Vec<_> = frames.iter().map(|_| Region::zeroed(2_000)).collect();
        for (n, (frame, region)) in frames.iter().zip(&regions).enumerate() {
            match n % 5 {
                0 => commit(&mut a, frame),
                _ => commit_lent(&mut a, frame, 14 + 48 + n, region),
            }
        }
        a.flush(Time::ZERO).expect("the interface is there");
        // No reference survives the flush, so what follows changes no packet.
        regions.iter().for_each(|region| region.copy_in(0, &[0xdd; 2_000]).unwrap());
        for ((received, _), frame) in receive(&mut b, 70, 64).iter().zip(&frames) {
            assert!(is_sealed(received));
            assert_eq!(comparable(received), comparable(frame));
        }
        assert!(a.counters().tx_calls < 10, "{:?}", a.counters());
    }
}

#[test]
fn flush__what_the_kernel_does_not_accept_is_copied_at_once() {
    let [mut a, mut b] = pair(false);
    let sent = frame(&a, &b, 2, 7, 900);
    let region = Region::zeroed(2_000);
    commit_lent(&mut a, &sent, 14 + 48, &region);
    a.sender.copy_lent();
    region.copy_in(0, &[0xdd; 2_000]).unwrap();
    a.flush(Time::ZERO).expect("the interface is there");
    assert_eq!(comparable(&receive(&mut b, 1, 64)[0].0), comparable(&sent));
}

#[test]
#[should_panic(expected = "lent beyond a frame")]
fn commit__payload_beyond_the_frame_is_an_error_of_the_node() {
    let [mut a, b] = pair(false);
    let sent = frame(&a, &b, 2, 7, 900);
    let bytes = Region::zeroed(2_000).lend(0, 1_000).expect("within");
    let mut burst = Burst::new(&mut a, 1);
    burst.buffer().expect("a free buffer")[..sent.len()].copy_from_slice(&sent);
    burst.commit(TxMeta::whole(sent.len()), Some(LentPayload { at: 60, bytes }));
}
