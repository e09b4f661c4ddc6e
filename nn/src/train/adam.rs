//! The optimiser Adam.

use super::backprop::Backprop;
use crate::network::Network;

/// Parameters of [`Adam`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdamConfig {
    /// The learning rate.
    pub rate: f32,
    /// The decay of the mean of gradients. Default 0.9.
    pub beta1: f32,
    /// The decay of the mean of their squares. Default 0.999.
    pub beta2: f32,
    /// Gradients are shortened to this norm. Default infinite: never.
    pub clip_norm: f32,
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self { rate: 0.005, beta1: 0.9, beta2: 0.999, clip_norm: f32::INFINITY }
    }
}

/// The optimiser of one network.
///
/// # Source
/// Kingma and Ba, "Adam", ICLR 2015, algorithm 1.
#[derive(Clone, Debug)]
pub struct Adam {
    config: AdamConfig,
    /// The means, by parameter.
    first: Vec<f32>,
    second: Vec<f32>,
    /// beta1^t and beta2^t.
    power1: f32,
    power2: f32,
}

impl Adam {
    /// An optimiser for a network of these widths.
    #[must_use]
    pub fn new(config: AdamConfig, widths: &[usize]) -> Self {
        let n = Network::zeros(widths).parameters().count();
        Self { config, first: vec![0.0; n], second: vec![0.0; n], power1: 1.0, power2: 1.0 }
    }

    /// Sets the learning rate of further steps.
    pub fn set_rate(&mut self, rate: f32) {
        self.config.rate = rate;
    }

    /// One step of the network against the gradients, each multiplied by `scale` first.
    pub fn step(&mut self, network: &mut Network, gradients: &Backprop, scale: f32) {
        let AdamConfig { rate, beta1, beta2, clip_norm } = self.config;
        let norm = gradients.norm_squared().sqrt() * scale;
        let scale = if norm > clip_norm { scale * (clip_norm / norm) } else { scale };
        self.power1 *= beta1;
        self.power2 *= beta2;
        let (bias1, bias2) = (1.0 - self.power1, 1.0 - self.power2);
        let means = self.first.iter_mut().zip(&mut self.second);
        for ((parameter, g), (first, second)) in
            network.parameters_mut().zip(gradients.gradients()).zip(means)
        {
            let g = g * scale;
            *first = beta1 * *first + (1.0 - beta1) * g;
            *second = beta2 * *second + (1.0 - beta2) * g * g;
            *parameter -= rate * (*first / bias1) / ((*second / bias2).sqrt() + EPSILON);
        }
    }
}

const EPSILON: f32 = 1e-8;

#[cfg(test)]
mod tests {
    use super::*;

    /// The parameters after steps with these gradients, of a network with one weight and one bias.
    fn steps(config: AdamConfig, gradients: &[f32]) -> [f32; 2] {
        let mut network = Network::zeros(&[1, 1]);
        let mut adam = Adam::new(config, &[1, 1]);
        for g in gradients {
            let mut backprop = Backprop::new(&[1, 1]);
            backprop.forward(&network, &[2.0]);
            backprop.add(&network, 0, *g);
            adam.step(&mut network, &backprop, 1.0);
        }
        let all: Vec<f32> = network.parameters().collect();
        [all[0], all[1]]
    }

    #[test]
    fn step__the_first_is_the_learning_rate_whatever_the_gradient() {
        for g in [1e-3, 1.0, 50.0] {
            for parameter in steps(AdamConfig::default(), &[g]) {
                assert!((parameter + 0.005).abs() < 1e-6, "{parameter}");
            }
        }
    }

    #[test]
    fn step__the_second_by_hand() {
        // Of the bias: m = 0.9 * 0.1 + 0.1 * -3 = -0.21, corrected -1.10526;
        // v = 0.999 * 0.001 + 0.001 * 9 = 0.009999, corrected 5.00200.
        let [_, bias] = steps(AdamConfig::default(), &[1.0, -3.0]);
        let want = -0.005 + 0.005 * 1.105_263 / 5.002_0_f32.sqrt();
        assert!((bias - want).abs() < 1e-6, "{bias}, not {want}");
    }

    #[test]
    fn step__long_gradients_are_shortened_to_the_norm() {
        // Twice the same direction: the lengths decide.
        let clipped = AdamConfig { clip_norm: 1.0, ..AdamConfig::default() };
        assert_eq!(steps(clipped, &[100.0, 3.0]), steps(clipped, &[7.0, 7.0]));
        assert_ne!(steps(clipped, &[0.1, 0.3]), steps(clipped, &[0.3, 0.1]));
    }
}
