//! Drivers over UDP sockets: calls that carry runs, and buffers in bytes.

use super::*;

/// Calls take 10 us each; the buffers hold 5 frames of 64 bytes to receive and 3 of 100 to send.
fn sockets() -> HostModel {
    let sockets = Sockets {
        rx_call: Dur::from_us(10),
        tx_call: Dur::from_us(10),
        run_frames: 4,
        rx_bytes: 5 * (64 + Sockets::SKB_BYTES),
        tx_bytes: 3 * (100 + Sockets::SKB_BYTES),
    };
    HostModel { batch: 8, timestamps: true, sockets: Some(sockets), ..model() }
}

/// An IPv4 frame with UDP from this port, of `len` bytes.
fn datagram(port: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    (frame[23], frame[35]) = (17, port);
    frame
}

fn arrive_from(host: &mut PolledHost<Echo>, at: Time, port: u8, len: usize) {
    host.handle_packet(at, PortId::HOST, &datagram(port, len), &RxMeta::whole(at));
}

/// Arrivals as the node sees them: exact, or not before a time.
fn dated(host: &PolledHost<Echo>) -> Vec<(bool, Time)> {
    let dated = |(_, meta): &(Time, RxMeta)| (meta.earliest == meta.at, meta.earliest);
    host.node().seen.iter().map(dated).collect()
}

#[test]
fn receive__frames_that_arrive_within_a_call_of_each_other_share_one() {
    let mut host = host(&sockets());
    // The third is 11 us after the second, the fourth of another flow.
    for (at, port) in [(100, 1), (105, 1), (116, 1), (117, 2)] {
        arrive_from(&mut host, us(at), port, 64);
    }
    run(&mut host, us(1_000));
    assert_eq!((host.counters().rx_frames, host.counters().rx_runs), (4, 3));
    let expected = [(true, us(100)), (false, us(100)), (true, us(116)), (true, us(117))];
    assert_eq!(dated(&host), expected);
}

#[test]
fn receive__a_run_is_dated_by_its_first_frame_in_later_steps_too() {
    let mut host = host(&HostModel { batch: 2, ..sockets() });
    (0..4).for_each(|n| arrive_from(&mut host, us(100 + n), 1, 64));
    run(&mut host, us(1_000));
    let times: Vec<Time> = host.node().seen.iter().map(|(now, _)| *now).collect();
    assert!(times[1] < times[2], "two steps: {times:?}");
    let rest = (false, us(100));
    assert_eq!(dated(&host), [(true, us(100)), rest, rest, rest]);
}

#[test]
fn receive__without_timestamps_a_run_is_as_late_as_its_step() {
    let mut host = host(&HostModel { timestamps: false, ..sockets() });
    (0..2).for_each(|n| arrive_from(&mut host, us(100 + n), 1, 64));
    run(&mut host, us(1_000));
    let metas: Vec<RxMeta> = host.node().seen.iter().map(|(_, meta)| *meta).collect();
    assert_eq!(metas, [RxMeta::between(us(20), us(150)); 2]);
}

#[test]
fn receive__frames_beyond_the_buffers_bytes_are_lost() {
    let mut host = host(&sockets());
    (0..7).for_each(|_| arrive_from(&mut host, us(100), 1, 64));
    run(&mut host, us(1_000));
    assert_eq!((host.counters().rx_frames, host.counters().drop_rx_ring), (5, 2));
    // A frame longer than the buffer passes alone.
    (0..2).for_each(|_| arrive_from(&mut host, us(2_000), 1, 5_000));
    run(&mut host, us(3_000));
    assert_eq!((host.counters().rx_frames, host.counters().drop_rx_ring), (6, 3));
}

#[test]
fn receive__a_frame_behind_a_lost_one_begins_a_run() {
    let mut host = host(&sockets());
    (0..6).for_each(|n| arrive_from(&mut host, us(100 + n), u8::from(n == 5), 64));
    run(&mut host, us(1_000));
    arrive_from(&mut host, us(1_001), 0, 64);
    run(&mut host, us(2_000));
    assert_eq!(dated(&host).last(), Some(&(true, us(1_001))));
}

#[test]
fn send__a_run_costs_one_call() {
    // Six answers of one flow: two runs of at most four.
    let left = |model: &HostModel| {
        let mut host = host(&HostModel { rx_ring: 10, ..model.clone() });
        (0..6).for_each(|n| arrive_from(&mut host, us(100), n, 64));
        let left = run(&mut host, us(1_000));
        assert_eq!(left.len(), 6);
        (left[5], host.counters().tx_runs)
    };
    let roomy = |model: HostModel| {
        let sockets = model.sockets.map(|s| Sockets { rx_bytes: 1 << 20, tx_bytes: 1 << 20, ..s });
        HostModel { sockets, ..model }
    };
    // A step, six frames received in six calls, and six sent in two.
    let (at, runs) = left(&roomy(sockets()));
    assert_eq!((at, runs), (us(150 + 1 + 6 * 11 + 6 + 2 * 10), 2));
    let rings = HostModel { sockets: None, ..sockets() };
    assert_eq!(left(&rings), (us(150 + 1 + 6 + 6), 6));
}

#[test]
fn send__waits_while_the_buffer_is_full() {
    let mut host = host(&sockets());
    (0..5).for_each(|_| arrive_from(&mut host, us(100), 1, 64));
    // Nothing takes the frames from the host before 400 us.
    while let Some(at) = host.poll_timeout().filter(|at| *at <= us(400)) {
        host.handle_timeout(at);
    }
    assert_eq!(host.node().sent_at.len(), 3);
    host.take_ready();
    while host.poll_transmit(us(400), PortId::HOST, &mut [0; 2048]).is_some() {}
    run(&mut host, us(1_000));
    assert_eq!(host.node().sent_at.len(), 5);
}

#[test]
fn window_pkts__is_half_of_the_receive_buffer() {
    assert_eq!(model().window_pkts(1_500), None);
    assert_eq!(HostModel::udp().window_pkts(1_500), Some(425_984 / 2 / 1_500));
    assert_eq!(sockets().window_pkts(9_000), Some(4), "no less");
}
