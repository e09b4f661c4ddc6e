//! Dense layers with ReLU between them.

use spanwire_base::u64_from;

/// A network of dense layers, with ReLU after each but the last.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    pub(crate) layers: Vec<Layer>,
}

/// A dense layer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Layer {
    /// Its inputs.
    pub(crate) inputs: usize,
    /// Its outputs.
    pub(crate) outputs: usize,
    /// The weight of input `i` to output `o` is at `i * outputs + o`: the weights of one input are
    /// adjacent, so that outputs are computed side by side.
    pub(crate) weights: Vec<f32>,
    /// By output.
    pub(crate) bias: Vec<f32>,
}

/// Room for the values between layers, so that inference does not allocate.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scratch {
    values: Vec<f32>,
    next: Vec<f32>,
}

impl Network {
    /// A network of these widths, from its input to its output, with all weights zero.
    ///
    /// # Panics
    /// With fewer than two widths, or one that is zero.
    #[must_use]
    pub fn zeros(widths: &[usize]) -> Self {
        assert!(widths.len() >= 2 && !widths.contains(&0), "an input and an output: {widths:?}");
        let layer = |pair: &[usize]| Layer {
            inputs: pair[0],
            outputs: pair[1],
            weights: vec![0.0; pair[0] * pair[1]],
            bias: vec![0.0; pair[1]],
        };
        Self { layers: widths.windows(2).map(layer).collect() }
    }

    /// The widths, from its input to its output.
    #[must_use]
    pub fn widths(&self) -> Vec<usize> {
        let first = self.layers.first().map(|layer| layer.inputs);
        first.into_iter().chain(self.layers.iter().map(|layer| layer.outputs)).collect()
    }

    /// Multiplications, each with an addition, of one forward pass.
    #[must_use]
    pub fn multiply_adds(&self) -> u64 {
        self.layers.iter().map(|layer| u64_from(layer.weights.len())).sum()
    }

    /// The outputs for an input. Room is made by the first call.
    ///
    /// # Panics
    /// If the input has not the width of the network.
    pub fn forward<'a>(&self, input: &[f32], scratch: &'a mut Scratch) -> &'a [f32] {
        let Scratch { values, next } = scratch;
        values.clear();
        values.extend_from_slice(input);
        let last = self.layers.len() - 1;
        for (n, layer) in self.layers.iter().enumerate() {
            layer.forward(values, next);
            if n < last {
                relu(next);
            }
            std::mem::swap(values, next);
        }
        values
    }

    /// All weights and biases, layer by layer.
    pub fn parameters(&self) -> impl Iterator<Item = f32> {
        self.layers.iter().flat_map(|layer| layer.weights.iter().chain(&layer.bias)).copied()
    }

    /// All weights and biases in the same order, to be set.
    pub fn parameters_mut(&mut self) -> impl Iterator<Item = &mut f32> {
        self.layers.iter_mut().flat_map(|layer| layer.weights.iter_mut().chain(&mut layer.bias))
    }
}

impl Layer {
    /// Writes the outputs for an input. Each is summed in the order of the inputs, beginning with
    /// its bias; only different outputs may be computed at once.
    #[inline]
    pub(crate) fn forward(&self, input: &[f32], out: &mut Vec<f32>) {
        assert_eq!(input.len(), self.inputs, "an input of the width of the layer");
        out.clear();
        out.extend_from_slice(&self.bias);
        for (x, weights) in input.iter().zip(self.weights.chunks_exact(self.outputs)) {
            for (y, w) in out.iter_mut().zip(weights) {
                *y += *x * *w;
            }
        }
    }
}

/// Replaces negative values by zero.
#[inline]
pub(crate) fn relu(values: &mut [f32]) {
    for value in values {
        *value = if *value > 0.0 { *value } else { 0.0 };
    }
}

/// The place of the largest value, the first of several; `None` if one is not finite, or there is
/// none.
#[must_use]
pub fn argmax(values: &[f32]) -> Option<usize> {
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut best = None;
    for (place, value) in values.iter().enumerate() {
        if best.is_none_or(|(_, most)| *value > most) {
            best = Some((place, *value));
        }
    }
    best.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{forward_f64, random, reals};

    #[test]
    fn multiply_adds__are_those_of_laecn() {
        let of = |widths: &[usize]| Network::zeros(widths).multiply_adds();
        assert_eq!((of(&[15, 64, 64, 64, 64, 45]), of(&[30, 16, 2])), (16_128, 512));
    }

    #[test]
    fn forward__by_hand() {
        let mut network = Network::zeros(&[2, 2, 1]);
        // Weights by input, then biases.
        let parameters = [1.0, -1.0, 2.0, 1.0, 0.5, 0.0, 3.0, 10.0, -1.0];
        network.parameters_mut().zip(parameters).for_each(|(own, new)| *own = new);
        assert_eq!(network.parameters().collect::<Vec<_>>(), parameters);
        let mut scratch = Scratch::default();
        // Hidden: 0.5 + 1 + 2 * 2 = 5.5 and -1 + 2 = 1, so 5.5 * 3 + 10 - 1.
        assert_eq!(network.forward(&[1.0, 2.0], &mut scratch), [25.5]);
        // Hidden: 0.5 + 3 - 2 = 1.5 and -3 - 1 < 0.
        assert_eq!(network.forward(&[3.0, -1.0], &mut scratch), [3.5]);
    }

    #[test]
    fn forward__the_bits_are_the_same_in_debug_and_release_and_on_every_machine() {
        let mut scratch = Scratch::default();
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for seed in 0..50 {
            let network = random(&[15, 64, 64, 64, 64, 45], seed);
            for value in network.forward(&reals(15, seed), &mut scratch) {
                for byte in value.to_bits().to_le_bytes() {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                }
            }
        }
        assert_eq!(hash, FORWARD_HASH, "{hash:#x}");
    }

    #[test]
    fn forward__is_within_1e_5_of_a_forward_pass_in_f64() {
        let mut scratch = Scratch::default();
        for seed in 0..200 {
            for widths in [&[15, 64, 64, 64, 64, 45][..], &[30, 16, 2], &[1, 1]] {
                let network = random(widths, seed);
                let input = reals(widths[0], seed);
                let want = forward_f64(&network, &input);
                let got = network.forward(&input, &mut scratch);
                for (got, want) in got.iter().zip(want) {
                    assert!((f64::from(*got) - want).abs() < 1e-5, "{got}, not {want}");
                }
            }
        }
    }

    #[test]
    fn argmax__is_the_first_of_the_largest_and_none_if_one_is_not_finite() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, -1.0]), Some(1));
        assert_eq!(argmax(&[-0.0, 0.0]), Some(0));
        assert_eq!(argmax(&[f32::NAN, 3.0]), None);
        assert_eq!(argmax(&[1.0, f32::INFINITY]), None);
        assert_eq!(argmax(&[]), None);
    }

    /// Of the outputs' bits.
    const FORWARD_HASH: u64 = 0x5866_0f3f_cf44_a48c;
}
