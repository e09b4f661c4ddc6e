use super::*;
use crate::pipe::{PipeConfig, PipePort, pipe};
use crate::port::reserve;
use spanwire_base::Dur;
use std::collections::BTreeMap;
use std::time::Instant;

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);

/// A pipe whose right end has faults; each frame carries its number.
struct Rig {
    left: PipePort,
    right: FaultPort<PipePort>,
    now: Time,
    next: u64,
    got: Vec<Vec<u8>>,
}

impl Rig {
    fn new(cfg: FaultConfig) -> Self {
        let (left, right) = pipe(PipeConfig::default());
        Self {
            left,
            right: FaultPort::new(right, cfg).expect("a valid configuration"),
            now: Time::ZERO,
            next: 0,
            got: Vec::new(),
        }
    }

    fn send(&mut self, count: u64) {
        for _ in 0..count {
            let mut slot = reserve(&mut self.left).expect("the rig drains as it fills");
            slot.bytes()[..LEN].copy_from_slice(&numbered(self.next));
            slot.commit(TxMeta::whole(LEN));
            self.next += 1;
        }
        self.left.flush(self.now).unwrap();
    }

    fn receive(&mut self, max: usize) -> usize {
        let (now, got) = (self.now, &mut self.got);
        let before = got.len();
        let count = self.right.rx_burst(&now, max, &mut |frame, meta| {
            assert!(meta.at <= now);
            got.push(frame.to_vec());
        });
        assert_eq!(got.len() - before, count);
        assert!(count <= max, "{count} frames for {max}");
        count
    }

    /// Sends `count` frames in uneven bursts, then waits for delayed ones.
    fn run(&mut self, count: u64) {
        for burst in 0..count / 40 {
            self.send(40);
            self.now += Dur::from_us(1);
            self.receive(usize_from(32 + burst % 40));
        }
        self.drain();
    }

    fn drain(&mut self) {
        while self.receive(64) > 0 {}
        self.now += FaultConfig::HOLD_MAX;
        while self.receive(64) > 0 {}
    }

    fn numbers(&self) -> Vec<u64> {
        self.got.iter().map(|frame| number(frame)).collect()
    }

    fn counters(&self) -> FaultCounters {
        self.right.counters()
    }
}

const LEN: usize = 60;

fn numbered(n: u64) -> [u8; LEN] {
    let mut frame = [0x55; LEN];
    frame[..8].copy_from_slice(&n.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[..8].try_into().expect("eight bytes"))
}

/// Every kind of fault with rate `ppm`.
fn all(seed: u64, ppm: u32) -> FaultConfig {
    FaultConfig {
        seed,
        loss_ppm: ppm,
        dup_ppm: ppm,
        reorder_ppm: ppm,
        corrupt_ppm: ppm,
        ..FaultConfig::default()
    }
}

#[test]
fn new__rejects_what_validate_rejects() {
    let cfg = FaultConfig { reorder_depth: 0, ..FaultConfig::default() };
    let refused = FaultPort::new(pipe(PipeConfig::default()).0, cfg).map(|_| ());
    assert_eq!(refused, Err(FaultConfigError::ReorderDepth(0)));
}

#[test]
fn rx_burst__without_faults_changes_nothing() {
    let mut rig = Rig::new(FaultConfig::default());
    rig.run(4_000);
    assert!(rig.numbers().into_iter().eq(0..4_000));
    assert_eq!(rig.right.faults.made, 0, "nothing was copied");
}

