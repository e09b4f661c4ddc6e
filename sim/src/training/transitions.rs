//! Samples for learners, from records of decisions.

use spanwire_nn::train::{Outcome, Transition, several_steps};
use spanwire_switch::{EcnReward, EcnStep, GAMMA};

/// The decisions of a switch by series: one port, interval by interval.
pub(super) fn series(steps: &[EcnStep]) -> Vec<Vec<&EcnStep>> {
    let mut sorted: Vec<&EcnStep> = steps.iter().collect();
    // Those of one port are in the order of time, and remain so.
    sorted.sort_by_key(|step| (step.port, step.series));
    let is_same = |a: &&EcnStep, b: &&EcnStep| (a.port, a.series) == (b.port, b.series);
    sorted.chunk_by(is_same).map(<[&EcnStep]>::to_vec).collect()
}

/// Samples of the decision network: every decision, with the reward of the interval after it.
pub(super) fn decisions<'a>(
    series: &'a [&EcnStep],
    reward: &'a EcnReward,
) -> impl Iterator<Item = Transition> + 'a {
    series.windows(2).map(move |pair| {
        let (now, next) = (pair[0], pair[1]);
        let triggered = now.action.is_some();
        let outcome = Outcome {
            reward: reward.of(next.sent, next.empty, triggered),
            discount: GAMMA,
            next: Some(both(next)),
        };
        Transition { state: both(now), action: usize::from(triggered), outcome }
    })
}

/// Samples of the policy network: every action, with the rewards until the next one, without the
/// price of triggers, of which it chooses none. The end of a series cuts the last one short: the
/// value of the state there stands for the rest.
pub(super) fn policies<'a>(
    series: &'a [&EcnStep],
    reward: &'a EcnReward,
) -> impl Iterator<Item = Transition> + 'a {
    series.iter().enumerate().filter_map(move |(n, step)| {
        let action = usize::from(step.action?);
        let rest = &series[n + 1..];
        let until = rest.iter().position(|next| next.action.is_some());
        let until = &rest[..until.map_or(rest.len(), |place| place + 1)];
        let next = until.last()?.state.to_vec();
        let rewards = until.iter().map(|next| reward.of(next.sent, next.empty, false));
        let outcome = several_steps(rewards, GAMMA, Some(next));
        Some(Transition { state: step.state.to_vec(), action, outcome })
    })
}

/// The input of the decision network.
fn both(step: &EcnStep) -> Vec<f32> {
    [step.state, step.saved].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(port: u8, series: u32, sent: f32, action: Option<u8>) -> EcnStep {
        EcnStep { port, series, state: [sent; 15], saved: [9.0; 15], action, sent, empty: 1.0 }
    }

    /// A record whose port 1 triggers, keeps twice, triggers and keeps.
    fn steps() -> Vec<EcnStep> {
        vec![
            step(1, 0, 0.0, Some(7)),
            step(2, 1, 0.5, None),
            step(1, 0, 0.2, None),
            step(1, 0, 0.4, None),
            step(2, 1, 0.7, None),
            step(1, 0, 0.6, Some(44)),
            step(1, 0, 0.8, None),
            step(1, 2, 0.9, Some(3)),
        ]
    }

    #[test]
    fn series__by_port_and_without_gaps() {
        let steps = steps();
        let all = series(&steps);
        let sent: Vec<Vec<f32>> =
            all.iter().map(|one| one.iter().map(|step| step.sent).collect()).collect();
        assert_eq!(sent, [vec![0.0, 0.2, 0.4, 0.6, 0.8], vec![0.9], vec![0.5, 0.7]]);
    }

    #[test]
    fn decisions__every_interval_with_the_price_of_a_trigger() {
        let (steps, reward) = (steps(), EcnReward::default());
        let all = series(&steps);
        let found: Vec<Transition> = decisions(&all[0], &reward).collect();
        let of = |t: &Transition| (t.action, t.outcome.reward, t.outcome.discount);
        assert_eq!(found.len(), 4);
        assert_eq!(of(&found[0]), (1, 0.5 * 0.2 + 0.5 - 0.05, 0.98));
        assert_eq!(of(&found[1]), (0, 0.5 * 0.4 + 0.5, 0.98));
        assert_eq!((found[0].state[0], found[0].state[29]), (0.0, 9.0));
        assert_eq!(found[0].outcome.next.as_ref().map(|next| next[0]), Some(0.2));
        assert_eq!(decisions(&all[1], &reward).count(), 0, "nothing is known of what follows");
    }

    #[test]
    fn policies__from_trigger_to_trigger() {
        let (steps, reward) = (steps(), EcnReward::default());
        let all = series(&steps);
        let found: Vec<Transition> = policies(&all[0], &reward).collect();
        assert_eq!(found.iter().map(|t| t.action).collect::<Vec<_>>(), [7, 44]);
        let Outcome { reward: sum, discount, next } = &found[0].outcome;
        assert!((sum - (0.6 + 0.98 * 0.7 + 0.98 * 0.98 * 0.8)).abs() < 1e-6, "{sum}");
        assert!((discount - 0.98_f32.powi(3)).abs() < 1e-6);
        assert_eq!(next.as_deref(), Some(&[0.6; 15][..]), "the state of the next trigger");
        assert_eq!(found[1].outcome.next.as_deref(), Some(&[0.8; 15][..]), "cut short");
        assert_eq!(policies(&all[1], &reward).count(), 0);
    }
}
