//! The canvas of a figure: title, legend, frame, grid and the labels of the axes.

use crate::Level;
use crate::axis::Axis;
use crate::style::{
    FAINT, FRAME, GRID, INK, SMALL, TEXT, TITLE, UNITS, WIDTH, colour, is_shaded, stroke,
    text_width,
};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::{
    Cartesian2d, Color, DrawingArea, DrawingAreaErrorKind, FontStyle, FontTransform,
    IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::io;

/// An error of drawing; drawing into a string does not fail.
pub(crate) type DrawError = DrawingAreaErrorKind<io::Error>;

/// The area between the axes, in their coordinates.
pub(crate) type Plot<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<Axis, Axis>>;

/// The part of a figure above the plot area.
#[derive(Debug, Default)]
pub(crate) struct Head<'a> {
    pub(crate) title: &'a str,
    pub(crate) subtitle: &'a str,
    /// Names of the series, in the order of their colours.
    pub(crate) legend: Vec<&'a str>,
    /// Rows between legend and plot area, for [`Canvas::strip`].
    pub(crate) strips: usize,
}

/// A figure that is being drawn.
pub(crate) struct Canvas<'a> {
    root: DrawingArea<SVGBackend<'a>, Shift>,
    layout: Layout,
}

/// Positions of the parts of a figure, in pixels.
#[derive(Debug)]
struct Layout {
    /// The corner of each entry of the legend.
    legend: Vec<(i32, i32)>,
    strips_top: i32,
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
    height: i32,
}

/// An entry of the legend; it has several colours if it stands for several series.
#[derive(Debug)]
struct Entry {
    text: String,
    swatch: Vec<RGBColor>,
}

/// Draws a figure with the axes `x` and `y`; `paint` draws the data.
pub(crate) fn draw(
    head: &Head<'_>,
    x: &Axis,
    y: &Axis,
    paint: impl FnOnce(&Canvas<'_>, &Plot<'_>) -> Result<(), DrawError>,
) -> String {
    let layout = Layout::of(head, y);
    let (width, height) = (WIDTH * UNITS, layout.height * UNITS);
    let in_units = format!("width=\"{width}\" height=\"{height}\"");
    let in_pixels = format!("width=\"{WIDTH}\" height=\"{}\"", layout.height);
    let mut svg = String::new();
    {
        let size = (width.unsigned_abs(), height.unsigned_abs());
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let canvas = Canvas { root, layout };
        canvas.sheet(head, x, y, paint).expect("writing to a string cannot fail");
    }
    svg.replacen(&in_units, &in_pixels, 1)
}

impl<'a> Canvas<'a> {
    /// Draws a strip: its name at the left, and a tick at each of `at`, which are positions along
    /// the x axis in drawing units.
    pub(crate) fn strip(
        &self,
        row: usize,
        name: &str,
        ink: RGBColor,
        at: &[i32],
    ) -> Result<(), DrawError> {
        let l = &self.layout;
        let top = l.strips_top + i32::try_from(row).unwrap_or(0) * STRIP;
        self.text(name, (l.left - 9, top + 2), &font(SMALL, ink, HPos::Right))?;
        self.path([(l.left, top + STRIP - 2), (l.right, top + STRIP - 2)], GRID)?;
        for x in at {
            let tick = vec![(*x, (top + 3) * UNITS), (*x, (top + STRIP - 2) * UNITS)];
            self.root.draw(&PathElement::new(tick, stroke(&ink, 1)))?;
        }
        Ok(())
    }

    /// Draws a name below the axis at `x` (in drawing units), with `small` below it.
    pub(crate) fn place_name(&self, x: i32, name: &str, small: &str) -> Result<(), DrawError> {
        let y = self.layout.bottom + 9;
        self.text(name, (x / UNITS, y), &font(TEXT, INK, HPos::Center))?;
        self.text(small, (x / UNITS, y + TEXT + 5), &font(SMALL, FAINT, HPos::Center))
    }

