//! Deep Q-learning.

use super::adam::{Adam, AdamConfig};
use super::backprop::Backprop;
use super::initial::initial;
use super::replay::Replay;
use crate::network::{Network, Scratch, argmax};
use spanwire_base::Rng;

/// A choice and its outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct Transition {
    /// The state in which it was made.
    pub state: Vec<f32>,
    /// The action.
    pub action: usize,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The outcome of a choice, by the time of the next.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The rewards, discounted and summed.
    pub reward: f32,
    /// The discount of the next state's value: gamma, to the power of the steps.
    pub discount: f32,
    /// The next state; `None`: it was the end.
    pub next: Option<Vec<f32>>,
}

/// Parameters of [`Dqn`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DqnConfig {
    /// The optimiser.
    pub adam: AdamConfig,
    /// Samples of a batch. Default 64.
    pub batch: usize,
    /// Steps from one copy of the network into the target network to the next. Default 20.
    pub copy_every: u32,
    /// Double DQN: the network chooses the next action, and the target network values it. Default
    /// true; otherwise the target network does both.
    pub is_double: bool,
    /// Samples that are remembered. Default 10,000.
    pub replay: usize,
}

impl Default for DqnConfig {
    fn default() -> Self {
        let adam = AdamConfig::default();
        Self { adam, batch: 64, copy_every: 20, is_double: true, replay: 10_000 }
    }
}

/// A learner: a network whose outputs are the values of the actions.
///
/// # Source
/// Mnih et al., "Human-level control through deep reinforcement learning", 2015; van Hasselt et
/// al., "Deep Reinforcement Learning with Double Q-learning", 2016.
#[derive(Clone, Debug)]
pub struct Dqn {
    config: DqnConfig,
    network: Network,
    target: Network,
    adam: Adam,
    gradients: Backprop,
    replay: Replay<Transition>,
    rng: Rng,
    steps: u32,
    scratch: Scratch,
}

impl Dqn {
    /// A learner of a network of these widths, whose weights and batches are drawn by the seed.
    #[must_use]
    pub fn new(config: DqnConfig, widths: &[usize], seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let network = initial(widths, &mut rng);
        Self {
            config,
            target: network.clone(),
            network,
            adam: Adam::new(config.adam, widths),
            gradients: Backprop::new(widths),
            replay: Replay::new(config.replay),
            rng,
            steps: 0,
            scratch: Scratch::default(),
        }
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Remembers a choice.
    pub fn remember(&mut self, transition: Transition) {
        self.replay.push(transition);
    }

    /// Sets the learning rate of further steps.
    pub fn set_rate(&mut self, rate: f32) {
        self.adam.set_rate(rate);
    }

    /// Learns from one batch; returns its mean squared error before. Without samples it does
    /// nothing.
    pub fn learn(&mut self) -> Option<f32> {
        self.gradients.clear();
        let (mut squares, mut n) = (0.0, 0.0);
        for _ in 0..self.config.batch {
            let transition = self.replay.draw(&mut self.rng)?;
            let value = |own: &Network, target: &Network, scratch: &mut Scratch| {
                wanted(&transition.outcome, own, target, self.config.is_double, scratch)
            };
            let wanted = value(&self.network, &self.target, &mut self.scratch);
            let values = self.gradients.forward(&self.network, &transition.state);
            let error = values[transition.action] - wanted;
            self.gradients.add(&self.network, transition.action, 2.0 * error);
            squares += error * error;
            n += 1.0;
        }
        self.adam.step(&mut self.network, &self.gradients, 1.0 / n);
        self.steps += 1;
        if self.steps.is_multiple_of(self.config.copy_every) {
            self.target = self.network.clone();
        }
        Some(squares / n)
    }
}

/// The value that a choice should have had: y = reward + discount Q'(S', argmax Q(S')).
fn wanted(
    outcome: &Outcome,
    own: &Network,
    target: &Network,
    is_double: bool,
    scratch: &mut Scratch,
) -> f32 {
    let Some(next) = &outcome.next else { return outcome.reward };
    let choosing = if is_double { own } else { target };
    let best = argmax(choosing.forward(next, scratch)).unwrap_or(0);
    outcome.reward + outcome.discount * target.forward(next, scratch)[best]
}

/// The outcome of a choice after several steps with these rewards, of which `next` is the state.
#[must_use]
pub fn several_steps(
    rewards: impl IntoIterator<Item = f32>,
    gamma: f32,
    next: Option<Vec<f32>>,
) -> Outcome {
    let (mut reward, mut discount) = (0.0, 1.0);
    for step in rewards {
        reward += discount * step;
        discount *= gamma;
    }
    Outcome { reward, discount, next }
}

#[cfg(test)]
mod tests;
