use super::super::ack_info::AckInfo;
use super::*;
use crate::sr::number::wrap;
use crate::sr::tx::plan::{Contents, ReadSegment, Segment};
use crate::sr::tx::rtt::Rtt;
use proptest::prelude::*;
use spanwire_base::{Dur, Rng};
use spanwire_wire::{BlockReport, BlockReportKind, BlockRepr, SackWord};

impl Strided for u64 {
    fn stride_to(&self, next: &Self) -> Option<Stride> {
        Some(Stride { messages: 0, bytes: u32::try_from(next.checked_sub(*self)?).ok()? })
    }

    fn is_before(&self, stride: Stride, n: u32, next: &Self) -> bool {
        self.after(stride, n) == *next
    }

    fn after(&self, stride: Stride, n: u32) -> Self {
        self + u64::from(stride.bytes) * u64::from(n)
    }
}

fn at(us: u64) -> Time {
    Time::ZERO + Dur::from_us(us)
}

fn push(s: &mut Sent<Contents>, now: Time, message: u32, offset: u32, len: u32) {
    let contents = Contents::Request(Segment { message, offset, len });
    s.push(now, contents, len, 0, SendTimeState::default());
}

fn ack(next: u32, newest: u32) -> AckInfo<'static> {
    let (words, blocks, echo) = (&[][..], &[][..], at(0));
    let (lost_send_time, latest_ackable) = (Time::ZERO, Time::MAX);
    AckInfo { next, words, newest, echo, blocks, lost_send_time, latest_ackable, marks: 0 }
}

#[test]
fn push__segments_or_messages_of_one_time_are_one_run() {
    let mut s = Sent::new(0);
    (0..10).for_each(|i| push(&mut s, at(0), 7, 1000 * i, 1000));
    push(&mut s, at(0), 7, 10_000, 500);
    (0..10).for_each(|i| push(&mut s, at(0), 8 + i, 0, 64));
    push(&mut s, at(1), 18, 0, 64);
    let pkts: Vec<u32> = s.runs.iter().map(|run| run.pkts).collect();
    assert_eq!((pkts, s.ring.len()), (vec![10, 1, 10, 1], 0));
    for (psn, message, offset, len) in [(9, 7, 9000, 1000), (10, 7, 10_000, 500), (20, 17, 0, 64)] {
        let contents = Contents::Request(Segment { message, offset, len });
        assert_eq!((s.contents(psn), s.unacked_contents(psn)), (Some(contents), Some(contents)));
    }
    assert_eq!((s.contents(22), s.in_flight_bytes()), (None, 10_500 + 11 * 64));
}

#[test]
fn push__responses_to_reads_of_one_message_number_are_no_run() {
    let (response_to, request_psn, len, left) = (1, 2, 0, 0);
    let read = |rkey, va, request_psn| {
        let at =
            ReadSegment { response_to, request_psn, va, rkey, offset: 0, len, left, last: true };
        Contents::Read(at)
    };
    for (rkey, va, psn) in [(4, 0, 5), (3, 8, 1), (3, 0, 5)] {
        let mut s = Sent::new(0);
        let responses = [read(3, 0, request_psn), read(3, 0, request_psn), read(rkey, va, psn)];
        for response in responses {
            s.push(at(0), response, 0, 0, SendTimeState::default());
        }
        assert_eq!(s.runs.len(), 2);
        assert_eq!([0, 1, 2].map(|psn| s.contents(psn)), responses.map(Some));
    }
}

#[test]
fn acknowledge_runs__of_a_part_leaves_the_rest() {
    let mut s = Sent::new(0);
    (0..20).for_each(|i| push(&mut s, at(i / 10), 7, 100 * u32::try_from(i).unwrap(), 100));
    let acked = s.on_ack(&ack(13, 12)).unwrap();
    assert_eq!((acked.pkts, acked.bytes, acked.send_state), (13, 1300, None), "not its send time");
    assert_eq!((wrap(s.una()), s.in_flight_pkts(), s.in_flight_bytes()), (13, 7, 700));
    let contents = |offset| Some(Contents::Request(Segment { message: 7, offset, len: 100 }));
    assert_eq!((s.contents(12), s.contents(13)), (None, contents(1300)));
    assert_eq!((s.runs.len(), s.newest().map(|(_, newest)| newest)), (1, contents(1900)));
    s.expand();
    assert_eq!((s.ring.len(), s.contents(19)), (7, contents(1900)));
}

