//! Per-flow queues with shapers.

use crate::config::FlowsConfig;
use crate::store::{Fifo, FrameId, Store};
use spanwire_base::{Rate, Time, u32_from, u64_from, usize_from};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Per-flow queues: bounded, each with a shaper, served by deficit round robin.
///
/// A shaper is a token bucket of one quantum: a flow that had to wait for others catches up by at
/// most a quantum. Over any period it sends at most its rate, a quantum and a frame.
#[derive(Debug)]
pub(crate) struct Flows {
    config: FlowsConfig,
    /// Sets of [`SET_SIZE`], a power of two of them.
    flows: Vec<Flow>,
    /// Flows with frames that may be sent, in round robin order. The first has the turn.
    ready: VecDeque<u32>,
    /// Flows with frames that their shapers delay, by release time.
    delayed: BinaryHeap<Reverse<(Time, u32)>>,
    bytes: u64,
    collisions: u64,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// The hash of the flow that occupies this place, if any.
    key: Option<u64>,
    fifo: Fifo,
    rate: Option<Rate>,
    /// When its shaper releases the next frame.
    free_at: Time,
    /// Remaining bytes of its turn.
    deficit: u64,
    last_used: Time,
}

impl Flows {
    pub(crate) fn new(config: FlowsConfig) -> Self {
        let places = usize_from(u64::from(config.max_flows)).next_power_of_two();
        let flow = Flow {
            key: None,
            fifo: Fifo::default(),
            rate: config.rate,
            free_at: Time::ZERO,
            deficit: 0,
            last_used: Time::ZERO,
        };
        Self {
            config,
            flows: vec![flow; places],
            ready: VecDeque::with_capacity(places),
            delayed: BinaryHeap::with_capacity(places),
            bytes: 0,
            collisions: 0,
        }
    }

    /// Bytes of all flows.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Frames that share another flow's queue.
    pub(crate) fn collisions(&self) -> u64 {
        self.collisions
    }

    /// Bytes of one flow.
    pub(crate) fn flow_bytes(&self, key: u64) -> u64 {
        self.find(key).map_or(0, |at| self.flows[at].fifo.bytes)
    }

    /// Sets a flow's rate; false if it has no place. The release time of a delayed frame does not
    /// change.
    pub(crate) fn set_rate(&mut self, key: u64, rate: Option<Rate>) -> bool {
        let found = self.find(key);
        if let Some(at) = found {
            self.flows[at].rate = rate;
        }
        found.is_some()
    }

    /// The place of a flow, a new one if it has none; counts a shared place.
    pub(crate) fn place(&mut self, now: Time, key: u64) -> usize {
        if let Some(at) = self.find(key) {
            return at;
        }
        let set = self.set_at(key);
        let idle = (set..set + SET_SIZE)
            .filter(|at| self.flows[*at].fifo.is_empty() && self.flows[*at].free_at <= now)
            .min_by_key(|at| (self.flows[*at].key.is_some(), self.flows[*at].last_used));
        match idle {
            Some(at) => {
                let flow = &mut self.flows[at];
                flow.key = Some(key);
                flow.rate = self.config.rate;
                flow.free_at = Time::ZERO;
                at
            }
            None => {
                self.collisions += 1;
                set + usize_from(key >> 32) % SET_SIZE
            }
        }
    }

    /// True if a flow's own limit admits `bytes` more.
    pub(crate) fn has_room(&self, place: usize, bytes: u64) -> bool {
        self.config.limit_bytes.is_none_or(|most| self.flows[place].fifo.bytes + bytes <= most)
    }

    /// Puts a frame at the end of a flow's queue.
    pub(crate) fn push(&mut self, now: Time, place: usize, store: &mut Store, id: FrameId) {
        let flow = &mut self.flows[place];
        let was_empty = flow.fifo.is_empty();
        flow.fifo.push(store, id);
        flow.last_used = now;
        self.bytes += store.meta(id).wire_bytes();
        if was_empty {
            self.line_up(now, place);
        }
    }

