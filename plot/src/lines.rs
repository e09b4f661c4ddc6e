//! Line figures: values over time.

use crate::Level;
use crate::axis::{Axis, AxisSpec};
use crate::band::Band;
use crate::canvas::{Canvas, DrawError, Head, Plot, draw};
use crate::style::{ALARM, FAINT, UNITS, band_colour, colour, stroke};
use crate::thin::thin;
use plotters::coord::CoordTranslate;
use plotters::prelude::{PathElement, Polygon};

/// Lines over a common x axis, which begins at zero.
///
/// A series of more than 400 points is drawn as the mean of each of 200 intervals, in a band from
/// the least to the most: oscillations that a line would draw as an area stay readable.
#[derive(Clone, PartialEq, Debug)]
pub struct LineFigure {
    /// Title of the figure.
    pub title: String,
    /// Subtitle: the run and its parameters.
    pub subtitle: String,
    /// The x axis, time as a rule.
    pub x: AxisSpec,
    /// The y axis.
    pub y: AxisSpec,
    /// Interpolation between two points.
    pub shape: Shape,
    /// The lines. Up to eight have distinct colours; more are shaded.
    pub series: Vec<Series>,
    /// Strips of ticks above the lines.
    pub rugs: Vec<Rug>,
    /// Reference lines; those far above all data are left out.
    pub levels: Vec<Level>,
}

/// Interpolation between two points of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A straight line: the points are samples of a continuous value.
    Line,
    /// A step: the value of the earlier point holds until the next, as a queue's length does.
    Step,
}

/// One line.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// (x, y), in order of x.
    pub points: Vec<(f64, f64)>,
}

/// Events as ticks in a separate strip.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rug {
    /// Name of the events.
    pub name: String,
    /// Drawn in the colour of faults, such as drops.
    pub alarm: bool,
    /// Positions on the x axis, in any order. Events on one pixel are one tick.
    pub at: Vec<f64>,
}

impl LineFigure {
    /// A figure of `series` over the axes x and y, without strips of ticks and reference lines.
    #[must_use]
    pub fn new(
        title: impl Into<String>,
        subtitle: impl Into<String>,
        [x, y]: [AxisSpec; 2],
        shape: Shape,
        series: Vec<Series>,
    ) -> Self {
        let (title, subtitle) = (title.into(), subtitle.into());
        Self { title, subtitle, x, y, shape, series, rugs: Vec::new(), levels: Vec::new() }
    }

