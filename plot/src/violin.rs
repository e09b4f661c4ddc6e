//! Violin figures: distributions side by side.

use crate::Group;
use crate::axis::{Axis, AxisSpec, Scale};
use crate::canvas::{Canvas, DrawError, Head, Plot, draw};
use crate::cdf::sorted;
use crate::style::{INK, UNITS, colour, fill_colour, stroke};
use plotters::coord::CoordTranslate;
use plotters::prelude::{Circle, Color, PathElement, Polygon, RGBColor, Rectangle, WHITE};

/// One violin per group. Its width is the density of values; it has a box from the first to the
/// third quartile and a dot at the median. A group of fewer than 20 values is drawn as dots.
/// A linear axis begins at zero.
#[derive(Clone, PartialEq, Debug)]
pub struct ViolinFigure {
    /// Title of the figure.
    pub title: String,
    /// Subtitle: the run and its parameters.
    pub subtitle: String,
    /// The axis of the values.
    pub y: AxisSpec,
    /// The violins, from left to right.
    pub groups: Vec<Group>,
}

impl ViolinFigure {
    /// The figure as the text of an SVG file.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let sorted: Vec<Vec<f64>> = self.groups.iter().map(|g| sorted(g, &self.y)).collect();
        let x = Axis::places(sorted.len());
        let y = Axis::over(&self.y, sorted.iter().flatten().copied());
        let head = Head { title: &self.title, subtitle: &self.subtitle, legend: vec![], strips: 0 };
        draw(&head, &x, &y, |canvas, plot| {
            for (i, (group, values)) in self.groups.iter().zip(&sorted).enumerate() {
                let middle = i as f64 + 0.5;
                self.paint(plot, middle, values, colour(i, sorted.len()))?;
                self.paint_name(canvas, plot, middle, group, values)?;
            }
            if sorted.iter().all(Vec::is_empty) { canvas.draw_no_data() } else { Ok(()) }
        })
    }

    fn paint(
        &self,
        plot: &Plot<'_>,
        middle: f64,
        values: &[f64],
        ink: RGBColor,
    ) -> Result<(), DrawError> {
        if values.len() < VIOLIN_MIN {
            for value in values {
                plot.draw(&Circle::new((middle, *value), 4 * UNITS, ink.filled()))?;
            }
            return Ok(());
        }
        let outline = self.outline(values);
        let widest = outline.iter().map(|(_, d)| *d).fold(0.0, f64::max);
        let places = plot.as_coord_spec().get_x_range().end;
        let half = |density: f64| HALF_WIDTH.min(places * HALF_WIDTH_MAX) * density / widest;
        let right = outline.iter().map(|(v, d)| (middle + half(*d), *v));
        let left = outline.iter().rev().map(|(v, d)| (middle - half(*d), *v));
        let mut edge: Vec<(f64, f64)> = right.chain(left).collect();
        plot.draw(&Polygon::new(edge.clone(), fill_colour(ink)))?;
        edge.extend(edge.first().copied());
        plot.draw(&PathElement::new(edge, stroke(&ink, 1)))?;

        let at = |of_four| quartile(values, of_four);
        let (first, last) = ((middle, values[0]), (middle, values[values.len() - 1]));
        plot.draw(&PathElement::new(vec![first, last], stroke(&INK, 1)))?;
        let place = |v| plot.as_coord_spec().translate(&(middle, v));
        let ((column, top), (_, bottom)) = (place(at(3)), place(at(1)));
        let corners = [(column - BOX, top), (column + BOX, bottom)];
        let sheet = plot.strip_coord_spec();
        sheet.draw(&Rectangle::new(corners, INK.filled()))?;
        sheet.draw(&Circle::new(place(at(2)), 3 * UNITS, WHITE.filled()))
    }

    fn paint_name(
        &self,
        canvas: &Canvas<'_>,
        plot: &Plot<'_>,
        middle: f64,
        group: &Group,
        values: &[f64],
    ) -> Result<(), DrawError> {
        let column = plot.as_coord_spec().translate(&(middle, 1.0)).0;
        canvas.place_name(column, &group.name, &format!("n = {}", values.len()))
    }

    /// (value, density) along the violin, from the smallest value to the largest. On a logarithmic
    /// axis it is the density of the logarithm, so that the shape matches the axis.
    fn outline(&self, values: &[f64]) -> Vec<(f64, f64)> {
        match self.y.scale {
            Scale::Linear => density(values),
            Scale::Log => {
                let logs: Vec<f64> = values.iter().map(|v| v.log10()).collect();
                density(&logs).into_iter().map(|(v, d)| (10f64.powf(v), d)).collect()
            }
        }
    }
}