#[test]
fn expand_below__later_runs_remain_and_runs_begin_again_after_recovery() {
    let mut s = Sent::new(0);
    (0..30).for_each(|i| push(&mut s, at(i / 10), 7, 100 * u32::try_from(i).unwrap(), 100));
    let words = [SackWord { base: 0, bits: 0b1000 }];
    s.on_ack(&AckInfo { words: &words, ..ack(2, 3) }).unwrap();
    assert_eq!((s.ring.len(), s.runs.len()), (8, 2));
    push(&mut s, at(4), 8, 0, 100);
    assert_eq!((s.ring.len(), s.runs.len()), (29, 0));
    (0..40).for_each(|i| push(&mut s, at(5), 9 + i, 0, 100));
    s.on_ack(&ack(69, 30)).unwrap();
    push(&mut s, at(6), 49, 0, 100);
    assert_eq!((s.ring.len(), s.runs.len()), (2, 1));
}

/// One stream twice: with runs, and with each packet an entry at once.
struct Both {
    sent: [Sent<u64>; 2],
    now: Time,
    /// All transmissions.
    history: Vec<(u64, Time)>,
    rtt: Rtt,
    /// The contents of the next packet, and the packets of the open block that were sent.
    contents: u64,
    of_block: u8,
}

impl Both {
    fn both<R: PartialEq + std::fmt::Debug>(&mut self, f: impl Fn(&mut Sent<u64>) -> R) -> R {
        let [runs, single] = &mut self.sent;
        let (of_runs, of_single) = (f(runs), f(single));
        single.expand();
        assert_eq!(of_runs, of_single);
        of_runs
    }

    fn push(&mut self, rng: &mut Rng, coded_percent: u64) {
        let (now, contents) = (self.now, self.contents);
        if self.of_block > 0 || rng.below(100) < coded_percent {
            self.of_block += 1;
        }
        let index = self.of_block.saturating_sub(1);
        let block = BlockRepr { index, data: 3, parity: 1, scheme: 1 };
        let is_of_block = self.of_block > 0;
        self.of_block %= 4;
        let bytes = if rng.below(30) == 0 { 50 } else { 100 };
        let path = u16::from(rng.below(30) == 0);
        let state = SendTimeState::delivered(rng.below(1000) / 990);
        self.history.push((self.sent[0].next(), now));
        self.both(|s| match is_of_block {
            true => s.push_of_block(now, contents, (bytes, path), (block, None), state),
            false => s.push(now, contents, bytes, path, state),
        });
        self.contents += if rng.below(20) == 0 { 7 } else { 1 };
    }

    fn retransmit(&mut self, number: u64) {
        let now = self.now;
        self.history.push((number, now));
        self.both(|s| {
            s.on_retransmitted(now, number, 2);
            s.set_send_state(number, Some(SendTimeState::delivered(number)));
        });
    }

    /// An ACK of a transmission of `newest`, of the packets before a number, and of others.
    fn ack(&mut self, rng: &mut Rng, gap_percent: u64) {
        let (una, len) = (self.sent[0].una(), self.sent[0].next() - self.sent[0].una());
        let next = una.saturating_sub(rng.below(4)) + rng.below(len + 3);
        let any = usize::try_from(rng.below(self.history.len() as u64)).unwrap();
        let (newest, echo) =
            self.history[if rng.below(4) == 0 { any } else { any.max(self.history.len() * 3 / 4) }];
        let (mut words, mut blocks) = (Vec::new(), Vec::new());
        if rng.below(100) < gap_percent {
            let base = (next + rng.below(130)) / 64 * 64;
            words.push(SackWord { base: wrap(base), bits: rng.next_u64() & rng.next_u64() });
        }
        if rng.below(100) < gap_percent {
            let kinds =
                [BlockReportKind::Nack, BlockReportKind::Settled, BlockReportKind::Recovered];
            let kind = kinds[usize::try_from(rng.below(3)).unwrap()];
            let first = wrap(una + rng.below(8));
            blocks.push(BlockReport { first, kind, data: 3, bits: rng.below(16) });
        }
        let some_time_ago = self.now - Dur::from_us(rng.below(100));
        let (next, newest) = (wrap(next), wrap(newest));
        let (words, blocks, marks) = (&words[..], &blocks[..], rng.next_u64());
        let (lost_send_time, latest_ackable) = (some_time_ago, some_time_ago);
        let info =
            AckInfo { next, words, newest, echo, blocks, lost_send_time, latest_ackable, marks };
        let _: Result<_, _> = self.both(|s| s.on_ack(&info));
    }

