//! Bar figures: groups of bars side by side.

use crate::axis::{Axis, AxisSpec};
use crate::canvas::{Canvas, DrawError, Head, Plot, draw};
use crate::style::{INK, colour, stroke};
use plotters::coord::CoordTranslate;
use plotters::prelude::{Color, PathElement, RGBColor, Rectangle};

/// Groups of bars, one bar for each series, each with its range as a line.
#[derive(Clone, PartialEq, Debug)]
pub struct BarFigure {
    /// Title of the figure.
    pub title: String,
    /// Subtitle: the run and its parameters.
    pub subtitle: String,
    /// The axis of the values. It is linear and begins at zero.
    pub y: AxisSpec,
    /// Names of the groups, from left to right.
    pub groups: Vec<String>,
    /// The series, in the order of the bars of each group.
    pub series: Vec<BarSeries>,
}

/// One series of a [`BarFigure`].
#[derive(Clone, PartialEq, Debug)]
pub struct BarSeries {
    /// Its name.
    pub name: String,
    /// Its bar in each group; `None` leaves the place empty.
    pub bars: Vec<Option<Bar>>,
}

/// One bar.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bar {
    /// Its height.
    pub value: f64,
    /// The smallest value.
    pub low: f64,
    /// The largest value.
    pub high: f64,
}

impl BarFigure {
    /// The figure as the text of an SVG file.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let spec = AxisSpec::linear(&self.y.label, self.y.quantity);
        let bars = || self.series.iter().flat_map(|s| &s.bars).flatten();
        let is_empty = !bars().any(Bar::is_drawn);
        let x = Axis::places(self.groups.len());
        let y = Axis::over(&spec, bars().flat_map(|bar| [bar.value, bar.high]));
        let head = Head {
            title: &self.title,
            subtitle: &self.subtitle,
            legend: self.series.iter().map(|s| &*s.name).collect(),
            strips: 0,
        };
        draw(&head, &x, &y, |canvas, plot| {
            for (at, name) in self.groups.iter().enumerate() {
                self.paint(plot, at)?;
                paint_name(canvas, plot, at, name)?;
            }
            if is_empty { canvas.draw_no_data() } else { Ok(()) }
        })
    }

    fn paint(&self, plot: &Plot<'_>, group: usize) -> Result<(), DrawError> {
        let of = self.series.len();
        let width = GROUP_WIDTH / of.max(1) as f64;
        for (i, series) in self.series.iter().enumerate() {
            let Some(bar) = series.bars.get(group).copied().flatten().filter(Bar::is_drawn) else {
                continue;
            };
            let left = group as f64 + (1.0 - GROUP_WIDTH) / 2.0 + i as f64 * width;
            bar.paint(plot, [left, left + width * BAR_WIDTH], colour(i, of))?;
        }
        Ok(())
    }
}

impl Bar {
    fn is_drawn(&self) -> bool {
        self.value.is_finite() && self.value >= 0.0
    }

    fn paint(
        self,
        plot: &Plot<'_>,
        [left, right]: [f64; 2],
        ink: RGBColor,
    ) -> Result<(), DrawError> {
        plot.draw(&Rectangle::new([(left, 0.0), (right, self.value)], ink.filled()))?;
        if !(self.low.is_finite() && self.high.is_finite()) {
            return Ok(());
        }
        let middle = f64::midpoint(left, right);
        let range = vec![(middle, self.low), (middle, self.high)];
        plot.draw(&PathElement::new(range, stroke(&INK, 1)))
    }
}

fn paint_name(
    canvas: &Canvas<'_>,
    plot: &Plot<'_>,
    group: usize,
    name: &str,
) -> Result<(), DrawError> {
    let column = plot.as_coord_spec().translate(&(group as f64 + 0.5, 0.0)).0;
    canvas.place_name(column, name, "")
}

/// Width of the bars of a group, as a fraction of its slot on the axis.
const GROUP_WIDTH: f64 = 0.86;
/// Width of a bar, as a fraction of its slot in the group.
const BAR_WIDTH: f64 = 0.86;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quantity;
    use crate::testing::Svg;

    const BLUE: &str = "#0072B2";
    const ORANGE: &str = "#E69F00";

    fn bar(value: f64) -> Option<Bar> {
        Some(Bar { value, low: value * 0.9, high: value * 1.2 })
    }

    fn figure(series: &[(&str, &[Option<Bar>])]) -> Svg {
        let figure = BarFigure {
            title: "Goodput".to_owned(),
            subtitle: "three rounds".to_owned(),
            y: AxisSpec::linear("goodput", Quantity::BitsPerSecond),
            groups: ["MTU 1500", "MTU 9000"].map(str::to_owned).to_vec(),
            series: series
                .iter()
                .map(|(name, bars)| BarSeries { name: (*name).to_owned(), bars: bars.to_vec() })
                .collect(),
        };
        Svg::parse(&figure.to_svg())
    }

    #[test]
    fn to_svg__has_a_bar_for_each_value_and_names() {
        let svg = figure(&[("ours", &[bar(7e9), bar(9e9)]), ("TCP", &[bar(20e9), None])]);
        // One rectangle more is the colour in the legend.
        assert_eq!(svg.count("rect", "fill", BLUE), 3);
        assert_eq!(svg.count("rect", "fill", ORANGE), 2);
        assert_eq!(svg.shapes("#222222").len(), 3, "a range for each bar");
        for label in ["MTU 1500", "MTU 9000", "ours", "TCP", "goodput [Gbit/s]", "25"] {
            assert!(svg.texts().contains(&label.to_owned()), "{label}");
        }
        svg.assert_all_within();
    }

    #[test]
    fn to_svg__values_that_are_no_numbers_are_left_out() {
        let unknown = Some(Bar { value: f64::NAN, low: f64::NAN, high: f64::INFINITY });
        let svg = figure(&[("ours", &[unknown, None]), ("TCP", &[])]);
        assert_eq!(svg.count("rect", "fill", BLUE), 1);
        assert!(svg.texts().contains(&"no data".to_owned()));
        svg.assert_all_within();
    }
}
