//! Workloads: flows between hosts with sizes and start times.

mod cdf;
mod flow_file;
mod random;

pub use cdf::{Cdf, CdfError};
pub use flow_file::{FlowFile, FlowFileError};
pub use random::exponential;

use serde::Serialize;
use spanwire_base::{Dur, Rate, Rng, Time, u32_from, u64_from, usize_from};

/// A flow: bytes from one host to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Flow {
    /// The source of the bytes.
    pub src: u32,
    /// The destination of the bytes.
    pub dst: u32,
    /// When they are available to send.
    #[serde(skip)]
    pub start: Time,
    /// Number of bytes, at least 1.
    pub bytes: u64,
    /// The operation that carries them.
    pub op: FlowOp,
    /// The flow, by its place in the list, that must have arrived at `src` before this one begins.
    pub after: Option<u32>,
    /// The flow, by its place in the list, whose queue pairs this one uses in the other direction:
    /// its requester is that flow's responder. `None`: it has queue pairs of its own.
    pub reverse_of: Option<u32>,
    /// When its requester stops posting messages: the flow is complete once those posted are, up
    /// to [`Setup::outstanding`](crate::Setup::outstanding) messages later. `None`: after `bytes`.
    #[serde(skip)]
    pub stops_at: Option<Time>,
    /// Its group in statistics, by its place in [`Groups::names`](crate::Groups::names); `None`:
    /// it does not count.
    #[serde(skip)]
    pub group: Option<u8>,
}

/// The operation that carries a flow's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowOp {
    /// RDMA WRITEs by the source. The last has immediate data, which notifies the destination.
    #[default]
    Write,
    /// SENDs by the source.
    Send,
    /// RDMA READs by the destination.
    Read,
    /// A mix drawn from the seed: SEND, WRITE, READ, atomics, with and without immediate data,
    /// inline, fenced, signaled or not. Messages are at most as long as configured.
    Mix,
}

impl Flow {
    /// A flow of WRITEs.
    #[must_use]
    pub fn new(src: u32, dst: u32, start: Time, bytes: u64) -> Self {
        Self {
            src,
            dst,
            start,
            bytes,
            op: FlowOp::Write,
            after: None,
            reverse_of: None,
            stops_at: None,
            group: Some(0),
        }
    }

    /// The host that posts the requests.
    #[must_use]
    pub fn requester(&self) -> u32 {
        if self.op == FlowOp::Read { self.dst } else { self.src }
    }

    /// The other host.
    #[must_use]
    pub fn responder(&self) -> u32 {
        if self.op == FlowOp::Read { self.src } else { self.dst }
    }
}

/// Every host sends to one other host and receives from one other, all starting at once.
///
/// # Panics
/// If there are fewer than two hosts.
#[must_use]
pub fn permutation(hosts: u32, bytes: u64, rng: &mut Rng) -> Vec<Flow> {
    assert!(hosts >= 2, "a host sends to another");
    let mut to: Vec<u32> = (0..hosts).collect();
    // About a third of all shuffles leaves no host in place.
    loop {
        shuffle(&mut to, rng);
        if (0..).zip(&to).all(|(from, to)| from != *to) {
            break;
        }
    }
    (0..).zip(to).map(|(from, to)| Flow::new(from, to, Time::ZERO, bytes)).collect()
}

/// `senders` hosts, spread evenly, send to host 0 at once.
///
/// # Panics
/// If there are fewer other hosts.
#[must_use]
pub fn incast(hosts: u32, senders: u32, bytes: u64) -> Vec<Flow> {
    assert!(senders < hosts, "a host sends to another");
    let step = hosts / (senders + 1);
    (1..=senders).map(|i| Flow::new(i * step, 0, Time::ZERO, bytes)).collect()
}

/// Parameters of [`poisson`].
#[derive(Clone, Debug)]
pub struct Poisson<'a> {
    /// Hosts; each flow has two different ones, drawn evenly.
    pub hosts: u32,
    /// The rate of each host's link.
    pub host_rate: Rate,
    /// Offered load: bytes that start in the long run relative to the capacity of all hosts, in
    /// thousandths.
    pub load_permille: u32,
    /// Sizes.
    pub sizes: &'a Cdf,
}

