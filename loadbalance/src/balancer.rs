//! The load balancing state of a flow: a policy, its rounds, and counters.

use crate::paths::Paths;
use crate::{
    Choice, Entropy, Flow, LoadBalancer, Outgoing, PathAck, PathLoss, PathReport, Policy, Round,
};
use spanwire_base::Time;

/// The load balancer of one flow.
///
/// [`Balancer::pick`] is called once for each packet that leaves. `on_ack`, `on_loss` and
/// `on_timeout` take the feedback; of one frame, arrivals come before losses. Rounds are
/// delimited here, by the times at which packets were sent.
#[derive(Clone, Debug)]
pub struct Balancer {
    policy: Policy,
    paths: Paths,
    counters: Counters,
    /// The start of the round: an acknowledgement of a packet sent later ends it.
    round_from: Time,
    round: Round,
}

/// The path of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelectedPath {
    /// The path.
    pub entropy: Entropy,
    /// The whole flow changed its path with this packet. The caller informs congestion control
    /// (`Controller::on_path_change`).
    pub rerouted: bool,
}

/// The counters of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets for which a path was selected.
    pub picks: u64,
    /// Of these, retransmissions.
    pub retransmits: u64,
    /// Reroutes: a path of the flow, or of one of its subflows, was replaced by another.
    pub reroutes: u64,
    /// Reroutes of the whole flow.
    pub path_changes: u64,
    /// Packets presumed lost, on any path. Some may have arrived later.
    pub presumed_lost_packets: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Paths whose counters were evicted for those of other paths.
    pub paths_replaced: u64,
}

impl Balancer {
    /// The balancer of a flow. A parameter outside its range is clamped to it.
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
    pub fn pick(&mut self, out: &Outgoing) -> SelectedPath {
        let pick = self.policy.pick(out);
        let rerouted = pick.replaced.is_some() && self.policy.is_single_path();
        self.counters.picks += 1;
        self.counters.retransmits += u64::from(out.retransmit);
        self.counters.path_changes += u64::from(rerouted);
        if let Some(replaced) = pick.replaced {
            self.counters.reroutes += 1;
            self.paths.on_replaced(replaced);
        }
        self.paths.on_sent(pick.entropy, out.bytes);
        SelectedPath { entropy: pick.entropy, rerouted }
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

    /// The retransmission timeout expired.
    pub fn on_timeout(&mut self, now: Time) {
        self.counters.timeouts += 1;
        self.policy.on_timeout(now);
    }

    /// True if all packets take one path until it changes.
    #[must_use]
    pub fn is_single_path(&self) -> bool {
        self.policy.is_single_path()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { paths_replaced: self.paths.replaced(), ..self.counters }
    }

    /// Reports of the last 64 paths used, in the order of their first use, with states as of `now`.
    pub fn paths(&self, now: Time) -> impl Iterator<Item = PathReport> + '_ {
        self.paths.reports(move |path| self.policy.state(now, path))
    }
}

const EMPTY: Round = Round { acked: 0, marked: 0 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathState;
    use crate::testing::{acked, at, data, flow, lost, retransmission};

    fn balancer(choice: &str) -> Balancer {
        Balancer::new(&Choice::parse(choice).unwrap(), &flow(1))
    }

    /// Sends a packet at `us` that is acknowledged 100 us later, marked or not.
    fn acknowledged(lb: &mut Balancer, us: u64, marked: u32) -> SelectedPath {
        let picked = lb.pick(&data(at(us), us));
        let ack = acked(picked.entropy, at(us), 100);
        lb.on_ack(at(us + 100), &PathAck { marked, ..ack });
        picked
    }

    #[test]
    fn on_ack__a_round_ends_with_a_packet_sent_after_its_start() {
        let mut lb = balancer("plb,rounds=2");
        let first = acknowledged(&mut lb, 0, 1);
        for us in 1..100 {
            // Sent before the end of the first round at 100: the same round trip.
            assert_eq!(acknowledged(&mut lb, us, 1).entropy, first.entropy);
        }
        assert!(!acknowledged(&mut lb, 100, 1).rerouted, "this ends the second round");
        assert!(acknowledged(&mut lb, 101, 0).rerouted);
        assert_eq!((lb.counters().path_changes, lb.counters().reroutes), (1, 1));
    }

    #[test]
    fn pick__only_a_flow_of_one_path_reports_moves() {
        let mut lb = balancer("unolb,subflows=2");
        let path = acknowledged(&mut lb, 0, 0).entropy;
        lb.on_loss(at(300), &lost(path, 4, at(200)));
        let picked = lb.pick(&data(at(300), 2));
        assert!(picked.entropy != path && !picked.rerouted && !lb.is_single_path());
        assert_eq!((lb.counters().path_changes, lb.counters().reroutes), (0, 1));
        let report = lb.paths(at(300)).find(|report| report.path == path).unwrap();
        assert_eq!(
            (report.reroutes, report.state, report.presumed_lost_packets),
            (1, PathState::Retired, 4)
        );
    }

    #[test]
    fn counters__count() {
        let mut lb = balancer("rps,entropy_bits=14");
        let path = lb.pick(&data(at(0), 0)).entropy;
        for psn in 1..65 {
            lb.pick(&data(at(psn), psn));
        }
        lb.pick(&retransmission(at(100), 0, path));
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
