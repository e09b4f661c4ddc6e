//! Networks in a file.

use crate::error::{FORMAT, MODEL_MAX_BYTES, ModelError};
use crate::network::{Layer, Network};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};
use serde::{Deserialize, Serialize};
use spanwire_base::u64_from;
use std::collections::BTreeMap;

/// The networks of a scheme, and their description.
///
/// In a file, in the format safetensors, layer `n` of network `NAME` has the tensors
/// `NAME.n.weight`, of shape (outputs, inputs) as in other libraries, and `NAME.n.bias`, both F32.
/// The metadata has the description as JSON, key `spanwire`.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// The description.
    pub about: About,
    networks: BTreeMap<String, Network>,
}

/// The description of a model.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct About {
    /// The version of the format: [`FORMAT`].
    pub format: u32,
    /// The scheme whose networks these are.
    pub scheme: String,
    /// The values of the state, in order.
    pub state: Vec<String>,
    /// The actions, in order.
    pub actions: Vec<String>,
    /// The seed of the training.
    pub seed: u64,
    /// The command that made the file.
    pub command: String,
}

impl Model {
    /// A model of these networks by name.
    #[must_use]
    pub fn new(about: About, networks: impl IntoIterator<Item = (String, Network)>) -> Self {
        Self { about, networks: networks.into_iter().collect() }
    }

    /// The model of a file.
    ///
    /// # Errors
    /// All of [`ModelError`] but those of [`Model::check`] and [`Model::network`].
    pub fn read(bytes: &[u8]) -> Result<Self, ModelError> {
        if bytes.len() > MODEL_MAX_BYTES {
            return Err(ModelError::TooLong { bytes: u64_from(bytes.len()) });
        }
        let not = |e: safetensors::SafeTensorError| ModelError::NotSafetensors(e.to_string());
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(not)?;
        let text = metadata.metadata().as_ref().and_then(|all| all.get(KEY)).cloned();
        let text = text.ok_or_else(|| ModelError::NoDescription("it is missing".to_owned()))?;
        let about: About = Self::parse_about(&text)?;
        let file = SafeTensors::deserialize(bytes).map_err(not)?;
        let mut names: Vec<&str> = file.names();
        names.sort_unstable();
        let mut networks = BTreeMap::new();
        for name in names.iter().filter_map(|name| name.strip_suffix(".0.weight")) {
            networks.insert(name.to_owned(), read_network(&file, name)?);
        }
        Ok(Self { about, networks })
    }

    /// The description; an unknown version is an error whatever else it has.
    fn parse_about(text: &str) -> Result<About, ModelError> {
        let none = |e: serde_json::Error| ModelError::NoDescription(e.to_string());
        let json: serde_json::Value = serde_json::from_str(text).map_err(none)?;
        let format = json["format"].as_u64().and_then(|format| u32::try_from(format).ok());
        match format {
            Some(found) if found != FORMAT => Err(ModelError::Format { found }),
            _ => serde_json::from_value(json).map_err(none),
        }
    }

