//! The networks of LAECN, and a choice by them.

use super::action::Action;
use super::state::{History, STATE, names};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spanwire_base::{Rng, u64_from};
use spanwire_nn::{About, FORMAT, Model, ModelError, Network, Scratch, argmax};
use std::fmt;
use std::sync::Arc;

/// The networks of an agent, by the name or the path of their file.
#[derive(Clone, PartialEq)]
pub struct EcnModel {
    name: String,
    /// None: those of the name.
    networks: Option<Arc<Networks>>,
}

#[derive(PartialEq)]
struct Networks {
    decision: Network,
    policy: Network,
}

impl EcnModel {
    /// The names of models that are part of this crate.
    pub const NAMES: &'static [&'static str] = &[LAECN];
    /// The most bytes of a file.
    pub const FILE_BYTES_MAX: u64 = u64_from(spanwire_nn::MODEL_MAX_BYTES);
    /// The widths of the decision network: {state, state of the last choice} to {keep, trigger}.
    pub const DECISION: &'static [usize] = &[2 * STATE, 16, 2];
    /// The widths of the policy network: state to the value of each action.
    pub const POLICY: &'static [usize] = &[STATE, 64, 64, 64, 64, Action::COUNT];

    /// A model of this name; it need not exist.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), networks: None }
    }

    /// The model of a file, which `name` names in reports.
    ///
    /// # Errors
    /// The file is not a model of LAECN.
    pub fn of_file(name: &str, bytes: &[u8]) -> Result<Self, ModelError> {
        let networks = Some(Arc::new(Networks::of_file(bytes)?));
        Ok(Self { name: name.to_owned(), networks })
    }

    /// A model of these networks.
    ///
    /// # Panics
    /// If they have other widths than [`EcnModel::DECISION`] and [`EcnModel::POLICY`].
    #[must_use]
    pub fn of_networks(name: &str, decision: Network, policy: Network) -> Self {
        assert!(decision.widths() == Self::DECISION && policy.widths() == Self::POLICY);
        let networks = Some(Arc::new(Networks { decision, policy }));
        Self { name: name.to_owned(), networks }
    }

    /// Its file, for a training with this seed by this command; `None` if its networks are not
    /// known.
    #[must_use]
    pub fn to_file(&self, seed: u64, command: &str) -> Option<Vec<u8>> {
        let networks = self.is_known().then(|| self.networks())?;
        let about = About {
            format: FORMAT,
            scheme: LAECN.to_owned(),
            state: names(),
            actions: Action::all().map(Action::text).collect(),
            seed,
            command: command.to_owned(),
        };
        let named = [(DECISION, &networks.decision), (POLICY, &networks.policy)];
        let named = named.map(|(name, network)| (name.to_owned(), network.clone()));
        Some(Model::new(about, named).write())
    }

    /// Its name, or the path of its file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if its networks are known: it was read from a file, or is one of [`EcnModel::NAMES`].
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.networks.is_some() || Self::NAMES.contains(&&*self.name)
    }

    fn networks(&self) -> Arc<Networks> {
        let shipped = || Networks::of_file(SHIPPED).expect("a test reads it");
        self.networks.clone().unwrap_or_else(|| Arc::new(shipped()))
    }
}

impl Default for EcnModel {
    fn default() -> Self {
        Self::named(LAECN)
    }
}

impl fmt::Debug for EcnModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Serialize for EcnModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for EcnModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::named(&String::deserialize(deserializer)?))
    }
}

impl Networks {
    fn of_file(bytes: &[u8]) -> Result<Self, ModelError> {
        let model = Model::read(bytes)?;
        let actions: Vec<String> = Action::all().map(Action::text).collect();
        model.check(LAECN, &names(), &actions)?;
        let network = |name, widths| model.network(name, widths).cloned();
        Ok(Self {
            decision: network(DECISION, EcnModel::DECISION)?,
            policy: network(POLICY, EcnModel::POLICY)?,
        })
    }
}

/// The choices of an agent, with room for inference.
pub(super) struct Chooser {
    networks: Arc<Networks>,
    scratch: Scratch,
    /// The probability of a random choice in millionths, and their generator.
    explores: Option<(u32, Rng)>,
}

/// A choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// Thresholds stay: the decision network does not trigger.
    Keep,
    /// Those of the policy network.
    Take(Action),
    /// An output is not a finite number: thresholds stay.
    NotFinite,
}

/// Floating-point operations of a choice, two for each multiplication with its addition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    pub(super) decision: u64,
    /// Zero unless it was triggered.
    pub(super) policy: u64,
}

impl Chooser {
    /// `explore`: the probability of random choices in millionths, and their seed.
    pub(super) fn new(model: &EcnModel, explore: Option<(u32, u64)>) -> Self {
        let explores = explore.map(|(ppm, seed)| (ppm, Rng::new(seed)));
        Self { networks: model.networks(), scratch: Scratch::default(), explores }
    }

    /// Chooses for a state, given that of the last choice.
    pub(super) fn choose(&mut self, state: &History, saved: &History) -> (Choice, Cost) {
        let Networks { decision, policy } = &*self.networks;
        let mut cost = Cost { decision: 2 * decision.multiply_adds(), policy: 0 };
        let mut input = [0.0; 2 * STATE];
        input[..STATE].copy_from_slice(&state.0);
        input[STATE..].copy_from_slice(&saved.0);
        let Some(best) = argmax(decision.forward(&input, &mut self.scratch)) else {
            return (Choice::NotFinite, cost);
        };
        if !explored(&mut self.explores, 2).map_or(best == TRIGGER, |place| place == TRIGGER) {
            return (Choice::Keep, cost);
        }
        cost.policy = 2 * policy.multiply_adds();
        let best = argmax(policy.forward(&state.0, &mut self.scratch));
        let place = best.map(|best| explored(&mut self.explores, Action::COUNT).unwrap_or(best));
        (place.and_then(Action::new).map_or(Choice::NotFinite, Choice::Take), cost)
    }
}

/// One of `count` at random, with the probability of exploration.
fn explored(explores: &mut Option<(u32, Rng)>, count: usize) -> Option<usize> {
    let (ppm, rng) = explores.as_mut()?;
    let count = u64::try_from(count).ok()?;
    rng.per_million(*ppm).then(|| usize::try_from(rng.below(count)).ok()).flatten()
}

impl fmt::Debug for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chooser").field("explores", &self.explores).finish_non_exhaustive()
    }
}

/// The name of the scheme and of its shipped model.
const LAECN: &str = "laecn";
/// The file of that model.
const SHIPPED: &[u8] = include_bytes!("../../../models/laecn.safetensors");
/// The names of its networks.
const DECISION: &str = "decision";
const POLICY: &str = "policy";
/// The output of the decision network that triggers the policy network.
const TRIGGER: usize = 1;

#[cfg(test)]
mod tests;