    /// Some event other than an ACK or a new packet.
    fn disturb(&mut self, rng: &mut Rng) {
        let now = self.now;
        let any = usize::try_from(rng.below(self.history.len() as u64)).unwrap();
        let (number, sent) = self.history[any];
        match rng.below(8) {
            0 => self.both(Sent::mark_all_lost),
            1 => self.both(Sent::undo_timeout),
            2 => self.both(Sent::abandon_all),
            3 => self.both(Sent::retransmit_oldest),
            4 => self.both(|s| s.on_no_receive(wrap(number), sent, None, |n| n % 2 == 0)),
            5 => self.both(|s| s.on_reordering(now.since(sent))),
            6 if rng.below(8) == 0 => self.both(Sent::clear),
            _ => {
                let newest = self.both(|s| s.newest());
                newest.into_iter().for_each(|(number, _)| self.retransmit(number));
            }
        }
    }

    /// All that can be observed from outside.
    fn compare(&mut self) {
        let (now, rtt) = (self.now, self.rtt);
        self.both(|s| s.oldest_at());
        self.both(|s| s.detect(now, &rtt));
        self.both(|s| (s.una(), s.data_una(), s.next(), s.in_flight_pkts(), s.in_flight_bytes()));
        self.both(|s| (s.is_empty(), s.has_lost(), s.has_only_parity(), *s.counters()));
        self.both(|s| s.coding.queued_pkts);
        self.both(|s| (s.newest(), s.oldest_at(), s.transmissions(), s.delivered));
        for number in self.sent[0].una().saturating_sub(2)..self.sent[0].next() + 2 {
            let psn = wrap(number);
            self.both(|s| (s.contents(psn), s.unacked_contents(psn), s.position(number)));
            self.both(|s| s.path(number));
        }
        for (number, at) in self.history.split_off(self.history.len().saturating_sub(200)) {
            self.history.push((number, at));
            self.both(|s| s.is_in_flight_since(wrap(number), at));
        }
        self.sent.iter().for_each(Sent::check_invariants);
    }
}

proptest! {
    /// Runs are nothing but a shorter description: whatever happens, all results are those of
    /// entries.
    #[test]
    fn runs__have_the_results_of_entries(
        seed in any::<u64>(),
        first in any::<u32>(),
        (gap_percent, coded_percent, disturbed_percent) in (0u64..20, 0u64..3, 0u64..6),
        tracks_paths in any::<bool>(),
        has_rtt in any::<bool>(),
    ) {
        let mut rng = Rng::new(seed);
        let sent = [Sent::new(first), Sent::new(first)];
        let (now, rtt, history) = (at(200), Rtt::default(), Vec::new());
        let mut both = Both { sent, now, history, rtt, contents: 0, of_block: 0 };
        if tracks_paths && gap_percent > 15 {
            both.both(Sent::track_paths);
        }
        for _ in 0..200 {
            for _ in 0..rng.below(20) {
                both.push(&mut rng, coded_percent);
                both.now += Dur::from_us(rng.below(12) / 11);
            }
            both.now += Dur::from_us(rng.below(10));
            if both.history.is_empty() {
                continue;
            }
            both.ack(&mut rng, gap_percent);
            if has_rtt {
                both.rtt.sample(Dur::from_us(40 + rng.below(40)), Dur::ZERO);
            }
            if rng.below(100) < disturbed_percent {
                both.disturb(&mut rng);
            }
            both.compare();
            both.both(Sent::take_path_events);
            while let Some((number, _)) = both.both(|s| s.next_lost(|_| true)) {
                both.retransmit(number);
                if rng.below(3) == 0 { break; }
            }
        }
        both.both(|s| { s.expand(); format!("{:?}", s.ring) });
    }
}
