//! What a flow holds: a policy, its rounds, and counters.

use crate::paths::Paths;
use crate::{
    Choice, Entropy, Flow, LoadBalancer, Outgoing, PathAck, PathLoss, PathReport, Policy, Round,
};
use spanwire_base::Time;

/// One flow's load balancing.
///
/// For each packet that leaves [`Balancer::pick`] is called once; what comes back goes to `on_ack`,
/// `on_loss` and `on_timeout`, the arrivals that a frame tells of before its losses. Rounds are
/// told here, by when packets were sent.
#[derive(Clone, Debug)]
pub struct Balancer {
    policy: Policy,
    paths: Paths,
    counters: Counters,
    /// The round ends with an acknowledgement of a packet sent since.
    round_from: Time,
    round: Round,
}

/// The path of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Picked {
    /// The path.
    pub entropy: Entropy,
    /// The whole flow takes another path from this packet on: congestion control is to be told
    /// (`Controller::on_path_change`).
    pub moved: bool,
}

/// What happened to a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets that were given a path.
    pub picks: u64,
    /// Of these, retransmissions.
    pub retransmits: u64,
    /// How often a path was given up for another: of the flow, or of one of its subflows.
    pub reroutes: u64,
    /// How often the whole flow moved.
    pub path_changes: u64,
    /// Packets presumed lost, on any path. Some may have arrived later.
    pub presumed_lost_packets: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Paths whose counters made room for those of others.
    pub paths_replaced: u64,
}

impl Balancer {
    /// A flow's. A parameter outside its range counts as the nearest value inside.
    #[must_use]
    pub fn new(choice: &Choice, flow: &Flow) -> Self {
        Self {
            policy: choice.start(flow),
            paths: Paths::new(),
            counters: Counters::default(),
            round_from: Time::ZERO,
            round: EMPTY,
        }
    }

    /// The path of a packet that leaves now.
    pub fn pick(&mut self, out: &Outgoing) -> Picked {
        let pick = self.policy.pick(out);
        let moved = pick.left.is_some() && self.policy.is_single_path();
        self.counters.picks += 1;
        self.counters.retransmits += u64::from(out.retransmit);
        self.counters.path_changes += u64::from(moved);
        if let Some(left) = pick.left {
            self.counters.reroutes += 1;
            self.paths.on_left(left);
        }
        self.paths.on_sent(pick.entropy, out.bytes);
        Picked { entropy: pick.entropy, moved }
    }

    /// Packets of a path arrived.
    pub fn on_ack(&mut self, now: Time, ack: &PathAck) {
        self.paths.on_ack(now, ack);
        self.policy.on_ack(now, ack);
        self.round.acked += u64::from(ack.packets);
        self.round.marked += u64::from(ack.marked);
        if ack.sent_at >= self.round_from {
            let round = std::mem::replace(&mut self.round, EMPTY);
            self.round_from = now;
            self.policy.on_round(now, &round);
        }
    }

    /// Packets of a path were lost.
    pub fn on_loss(&mut self, now: Time, loss: &PathLoss) {
        self.counters.presumed_lost_packets += u64::from(loss.packets);
        self.paths.on_loss(loss);
        self.policy.on_loss(now, loss);
    }

    /// The retransmission timeout.
    pub fn on_timeout(&mut self, now: Time) {
        self.counters.timeouts += 1;
        self.policy.on_timeout(now);
    }

    /// All packets take one path until it changes.
    #[must_use]
    pub fn is_single_path(&self) -> bool {
        self.policy.is_single_path()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { paths_replaced: self.paths.replaced(), ..self.counters }
    }

    /// The last 64 paths that packets took, the first used first, as they are at `now`.
    pub fn paths(&self, now: Time) -> impl Iterator<Item = PathReport> + '_ {
        self.paths.reports(move |path| self.policy.state(now, path))
    }
}

const EMPTY: Round = Round { acked: 0, marked: 0 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathState;
    use crate::testing::{acked, again, at, data, flow, lost};

    fn balancer(choice: &str) -> Balancer {
        Balancer::new(&Choice::parse(choice).unwrap(), &flow(1))
    }

    /// A packet sent at `us` and acknowledged, marked or not, 100 us later.
    fn answered(lb: &mut Balancer, us: u64, marked: u32) -> Picked {
        let picked = lb.pick(&data(at(us), us));
        let ack = acked(picked.entropy, at(us), 100);
        lb.on_ack(at(us + 100), &PathAck { marked, ..ack });
        picked
    }

    #[test]
    fn on_ack__a_round_is_what_is_acknowledged_until_a_packet_sent_since() {
        let mut lb = balancer("plb,rounds=2");
        let first = answered(&mut lb, 0, 1);
        for us in 1..100 {
            // Sent before the first round's end at 100: the same round trip.
            assert_eq!(answered(&mut lb, us, 1).entropy, first.entropy);
        }
        assert!(!answered(&mut lb, 100, 1).moved, "this ends the second round");
        assert!(answered(&mut lb, 101, 0).moved);
        assert_eq!((lb.counters().path_changes, lb.counters().reroutes), (1, 1));
    }

    #[test]
    fn pick__only_a_flow_of_one_path_moves() {
        let mut lb = balancer("unolb,subflows=2");
        let path = answered(&mut lb, 0, 0).entropy;
        lb.on_loss(at(300), &lost(path, 4, at(200)));
        let picked = lb.pick(&data(at(300), 2));
        assert!(picked.entropy != path && !picked.moved && !lb.is_single_path());
        assert_eq!((lb.counters().path_changes, lb.counters().reroutes), (0, 1));
        let left = lb.paths(at(300)).find(|report| report.path == path).unwrap();
        assert_eq!((left.left, left.state, left.presumed_lost_packets), (1, PathState::Retired, 4));
    }

    #[test]
    fn counters__count() {
        let mut lb = balancer("rps,entropy_bits=14");
        let path = lb.pick(&data(at(0), 0)).entropy;
        for psn in 1..65 {
            lb.pick(&data(at(psn), psn));
        }
        lb.pick(&again(at(100), 0, path));
        lb.on_loss(at(100), &lost(path, 3, at(0)));
        lb.on_timeout(at(500));
        let counted = Counters {
            picks: 66,
            retransmits: 1,
            presumed_lost_packets: 3,
            timeouts: 1,
            paths_replaced: 2,
            ..Counters::default()
        };
        assert_eq!(lb.counters(), counted);
        assert_eq!(lb.paths(at(500)).count(), 64);
    }
}
