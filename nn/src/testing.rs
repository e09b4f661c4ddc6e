//! Networks for tests.

use crate::network::Network;
use spanwire_base::Rng;

/// Numbers from -1 to 1.
pub(crate) fn reals(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    let real = || f32::from(i16::try_from(rng.below(65_535)).unwrap_or(0) - 1) / 32_768.0;
    std::iter::repeat_with(real).take(n).collect()
}

/// A network with random weights, small enough that outputs stay near 1.
pub(crate) fn random(widths: &[usize], seed: u64) -> Network {
    let mut rng = Rng::new(seed ^ 0x7765_6967_6874);
    let mut network = Network::zeros(widths);
    for layer in &mut network.layers {
        let scale = 2.0 / f32::from(u16::try_from(layer.inputs).unwrap()).sqrt();
        let parameters = layer.weights.iter_mut().chain(&mut layer.bias);
        for parameter in parameters {
            let draw = f32::from(u16::try_from(rng.below(65_536)).unwrap());
            *parameter = (draw / 32_768.0 - 1.0) * scale;
        }
    }
    network
}

/// The outputs in f64.
pub(crate) fn forward_f64(network: &Network, input: &[f32]) -> Vec<f64> {
    let mut values: Vec<f64> = input.iter().copied().map(f64::from).collect();
    let last = network.layers.len() - 1;
    for (n, layer) in network.layers.iter().enumerate() {
        let output = |o: usize| {
            let weight = |i: usize| f64::from(layer.weights[i * layer.outputs + o]);
            let sum: f64 = values.iter().enumerate().map(|(i, x)| x * weight(i)).sum();
            let y = sum + f64::from(layer.bias[o]);
            if n < last { y.max(0.0) } else { y }
        };
        values = (0..layer.outputs).map(output).collect();
    }
    values
}