/// (value, density) at [`OUTLINE`] points over the range of `values`, which are sorted and not
/// empty. The densities are not normalised; only their ratios are used.
///
/// # Source
/// Kernel estimate with the biweight kernel; its bandwidth by Silverman's rule of thumb ("Density
/// Estimation", 1986, eq. 3.31, times 2.62 for this kernel).
fn density(values: &[f64]) -> Vec<(f64, f64)> {
    let n = values.len() as f64;
    let (low, high) = (values[0], values[values.len() - 1]);
    let mean = values.iter().sum::<f64>() / n;
    let deviation = (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n).sqrt();
    let quartiles = (quartile(values, 3) - quartile(values, 1)) / 1.34;
    let spread = if quartiles > 0.0 { deviation.min(quartiles) } else { deviation };
    // Equal values have no spread; with any bandwidth they are drawn as one line.
    let bandwidth =
        (2.62 * 0.9 * spread / n.powf(0.2)).max((high - low) / 1e3).max(f64::MIN_POSITIVE);
    let places = f64::from(OUTLINE - 1);
    (0..OUTLINE)
        .map(|i| low + (high - low) * f64::from(i) / places)
        .map(|at| {
            let from = values.partition_point(|v| *v < at - bandwidth);
            let to = values.partition_point(|v| *v <= at + bandwidth);
            let kernel = |v: &f64| {
                let u = (v - at) / bandwidth;
                (1.0 - u * u) * (1.0 - u * u)
            };
            (at, values[from..to].iter().map(kernel).sum())
        })
        .collect()
}

/// Quartile `of_four` of `values`, which are sorted and not empty, with linear interpolation.
fn quartile(values: &[f64], of_four: usize) -> f64 {
    let last = values.len() - 1;
    let (below, part) = (of_four * last / 4, of_four * last % 4);
    let above = (below + 1).min(last);
    values[below] + (values[above] - values[below]) * part as f64 / 4.0
}

/// Minimum of values for a violin.
const VIOLIN_MIN: usize = 20;
/// Half the maximum width of a violin, as a fraction of its slot on the axis.
const HALF_WIDTH: f64 = 0.38;
/// Limit of half the width as a fraction of the whole axis, so that one violin does not fill it.
const HALF_WIDTH_MAX: f64 = 0.1;
/// Half the width of the box, in drawing units.
const BOX: i32 = 4 * UNITS;
/// Number of points at which the density is computed.
const OUTLINE: u32 = 96;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quantity;
    use crate::testing::Svg;

    const BLUE: &str = "#0072B2";

    fn figure(groups: &[(&str, &[f64])], y: AxisSpec) -> ViolinFigure {
        let group = |(name, values): &(&str, &[f64])| Group {
            name: (*name).to_owned(),
            values: values.to_vec(),
        };
        ViolinFigure {
            title: "Flow completion times".to_owned(),
            subtitle: String::new(),
            y,
            groups: groups.iter().map(group).collect(),
        }
    }

    fn fct(log: bool) -> AxisSpec {
        let axis = if log { AxisSpec::log } else { AxisSpec::linear };
        axis("FCT", Quantity::Seconds)
    }

    #[test]
    fn to_svg__has_a_body_a_box_and_a_name_for_each_group() {
        let values: Vec<f64> = (1..=100u32).map(|i| f64::from(i) * 1e-5).collect();
        let svg =
            Svg::parse(&figure(&[("intra", &values), ("inter", &values)], fct(false)).to_svg());
        // Two violins, each with an outline.
        assert_eq!(svg.shapes(BLUE).len(), 2);
        assert_eq!(svg.shapes("#E69F00").len(), 2);
        assert_eq!(svg.count("circle", "fill", "#FFFFFF"), 2);
        for label in ["intra", "inter", "n = 100", "FCT [ms]"] {
            assert!(svg.texts().contains(&label.to_owned()), "{label}");
        }
        svg.assert_all_within();
    }

    #[test]
    fn to_svg__few_values_are_dots() {
        let svg = Svg::parse(&figure(&[("pair", &[1e-3, 2e-3])], fct(true)).to_svg());
        assert_eq!(svg.count("circle", "fill", BLUE), 2);
        assert_eq!(svg.shapes(BLUE).len(), 0);
    }

    #[test]
    fn to_svg__equal_values_and_no_values() {
        let svg = Svg::parse(&figure(&[("equal", &[1e-3; 9]), ("none", &[])], fct(true)).to_svg());
        svg.assert_all_within();
        assert!(svg.texts().contains(&"n = 0".to_owned()));
        let svg = Svg::parse(&figure(&[], fct(true)).to_svg());
        assert!(svg.texts().contains(&"no data".to_owned()));
    }

    #[test]
    fn density__is_highest_where_the_values_are() {
        let mut values: Vec<f64> = (0..90u32).map(|i| 10.0 + f64::from(i) / 90.0).collect();
        values.extend([0.0, 20.0]);
        values.sort_by(f64::total_cmp);
        let curve = density(&values);
        let peak = curve.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("a curve").0;
        assert!((10.0..11.0).contains(&peak), "{peak}");
        assert_eq!((curve[0].0, curve[curve.len() - 1].0), (0.0, 20.0));
    }

    #[test]
    fn quartile__of_small_samples() {
        assert_eq!(
            [0, 1, 2, 3, 4].map(|q| quartile(&[1.0, 2.0, 3.0, 4.0, 5.0], q)),
            [1.0, 2.0, 3.0, 4.0, 5.0]
        );
        assert_eq!(quartile(&[1.0, 2.0], 2), 1.5);
        assert_eq!(quartile(&[7.0], 3), 7.0);
    }
}