    /// The figure as the text of an SVG file.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let (includes_x, includes_y) = (|x| self.x.includes(x), |y| self.y.includes(y));
        let series: Vec<Vec<(f64, f64)>> = self
            .series
            .iter()
            .map(|s| {
                s.points.iter().copied().filter(|p| includes_x(p.0) && includes_y(p.1)).collect()
            })
            .collect();
        let points = || series.iter().flatten();
        let events = self.rugs.iter().flat_map(|r| r.at.iter().copied());
        let x = Axis::tight(&self.x, points().map(|p| p.0).chain(events));
        let y = Axis::over(&self.y, points().map(|p| p.1).chain(self.levels_in_range(&series)));
        let head = Head {
            title: &self.title,
            subtitle: &self.subtitle,
            legend: self.series.iter().map(|s| s.name.as_str()).collect(),
            strips: self.rugs.len(),
        };
        draw(&head, &x, &y, |canvas, plot| {
            self.paint_rugs(canvas, plot)?;
            canvas.levels(plot, &self.levels)?;
            let width = if series.len() > 8 { 1 } else { 2 };
            let bands: Vec<_> = series.iter().map(|s| Band::of(s, INTERVALS)).collect();
            let ink = |i| colour(i, series.len());
            // All bands are behind all lines.
            for (i, band) in bands.iter().enumerate() {
                if let Some(band) = band {
                    plot.draw(&Polygon::new(band.outline(), band_colour(ink(i), series.len())))?;
                }
            }
            for (i, (points, band)) in series.iter().zip(&bands).enumerate() {
                let line =
                    band.as_ref().map_or_else(|| self.corners(points, plot), |b| b.mean.clone());
                if !line.is_empty() {
                    plot.draw(&PathElement::new(line, stroke(&ink(i), width)))?;
                }
            }
            canvas.level_names(plot, &self.levels)?;
            if points().next().is_none() { canvas.draw_no_data() } else { Ok(()) }
        })
    }

    /// Values that the y axis must include, so that the levels and their names are visible. A level
    /// far above all data is left out, because it would flatten the data.
    fn levels_in_range(&self, series: &[Vec<(f64, f64)>]) -> Vec<f64> {
        let highest = series.iter().flatten().map(|p| p.1).fold(0.0, f64::max);
        let near = self.levels.iter().map(|l| l.at).filter(|at| *at <= LEVEL_MAX_RATIO * highest);
        near.map(|at| at * LEVEL_HEADROOM).collect()
    }

    /// The visible corners of the line through `points`.
    fn corners(&self, points: &[(f64, f64)], plot: &Plot<'_>) -> Vec<(f64, f64)> {
        let place = |p: &(f64, f64)| plot.as_coord_spec().translate(p);
        let kept = thin(points, UNITS, place);
        if self.shape == Shape::Line {
            return kept;
        }
        let mut line = Vec::with_capacity(2 * kept.len());
        let mut before: Option<f64> = None;
        for (x, y) in kept {
            line.extend(before.filter(|b| *b != y).map(|b| (x, b)));
            line.push((x, y));
            before = Some(y);
        }
        line
    }

    fn paint_rugs(&self, canvas: &Canvas<'_>, plot: &Plot<'_>) -> Result<(), DrawError> {
        for (row, rug) in self.rugs.iter().enumerate() {
            let on_axis = rug.at.iter().filter(|x| self.x.includes(**x));
            let column = |x: &f64| plot.as_coord_spec().translate(&(*x, 0.0)).0;
            let mut at: Vec<i32> =
                on_axis.map(|x| column(x).div_euclid(UNITS) * UNITS + UNITS / 2).collect();
            at.sort_unstable();
            at.dedup();
            canvas.strip(row, &rug.name, if rug.alarm { ALARM } else { FAINT }, &at)?;
        }
        Ok(())
    }
}