    /// Draws lines for the levels within the axis, behind the data.
    pub(crate) fn levels(&self, plot: &Plot<'_>, levels: &[Level]) -> Result<(), DrawError> {
        for (y, _) in self.visible_levels(plot, levels) {
            let line = vec![(self.layout.left * UNITS, y), (self.layout.right * UNITS, y)];
            self.root.draw(&PathElement::new(line, stroke(&FAINT, 1)))?;
        }
        Ok(())
    }

    /// Draws the names of the levels at the right end, on a background that covers the data.
    pub(crate) fn level_names(&self, plot: &Plot<'_>, levels: &[Level]) -> Result<(), DrawError> {
        let l = &self.layout;
        for (y, name) in self.visible_levels(plot, levels) {
            let above = y / UNITS - SMALL - 4;
            // The strips are above the plot area, so a name that would be there is below its line.
            let top = if above < l.top { y / UNITS + 3 } else { above };
            let (left, right) = (l.right - 10 - text_width(name, SMALL), l.right - 2);
            let corners = [(left, top - 1), (right, top + SMALL + 2)];
            let corners = corners.map(|(x, y)| (x * UNITS, y * UNITS));
            self.root.draw(&Rectangle::new(corners, WHITE.mix(0.8).filled()))?;
            self.text(name, (l.right - 6, top), &font(SMALL, FAINT, HPos::Right))?;
        }
        Ok(())
    }

    /// Draws the text "no data".
    pub(crate) fn draw_no_data(&self) -> Result<(), DrawError> {
        let l = &self.layout;
        let middle = (i32::midpoint(l.left, l.right), i32::midpoint(l.top, l.bottom));
        self.text("no data", middle, &font(TEXT, FAINT, HPos::Center))
    }

