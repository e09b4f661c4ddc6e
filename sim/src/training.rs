//! Training of the networks that choose marking thresholds (LAECN).
//!
//! In an iteration eight [`Episode`]s run with frozen networks, as simulations of their own, in any
//! order and on any number of threads. A [`Trainer`] then learns from their decisions, in the order
//! of the episodes: equal seeds give equal networks.

mod episode;
mod transitions;

pub use episode::{EPISODES, Episode};

use serde::Serialize;
use spanwire_base::usize_from;
use spanwire_nn::train::{AdamConfig, Dqn, DqnConfig};
use spanwire_switch::{EcnModel, EcnReward, EcnStep};
use transitions::{decisions, policies, series};

/// The choices of a training that the paper leaves open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TrainConfig {
    /// The reward.
    pub reward: EcnReward,
    /// Steps of gradient descent of each network in an iteration.
    pub steps: u32,
    /// Samples that each learner remembers.
    pub replay: usize,
    /// The learning rate; in the last quarter of the iterations it falls to a tenth.
    pub rate: f32,
    /// Gradients are shortened to this norm.
    pub clip_norm: f32,
}

impl Default for TrainConfig {
    fn default() -> Self {
        let reward = EcnReward { omega: 0.9, ..EcnReward::default() };
        Self { reward, steps: 600, replay: 200_000, rate: 0.005, clip_norm: 10.0 }
    }
}

impl TrainConfig {
    /// The names of its choices, with their ranges.
    pub const KEYS: &'static [&'static str] = &[
        "omega (0 to 1)",
        "reward (repaired or printed)",
        "steps (1 to 100000)",
        "replay (64 to 1000000)",
        "rate (0.000001 to 0.1)",
        "clip (0.001 to 1000000)",
    ];

    /// Sets one of them.
    ///
    /// # Errors
    /// A sentence: there is none of this name, or its value is out of range.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        let wrong = || format!("{name} is {text:?}; there are {}", Self::KEYS.join(", "));
        let real = |least: f32, most: f32| {
            let value = text.parse::<f32>().ok().filter(|value| (least..=most).contains(value));
            value.ok_or_else(wrong)
        };
        let count = |least: u32, most: u32| {
            let value = text.parse::<u32>().ok().filter(|value| (least..=most).contains(value));
            value.ok_or_else(wrong)
        };
        match (name, text) {
            ("omega", _) => self.reward.omega = real(0.0, 1.0)?,
            ("reward", "repaired") => self.reward.printed = false,
            ("reward", "printed") => self.reward.printed = true,
            ("steps", _) => self.steps = count(1, 100_000)?,
            ("replay", _) => self.replay = usize_from(count(64, 1_000_000)?.into()),
            ("rate", _) => self.rate = real(1e-6, 0.1)?,
            ("clip", _) => self.clip_norm = real(1e-3, 1e6)?,
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

/// Two learners: of the decision network, from every decision, and of the policy network, from one
/// trigger to the next. As printed, nothing would be learned without a trigger, and the decision
/// network would never see the value of not triggering.
#[derive(Debug)]
pub struct Trainer {
    config: TrainConfig,
    seed: u64,
    iterations: u32,
    done: u32,
    decision: Dqn,
    policy: Dqn,
}

/// An iteration of a training.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Iteration {
    /// The mean reward of a decision.
    pub reward: f64,
    /// The mean squared error of the policy network's values.
    pub loss: f64,
    /// The mean squared error of the decision network's values.
    pub loss_decision: f64,
    /// The part of the decisions that triggered the policy network.
    pub trigger_rate: f64,
    /// The probability of random choices.
    pub epsilon: f64,
    /// Decisions.
    pub decisions: u64,
    /// The mean part of their capacity that ports have sent.
    pub sent: f64,
    /// The mean emptiness of queues.
    pub empty: f64,
}

impl Trainer {
    /// A training of so many iterations.
    #[must_use]
    pub fn new(config: TrainConfig, seed: u64, iterations: u32) -> Self {
        let adam =
            AdamConfig { rate: config.rate, clip_norm: config.clip_norm, ..AdamConfig::default() };
        let dqn = DqnConfig { adam, replay: config.replay, ..DqnConfig::default() };
        // The decision network is plain DQN, the policy network double DQN.
        let plain = DqnConfig { is_double: false, ..dqn };
        Self {
            config,
            seed,
            iterations,
            done: 0,
            decision: Dqn::new(plain, EcnModel::DECISION, seed ^ DECISION_SEEDS),
            policy: Dqn::new(dqn, EcnModel::POLICY, seed ^ POLICY_SEEDS),
        }
    }

    /// The networks as they are now.
    #[must_use]
    pub fn model(&self) -> EcnModel {
        let (decision, policy) = (self.decision.network(), self.policy.network());
        EcnModel::of_networks("training", decision.clone(), policy.clone())
    }

    /// The episodes of the next iteration.
    #[must_use]
    pub fn episodes(&self) -> Vec<Episode> {
        let (model, ppm) = (self.model(), self.epsilon_ppm());
        let one =
            |n| Episode { seed: self.seed, iteration: self.done, n, model: model.clone(), ppm };
        (0..EPISODES).map(one).collect()
    }

    /// The probability of random choices in the next iteration, in millionths: from 1 to a
    /// twentieth over three quarters of the iterations.
    fn epsilon_ppm(&self) -> u32 {
        let falling = (self.iterations * 3 / 4).max(1);
        let left = falling.saturating_sub(self.done);
        LEAST_PPM + (1_000_000 - LEAST_PPM) / falling * left
    }