/// `flows` flows that start according to a Poisson process.
///
/// # Panics
/// If there are fewer than two hosts, or no load.
#[must_use]
pub fn poisson(p: &Poisson<'_>, flows: u32, rng: &mut Rng) -> Vec<Flow> {
    let (mean, mut start) = (p.mean_gap(), Time::ZERO);
    let mut draw = || {
        start += exponential(mean, rng);
        let (src, dst) = any_pair(p.hosts, rng);
        Flow::new(src, dst, start, p.sizes.sample(rng))
    };
    (0..flows).map(|_| draw()).collect()
}

/// Flows that start before `time` according to a Poisson process, between the hosts that `pair`
/// draws; those beyond a limit but the first are left out.
///
/// # Panics
/// If there are fewer than two hosts, or no load.
#[must_use]
pub fn poisson_for(
    p: &Poisson<'_>,
    time: Dur,
    rng: &mut Rng,
    mut pair: impl FnMut(&mut Rng) -> (u32, u32),
) -> Vec<Flow> {
    let (mean, end) = (p.mean_gap(), Time::ZERO + time);
    let mut start = Time::ZERO + exponential(mean, rng);
    let mut flows = Vec::new();
    while start < end && flows.len() <= FLOWS_MAX {
        let (src, dst) = pair(rng);
        flows.push(Flow::new(src, dst, start, p.sizes.sample(rng)));
        start += exponential(mean, rng);
    }
    flows
}

/// Limit of the flows of a scenario: their queue pairs take some GB of memory.
pub(crate) const FLOWS_MAX: usize = 200_000;

/// Two different hosts, drawn evenly.
///
/// # Panics
/// If there are fewer than two.
#[must_use]
pub fn any_pair(hosts: u32, rng: &mut Rng) -> (u32, u32) {
    assert!(hosts >= 2, "a host sends to another");
    let src = below(rng, hosts);
    let other = below(rng, hosts - 1);
    (src, other + u32::from(other >= src))
}

impl Poisson<'_> {
    /// The mean time from one start to the next.
    fn mean_gap(&self) -> Dur {
        assert!(self.hosts >= 2 && self.load_permille > 0, "a host sends something to another");
        let bps = u128::from(self.hosts) * u128::from(self.host_rate.as_bps());
        let load = bps * u128::from(self.load_permille);
        let gap_ps = self.sizes.mean_millibytes() * 8 * PS_PER_S / load;
        Dur::from_ps(u64::try_from(gap_ps).unwrap_or(u64::MAX).max(1))
    }
}

/// An all-reduce of `bytes` over hosts in a ring: 2 (n - 1) rounds, in each of which every host
/// sends one of n pieces to the next, once it has the piece of the round before.
///
/// # Panics
/// If there are fewer than two hosts, or fewer bytes than hosts.
///
/// # Source
/// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
/// JPDC 69 (2009).
#[must_use]
pub fn all_reduce(hosts: &[u32], bytes: u64) -> Vec<Flow> {
    let n = u32_from(hosts.len());
    assert!(n >= 2 && bytes >= u64::from(n), "every host has a piece and a neighbour");
    let piece = bytes.div_ceil(u64::from(n));
    let mut flows = Vec::new();
    for round in 0..2 * (n - 1) {
        for i in 0..n {
            let (src, dst) = (hosts[i as usize], hosts[((i + 1) % n) as usize]);
            let after = round.checked_sub(1).map(|before| before * n + (i + n - 1) % n);
            flows.push(Flow { after, ..Flow::new(src, dst, Time::ZERO, piece) });
        }
    }
    flows
}

/// A flow that posts messages from `start` until `end`.
pub(crate) fn long(src: u32, dst: u32, [start, end]: [Time; 2]) -> Flow {
    Flow { stops_at: Some(end), ..Flow::new(src, dst, start, ENDLESS) }
}

/// Delays the start of each long flow by less than a packet: the packets of several begin in an
/// order that the seed draws, and not always that of their numbers.
pub(crate) fn jitter(flows: &mut [Flow], seed: u64) {
    let mut rng = Rng::new(seed ^ JITTER_SEEDS);
    for flow in flows.iter_mut().filter(|flow| flow.stops_at.is_some()) {
        flow.start += Dur::from_ps(rng.below(JITTER.as_ps()));
    }
}

