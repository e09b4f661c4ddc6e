//! Figures of runs and of a switch's samples, stacked on one time axis.

use super::read::{FlowPoint, Point, Run, Sample};
use spanwire_plot::{AxisSpec, Level, LineFigure, Quantity, Rug, Series, Shape, stack};

/// A value of a flow, if the report has it.
type FlowValue = fn(&FlowPoint) -> Option<f64>;

/// The data to draw. The time axis is seconds since the start of the first run.
struct Sheet<'a> {
    title: &'a str,
    runs: &'a [Run],
    samples: &'a [Sample],
    zero_unix_s: f64,
    end_s: f64,
}

/// The figures as SVG: rates of `runs`, and windows, RTTs and marked fractions if reported. Below
/// them are queue, marks and drops of `samples`, with the thresholds `levels`.
pub(crate) fn picture(title: &str, runs: &[Run], samples: &[Sample], levels: &[Level]) -> String {
    let zero_unix_s = runs.iter().map(|r| r.start_unix_s).fold(f64::INFINITY, f64::min);
    let end = |r: &Run| r.start_unix_s - zero_unix_s + r.points.last().map_or(0.0, |p| p.end_s);
    let end_s = runs.iter().map(end).fold(0.0, f64::max);
    let sheet = Sheet { title, runs, samples, zero_unix_s, end_s };
    let mut figures = vec![sheet.rates()];
    let known: [(&str, &str, Quantity, FlowValue); 3] = [
        ("Window", "window", Quantity::Bytes, |f| Some(f.cwnd_bytes)),
        ("Smoothed round trip", "srtt", Quantity::Seconds, |f| f.srtt_us.map(|us| us / 1e6)),
        ("Marked", "of acknowledged bytes", Quantity::Share, |f| f.marked),
    ];
    for (title, label, quantity, of) in known {
        figures.extend(sheet.flows(title, AxisSpec::linear(label, quantity), of));
    }
    figures.extend(sheet.queue(levels));
    stack(&figures)
}

impl Sheet<'_> {
    fn rates(&self) -> String {
        let axis = AxisSpec::linear("goodput", Quantity::BitsPerSecond);
        let series = self.series(|p| Some(p.gbps * 1e9));
        self.figure(self.title, axis, series).to_svg()
    }

    /// A figure of a value of the flows; `None` if no flow reports it.
    fn flows(&self, title: &str, axis: AxisSpec, of: FlowValue) -> Option<String> {
        let series = self.series(|p| p.flow.as_ref().and_then(of));
        let is_known = series.iter().any(|s| !s.points.is_empty());
        is_known.then(|| self.figure(title, axis, series).to_svg())
    }

    fn queue(&self, levels: &[Level]) -> Option<String> {
        let within = |s: &&Sample| (0.0..=self.end_s).contains(&(s.at_unix_s - self.zero_unix_s));
        let seen: Vec<&Sample> = self.samples.iter().filter(within).collect();
        let last = seen.last()?;
        let at = |s: &Sample| s.at_unix_s - self.zero_unix_s;
        let mut points: Vec<(f64, f64)> = seen.iter().map(|s| (at(s), s.queue_bytes)).collect();
        points.push((self.end_s, last.queue_bytes));
        let rose = |of: fn(&Sample) -> u64| {
            let pairs = seen.windows(2).filter(|pair| of(pair[1]) > of(pair[0]));
            pairs.map(|pair| at(pair[1])).collect::<Vec<f64>>()
        };
        let rugs = vec![
            Rug { name: "marks".to_owned(), alarm: false, at: rose(|s| s.marks) },
            Rug { name: "drops".to_owned(), alarm: true, at: rose(|s| s.drops) },
        ];
        let axis = AxisSpec::linear("queue", Quantity::Bytes);
        let series = vec![Series { name: "at the switch".to_owned(), points }];
        let figure = self.figure("Queue", axis, series);
        Some(LineFigure { rugs, levels: levels.to_vec(), ..figure }.to_svg())
    }

    /// A step line for each run: each value holds for its interval.
    fn series(&self, of: impl Fn(&Point) -> Option<f64>) -> Vec<Series> {
        let line = |run: &Run| {
            let from = run.start_unix_s - self.zero_unix_s;
            let known = run.points.iter().filter_map(|p| Some((p, of(p)?)));
            let mut points: Vec<(f64, f64)> =
                known.clone().map(|(p, value)| (from + p.start_s, value)).collect();
            points.extend(known.last().map(|(p, value)| (from + p.end_s, value)));
            Series { name: run.name.clone(), points }
        };
        self.runs.iter().map(line).collect()
    }

    fn figure(&self, title: &str, y: AxisSpec, series: Vec<Series>) -> LineFigure {
        let time = AxisSpec::linear("time", Quantity::Seconds);
        LineFigure::new(title, "", [time, y], Shape::Step, series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, start_unix_s: f64, flow: Option<FlowPoint>) -> Run {
        let point = |n: u32| {
            let start_s = f64::from(n) / 10.0;
            Point { start_s, end_s: start_s + 0.1, gbps: f64::from(n), flow }
        };
        Run { name: name.to_owned(), start_unix_s, points: (0..10).map(point).collect() }
    }

    #[test]
    fn picture__draws_reported_values_on_one_time_axis() {
        let flow = Some(FlowPoint { cwnd_bytes: 7e3, srtt_us: Some(4e3), marked: None });
        let runs = [run("first", 100.0, flow), run("second", 100.5, None)];
        let sample = |n: u32| Sample {
            at_unix_s: 99.0 + f64::from(n) / 10.0,
            queue_bytes: f64::from(n),
            marks: u64::from(n / 7),
            drops: 0,
        };
        let samples: Vec<Sample> = (0..40).map(sample).collect();
        let levels = [Level { name: "Kmin".to_owned(), at: 20.0 }];
        let svg = picture("Two of them", &runs, &samples, &levels);
        roxmltree::Document::parse(&svg).expect("XML");
        let shown = ["Two of them", "Window", "round trip", "Queue", "Kmin", "first", "second"];
        for words in shown {
            assert!(svg.contains(words), "{words}");
        }
        assert!(!svg.contains("Marked"), "no run reports marks");
        let sheet =
            Sheet { title: "", runs: &runs, samples: &samples, zero_unix_s: 100.0, end_s: 1.5 };
        let series = sheet.series(|p| Some(p.gbps));
        assert_eq!(series[1].points.first(), Some(&(0.5, 0.0)));
        let (end, rate) = series[1].points[10];
        assert!((end - 1.5).abs() < 1e-9 && (rate - 9.0).abs() < 1e-9);
        let alone = picture("One", &runs[1..], &[], &[]);
        assert_eq!(alone.matches("<svg").count(), 2, "rates and nothing else");
    }
}