    /// Its file. Equal models have equal files.
    ///
    /// # Panics
    /// If the names of its networks are not those of tensors: they come from the code.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        for (name, network) in &self.networks {
            for (n, layer) in network.layers.iter().enumerate() {
                let shape = vec![layer.outputs, layer.inputs];
                tensors.push((format!("{name}.{n}.weight"), shape, bytes_of(&transposed(layer))));
                let bias = bytes_of(&layer.bias);
                tensors.push((format!("{name}.{n}.bias"), vec![layer.outputs], bias));
            }
        }
        let views = tensors.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            (name.as_str(), view.expect("as many bytes as the shape needs"))
        });
        // One entry: the order of several would be that of a hash.
        let about = serde_json::to_string(&self.about).expect("plain data");
        let metadata = [(KEY.to_owned(), about)].into_iter().collect();
        serialize(views, Some(metadata)).expect("the shapes and offsets agree")
    }

    /// Checks that it is of this scheme, with this state and these actions.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(
        &self,
        scheme: &str,
        state: &[String],
        actions: &[String],
    ) -> Result<(), ModelError> {
        let about = &self.about;
        if about.scheme != scheme {
            let (found, wanted) = (about.scheme.clone(), scheme.to_owned());
            return Err(ModelError::Scheme { found, wanted });
        }
        if about.state != state {
            let (found, wanted) = (about.state.clone(), state.to_vec());
            return Err(ModelError::State { found, wanted });
        }
        let most = about.actions.len().max(actions.len());
        let differs = (0..most).find(|place| about.actions.get(*place) != actions.get(*place));
        differs.map_or(Ok(()), |place| {
            let [found, wanted] = [&about.actions[..], actions].map(|all| all.get(place).cloned());
            Err(ModelError::Actions { place, found, wanted })
        })
    }

    /// A network of it, which must have these widths.
    ///
    /// # Errors
    /// There is none of this name, or it has others.
    pub fn network(&self, name: &str, widths: &[usize]) -> Result<&Network, ModelError> {
        let found = self.networks.get(name);
        let network = found.ok_or_else(|| ModelError::NoNetwork(name.to_owned()))?;
        match network.widths() {
            found if found == widths => Ok(network),
            found => {
                let (network, wanted) = (name.to_owned(), widths.to_vec());
                Err(ModelError::Widths { network, found, wanted })
            }
        }
    }
}

/// The network of a name, from its first layer to the last that the file has.
fn read_network(file: &SafeTensors<'_>, name: &str) -> Result<Network, ModelError> {
    let mut layers: Vec<Layer> = Vec::new();
    while let Ok(weight) = file.tensor(&format!("{name}.{}.weight", layers.len())) {
        let n = layers.len();
        let at = format!("{name}.{n}.weight");
        let inputs = layers.last().map(|layer| layer.outputs);
        let (outputs, inputs) = match (weight.dtype(), weight.shape()) {
            (Dtype::F32, [outputs, own])
                if *outputs > 0 && *own > 0 && inputs.is_none_or(|before| before == *own) =>
            {
                (*outputs, *own)
            }
            _ => {
                let inputs = inputs.map_or_else(|| "inputs".to_owned(), |n| n.to_string());
                return Err(shape_error(at, Some(&weight), format!("F32 (outputs, {inputs})")));
            }
        };
        let by_output = values(&at, &weight)?;
        let weights = (0..inputs * outputs)
            .map(|place| by_output[place % outputs * inputs + place / outputs])
            .collect();
        let at = format!("{name}.{n}.bias");
        let bias = file.tensor(&at).ok();
        let is_right = |bias: &TensorView<'_>| {
            bias.dtype() == Dtype::F32 && bias.shape().iter().eq([&outputs])
        };
        let Some(bias) = bias.as_ref().filter(|bias| is_right(bias)) else {
            return Err(shape_error(at, bias.as_ref(), format!("F32 ({outputs})")));
        };
        let bias = values(&at, bias)?;
        layers.push(Layer { inputs, outputs, weights, bias });
    }
    Ok(Network { layers })
}

fn shape_error(tensor: String, found: Option<&TensorView<'_>>, wanted: String) -> ModelError {
    let text = |view: &TensorView<'_>| format!("{:?} {:?}", view.dtype(), view.shape());
    let found = found.map_or_else(|| "nothing".to_owned(), text);
    ModelError::Shape { tensor, found, wanted }
}

/// The values of a tensor, all finite.
fn values(name: &str, view: &TensorView<'_>) -> Result<Vec<f32>, ModelError> {
    let value = |bytes: &[u8]| bytes.try_into().map_or(f32::NAN, f32::from_le_bytes);
    let values: Vec<f32> = view.data().chunks_exact(4).map(value).collect();
    match values.iter().position(|value| !value.is_finite()) {
        Some(place) => Err(ModelError::NotFinite { tensor: name.to_owned(), place }),
        None => Ok(values),
    }
}

/// The weights by output.
fn transposed(layer: &Layer) -> Vec<f32> {
    let place = |at: usize| at % layer.inputs * layer.outputs + at / layer.inputs;
    (0..layer.weights.len()).map(|at| layer.weights[place(at)]).collect()
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The key of the description.
const KEY: &str = "spanwire";

#[cfg(test)]
mod tests;
