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
    /// Packets found lost, on any path.
    pub lost_packets: u64,
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
        if ack.sent_at >= self.round_from && self.round.acked > 0 {
            let round = std::mem::replace(&mut self.round, EMPTY);
            self.round_from = now;
            self.policy.on_round(now, &round);
        }
    }

    /// Packets of a path were lost.
    pub fn on_loss(&mut self, now: Time, loss: &PathLoss) {
        self.counters.lost_packets += u64::from(loss.packets);
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