    /// Learns from the decisions of the episodes, each switch by switch.
    pub fn learn(&mut self, episodes: &[Vec<Vec<EcnStep>>]) -> Iteration {
        let epsilon = f64::from(self.epsilon_ppm()) / 1e6;
        let reward = self.config.reward;
        let mut sums = Sums::default();
        for steps in episodes.iter().flatten() {
            for one in series(steps) {
                sums.add(&one, &reward);
                decisions(&one, &reward).for_each(|choice| self.decision.remember(choice));
                policies(&one, &reward).for_each(|choice| self.policy.remember(choice));
            }
        }
        let slow = self.done >= self.iterations * 3 / 4;
        let rate = if slow { self.config.rate / 10.0 } else { self.config.rate };
        let mut losses = [0.0; 2];
        for (dqn, loss) in [&mut self.decision, &mut self.policy].into_iter().zip(&mut losses) {
            dqn.set_rate(rate);
            for _ in 0..self.config.steps {
                *loss += f64::from(dqn.learn().unwrap_or(0.0));
            }
            *loss /= f64::from(self.config.steps.max(1));
        }
        self.done += 1;
        let [loss_decision, loss] = losses;
        sums.iteration(epsilon, loss, loss_decision)
    }
}

/// Sums over the decisions of an iteration.
#[derive(Debug, Default)]
struct Sums {
    decisions: u64,
    triggers: u64,
    rewarded: u64,
    reward: f64,
    sent: f64,
    empty: f64,
}

impl Sums {
    fn add(&mut self, series: &[&EcnStep], reward: &EcnReward) {
        for (n, step) in series.iter().enumerate() {
            self.decisions += 1;
            self.triggers += u64::from(step.action.is_some());
            self.sent += f64::from(step.sent);
            self.empty += f64::from(step.empty);
            if let Some(next) = series.get(n + 1) {
                self.rewarded += 1;
                self.reward += f64::from(reward.of(next.sent, next.empty, step.action.is_some()));
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "means of counts")]
    fn iteration(&self, epsilon: f64, loss: f64, loss_decision: f64) -> Iteration {
        let [decisions, rewarded] = [self.decisions, self.rewarded].map(|n| n.max(1) as f64);
        Iteration {
            reward: self.reward / rewarded,
            loss,
            loss_decision,
            trigger_rate: self.triggers as f64 / decisions,
            epsilon,
            decisions: self.decisions,
            sent: self.sent / decisions,
            empty: self.empty / decisions,
        }
    }
}

/// The seeds of trainings begin here, and no run that evaluates has one of them.
pub const FIRST_SEED: u64 = crate::scenario::TRAINING_SEEDS;
/// Separate the weights of both networks.
const DECISION_SEEDS: u64 = 0x6465_6369_7369_6f6e;
const POLICY_SEEDS: u64 = 0x706f_6c69_6379;
/// The probability of random choices at the end.
const LEAST_PPM: u32 = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set__by_name_within_its_range() {
        let mut config = TrainConfig::default();
        config.set("omega", "0.7").unwrap();
        config.set("reward", "printed").unwrap();
        config.set("replay", "10000").unwrap();
        assert_eq!(
            (config.reward.omega, config.reward.printed, config.replay),
            (0.7, true, 10_000)
        );
        for (name, text) in [("omega", "2"), ("omega", "nan"), ("reward", "no"), ("steps", "0")] {
            let error = config.set(name, text).unwrap_err();
            assert!(error.contains(name) && error.contains("omega (0 to 1)"), "{error}");
        }
    }

    #[test]
    fn epsilon_ppm__falls_from_one_to_a_twentieth() {
        let at =
            |done| Trainer { done, ..Trainer::new(TrainConfig::default(), 1, 40) }.epsilon_ppm();
        assert!((999_000..=1_000_000).contains(&at(0)), "{}", at(0));
        assert!(at(15) > 500_000 && at(16) < 500_000);
        assert_eq!([30, 39].map(at), [50_000; 2]);
    }

    #[test]
    fn learn__equal_seeds_give_equal_files_whatever_the_order_of_runs() {
        let config = TrainConfig { steps: 5, ..TrainConfig::default() };
        let train = |backwards: bool| {
            let mut trainer = Trainer::new(config, FIRST_SEED, 2);
            let mut last = None;
            for _ in 0..2 {
                let episodes = trainer.episodes();
                let mut runs: Vec<_> = episodes.iter().take(2).enumerate().collect();
                if backwards {
                    runs.reverse();
                }
                let mut steps: Vec<_> =
                    runs.into_iter().map(|(n, e)| (n, e.run().unwrap())).collect();
                steps.sort_by_key(|(n, _)| *n);
                let steps: Vec<_> = steps.into_iter().map(|(_, steps)| steps).collect();
                last = Some(trainer.learn(&steps));
            }
            (trainer.model().to_file(FIRST_SEED, "test"), last)
        };
        let (file, last) = train(false);
        assert_eq!((file, last), train(true));
        let last = last.unwrap();
        assert!(last.decisions > 500 && (0.0..=1.0).contains(&last.reward), "{last:?}");
        assert!(last.trigger_rate > 0.1 && last.loss > 0.0 && last.loss.is_finite(), "{last:?}");
    }
}