    /// The next frame that may be sent now. It stays first until it is popped.
    pub(crate) fn head(&mut self, now: Time, store: &Store) -> Option<FrameId> {
        while let Some(Reverse((at, place))) = self.delayed.peek().copied()
            && at <= now
        {
            self.delayed.pop();
            self.ready.push_back(place);
        }
        loop {
            let place = *self.ready.front()?;
            let flow = &mut self.flows[usize_from(u64::from(place))];
            let id = flow.fifo.head().expect("a ready flow has frames");
            if flow.deficit >= store.meta(id).wire_bytes() {
                return Some(id);
            }
            // Every round adds at least 256 bytes, so the loop terminates.
            flow.deficit += u64::from(self.config.quantum_bytes);
            self.ready.rotate_left(1);
        }
    }

    /// Removes the frame that [`Flows::head`] returned.
    pub(crate) fn pop(&mut self, now: Time, store: &mut Store) -> Option<FrameId> {
        self.head(now, store)?;
        let place = self.ready.pop_front()?;
        let flow = &mut self.flows[usize_from(u64::from(place))];
        let id = flow.fifo.pop(store)?;
        let bytes = store.meta(id).wire_bytes();
        self.bytes -= bytes;
        flow.deficit -= bytes;
        flow.last_used = now;
        if let Some(rate) = flow.rate {
            let burst = rate.time_for(u64::from(self.config.quantum_bytes));
            flow.free_at = flow.free_at.max(now - burst) + rate.time_for(bytes);
        }
        if flow.fifo.is_empty() {
            flow.deficit = 0;
        } else if flow.free_at > now {
            self.delayed.push(Reverse((flow.free_at, place)));
        } else {
            // It keeps its turn.
            self.ready.push_front(place);
        }
        Some(id)
    }

    /// The release time of the first frame, if none may be sent now.
    pub(crate) fn next_release(&self) -> Option<Time> {
        if self.ready.is_empty() { self.delayed.peek().map(|Reverse((at, _))| *at) } else { None }
    }

    /// True if a frame may be sent without waiting for a shaper.
    pub(crate) fn is_ready(&self, now: Time) -> bool {
        !self.ready.is_empty() || self.delayed.peek().is_some_and(|Reverse((at, _))| *at <= now)
    }

    fn line_up(&mut self, now: Time, place: usize) {
        let free_at = self.flows[place].free_at;
        if free_at > now {
            self.delayed.push(Reverse((free_at, u32_from(place))));
        } else {
            self.ready.push_back(u32_from(place));
        }
    }

    fn find(&self, key: u64) -> Option<usize> {
        let set = self.set_at(key);
        (set..set + SET_SIZE).find(|at| self.flows[*at].key == Some(key))
    }

    fn set_at(&self, key: u64) -> usize {
        let sets = u64_from(self.flows.len() / SET_SIZE);
        usize_from(key & (sets - 1)) * SET_SIZE
    }
}

