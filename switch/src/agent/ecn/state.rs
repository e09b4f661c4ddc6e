//! The state of a port, and the reward.

use super::action::Action;

/// One interval of a port, as networks see it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Seen {
    /// T: bytes sent, over those that the port could have sent; 0 to 1.
    pub(super) sent: f32,
    /// D: how empty the queue was; 1: up to the unit of its port, 0: beyond 512 times that.
    pub(super) empty: f32,
}

impl Seen {
    /// An interval with this mean queue over time, at a port with these
    /// [`unit_bytes`](super::action::unit_bytes), that sent this part of its capacity.
    pub(super) fn new(mean_bytes: u64, unit_bytes: u64, sent: u64, capacity: u64) -> Self {
        let level = (0..LEVELS).find(|n| mean_bytes <= unit_bytes << n).unwrap_or(LEVELS);
        Self {
            sent: ratio(sent.min(capacity), capacity.max(1)),
            empty: ratio(LEVELS - level, LEVELS),
        }
    }
}

/// The last intervals of a port: the input of the policy network, oldest first; zeros where there
/// is no history. Each interval has {Q, T, Kmin, Kmax, Pmax}, where Q is 1 - D, and thresholds
/// count by their place in their list.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct History(pub(super) [f32; STATE]);

impl History {
    /// Adds an interval in which these thresholds were in force.
    pub(super) fn push(&mut self, seen: Seen, action: Action) {
        self.0.copy_within(PARTS.., 0);
        let [kmin, kmax, pmax] = action.parts().map(f32::from);
        let parts = [1.0 - seen.empty, seen.sent, kmin / 4.0, kmax / 2.0, pmax / 2.0];
        self.0[STATE - PARTS..].copy_from_slice(&parts);
    }
}

/// The reward of an interval: omega T + (1 - omega) D, less the price of a trigger before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EcnReward {
    /// The weight of the rate, 0 to 1.
    pub omega: f32,
    /// As printed, where a full queue is good: 1 - D instead of D.
    pub printed: bool,
    /// The price of a trigger.
    pub trigger: f32,
}

impl Default for EcnReward {
    fn default() -> Self {
        Self { omega: 0.5, printed: false, trigger: 0.05 }
    }
}

impl EcnReward {
    /// The reward of an interval that sent the part `sent` of its capacity with a queue that was
    /// `empty`.
    #[must_use]
    pub fn of(&self, sent: f32, empty: f32, triggered: bool) -> f32 {
        let queue = if self.printed { 1.0 - empty } else { empty };
        let price = if triggered { self.trigger } else { 0.0 };
        self.omega * sent + (1.0 - self.omega) * queue - price
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of counts, rounded alike everywhere")]
fn ratio(part: u64, whole: u64) -> f32 {
    part as f32 / whole as f32
}

/// The names of the parts of the state, in order.
pub(super) fn names() -> Vec<String> {
    let parts = ["Q", "T", "Kmin", "Kmax", "Pmax"];
    let of = |age: usize| parts.map(|part| format!("{part}-{age}"));
    (0..INTERVALS).rev().flat_map(of).collect()
}

/// The discount of rewards.
pub const GAMMA: f32 = 0.98;
/// Values of an interval.
const PARTS: usize = 5;
/// Intervals of a state.
const INTERVALS: usize = 3;
/// Values of a state.
pub(super) const STATE: usize = PARTS * INTERVALS;
/// Steps of the length of a queue, each twice the last.
const LEVELS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new__the_vector_of_100_kb_at_25_gbit() {
        let seen = Seen::new(100_000, 20_000, 60, 100);
        assert_eq!((seen.empty, seen.sent), (0.7, 0.6));
        let reward = EcnReward::default();
        assert_eq!(reward.of(seen.sent, seen.empty, false), 0.65);
        assert!((reward.of(seen.sent, seen.empty, true) - 0.6).abs() < 1e-6);
        let printed = EcnReward { printed: true, ..reward };
        assert!((printed.of(seen.sent, seen.empty, false) - 0.45).abs() < 1e-6);
    }

    #[test]
    fn new__steps_of_the_queue_double() {
        let empty = |bytes| Seen::new(bytes, 20_000, 0, 1).empty;
        assert_eq!([0, 20_000, 20_001, 40_000].map(empty), [1.0, 1.0, 0.9, 0.9]);
        assert_eq!([20_000 << 9, (20_000 << 9) + 1, u64::MAX].map(empty), [0.1, 0.0, 0.0]);
        let late = Seen::new(0, 1, 200, 100);
        assert_eq!(late.sent, 1.0, "never above 1");
        assert_eq!(Seen::new(0, 1, 0, 0).sent, 0.0);
    }

    #[test]
    fn push__keeps_three_intervals_oldest_first() {
        let mut history = History::default();
        let seen = |tenth: u8| Seen { sent: f32::from(tenth) / 10.0, empty: 1.0 };
        history.push(seen(1), Action::INITIAL);
        assert_eq!(history.0[..10], [0.0; 10]);
        assert_eq!(history.0[10..], [0.0, 0.1, 0.5, 0.5, 0.5]);
        for tenth in 2..=4 {
            history.push(seen(tenth), Action::new(44).unwrap());
        }
        assert_eq!([1, 6, 11].map(|at| history.0[at]), [0.2, 0.3, 0.4]);
        assert_eq!(history.0[12..], [1.0; 3]);
        let names = names();
        assert_eq!((names.len(), &*names[0], &*names[14]), (STATE, "Q-2", "Pmax-0"));
    }
}
