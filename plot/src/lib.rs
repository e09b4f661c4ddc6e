//! Figures of simulations and measurements as SVG text.
//!
//! | figure | contents |
//! |---|---|
//! | [`LineFigure`] | values over time: rates, windows, queues with their marks and drops |
//! | [`CdfFigure`] | the distribution of a value, several groups in one frame |
//! | [`ViolinFigure`] | distributions side by side, with median and quartiles |
//! | [`BarFigure`] | values side by side in groups, with their ranges |
//!
//! Values are in base units (seconds, bytes, bits per second). An [`AxisSpec`] defines the
//! quantity, and the axis chooses the unit prefix. Non-finite values are left out, and on a
//! logarithmic axis also those that are not positive.
//!
//! The same data gives the same bytes. The palette is that of Okabe and Ito, which is
//! distinguishable with any form of colour blindness. If there are more series than colours, they
//! are shaded from dark to light.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod axis;
mod band;
mod bars;
mod canvas;
mod cdf;
mod lines;
mod stack;
mod style;
#[cfg(test)]
mod testing;
mod thin;
mod violin;

pub use axis::{AxisSpec, Quantity, Scale};
pub use bars::{Bar, BarFigure, BarSeries};
pub use cdf::CdfFigure;
pub use lines::{LineFigure, Rug, Series, Shape};
pub use stack::stack;
pub use violin::ViolinFigure;

/// A group of values: a curve of a [`CdfFigure`], a violin of a [`ViolinFigure`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// The values, in any order.
    pub values: Vec<f64>,
}

/// A horizontal reference line, such as a threshold or a link rate.
#[derive(Clone, PartialEq, Debug)]
pub struct Level {
    /// Its label.
    pub name: String,
    /// Its value in base units of the y axis.
    pub at: f64,
}
