//! Gradients of a network's outputs.

use crate::network::{Layer, Network, relu};

/// The gradient of a loss by every weight and bias, summed over samples.
#[derive(Clone, Debug)]
pub struct Backprop {
    /// The gradients, in the shape of the network.
    gradient: Network,
    /// The input of each layer of the present sample, and the outputs.
    values: Vec<Vec<f32>>,
    /// The gradient by the values of a layer, and by those before.
    by_output: Vec<f32>,
    by_input: Vec<f32>,
}

impl Backprop {
    /// Gradients of zero for a network of these widths.
    #[must_use]
    pub fn new(widths: &[usize]) -> Self {
        Self {
            gradient: Network::zeros(widths),
            values: widths.iter().map(|width| Vec::with_capacity(*width)).collect(),
            by_output: Vec::new(),
            by_input: Vec::new(),
        }
    }

    /// The outputs of the network for an input. They are kept for [`Backprop::add`].
    pub fn forward(&mut self, network: &Network, input: &[f32]) -> &[f32] {
        self.values[0].clear();
        self.values[0].extend_from_slice(input);
        let last = network.layers.len() - 1;
        for (n, layer) in network.layers.iter().enumerate() {
            let (before, after) = self.values.split_at_mut(n + 1);
            layer.forward(&before[n], &mut after[0]);
            if n < last {
                relu(&mut after[0]);
            }
        }
        &self.values[last + 1]
    }

    /// Adds the gradient of the sample of the last [`Backprop::forward`], where the loss has this
    /// gradient by one output, and none by the others.
    pub fn add(&mut self, network: &Network, output: usize, by_output: f32) {
        self.by_output.clear();
        self.by_output.resize(self.values.last().map_or(0, Vec::len), 0.0);
        self.by_output[output] = by_output;
        for n in (0..network.layers.len()).rev() {
            let (layer, input) = (&network.layers[n], &self.values[n]);
            add_layer(&mut self.gradient.layers[n], input, &self.by_output);
            if n == 0 {
                break;
            }
            by_input(layer, &self.by_output, &mut self.by_input);
            // ReLU passes the gradient of positive values only.
            for (gradient, value) in self.by_input.iter_mut().zip(input) {
                *gradient = if *value > 0.0 { *gradient } else { 0.0 };
            }
            std::mem::swap(&mut self.by_output, &mut self.by_input);
        }
    }

    /// The sums by weight and bias, in the order of [`Network::parameters`].
    pub fn gradients(&self) -> impl Iterator<Item = f32> {
        self.gradient.parameters()
    }

    /// The square of their norm.
    #[must_use]
    pub fn norm_squared(&self) -> f32 {
        self.gradients().map(|g| g * g).sum()
    }

    /// Sets all to zero.
    pub fn clear(&mut self) {
        self.gradient.parameters_mut().for_each(|gradient| *gradient = 0.0);
    }
}

/// Adds the gradient by the weights and biases of a layer.
fn add_layer(gradient: &mut Layer, input: &[f32], by_output: &[f32]) {
    for (x, weights) in input.iter().zip(gradient.weights.chunks_exact_mut(by_output.len())) {
        if *x != 0.0 {
            for (weight, g) in weights.iter_mut().zip(by_output) {
                *weight += *x * *g;
            }
        }
    }
    for (bias, g) in gradient.bias.iter_mut().zip(by_output) {
        *bias += *g;
    }
}

/// The gradient by the inputs of a layer. Each is summed over [`LANES`] outputs at a time, in an
/// order that does not depend on the machine.
fn by_input(layer: &Layer, by_output: &[f32], out: &mut Vec<f32>) {
    out.clear();
    for weights in layer.weights.chunks_exact(layer.outputs) {
        let mut sums = [0.0; LANES];
        let (whole, rest) = weights.as_chunks::<LANES>();
        let (whole_g, rest_g) = by_output.as_chunks::<LANES>();
        for (weights, gs) in whole.iter().zip(whole_g) {
            for (sum, (weight, g)) in sums.iter_mut().zip(weights.iter().zip(gs)) {
                *sum += *weight * *g;
            }
        }
        let mut sum = sums.iter().fold(0.0, |all, sum| all + sum);
        for (weight, g) in rest.iter().zip(rest_g) {
            sum += *weight * *g;
        }
        out.push(sum);
    }
}

/// Sums side by side.
const LANES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{forward_f64, random, reals};

    #[test]
    fn forward__has_the_bits_of_inference() {
        let network = random(&[15, 64, 64, 45], 3);
        let mut backprop = Backprop::new(&network.widths());
        for seed in 0..20 {
            let input = reals(15, seed);
            let mut scratch = crate::Scratch::default();
            let want = network.forward(&input, &mut scratch);
            assert_eq!(backprop.forward(&network, &input), want);
        }
    }

    #[test]
    fn add__agrees_with_central_differences() {
        for (widths, output) in [(&[4, 9, 8, 3][..], 1), (&[30, 16, 2], 0), (&[3, 2], 1)] {
            let network = random(widths, 5);
            let mut backprop = Backprop::new(widths);
            let inputs: Vec<Vec<f32>> = (0..3).map(|seed| reals(widths[0], seed)).collect();
            // The loss is half the square of one output, summed over the inputs.
            for input in &inputs {
                let value = backprop.forward(&network, input)[output];
                backprop.add(&network, output, value);
            }
            let loss = |network: &Network| -> f64 {
                let one = |input: &Vec<f32>| forward_f64(network, input)[output].powi(2) / 2.0;
                inputs.iter().map(one).sum()
            };
            let found: Vec<f32> = backprop.gradients().collect();
            for (place, found) in found.iter().enumerate() {
                let at = |by: f32| {
                    let mut moved = network.clone();
                    let own = moved.parameters_mut().nth(place).unwrap();
                    let before = f64::from(*own);
                    *own += by;
                    let moved_by = f64::from(*own) - before;
                    (loss(&moved), moved_by)
                };
                let ((up, right), (down, left)) = (at(1e-3), at(-1e-3));
                let want = (up - down) / (right - left);
                // Near a kink of ReLU the difference is not the derivative.
                let error = (f64::from(*found) - want).abs();
                assert!(error < 2e-3 * want.abs().max(1.0), "{place}: {found}, not {want}");
            }
            backprop.clear();
            assert!(backprop.gradients().all(|g| g == 0.0) && backprop.norm_squared() == 0.0);
        }
    }
}