    /// (drawing units from the top, name) of the levels within the axis.
    fn visible_levels<'l>(
        &self,
        plot: &Plot<'_>,
        levels: &'l [Level],
    ) -> impl Iterator<Item = (i32, &'l str)> {
        let (within, x) =
            (self.layout.top * UNITS..self.layout.bottom * UNITS, plot.get_x_range().start);
        levels
            .iter()
            .map(move |level| (plot.as_coord_spec().translate(&(x, level.at)).1, &*level.name))
            .filter(move |(y, _)| within.contains(y))
    }

    fn sheet(
        &self,
        head: &Head<'_>,
        x: &Axis,
        y: &Axis,
        paint: impl FnOnce(&Canvas<'a>, &Plot<'a>) -> Result<(), DrawError>,
    ) -> Result<(), DrawError> {
        let l = &self.layout;
        self.root.fill(&WHITE)?;
        let bold = font(TITLE, INK, HPos::Left);
        let bold = TextStyle { font: bold.font.style(FontStyle::Bold), ..bold };
        self.text(head.title, (l.left, MARGIN), &bold)?;
        let below = (l.left, MARGIN + TITLE + 7);
        self.text(head.subtitle, below, &font(SMALL, FAINT, HPos::Left))?;
        for (entry, at) in entries(&head.legend).iter().zip(&l.legend) {
            self.legend_entry(entry, *at)?;
        }
        let (left, right) = (l.left * UNITS, l.right * UNITS);
        let (top, bottom) = (l.top * UNITS, l.bottom * UNITS);
        let spec = Cartesian2d::new(x.clone(), y.clone(), (left..right, bottom..top));
        let plot = self.root.clone().apply_coord_spec(spec);
        self.axes(x, y, &plot)?;
        paint(self, &plot)?;
        self.path([(l.left, l.top), (l.left, l.bottom)], FRAME)?;
        self.path([(l.left, l.bottom), (l.right, l.bottom)], FRAME)?;
        self.root.present()
    }

    fn legend_entry(&self, entry: &Entry, (x, y): (i32, i32)) -> Result<(), DrawError> {
        let of = i32::try_from(entry.swatch.len()).unwrap_or(i32::MAX);
        for (i, ink) in (0..).zip(&entry.swatch) {
            let from = (x * UNITS + SWATCH * UNITS * i / of, (y + 4) * UNITS);
            let to = (x * UNITS + SWATCH * UNITS * (i + 1) / of, (y + 9) * UNITS);
            self.root.draw(&Rectangle::new([from, to], ink.filled()))?;
        }
        self.text(&entry.text, (x + SWATCH + 6, y), &font(SMALL, INK, HPos::Left))
    }

    /// Draws the grid and the labels of the axes.
    fn axes(&self, x: &Axis, y: &Axis, plot: &Plot<'_>) -> Result<(), DrawError> {
        let l = &self.layout;
        let (low_x, low_y) = (x.low(), y.low());
        for (at, text) in x.ticks() {
            let column = plot.as_coord_spec().translate(&(at, low_y)).0 / UNITS;
            self.path([(column, l.top), (column, l.bottom)], GRID)?;
            self.text(&text, (column, l.bottom + 8), &font(TEXT, INK, HPos::Center))?;
        }
        for (at, text) in y.ticks() {
            let row = plot.as_coord_spec().translate(&(low_x, at)).1 / UNITS;
            self.path([(l.left, row), (l.right, row)], GRID)?;
            let style = font(TEXT, INK, HPos::Right);
            self.text(&text, (l.left - 9, row - TEXT / 2), &style)?;
        }
        let under = (i32::midpoint(l.left, l.right), l.bottom + 8 + TEXT + 8);
        self.text(x.label(), under, &font(TEXT, INK, HPos::Center))?;
        let beside = (MARGIN - 4, i32::midpoint(l.top, l.bottom));
        let upright = font(TEXT, INK, HPos::Center);
        let turned =
            TextStyle { font: upright.font.transform(FontTransform::Rotate270), ..upright };
        self.text(y.label(), beside, &turned)
    }

    /// Draws text with its upper edge at `at`, in pixels.
    fn text(&self, text: &str, at: (i32, i32), style: &TextStyle<'_>) -> Result<(), DrawError> {
        if text.is_empty() {
            return Ok(());
        }
        self.root.draw_text(text, style, (at.0 * UNITS, at.1 * UNITS))
    }

    /// Draws a thin line between two points, in pixels.
    fn path(&self, ends: [(i32, i32); 2], ink: RGBColor) -> Result<(), DrawError> {
        let ends = ends.map(|(x, y)| (x * UNITS, y * UNITS));
        self.root.draw(&PathElement::new(ends.to_vec(), stroke(&ink, 1)))
    }
}

impl Layout {
    fn of(head: &Head<'_>, y: &Axis) -> Self {
        let widest = y.ticks().map(|(_, text)| text_width(&text, TEXT)).max().unwrap_or(0);
        let left = (widest + MARGIN + TEXT + 18).max(LEFT_MIN);
        let right = WIDTH - RIGHT;
        let mut at = MARGIN + TITLE + 9;
        if !head.subtitle.is_empty() {
            at += SMALL + 8;
        }
        let (mut legend, mut x) = (Vec::new(), left);
        for entry in entries(&head.legend) {
            let width = SWATCH + 6 + text_width(&entry.text, SMALL);
            if x > left && x + width > right {
                (x, at) = (left, at + LEGEND_ROW);
            }
            legend.push((x, at));
            x += width + 16;
        }
        if !legend.is_empty() {
            at += LEGEND_ROW;
        }
        let strips_top = at;
        let top = at + i32::try_from(head.strips).unwrap_or(0) * STRIP + 6;
        let bottom = top + PLOT_HEIGHT;
        Self { legend, strips_top, left, right, top, bottom, height: bottom + BELOW }
    }
}