#[test]
fn rx_burst__same_seed_same_frames_same_result() {
    let run = |seed| {
        let mut rig = Rig::new(all(seed, 50_000));
        rig.run(8_000);
        (rig.got.clone(), rig.counters())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn rx_burst__a_rate_does_not_change_other_kinds_of_fault() {
    let lost = |cfg: FaultConfig| {
        let mut rig = Rig::new(cfg);
        rig.run(8_000);
        let mut seen = rig.numbers();
        seen.sort_unstable();
        seen.dedup();
        seen
    };
    let only_loss = FaultConfig { loss_ppm: 50_000, ..all(9, 0) };
    assert_eq!(lost(all(9, 50_000)), lost(only_loss));
}

#[test]
fn rx_burst__rates_are_near_the_configured_ones() {
    let mut rig = Rig::new(all(3, 20_000));
    rig.run(200_000);
    let c = rig.counters();
    for (name, hits) in [
        ("lost", c.lost),
        ("duplicated", c.duplicated),
        ("reordered", c.reordered),
        ("corrupted", c.corrupted),
    ] {
        assert!((3_500..4_500).contains(&hits), "{name}: {hits} of 200000 at 2 %");
    }
}

#[test]
fn rx_burst__delivers_each_frame_not_lost_once_and_each_duplicate_twice() {
    let mut cfg = all(4, 100_000);
    cfg.corrupt_ppm = 0;
    let mut rig = Rig::new(cfg);
    rig.run(20_000);
    let mut copies = BTreeMap::new();
    for n in rig.numbers() {
        *copies.entry(n).or_insert(0u64) += 1;
    }
    let c = rig.counters();
    assert_eq!(c.rx_frames, 20_000);
    assert_eq!(u64_from(copies.len()), 20_000 - c.lost);
    assert!(copies.values().all(|n| *n == 1 || *n == 2));
    let twice = u64_from(copies.values().filter(|n| **n == 2).count());
    assert_eq!(twice, c.duplicated);
    assert_eq!(c.delivered, 20_000 - c.lost + c.duplicated);
}

#[test]
fn rx_burst__flips_exactly_one_bit_past_the_ethernet_header() {
    let mut cfg = all(0, 0);
    cfg.corrupt_ppm = 1_000_000;
    let mut rig = Rig::new(cfg);
    rig.run(2_000);
    let mut hit = [false; LEN];
    for (n, frame) in (0..).zip(&rig.got) {
        let sent = numbered(n);
        let flipped: u32 = sent.iter().zip(frame).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(flipped, 1, "frame {n}");
        let at = sent.iter().zip(frame).position(|(a, b)| a != b);
        hit[at.expect("one byte differs")] = true;
    }
    assert!(hit[..14].iter().all(|h| !h));
    assert!(hit[14..].iter().all(|h| *h), "every byte may be hit");
}

#[test]
fn rx_burst__reorders_within_its_depth() {
    let mut cfg = all(0, 0);
    (cfg.reorder_ppm, cfg.reorder_depth, cfg.seed) = (100_000, 4, 5);
    let mut rig = Rig::new(cfg);
    rig.run(8_000);
    let order = rig.numbers();
    let mut late = 0;
    for (at, n) in order.iter().enumerate() {
        let overtakers = order[..at].iter().filter(|other| *other > n).count();
        // Overtaken by at most 4 frames that are not delayed, and the up to 3 others delayed
        // meanwhile.
        assert!(overtakers <= 7, "frame {n} was overtaken by {overtakers}");
        late += u64::from(overtakers > 0);
    }
    assert!(late > 500, "{late} frames late");
    // The last ones may have been released by time, in order.
    assert!(late <= rig.counters().reordered);
}

#[test]
fn rx_burst__reordering_everything_still_delivers_everything() {
    let mut cfg = all(0, 0);
    (cfg.reorder_ppm, cfg.reorder_depth) = (1_000_000, 1);
    let mut rig = Rig::new(cfg);
    rig.send(6);
    rig.receive(64);
    assert_eq!(rig.numbers(), [1, 0, 3, 2, 5, 4]);
}

#[test]
fn rx_burst__delays_the_last_frame_no_longer_than_its_bound() {
    let mut cfg = all(0, 0);
    cfg.reorder_ppm = 1_000_000;
    let mut rig = Rig::new(cfg);
    rig.send(1);
    assert_eq!(rig.receive(64), 0);
    rig.now = Time::ZERO + FaultConfig::HOLD_MAX - Dur::from_ps(1);
    assert_eq!(rig.receive(64), 0);
    rig.now = Time::ZERO + FaultConfig::HOLD_MAX;
    assert_eq!(rig.receive(64), 1);
}

#[test]
fn rx_burst__allocates_nothing_in_steady_state() {
    let mut rig = Rig::new(all(6, 200_000));
    rig.run(20_000);
    let made = rig.right.faults.made;
    // A burst of duplicates, the delayed frames, and one being corrupted.
    assert!(made <= 128, "{made} buffers");
    rig.got.clear();
    rig.run(100_000);
    assert_eq!(rig.right.faults.made, made);
    assert_eq!(rig.right.faults.pool.len(), made, "every buffer is in the pool");
}

#[test]
fn set_blackhole__drops_arriving_and_delayed_frames() {
    let mut cfg = all(0, 0);
    cfg.reorder_ppm = 1_000_000;
    let mut rig = Rig::new(cfg);
    rig.send(1);
    assert_eq!(rig.receive(64), 0);
    rig.right.set_blackhole(true);
    rig.send(10);
    rig.drain();
    assert_eq!(rig.got.len(), 0);
    assert_eq!(rig.counters().blackholed, 11);
    rig.right.set_blackhole(false);
    rig.send(10);
    rig.drain();
    assert_eq!(rig.got.len(), 10);
}

#[test]
fn wait__ends_when_a_delayed_frame_is_due() {
    let mut cfg = all(0, 0);
    cfg.reorder_ppm = 1_000_000;
    let mut rig = Rig::new(cfg);
    rig.send(1);
    assert_eq!(rig.receive(64), 0);
    let begin = Instant::now();
    rig.right.wait(LATE).unwrap();
    let slept = begin.elapsed();
    assert!(slept >= Duration::from_millis(1), "{slept:?}");
    assert!(slept < LATE, "{slept:?}");
}

#[test]
fn wait__does_not_sleep_with_a_backlog() {
    let mut cfg = all(0, 0);
    cfg.dup_ppm = 1_000_000;
    let mut rig = Rig::new(cfg);
    rig.send(1);
    assert_eq!(rig.receive(1), 1);
    let begin = Instant::now();
    rig.right.wait(LATE).unwrap();
    assert!(begin.elapsed() < LATE);
    assert_eq!(rig.receive(1), 1);
}

#[test]
fn slot_take__sends_frames_unchanged() {
    let mut rig = Rig::new(all(0, 1_000_000));
    let mut slot = reserve(&mut rig.right).expect("a free pipe");
    slot.bytes()[..LEN].copy_from_slice(&numbered(8));
    slot.commit(TxMeta::whole(LEN));
    assert_eq!(rig.right.tx_pending(), 1);
    rig.right.flush(Time::ZERO).unwrap();
    let count = rig.left.rx_burst(&Time::ZERO, 64, &mut |frame, _| {
        assert_eq!(frame, numbered(8));
    });
    assert_eq!(count, 1);
    assert_eq!(rig.right.frame_room(), rig.left.frame_room());
    assert_eq!(rig.right.inner().counters().tx_frames, 1);
}
