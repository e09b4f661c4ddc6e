//! Draws of erasure coding and load balancing, and networks with equal-cost paths.

use super::draw::Draw;
use crate::plan::{Fault, Plan};
use crate::setup::{Sends, Setup};
use crate::topology::{LeafSpine, Topology};
use spanwire_base::{Dur, Rate};
use spanwire_erasure::Scheme;
use spanwire_loadbalance::Choice;
use spanwire_switch::{Impairments, Interval};
use spanwire_transport::{CodingWhen, ErasureCoding};
use spanwire_wire::BLOCK_PKTS_MAX;

impl Draw {
    /// In one of four seeds a network of many equal-cost paths, near or far.
    pub(super) fn equal_paths(&mut self) -> Option<Topology> {
        let gbps = [1, 10, 25, 100].map(Rate::from_gbps);
        let shape = LeafSpine {
            leaves: 2,
            hosts_per_leaf: self.count(&[1, 2, 4]),
            spines: self.count(&[2, 4, 8]),
            links_per_spine: self.count(&[1, 2]),
            host_rate: self.pick(&gbps),
            fabric_rate: self.pick(&gbps),
            host_delay: Dur::from_us(1),
            fabric_delay: Dur::from_us(self.pick(&[1, 20, 400])),
        };
        self.one_in(4).then(|| Topology::leaf_spine(&shape))
    }

    /// Erasure coding and load balancing in half of the seeds, for each host independently.
    pub(super) fn unorc(&mut self, setup: &mut Setup, hosts: u32) {
        if self.one_in(2) {
            return;
        }
        let all = self.sends();
        let each_its_own = self.one_in(2);
        let own = |host| (host, if each_its_own { self.sends() } else { all });
        setup.other_sends = (0..hosts).map(own).collect();
        let bytes = [4 << 20, 4 << 20, 64 << 10, 10_000, 0];
        setup.block_bytes = [0, 1].map(|_| self.pick(&bytes));
    }

    fn sends(&mut self) -> Sends {
        let erasure = self.coding();
        let known = Choice::known();
        let choice =
            Choice::named(self.pick(&known)).expect("the names come from the list of balancers");
        Sends { erasure: (!self.one_in(4)).then_some(erasure), balance: self.choose(choice) }
    }

    fn choose(&mut self, choice: Choice) -> Option<Choice> {
        (!self.one_in(3)).then_some(choice)
    }

    /// Any valid code; the usual ones are more frequent.
    fn coding(&mut self) -> ErasureCoding {
        let mut up_to = |most: u8| 1 + u8::try_from(self.below(most.into())).unwrap_or(0);
        let any = (up_to(62), up_to(PARITY_MAX));
        let any = (any.0, any.1.min(BLOCK_PKTS_MAX - any.0));
        let (data, parity) = self.pick(&[(8, 2), (8, 2), (4, 2), (10, 4), (16, 4), (1, 1), any]);
        let most = parity.saturating_mul(2).min(BLOCK_PKTS_MAX - data).min(PARITY_MAX);
        let adaptive = self.one_in(3).then_some((1, most));
        let is_pq = adaptive.map_or(parity, |(_, most)| most) <= 2 && !self.one_in(3);
        let when = [
            CodingWhen::Always,
            CodingWhen::Always,
            CodingWhen::BaseRtt(ErasureCoding::AUTO_BASE_RTT),
            CodingWhen::BaseRtt(Dur::from_us(20)),
        ];
        let scheme = if is_pq { Scheme::PQ } else { Scheme::CAUCHY };
        ErasureCoding { data, parity, scheme, when: self.pick(&when), adaptive }
    }

    /// One of the equal-cost paths is dead while there are faults, in one direction or both. The
    /// links of hosts precede those of the fabric.
    pub(super) fn dead_path(&mut self, plan: &mut Plan, faults_end: Dur) {
        let hosts = plan.topology.hosts.len();
        let fabric = plan.topology.links.len().saturating_sub(hosts);
        if fabric < 2 {
            return;
        }
        let link = hosts + spanwire_base::usize_from(self.below(spanwire_base::u64_from(fabric)));
        let from = Dur::from_ps(self.below(faults_end.as_ps()));
        let blackhole = vec![Interval { from, to: faults_end }];
        let impairments = Impairments { blackhole, ..Impairments::default() };
        for backwards in [false, true] {
            if !self.one_in(3) {
                plan.faults.push(Fault { link, backwards, impairments: impairments.clone() });
            }
        }
    }
}

/// The most parity packets of a block.
const PARITY_MAX: u8 = 32;
