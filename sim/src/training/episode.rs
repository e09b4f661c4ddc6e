//! The simulations in which networks learn.

use crate::network::NetworkError;
use crate::plan::Plan;
use crate::scenario::training_plan;
use crate::topology::LeafSpine;
use crate::workload::{self, Cdf, Flow, Poisson};
use spanwire_base::{Dur, Rate, Rng, Time};
use spanwire_switch::{EcnAgentConfig, EcnExplore, EcnModel, EcnStep};

/// A simulation with frozen networks: 5 ms of a leaf-spine network, whose size, load and flows are
/// drawn from the seed.
#[derive(Clone, Debug)]
pub struct Episode {
    pub(super) seed: u64,
    pub(super) iteration: u32,
    /// Its number in the iteration, which decides its kind.
    pub(super) n: u32,
    pub(super) model: EcnModel,
    /// The probability of random choices, in millionths.
    pub(super) ppm: u32,
}

impl Episode {
    /// Runs it; the decisions, switch by switch.
    ///
    /// # Errors
    /// The network cannot be built: a bug.
    pub fn run(&self) -> Result<Vec<Vec<EcnStep>>, NetworkError> {
        self.plan().run_for_steps()
    }

    fn plan(&self) -> Plan {
        let seeds = u64::from(self.iteration) * u64::from(EPISODES) + u64::from(self.n);
        let mut rng = Rng::new(self.seed ^ (seeds << 32) ^ EPISODE_SEEDS);
        let is_small = self.n % 4 == 3;
        let shape = LeafSpine {
            leaves: pick(&mut rng, &[2, 3, 4]),
            hosts_per_leaf: pick(&mut rng, &[8, 12, 16, 24]),
            spines: pick(&mut rng, &[1, 2, 3]),
            links_per_spine: if is_small { 2 } else { 1 },
            host_rate: Rate::from_gbps(25),
            fabric_rate: Rate::from_gbps(100),
            host_delay: Dur::from_us(1),
            fabric_delay: Dur::from_us(1),
        };
        let hosts = shape.leaves * shape.hosts_per_leaf;
        let flows = match self.n % 4 {
            0 | 1 => bursts(&shape, &mut rng),
            2 => load(hosts, &mut rng),
            _ => small(&shape, &mut rng),
        };
        let explore = Some(EcnExplore { ppm: self.ppm, seed: rng.next_u64() });
        let model = self.model.clone();
        let ecn = EcnAgentConfig { model, explore, ..EcnAgentConfig::default() };
        let mut plan = training_plan(&shape, flows, rng.next_u64(), ecn);
        plan.until = Time::ZERO + TIME;
        plan.sample_every = TIME;
        // Transfers are verified elsewhere.
        plan.max_events = MAX_EVENTS;
        plan
    }
}

/// Bursts of a part of all hosts to the first leaf, one after another, of 0.1 to 5 MB a flow.
fn bursts(shape: &LeafSpine, rng: &mut Rng) -> Vec<Flow> {
    let hosts = shape.leaves * shape.hosts_per_leaf;
    let step = pick(rng, &[1, 2, 4]);
    let bytes: u64 = pick(rng, &[100_000, 300_000, 1_000_000, 2_000_000, 5_000_000]);
    let gap = Dur::from_us(pick(rng, &[200, 500, 1_000, 2_000]));
    let mut flows = Vec::new();
    let mut start = Time::ZERO;
    while start < Time::ZERO + TIME {
        for src in (0..hosts).step_by(step) {
            flows.push(Flow::new(src, other(src, shape.hosts_per_leaf, rng), start, bytes));
        }
        start += gap * if bytes > 1_000_000 { 4 } else { 1 };
    }
    flows
}

/// Flows of a known workload between random hosts.
fn load(hosts: u32, rng: &mut Rng) -> Vec<Flow> {
    let names: Vec<&str> = Cdf::names().collect();
    let name = if rng.below(2) == 0 { "websearch" } else { names[place(rng, names.len())] };
    let sizes = Cdf::named(name).expect("one of the names");
    let load_permille = 300 + u32::try_from(rng.below(600)).expect("below a thousand");
    let draw = Poisson { hosts, host_rate: Rate::from_gbps(25), load_permille, sizes: &sizes };
    let pair = |rng: &mut Rng| workload::any_pair(hosts, rng);
    let mut flows = workload::poisson_for(&draw, TIME, rng, pair);
    flows.truncate(FLOWS_MAX);
    flows
}

/// Small flows of random hosts to the first leaf, at random times in each of several bursts.
fn small(shape: &LeafSpine, rng: &mut Rng) -> Vec<Flow> {
    let hosts = shape.leaves * shape.hosts_per_leaf;
    let gap = Dur::from_us(pick(rng, &[100, 300, 1_000]));
    let most = hosts.max(2);
    let flows = u64::from(most / 4) + rng.below(most.into());
    let mut all = Vec::new();
    let mut start = Time::ZERO;
    while start < Time::ZERO + TIME {
        for _ in 0..flows {
            let src = u32::try_from(rng.below(hosts.into())).expect("below a u32");
            let at = start + Dur::from_ns(rng.below(20_000));
            let bytes = 20_000 + rng.below(80_001);
            all.push(Flow::new(src, other(src, shape.hosts_per_leaf, rng), at, bytes));
        }
        start += gap;
    }
    all.truncate(FLOWS_MAX);
    all
}

/// A random host below `hosts` other than `src`.
fn other(src: u32, hosts: u32, rng: &mut Rng) -> u32 {
    loop {
        let dst = u32::try_from(rng.below(hosts.into())).expect("below a u32");
        if dst != src {
            return dst;
        }
    }
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[place(rng, of.len())]
}

fn place(rng: &mut Rng, n: usize) -> usize {
    usize::try_from(rng.below(u64::try_from(n).unwrap_or(1))).unwrap_or(0)
}

/// Episodes of an iteration: half of them bursts, a quarter a workload, a quarter small flows.
pub const EPISODES: u32 = 8;
const TIME: Dur = Dur::from_ms(5);
/// Queue pairs take memory.
const FLOWS_MAX: usize = 4_000;
/// Far more than any episode has.
const MAX_EVENTS: u64 = 100_000_000;
const EPISODE_SEEDS: u64 = 0x6570_6973_6f64_6573;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan__differs_by_seed_iteration_and_number() {
        let text = |seed, iteration, n| {
            let model = EcnModel::default();
            let plan = Episode { seed, iteration, n, model, ppm: 0 }.plan();
            format!("{:?} {:?}", plan.flows, plan.topology)
        };
        let first = text(1, 0, 0);
        assert_eq!(first, text(1, 0, 0));
        for other in [text(2, 0, 0), text(1, 1, 0), text(1, 0, 1)] {
            assert_ne!(first, other);
        }
    }
}
