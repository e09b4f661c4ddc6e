//! Figures of rows as SVG.

use spanwire_plot::{
    AxisSpec, Bar, BarFigure, BarSeries, Group, LineFigure, Quantity, Series, Shape, ViolinFigure,
};
use spanwire_sim::rows::{self, Figure, Reading, Results, Row, Run};
use spanwire_sim::{Trace, TraceUnit};

/// The figure of a row.
///
/// # Errors
/// A result is missing.
pub(super) fn draw(figure: &Figure, row: &Row, results: &Results) -> Result<String, String> {
    let subtitle = format!("{}, {}", row.id, row.source);
    match figure {
        Figure::Violins { title, groups, reading } => {
            let groups = groups.iter().map(|(name, run)| violin(name, run, reading, results));
            let label = format!("{} {}", reading.name, reading.unit);
            let y = AxisSpec::linear(label.trim_end(), Quantity::Number);
            let (title, groups) = ((*title).to_owned(), groups.collect::<Result<_, _>>()?);
            Ok(ViolinFigure { title, subtitle, y, groups }.to_svg())
        }
        Figure::Bars { title, y, groups, bars } => {
            let series = bars.iter().map(|(name, of)| bar_series(name, of, results));
            let (title, groups) = ((*title).to_owned(), groups.clone());
            let series = series.collect::<Result<_, _>>()?;
            let y = AxisSpec::linear(y, Quantity::Number);
            Ok(BarFigure { title, subtitle, y, groups, series }.to_svg())
        }
        Figure::OverTime { title, y, span, lines } => {
            let mut unit = TraceUnit::Bytes;
            let mut series = Vec::new();
            for (name, run, trace) in lines {
                let traces = traces(run, trace, results)?;
                unit = traces.first().map_or(unit, |trace| trace.unit);
                series.push(line(name, &traces, *span));
            }
            let quantity = match unit {
                TraceUnit::Bytes => Quantity::Bytes,
                TraceUnit::Gbps => Quantity::BitsPerSecond,
            };
            let axes = [AxisSpec::linear("time", Quantity::Seconds), AxisSpec::linear(y, quantity)];
            Ok(LineFigure::new(*title, subtitle, axes, Shape::Line, series).to_svg())
        }
    }
}

fn violin(name: &str, run: &Run, of: &Reading, results: &Results) -> Result<Group, String> {
    let seeds = results.of(run)?.iter().map(|seed| of.of(seed));
    let values: Vec<Vec<f64>> = seeds.collect::<Result<_, _>>()?;
    Ok(Group { name: name.to_owned(), values: values.concat() })
}

fn bar_series(name: &str, of: &[rows::Quantity], results: &Results) -> Result<BarSeries, String> {
    let bar = |quantity: &rows::Quantity| {
        let ours = quantity.ours(results)?;
        let [low, high] = ours.band();
        Ok(Some(Bar { value: ours.median, low, high }))
    };
    let bars = of.iter().map(bar).collect::<Result<_, String>>()?;
    Ok(BarSeries { name: name.to_owned(), bars })
}

/// The trace of this name, of each seed.
fn traces<'a>(run: &Run, name: &str, results: &'a Results) -> Result<Vec<&'a Trace>, String> {
    let of = |seed: &'a rows::SeedResult| {
        let trace = seed.over_time.iter().find(|trace| trace.name == name);
        trace.ok_or_else(|| format!("{}: nothing over time of {name}", run.label()))
    };
    results.of(run)?.iter().map(of).collect()
}

/// All seeds at the same places of `span`, in ms: the figure has their means in a band.
fn line(name: &str, traces: &[&Trace], [from, to]: [f64; 2]) -> Series {
    let step = (to - from) * 1000.0 / f64::from(PLACES);
    let mut points = Vec::new();
    for us in (0..=PLACES).map(|i| from * 1000.0 + f64::from(i) * step) {
        let values = traces.iter().filter_map(|trace| Some((trace.at(us)?, trace.unit)));
        points.extend(values.map(|(value, unit)| match unit {
            TraceUnit::Bytes => (us / 1e6, value),
            TraceUnit::Gbps => (us / 1e6, value * 1e9),
        }));
    }
    Series { name: name.to_owned(), points }
}

/// Intervals of a line; as many as the figure has.
const PLACES: u32 = 200;