/// Fisher-Yates shuffle.
pub(crate) fn shuffle<T>(list: &mut [T], rng: &mut Rng) {
    for i in (1..list.len()).rev() {
        list.swap(i, usize_from(rng.below(u64_from(i + 1))));
    }
}

/// A number below `n`.
pub(crate) fn below(rng: &mut Rng, n: u32) -> u32 {
    u32::try_from(rng.below(n.into())).expect("below a u32")
}

/// More than any link carries within a run.
const ENDLESS: u64 = 1 << 40;
/// A packet of 1024 bytes takes 349 ns at 25 Gbit/s.
const JITTER: Dur = Dur::from_ns(300);
/// Separates these draws from others.
const JITTER_SEEDS: u64 = 0x6a69_7474_6572_3031;
/// Picoseconds per second; milli-bytes per byte and permille cancel out.
const PS_PER_S: u128 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutation__each_host_sends_once_receives_once_and_not_from_itself() {
        let flows = permutation(16, 100, &mut Rng::new(1));
        let mut to: Vec<u32> = flows.iter().map(|f| f.dst).collect();
        assert!(flows.iter().all(|f| f.src != f.dst && f.bytes == 100));
        to.sort_unstable();
        assert_eq!(to, (0..16).collect::<Vec<_>>());
        assert_ne!(flows, permutation(16, 100, &mut Rng::new(2)));
    }

    #[test]
    fn incast__senders_are_spread() {
        let from: Vec<u32> = incast(16, 8, 1).iter().map(|f| f.src).collect();
        assert_eq!(from, [1, 2, 3, 4, 5, 6, 7, 8]);
        let from: Vec<u32> = incast(128, 3, 1).iter().map(|f| f.src).collect();
        assert_eq!(from, [32, 64, 96]);
    }

    #[test]
    fn poisson__has_the_requested_load() {
        let sizes = Cdf::parse("1000 0.5\n3000 1").unwrap();
        let p =
            Poisson { hosts: 8, host_rate: Rate::from_gbps(1), load_permille: 500, sizes: &sizes };
        let flows = poisson(&p, 20_000, &mut Rng::new(3));
        assert!(flows.iter().all(|f| f.src != f.dst && f.src < 8 && f.dst < 8));
        assert!(flows.is_sorted_by_key(|f| f.start));
        let bytes: u64 = flows.iter().map(|f| f.bytes).sum();
        let span = flows.last().unwrap().start.since(Time::ZERO);
        let bps = Rate::of(bytes, span).unwrap().as_bps();
        assert!((3_900_000_000..4_100_000_000).contains(&bps), "{bps} of 4 Gbit/s");
    }

    #[test]
    fn poisson_for__ends_in_time_with_the_requested_load_and_pairs() {
        let sizes = Cdf::parse("1000 1").unwrap();
        let p =
            Poisson { hosts: 8, host_rate: Rate::from_gbps(1), load_permille: 500, sizes: &sizes };
        let flows = poisson_for(&p, Dur::from_ms(20), &mut Rng::new(3), |_| (3, 4));
        assert!(flows.iter().all(|f| (f.src, f.dst) == (3, 4)));
        assert!(flows.last().unwrap().start < Time::ZERO + Dur::from_ms(20));
        // 4 Gbit/s in flows of 8000 bits: 10,000 in 20 ms, with a deviation of 100.
        assert!((9_600..10_400).contains(&flows.len()), "{}", flows.len());
        let again = poisson_for(&p, Dur::from_ms(20), &mut Rng::new(3), |_| (3, 4));
        assert_eq!(flows, again);
    }

    #[test]
    fn all_reduce__each_piece_waits_for_the_one_before() {
        let flows = all_reduce(&[5, 6, 7], 3000);
        assert_eq!(flows.len(), 4 * 3);
        assert!(flows[..3].iter().all(|f| f.after.is_none()));
        for flow in &flows[3..] {
            let before = flows[flow.after.unwrap() as usize];
            assert_eq!(before.dst, flow.src, "the awaited flow arrives at the source");
        }
    }

    #[test]
    fn requester__of_a_read_is_the_destination() {
        let write = Flow::new(1, 2, Time::ZERO, 9);
        let read = Flow { op: FlowOp::Read, ..write };
        assert_eq!((write.requester(), write.responder()), (1, 2));
        assert_eq!((read.requester(), read.responder()), (2, 1));
    }
}