const SET_SIZE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Meta;
    use spanwire_base::Dur;

    fn config(rate: Option<Rate>) -> FlowsConfig {
        FlowsConfig { max_flows: 64, rate, limit_bytes: Some(50_000), quantum_bytes: 2_048 }
    }

    struct Bench {
        flows: Flows,
        store: Store,
    }

    impl Bench {
        fn new(config: FlowsConfig) -> Self {
            Self { flows: Flows::new(config), store: Store::new(100) }
        }

        /// Pushes a frame of `bytes` that has its flow in its first byte.
        fn push(&mut self, now: Time, key: u64, bytes: u32) {
            let place = self.flows.place(now, key);
            let meta = Meta::new(60, bytes - 60, now);
            let id = self.store.insert(&[u8::try_from(key % 251).unwrap(); 60], meta);
            self.flows.push(now, place, &mut self.store, id);
        }

        fn pop(&mut self, now: Time) -> Option<(u8, u64)> {
            let id = self.flows.pop(now, &mut self.store)?;
            let got = (self.store.bytes(id)[0], self.store.meta(id).wire_bytes());
            self.store.remove(id);
            Some(got)
        }
    }

    #[test]
    fn pop__is_fair_in_bytes_and_keeps_order_in_a_flow() {
        let mut b = Bench::new(config(None));
        for i in 0..100 {
            b.push(Time::ZERO, 1, 1_500 + i);
            b.push(Time::ZERO, 2, 300 + i);
            b.push(Time::ZERO, 2, 400 + i);
        }
        let (mut sent, mut last) = ([0u64; 3], 0);
        while b.flows.flow_bytes(2) > 0 {
            let (flow, bytes) = b.pop(Time::ZERO).unwrap();
            sent[usize::from(flow)] += bytes;
            if flow == 1 {
                assert!(bytes > last, "in order");
                last = bytes;
            }
            assert!(sent[1].abs_diff(sent[2]) <= 2 * 2_048 + 1_600, "{sent:?}");
        }
        assert_eq!(b.flows.bytes(), b.flows.flow_bytes(1));
    }

    #[test]
    fn pop__an_empty_flow_loses_its_deficit() {
        let mut b = Bench::new(config(None));
        b.push(Time::ZERO, 1, 100);
        assert_eq!(b.pop(Time::ZERO), Some((1, 100)));
        assert!(b.flows.flows.iter().all(|flow| flow.deficit == 0));
    }

    #[test]
    fn pop__holds_each_flow_to_its_rate_and_catches_up_by_a_quantum() {
        let mut b = Bench::new(config(Some(Rate::from_gbps(8))));
        for _ in 0..20 {
            b.push(Time::ZERO, 1, 1_024);
        }
        // 1024 ns a frame. The bucket has room for two.
        let mut out = Vec::new();
        let mut now = Time::ZERO;
        while b.flows.bytes() > 0 {
            match b.pop(now) {
                Some(_) => out.push(now.as_ns()),
                None => now = b.flows.next_release().expect("a delayed frame has a release time"),
            }
        }
        assert_eq!(out[..4], [0, 1_024, 2_048, 3_072], "a new flow has no credit before time 0");
        let mut b = Bench::new(config(Some(Rate::from_gbps(8))));
        let late = Time::from_ns(1_000_000);
        for _ in 0..20 {
            b.push(late, 1, 1_024);
        }
        let burst = std::iter::from_fn(|| b.pop(late)).count();
        assert_eq!(burst, 3, "a quantum and a frame");
        assert!(!b.flows.is_ready(late));
        assert_eq!(b.flows.next_release(), Some(late + Dur::from_ns(1_024)));
    }

    #[test]
    fn set_rate__changes_one_flow() {
        let mut b = Bench::new(config(Some(Rate::from_gbps(8))));
        let start = Time::from_ns(1_000_000);
        for _ in 0..200 {
            b.push(start, 1, 1_000);
            b.push(start, 2, 1_000);
        }
        assert!(b.flows.set_rate(1, Some(Rate::from_gbps(24))));
        assert!(!b.flows.set_rate(3, None));
        let mut sent = [0u64; 3];
        let mut now = start;
        while now < start + Dur::from_us(30) {
            match b.pop(now) {
                Some((flow, bytes)) => sent[usize::from(flow)] += bytes,
                None => now = b.flows.next_release().unwrap(),
            }
        }
        // 24 and 8 Gbit/s for 30 us, plus the bucket.
        assert!((90_000..=93_100).contains(&sent[1]), "{sent:?}");
        assert!((30_000..=33_100).contains(&sent[2]), "{sent:?}");
    }

    #[test]
    fn place__shares_when_eight_others_occupy_the_set() {
        let mut b = Bench::new(FlowsConfig { max_flows: 8, ..config(None) });
        for key in 0..8 {
            b.push(Time::ZERO, key, 100);
        }
        assert_eq!(b.flows.collisions(), 0);
        b.push(Time::ZERO, 9, 100);
        assert_eq!((b.flows.collisions(), b.flows.flow_bytes(9)), (1, 0));
        assert_eq!(b.flows.flow_bytes(0), 200, "in the queue of the one it shares with");
        while b.pop(Time::from_ns(1)).is_some() {}
        // Flow 3 was used last, so a new flow gets another one's place.
        b.push(Time::from_ns(5), 3, 100);
        b.pop(Time::from_ns(5));
        for key in 20..27 {
            b.push(Time::from_ns(6), key, 100);
        }
        assert!(b.flows.find(3).is_some());
        assert_eq!(b.flows.collisions(), 1);
    }

    #[test]
    fn has_room__counts_one_flow() {
        let mut b = Bench::new(config(None));
        b.push(Time::ZERO, 1, 49_000);
        let (one, two) = (b.flows.place(Time::ZERO, 1), b.flows.place(Time::ZERO, 2));
        assert!(b.flows.has_room(one, 1_000) && !b.flows.has_room(one, 1_001));
        assert!(b.flows.has_room(two, 50_000));
    }
}