/// The entries of the legend: one for each name, or one for all if the series are shaded.
fn entries(names: &[&str]) -> Vec<Entry> {
    let of = names.len();
    if is_shaded(of) {
        let text = format!("{} to {}, {of} in all", names[0], names[of - 1]);
        return vec![Entry { text, swatch: (0..of).map(|i| colour(i, of)).collect() }];
    }
    let entry =
        |(i, name): (usize, &&str)| Entry { text: (*name).to_owned(), swatch: vec![colour(i, of)] };
    names.iter().enumerate().map(entry).collect()
}

/// A text style of `px` pixels, anchored at its upper edge.
fn font(px: i32, ink: RGBColor, h_pos: HPos) -> TextStyle<'static> {
    // The backend divides by the same number.
    let size = f64::from(px * UNITS) * 1.24;
    TextStyle {
        font: ("sans-serif", size).into_font(),
        color: ink.to_backend_color(),
        pos: Pos::new(h_pos, VPos::Top),
    }
}

/// Margin around the figure.
const MARGIN: i32 = 14;
const RIGHT: i32 = 26;
/// Minimum space at the left, for the names of strips.
const LEFT_MIN: i32 = 74;
const PLOT_HEIGHT: i32 = 330;
/// Space below the plot area, for two lines of text.
const BELOW: i32 = 54;
const LEGEND_ROW: i32 = 20;
/// Height of a strip.
const STRIP: i32 = 17;
/// Width of a colour in the legend.
const SWATCH: i32 = 22;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Svg;
    use crate::{AxisSpec, Quantity};

    fn axes() -> (Axis, Axis) {
        let time = AxisSpec::linear("time", Quantity::Seconds);
        let queue = AxisSpec::linear("queue", Quantity::Bytes);
        (Axis::tight(&time, [2e-3]), Axis::over(&queue, [90_000.0]))
    }

    #[test]
    fn draw__labels_axes_and_escapes() {
        let head = Head { title: "a < b & c", subtitle: "\"seed\" 1", ..Head::default() };
        let (x, y) = axes();
        let svg = Svg::parse(&draw(&head, &x, &y, |canvas, _| canvas.draw_no_data()));
        for text in ["a < b & c", "\"seed\" 1", "time [ms]", "queue [kB]", "100", "no data"] {
            assert!(svg.texts().contains(&text.to_owned()), "{text} is missing");
        }
    }

    #[test]
    fn draw__is_as_wide_as_said_and_clips_nothing() {
        let names: Vec<String> =
            (0..7).map(|i| format!("a rather long name of series {i}")).collect();
        let legend = names.iter().map(String::as_str).collect();
        let head = Head { title: "t", subtitle: "s", legend, strips: 2 };
        let (x, y) = axes();
        let svg = Svg::parse(&draw(&head, &x, &y, |canvas, _| {
            canvas.strip(0, "marks", FAINT, &[400])?;
            canvas.strip(1, "drops", INK, &[])
        }));
        assert_eq!(svg.width(), 900.0);
        svg.assert_all_within();
        for name in &names {
            assert!(svg.texts().contains(name), "{name}");
        }
    }

    #[test]
    fn levels__out_of_reach_are_not_drawn() {
        let (x, y) = axes();
        let near = Level { name: "Kmin".to_owned(), at: 40_000.0 };
        let far = Level { name: "limit".to_owned(), at: 4e6 };
        let svg = draw(&Head::default(), &x, &y, |c, plot| c.level_names(plot, &[near, far]));
        let texts = Svg::parse(&svg).texts();
        assert!(texts.contains(&"Kmin".to_owned()) && !texts.contains(&"limit".to_owned()));
    }

    #[test]
    fn entries__many_series_share_one() {
        let names: Vec<String> = (0..32).map(|i| format!("f{i}")).collect();
        let all = entries(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].text, "f0 to f31, 32 in all");
        assert_eq!(entries(&["a", "b"]).len(), 2);
    }
}
