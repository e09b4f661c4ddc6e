//! Quantities with bounds.

use super::quantity::{Quantity, Results};
use super::statistics::{Ours, number};
use serde::Serialize;

/// A quantity, and the bounds between which it is to be.
#[derive(Clone, Debug)]
pub struct Check {
    /// The quantity.
    pub quantity: Quantity,
    /// The least and the most, both allowed; infinite without.
    pub bounds: [f64; 2],
    /// The numbers of the paper that it is about; bounds are wider.
    pub claimed: Vec<f64>,
}

/// A check with its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckReport {
    /// [`Check::text`].
    pub check: String,
    /// It holds.
    pub ok: bool,
    /// The quantity.
    pub ours: Ours,
}

impl Check {
    /// The check in words.
    #[must_use]
    pub fn text(&self) -> String {
        let Quantity { text, unit, .. } = &self.quantity;
        let space = if unit.is_empty() { "" } else { " " };
        let bounds = match self.bounds {
            [least, most] if least == f64::NEG_INFINITY => format!("at most {}", number(most)),
            [least, most] if most == f64::INFINITY => format!("at least {}", number(least)),
            [least, most] => format!("{} to {}", number(least), number(most)),
        };
        let claimed: Vec<String> = self.claimed.iter().copied().map(number).collect();
        match claimed.join(", ") {
            none if none.is_empty() => format!("{text}: {bounds}{space}{unit}"),
            claimed => format!("{text}: {bounds}{space}{unit} (claimed: {claimed})"),
        }
    }

    /// About these numbers of the paper.
    #[must_use]
    pub fn claimed(self, numbers: &[f64]) -> Self {
        Self { claimed: numbers.to_vec(), ..self }
    }

    /// Its result: it holds if the median over the seeds is within the bounds, and its 95 %
    /// interval is, where there are enough seeds for one.
    ///
    /// # Errors
    /// As [`Quantity::of`].
    pub fn report(&self, results: &Results) -> Result<CheckReport, String> {
        let ours = self.quantity.ours(results)?;
        let [least, most] = self.bounds;
        let within = |value: &f64| (least..=most).contains(value);
        let ok = within(&ours.median) && ours.interval.iter().flatten().all(within);
        Ok(CheckReport { check: self.text(), ok, ours })
    }
}

impl Quantity {
    /// At most this.
    #[must_use]
    pub fn at_most(&self, bound: f64) -> Check {
        self.within([f64::NEG_INFINITY, bound])
    }

    /// Lower, for a ratio: at most 0.99, since a difference below 1 % is no order.
    #[must_use]
    pub fn is_lower(&self) -> Check {
        self.at_most(0.99)
    }

    /// At least this.
    #[must_use]
    pub fn at_least(&self, bound: f64) -> Check {
        self.within([bound, f64::INFINITY])
    }

    /// From the first to the second, both included.
    #[must_use]
    pub fn within(&self, bounds: [f64; 2]) -> Check {
        Check { quantity: self.clone(), bounds, claimed: Vec::new() }
    }

    /// This number of the paper, or so many percent more or less.
    #[must_use]
    pub fn near(&self, target: f64, percent: f64) -> Check {
        let bounds = [-percent, percent].map(|percent| target * (1.0 + percent / 100.0));
        self.within(bounds).claimed(&[target])
    }
}
