//! Figures of simulations as SVG: plain data in, one text out.
//!
//! | figure | for |
//! |---|---|
//! | [`LineFigure`] | values over time: rates, windows, queues with their marks and drops |
//! | [`CdfFigure`] | the distribution of a value, several groups in one frame |
//! | [`ViolinFigure`] | the same side by side, with median and quartiles |
//!
//! Values are in base units (seconds, bytes, bits a second); an [`AxisSpec`] says which, and the
//! axis chooses the prefix that reads best. Values that are not finite are left out, and on a
//! logarithmic axis those that are not positive.
//!
//! The same data gives the same bytes. Colours are those of Okabe and Ito, which people with any
//! form of colour blindness can tell apart; more series than that are shaded from dark to light.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod axis;
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
pub use cdf::CdfFigure;
pub use lines::{LineFigure, Rug, Series, Shape};
pub use stack::stack;
pub use violin::ViolinFigure;

/// Values that belong together: a curve of a [`CdfFigure`], a body of a [`ViolinFigure`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    /// What the values are of.
    pub name: String,
    /// The values, in any order.
    pub values: Vec<f64>,
}

/// A horizontal line that data is to be held against: a threshold, a link's rate.
#[derive(Clone, PartialEq, Debug)]
pub struct Level {
    /// What it is.
    pub name: String,
    /// Where it is, in the unit of the y axis.
    pub at: f64,
}
