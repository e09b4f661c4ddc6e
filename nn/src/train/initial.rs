//! Weights before training.

use crate::network::Network;
use spanwire_base::Rng;

/// A network of these widths with weights drawn evenly between the bounds that keep the variance of
/// values from layer to layer, and biases of zero.
///
/// # Source
/// He et al., "Delving Deep into Rectifiers", ICCV 2015, 2.2: a variance of 2 / inputs.
#[must_use]
pub fn initial(widths: &[usize], rng: &mut Rng) -> Network {
    let mut network = Network::zeros(widths);
    for layer in &mut network.layers {
        let inputs = u16::try_from(layer.inputs).expect("layers are narrow");
        let bound = (6.0 / f32::from(inputs)).sqrt();
        for weight in &mut layer.weights {
            *weight = (2.0 * unit(rng) - 1.0) * bound;
        }
    }
    network
}

/// A number from 0 to 1, without 1.
fn unit(rng: &mut Rng) -> f32 {
    // 16 bits are exact in f32.
    let bits = u16::try_from(rng.below(1 << 16)).expect("16 bits");
    f32::from(bits) / 65_536.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial__has_the_variance_of_its_layer_and_differs_by_seed() {
        let network = initial(&[64, 64, 2], &mut Rng::new(1));
        let weights = &network.layers[0].weights;
        let squares: f32 = weights.iter().map(|w| w * w).sum();
        let variance = squares / 4096.0;
        assert!((variance * 32.0 - 1.0).abs() < 0.1, "{variance}");
        assert!(network.layers.iter().all(|layer| layer.bias.iter().all(|b| *b == 0.0)));
        assert_eq!(network, initial(&[64, 64, 2], &mut Rng::new(1)));
        assert_ne!(network, initial(&[64, 64, 2], &mut Rng::new(2)));
    }
}
