//! Seed scenarios.

use super::layout::SETUP_LEN;

/// Seed scenarios by name: each request and each response once, in order.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let (post_recv, transmit, poll) = (12, 13, 14);
    let recv = [post_recv, 0, 250, 0, 0, 0, 0, 0, 0, 0, 0];
    let send_out = [transmit, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut seeds = Vec::new();
    for (i, opcode) in (0..).zip(spanwire_wire::Opcode::ALL) {
        for setup in [[0; SETUP_LEN], [1, 0x22, 1, 0x77, 0, 0]] {
            let mut data = setup.to_vec();
            data.extend(recv);
            // A request of each kind of our own, so that responses match a request.
            for op in 0..8 {
                data.extend([11, op, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            data.extend(send_out);
            for (base, second) in [(0, 0), (1, 0), (1, 1)] {
                data.extend([0, i, base, 0, 0, 1, 8, 0, 0, 0, second]);
                data.extend(send_out);
            }
            data.extend([poll, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            seeds.push((format!("{}-{}", opcode.props().name, setup[0]), data));
        }
    }
    seeds.extend(sr_seeds());
    seeds.extend(block_seeds());
    seeds.extend(coded_seeds());
    seeds.extend(near_seeds());
    seeds.extend(credit_seeds());
    seeds
}

/// Feedback of switches, requested or not: with the right time, another one, about packets that are
/// lost, retransmitted, acknowledged or parity. Each congestion control comes up.
fn near_seeds() -> Vec<(String, Vec<u8>)> {
    let (transmit, poll, pause) = (13, 14, 9);
    let send_out = [transmit, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut seeds = Vec::new();
    for congestion in 0..24 {
        for (reads, retries) in [(0x2c, 0x77), (0x2c, 0x7f), (0x22, 0x77)] {
            let mut steps = vec![0x80, reads, 1, retries, congestion, 14];
            for op in 0..8 {
                steps.extend([11, op, 100, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            for round in 0..3 {
                steps.extend(send_out);
                for (distance, at) in [(0, 0), (1, 4), (2, 252), (1, 1), (1, 2), (1, 3), (9, 0)] {
                    steps.extend([0, 0xd8, 1, distance, 0, 4, 0, 0, at, 0, 0]);
                }
                // Some have arrived, and time passes.
                steps.extend([0, 0xa0, 1, 0, 0, 1, 0xf0, 1, 0, 0, 0]);
                steps.extend([pause, 28 + round, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            steps.extend([poll, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            seeds.push((format!("near-{congestion}-{reads:x}-{retries:x}"), steps));
        }
    }
    seeds
}

/// MLCC, agreed on or not: data with credits that begin rounds or do not, in any order and twice,
/// pauses in which rounds end by themselves, and acknowledgements with credits.
fn credit_seeds() -> Vec<(String, Vec<u8>)> {
    let (transmit, poll, pause) = (13, 14, 9);
    let send_out = [transmit, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut seeds = Vec::new();
    for congestion in 0..24 {
        for (reads, retries, flags) in
            [(0xac, 0x77, 0x80), (0xac, 0x7f, 0x82), (0xac, 0x77, 0xc0), (0x2c, 0x77, 0x80)]
        {
            let mut steps = vec![flags, reads, 1, retries, congestion, 14];
            for op in 0..4 {
                steps.extend([11, op, 100, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            for round in 0..3 {
                steps.extend(send_out);
                for (distance, at) in [(0, 1), (0, 0x42), (2, 3), (0, 0x0c), (0, 0), (0xff, 1)] {
                    // A WRITE, released by the switch.
                    steps.extend([0, 1, 0, distance, 32 << 2, 0, 8, 0, at, 0, 0]);
                    steps.extend(send_out);
                }
                steps.extend([0, 0xa0, 1, 0, 0, 1, 0xf0, 1, 0, 0x80, 2 | round << 4]);
                steps.extend([0, 0xa0, 1, 0, 0, 1, 0xf0, 1, 1, 0, 0x62]);
                steps.extend([pause, 20 + 4 * round, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
                steps.extend(send_out);
            }
            steps.extend([poll, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            seeds.push((format!("credit-{congestion}-{reads:x}-{retries:x}-{flags:x}"), steps));
        }
    }
    seeds
}

/// The same for SR: each kind of data in and out of order, and each kind of acknowledgement.
fn sr_seeds() -> Vec<(String, Vec<u8>)> {
    let (post_recv, transmit, poll, pause) = (12, 13, 14, 9);
    let send_out = [transmit, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut seeds = Vec::new();
    for (kind, flags) in (0..8).flat_map(|kind| [(kind, 0x80), (kind, 0x81), (kind, 0xc0)]) {
        let mut data = vec![flags, 0x22, 1, 0x77, 0, 14];
        for at in 0..4 {
            data.extend([post_recv, at * 50, 50, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        for op in 0..8 {
            data.extend([11, op, 40, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        data.extend(send_out);
        // The second packet before the first, then the first, then a duplicate.
        for (distance, value) in [(1, 1), (0, 0), (0xff, 0)] {
            data.extend([0, kind, 0, distance, 0, 0, 8, 0, 0, 0, value]);
            data.extend(send_out);
        }
        // Acknowledge all that was sent: some by the bitmap, later all of it.
        data.extend([0, 0xa0, 1, 0, 0, 1, 0xf0, 1, 0, 0, 0]);
        data.extend([pause, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        data.extend(send_out);
        data.extend([0, 0xa0, 2, 0, 0, 0, 0, 1, 0, 0, kind]);
        data.extend([poll, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        seeds.push((format!("sr-{kind}-{flags}"), data));
    }
    seeds
}

/// Blocks from the peer: losses that can be recovered, that cannot, or late parity.
fn block_seeds() -> Vec<(String, Vec<u8>)> {
    let (post_recv, transmit, poll, pause) = (12, 13, 14, 9);
    let send_out = [transmit, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut seeds = Vec::new();
    let (send, write, response) = (0, 1, 3);
    // Codes of the forger's list, the last of which is unknown, with their data and all packets.
    for (kind, (code, data, all)) in [send, write, response].into_iter().flat_map(|kind| {
        [(1, 2, 3), (2, 2, 4), (5, 4, 6), (8, 3, 6), (15, 4, 6)].map(|code| (kind, code))
    }) {
        let much: Vec<u8> = (data..all).chain([0]).collect();
        // The last packet may claim another block.
        for (name, lost, shape) in [
            ("first", vec![0], 0),
            ("parity", vec![data], 0),
            ("much", much.clone(), 0),
            ("other", much, 0xc0),
        ] {
            let mut steps = vec![0x80, 0x22, 1, 0x77, 0, 14];
            for at in 0..4 {
                steps.extend([post_recv, at * 50, 50, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            // A READ of as many bytes as the block has: message 0.
            steps.extend([11, 5, data * 5, 0, 0, 0, 0, 0, 0, 0, 0]);
            steps.extend(send_out);
            // In descending order, so that distances stay constant.
            for index in (0..all).rev().filter(|i| !lost.contains(i)) {
                steps.extend([0, kind, code << 4, index, 0, 0, 40, 0, 0, 0, 0]);
            }
            steps.extend([pause, 33, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
            steps.extend(send_out);
            steps.extend([0, kind, code << 4, 0, 0, shape, 40, 0, 0, 0, 0]);
            steps.extend(send_out);
            steps.extend([poll, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            seeds.push((format!("block-{kind}-{code}-{name}"), steps));
        }
    }
    seeds
}

/// Blocks of our own, with and without load balancing, and each kind of report of them.
fn coded_seeds() -> Vec<(String, Vec<u8>)> {
    let (transmit, poll, pause) = (13, 14, 9);
    let send_out = [transmit, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut seeds = Vec::new();
    for code in 0..16 {
        for (balances, report) in [(0x77, 0), (0xf7, 1), (0xf7, 2), (0x77, 5)] {
            // The balance is selected by the free bits of the first PSNs.
            let mut steps = vec![0x80, 0x22, code << 2 & 0xc, balances | 8, 0, code << 4 | 14];
            for op in 0..8 {
                steps.extend([11, op, 100, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            for (words, bits) in [(1, 0xf0), (2, 0x7e), (0x81, 0xff)] {
                steps.extend(send_out);
                steps.extend([pause, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                // Some of the sent packets have arrived; one or two blocks are reported.
                steps.extend([0, 0xa0 | report, 0x91, 0, 0, words, bits, 1, 0, 0, 0]);
                steps.extend([0, 0xa0 | report, 0x41, 0, 0, words, bits, 1, 1, 0, report << 2]);
                steps.extend([pause, 31, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            // A READ of the peer's is answered in blocks, and then everything is acknowledged.
            steps.extend([0, 2, 0, 0, 0, 0, 0, 0, 0, 100, 0]);
            steps.extend(send_out);
            steps.extend([0, 0xa0, 2, 0, 0, 0, 0, 1, 0, 0, 0]);
            steps.extend([poll, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            seeds.push((format!("coded-{code}-{balances:x}-{report}"), steps));
        }
    }
    seeds
}