/// Intervals of a figure's width: 3 to 4 pixels each.
const INTERVALS: usize = 200;
/// Limit of shown levels, as a multiple of the highest point.
const LEVEL_MAX_RATIO: f64 = 2.5;
/// Minimum end of the axis as a multiple of a level: space for the name above its line.
const LEVEL_HEADROOM: f64 = 1.06;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quantity;
    use crate::testing::Svg;

    const BLUE: &str = "#0072B2";
    const ORANGE: &str = "#E69F00";

    fn figure(series: Vec<Series>) -> LineFigure {
        let axes = [("time", Quantity::Seconds), ("goodput", Quantity::BitsPerSecond)]
            .map(|(label, quantity)| AxisSpec::linear(label, quantity));
        LineFigure::new("Rates", "dumbbell-2, seed 1", axes, Shape::Line, series)
    }

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.to_owned(), points: points.to_vec() }
    }

    #[test]
    fn to_svg__has_each_series_and_its_name() {
        let a = series("flow a", &[(0.0, 0.0), (1e-3, 40e9), (2e-3, 50e9)]);
        let b = series("flow b", &[(0.0, 90e9), (2e-3, 50e9)]);
        let text = figure(vec![a, b]).to_svg();
        let svg = Svg::parse(&text);
        assert_eq!(svg.shapes(BLUE).concat().len(), 3);
        assert_eq!(svg.shapes(ORANGE).concat().len(), 2);
        for label in ["flow a", "flow b", "time [ms]", "goodput [Gbit/s]", "Rates"] {
            assert!(svg.texts().contains(&label.to_owned()), "{label}");
        }
        svg.assert_all_within();
    }

    #[test]
    fn to_svg__places_points_on_the_axes() {
        let line = series("a", &[(0.0, 0.0), (1.0, 100.0)]);
        let svg = Svg::parse(&figure(vec![line]).to_svg());
        let [(x0, y0), (x1, y1)] = svg.shapes(BLUE)[0][..] else { panic!("two points") };
        assert!(x1 - x0 > 3000.0, "the line crosses the figure");
        assert_eq!(y0 - y1, 330.0 * 4.0);
    }

    #[test]
    fn to_svg__same_data_same_bytes() {
        let points: Vec<(f64, f64)> =
            (0..5000u32).map(|i| (f64::from(i) * 1e-6, f64::from(i * 7919 % 1000) * 1e8)).collect();
        let figure = figure(vec![series("a", &points)]);
        assert_eq!(figure.to_svg(), figure.to_svg());
    }

    #[test]
    fn to_svg__size_is_bounded() {
        let points: Vec<(f64, f64)> =
            (0..1_000_000u32).map(|i| (f64::from(i), f64::from(i % 1000))).collect();
        let svg = figure(vec![series("a", &points)]).to_svg();
        assert!(svg.len() < 60_000, "{} bytes", svg.len());
    }

    #[test]
    fn to_svg__many_points_are_a_mean_in_a_band() {
        let saw: Vec<(f64, f64)> =
            (0..100_000u32).map(|i| (f64::from(i), f64::from(i % 100))).collect();
        let svg = Svg::parse(&figure(vec![series("a", &saw)]).to_svg());
        let shapes = svg.shapes(BLUE);
        let [band, line] = &shapes[..] else { panic!("{} shapes", shapes.len()) };
        assert_eq!((band.len(), line.len()), (400, 200));
        let heights = |points: &[(f64, f64)]| {
            let y = points.iter().map(|p| p.1);
            y.clone().fold(0.0, f64::max) - y.fold(f64::INFINITY, f64::min)
        };
        assert!(heights(line) * 10.0 < heights(band), "the mean is a flat line");
        svg.assert_all_within();
    }

    #[test]
    fn to_svg__without_values_has_no_data() {
        let svg = Svg::parse(&figure(vec![]).to_svg());
        assert!(svg.texts().contains(&"no data".to_owned()));
        let nan = figure(vec![series("a", &[(0.0, f64::NAN)])]);
        assert!(Svg::parse(&nan.to_svg()).texts().contains(&"no data".to_owned()));
    }

    #[test]
    fn to_svg__a_step_holds_until_it_changes() {
        let line = series("queue", &[(0.0, 0.0), (1.0, 10.0), (2.0, 10.0), (3.0, 0.0)]);
        let figure = LineFigure { shape: Shape::Step, ..figure(vec![line]) };
        let svg = Svg::parse(&figure.to_svg());
        let corners = &svg.shapes(BLUE)[0];
        assert_eq!(corners.len(), 6);
        for pair in corners.windows(2) {
            assert!(pair[0].0 == pair[1].0 || pair[0].1 == pair[1].1, "{pair:?} is a slope");
        }
    }

    #[test]
    fn to_svg__ticks_of_one_pixel_are_one() {
        let line = series("queue", &[(0.0, 1.0), (1.0, 1.0)]);
        let at = vec![0.5, 0.5, 0.500_001, 0.9, f64::NAN];
        let rugs = vec![Rug { name: "drops".to_owned(), alarm: true, at }];
        let svg = Svg::parse(&LineFigure { rugs, ..figure(vec![line]) }.to_svg());
        assert_eq!(svg.shapes("#D55E00").len(), 2);
        assert!(svg.texts().contains(&"drops".to_owned()));
    }

    #[test]
    fn to_svg__a_level_far_above_does_not_flatten_the_data() {
        let line = series("queue", &[(0.0, 10.0), (1.0, 80.0)]);
        let level = |name: &str, at| Level { name: name.to_owned(), at };
        let levels = vec![level("Kmin", 100.0), level("limit", 1000.0)];
        let y = AxisSpec::linear("queue", Quantity::Number);
        let texts = Svg::parse(&LineFigure { levels, y, ..figure(vec![line]) }.to_svg()).texts();
        assert!(texts.contains(&"Kmin".to_owned()));
        assert!(texts.contains(&"120".to_owned()), "room above the level");
        assert!(!texts.contains(&"limit".to_owned()));
    }

    #[test]
    fn to_svg__log_leaves_out_zero() {
        let line = series("a", &[(0.0, 0.0), (1.0, 10.0), (2.0, 1000.0)]);
        let y = AxisSpec::log("window", Quantity::Number);
        let svg = Svg::parse(&LineFigure { y, ..figure(vec![line]) }.to_svg());
        assert_eq!(svg.shapes(BLUE)[0].len(), 2);
        svg.assert_all_within();
    }
}
