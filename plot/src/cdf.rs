//! Cumulative distribution functions.

use crate::Group;
use crate::axis::{Axis, AxisSpec, Quantity};
use crate::canvas::{Head, draw};
use crate::style::{UNITS, colour, stroke};
use crate::thin::thin;
use plotters::coord::CoordTranslate;
use plotters::prelude::PathElement;

/// Empirical distribution functions of one or more groups.
#[derive(Clone, PartialEq, Debug)]
pub struct CdfFigure {
    /// Title of the figure.
    pub title: String,
    /// Subtitle: the run and its parameters.
    pub subtitle: String,
    /// The axis of the values.
    pub x: AxisSpec,
    /// The counted items, for the y axis: "flows".
    pub counted: String,
    /// The curves. The legend gives the number of values of each.
    pub groups: Vec<Group>,
}

impl CdfFigure {
    /// The figure as the text of an SVG file.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let sorted: Vec<Vec<f64>> = self.groups.iter().map(|g| sorted(g, &self.x)).collect();
        let names: Vec<String> = (self.groups.iter().zip(&sorted))
            .map(|(group, values)| format!("{} (n = {})", group.name, values.len()))
            .collect();
        let x = Axis::around(&self.x, sorted.iter().flatten().copied());
        let y = AxisSpec::linear(&format!("share of {}", self.counted), Quantity::Share);
        let y = Axis::over(&y, [1.0]);
        let head = Head {
            title: &self.title,
            subtitle: &self.subtitle,
            legend: names.iter().map(String::as_str).collect(),
            strips: 0,
        };
        draw(&head, &x, &y, |canvas, plot| {
            for (i, values) in sorted.iter().enumerate().filter(|(_, v)| !v.is_empty()) {
                let stairs = stairs(values);
                let seen = thin(&stairs, UNITS, |p| plot.as_coord_spec().translate(p));
                plot.draw(&PathElement::new(seen, stroke(&colour(i, sorted.len()), 2)))?;
            }
            if sorted.iter().all(Vec::is_empty) { canvas.draw_no_data() } else { Ok(()) }
        })
    }
}

/// The values of a group that can be drawn on `axis`, sorted.
pub(crate) fn sorted(group: &Group, axis: &AxisSpec) -> Vec<f64> {
    let mut values: Vec<f64> = group.values.iter().copied().filter(|v| axis.includes(*v)).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The corners of the distribution function of `values`, which are sorted in ascending order.
fn stairs(values: &[f64]) -> Vec<(f64, f64)> {
    let n = values.len() as f64;
    let mut corners = Vec::new();
    let mut done = 0;
    for same in values.chunk_by(|a, b| a == b) {
        corners.push((same[0], done as f64 / n));
        done += same.len();
        corners.push((same[0], done as f64 / n));
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Svg;

    fn figure(groups: &[(&str, &[f64])], x: AxisSpec) -> CdfFigure {
        let group = |(name, values): &(&str, &[f64])| Group {
            name: (*name).to_owned(),
            values: values.to_vec(),
        };
        CdfFigure {
            title: "Flow completion times".to_owned(),
            subtitle: String::new(),
            x,
            counted: "flows".to_owned(),
            groups: groups.iter().map(group).collect(),
        }
    }

    #[test]
    fn to_svg__rises_from_zero_to_one() {
        let x = AxisSpec::linear("FCT", Quantity::Seconds);
        let svg = Svg::parse(&figure(&[("all", &[3e-3, 1e-3, 2e-3])], x).to_svg());
        let curve = &svg.shapes("#0072B2")[0];
        let (first, last) = (curve[0], curve[curve.len() - 1]);
        assert_eq!(first.1 - last.1, 330.0 * 4.0);
        assert!(curve.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 >= w[1].1));
        for label in ["all (n = 3)", "FCT [ms]", "share of flows"] {
            assert!(svg.texts().contains(&label.to_owned()), "{label}");
        }
        svg.assert_all_within();
    }

    #[test]
    fn to_svg__several_groups_log_axis_and_an_empty_one() {
        let x = AxisSpec::log("FCT", Quantity::Seconds);
        let groups: [(&str, &[f64]); 3] =
            [("small", &[10e-6, 20e-6]), ("large", &[5e-3, 0.0]), ("none", &[])];
        let svg = Svg::parse(&figure(&groups, x).to_svg());
        for label in ["small (n = 2)", "large (n = 1)", "none (n = 0)"] {
            assert!(svg.texts().contains(&label.to_owned()), "{label}");
        }
        assert_eq!(svg.shapes("#E69F00").len(), 1);
        assert_eq!(svg.shapes("#009E73").len(), 0);
        svg.assert_all_within();
    }

    #[test]
    fn to_svg__without_values_has_no_data() {
        let svg = figure(&[], AxisSpec::linear("FCT", Quantity::Seconds)).to_svg();
        assert!(Svg::parse(&svg).texts().contains(&"no data".to_owned()));
    }

    #[test]
    fn stairs__ties_are_one_step() {
        let corners = stairs(&[1.0, 2.0, 2.0, 4.0]);
        let expected = [(1.0, 0.0), (1.0, 0.25), (2.0, 0.25), (2.0, 0.75), (4.0, 0.75), (4.0, 1.0)];
        assert_eq!(corners, expected);
    }
}
