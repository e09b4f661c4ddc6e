//! `--plot`: the figures of a run, and an HTML page that shows them.

mod sweep;

pub(super) use sweep::write_sweep;

use super::numbers::decimals;
use super::report::RunReport;
use spanwire_plot::{
    AxisSpec, CdfFigure, Group, Level, LineFigure, Quantity, Rug, Series, Shape, ViolinFigure,
};
use spanwire_sim::{CcChoice, FlowReport, FlowSeries, Plan, QueueSeries};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// The data of a run that is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) report: &'a RunReport,
    pub(super) series: &'a spanwire_sim::Series,
    /// Link rates, drawn as levels in the figure of goodput.
    pub(super) rates: &'a [Level],
    /// Marking thresholds and limits, drawn as levels in the figure of queues.
    pub(super) thresholds: &'a [Level],
}

/// Writes the figures that have data, and `index.html`, into `dir`, which is created if missing.
///
/// # Returns
/// The names of the files.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write(run: &Run<'_>, dir: &Path) -> io::Result<Vec<&'static str>> {
    fs::create_dir_all(dir)?;
    let figures = run.figures();
    for (name, svg) in &figures {
        fs::write(dir.join(name), svg)?;
    }
    let mut names: Vec<&'static str> = figures.into_iter().map(|(name, _)| name).collect();
    fs::write(dir.join(INDEX), run.page(&names))?;
    names.push(INDEX);
    Ok(names)
}

/// The distinct link rates of a plan.
pub(super) fn link_rates(plan: &Plan) -> Vec<Level> {
    let rates: BTreeSet<u64> = plan.topology.links.iter().map(|cable| cable.rate_bps).collect();
    let level = |bps: u64| {
        let at = to_f64(bps);
        Level { name: format!("link, {} Gbit/s", at / 1e9), at }
    };
    rates.into_iter().map(level).collect()
}

/// The marking thresholds and the limit of the queues of a plan's switches.
pub(super) fn queue_thresholds(plan: &Plan) -> Vec<Level> {
    let mut levels = Vec::new();
    let mut add = |name: &str, bytes: u64| {
        levels.push(Level { name: name.to_owned(), at: to_f64(bytes) });
    };
    // With several queues a level would apply to only some lines of the figure.
    let [queue] = &plan.setup.port.queues[..] else {
        return levels;
    };
    if let Some(ecn) = &queue.ecn {
        add("Kmin", ecn.kmin_bytes);
        add("Kmax", ecn.kmax_bytes);
    }
    add("limit", queue.limit_bytes);
    levels
}

impl Run<'_> {
    /// (file name, SVG) of each figure that has data.
    fn figures(&self) -> Vec<(&'static str, String)> {
        let [fct_cdf, fct_violin] = self.fcts().unwrap_or_default();
        let figures = [
            ("rates.svg", self.goodput()),
            ("jain.svg", self.jain()),
            ("windows.svg", self.windows()),
            ("queues.svg", self.queues()),
            ("fct_cdf.svg", fct_cdf),
            ("fct_violin.svg", fct_violin),
        ];
        figures.into_iter().filter_map(|(name, svg)| Some((name, svg?))).collect()
    }

    fn goodput(&self) -> Option<String> {
        // Goodput bursts when a loss is repaired, because data after the gap is delivered at once.
        // A figure of shares uses the acknowledged rate, which has no such bursts.
        let is_shared = !self.series.jain.is_empty();
        let rates = |f: &FlowSeries| match is_shared {
            true => f.acked_gbps.clone(),
            false => f.goodput_gbps.clone(),
        };
        let bps = |f: &FlowSeries| rates(f).into_iter().map(|gbps| gbps * 1e9).collect();
        let series = self.by_flow(bps)?;
        let label = if is_shared { "rate" } else { "goodput" };
        let axis = AxisSpec::linear(label, Quantity::BitsPerSecond);
        // The rate of one link is no bound of the sum of all flows.
        let levels = if self.series.flows.len() > LINES_MAX { &[] } else { self.rates };
        let title = if is_shared { "Payload acknowledged" } else { "Goodput at the receivers" };
        Some(self.lines(title, axis, series, levels).to_svg())
    }

    fn jain(&self) -> Option<String> {
        let at = self.series.at_us.iter().map(|us| us / 1e6).zip(&self.series.jain);
        let points: Vec<(f64, f64)> = at.filter_map(|(at, jain)| Some((at, (*jain)?))).collect();
        let series = Series { name: "of the flows that have begun".to_owned(), points };
        let fair = Level { name: "fair".to_owned(), at: spanwire_sim::JAIN_FAIR };
        let axis = AxisSpec::linear("Jain's index", Quantity::Share);
        let has_points = !series.points.is_empty();
        let figure = self.lines("Fairness of rates", axis, vec![series], &[fair]);
        has_points.then(|| figure.to_svg())
    }

    fn windows(&self) -> Option<String> {
        let packets = |f: &FlowSeries| f.in_flight_pkts.iter().map(|n| to_f64(*n)).collect();
        let series = self.by_flow(packets)?;
        let axis = AxisSpec::linear("packets in flight", Quantity::Number);
        Some(self.lines("Packets sent and not acknowledged", axis, series, &[]).to_svg())
    }

    fn queues(&self) -> Option<String> {
        let longest = |q: &QueueSeries| q.bytes.iter().copied().max().unwrap_or(0);
        let mut queues: Vec<&QueueSeries> = self.series.queues.iter().collect();
        queues.retain(|q| longest(q) > 0);
        queues.sort_by_key(|q| std::cmp::Reverse(longest(q)));
        queues.truncate(QUEUES_MAX);
        if queues.is_empty() {
            return None;
        }
        let line = |q: &&QueueSeries| Series {
            name: q.name.clone(),
            points: self.points(q.bytes.iter().map(|n| to_f64(*n)).collect()),
        };
        let marks = |i: usize| self.series.queues.iter().filter_map(|q| q.marks.get(i)).sum();
        let drops = |i: usize| self.series.drops.get(i).copied().unwrap_or(0);
        let rugs = [self.rug("marks", false, marks), self.rug("drops", true, drops)];
        let axis = AxisSpec::linear("queue", Quantity::Bytes);
        let series = queues.iter().map(line).collect();
        let figure = LineFigure {
            shape: Shape::Step,
            rugs: rugs.into_iter().filter(|r| !r.at.is_empty()).collect(),
            ..self.lines("Queues", axis, series, self.thresholds)
        };
        Some(figure.to_svg())
    }

    /// A line for each flow, or one for their sum if there are more than [`LINES_MAX`].
    fn by_flow(&self, values: impl Fn(&FlowSeries) -> Vec<f64>) -> Option<Vec<Series>> {
        let flows = &self.series.flows;
        if flows.is_empty() {
            return None;
        }
        if flows.len() <= LINES_MAX {
            let line = |f| Series { name: self.flow_name(f), points: self.points(values(f)) };
            return Some(flows.iter().map(line).collect());
        }
        let mut sum = vec![0.0; self.series.at_us.len()];
        for flow in flows {
            for (sum, value) in sum.iter_mut().zip(values(flow)) {
                *sum += value;
            }
        }
        let name = format!("all {} flows", flows.len());
        Some(vec![Series { name, points: self.points(sum) }])
    }

    fn lines(&self, title: &str, y: AxisSpec, series: Vec<Series>, levels: &[Level]) -> LineFigure {
        let axes = [AxisSpec::linear("time", Quantity::Seconds), y];
        let figure = LineFigure::new(title, self.subtitle(), axes, Shape::Line, series);
        LineFigure { levels: levels.to_vec(), ..figure }
    }

    /// A tick at each sample at which the cumulative count `so_far` has grown.
    fn rug(&self, name: &str, alarm: bool, so_far: impl Fn(usize) -> u64) -> Rug {
        let mut before = 0;
        let mut at = Vec::new();
        for (i, time) in self.times().enumerate() {
            let now = so_far(i);
            at.extend((now > before).then_some(time));
            before = now;
        }
        Rug { name: name.to_owned(), alarm, at }
    }

    fn points(&self, values: Vec<f64>) -> Vec<(f64, f64)> {
        self.times().zip(values).collect()
    }

    /// Times of the samples in seconds, up to the last activity. Samples after it show only timers
    /// that expire after the last flow.
    fn times(&self) -> impl Iterator<Item = f64> {
        let s = self.series;
        let flows = s.flows.iter();
        let rates = flows.clone().filter_map(|f| f.goodput_gbps.iter().rposition(|v| *v > 0.0));
        let windows = flows.filter_map(|f| f.in_flight_pkts.iter().rposition(|v| *v > 0));
        let queues = s.queues.iter().filter_map(|q| q.bytes.iter().rposition(|v| *v > 0));
        let last = rates.chain(windows).chain(queues).max().unwrap_or(0);
        s.at_us.iter().take(last + 2).map(|us| us / 1e6)
    }

    /// A flow's name in a legend: its number and its hosts, which may have several flows.
    fn flow_name(&self, flow: &FlowSeries) -> String {
        let ends = self.report.report.flows.get(flow.flow as usize);
        let ends = ends.map(|f| format!(": {} \u{2192} {}", f.src, f.dst));
        format!("flow {}{}", flow.flow, ends.unwrap_or_default())
    }

    /// The distribution of the completion times, as a function and as violins.
    fn fcts(&self) -> Option<[Option<String>; 2]> {
        let groups = fct_groups(&self.report.report.flows);
        let (least, most) = range(&groups)?;
        let axis = if most > 10.0 * least { AxisSpec::log } else { AxisSpec::linear };
        let axis = axis("FCT", Quantity::Seconds);
        let (title, subtitle) = ("Flow completion times".to_owned(), self.subtitle());
        let cdf = CdfFigure {
            title: title.clone(),
            subtitle: subtitle.clone(),
            x: axis.clone(),
            counted: "flows".to_owned(),
            groups: groups.clone(),
        };
        let violin = ViolinFigure { title, subtitle, y: axis, groups };
        let n = self.completed();
        let violin = (n >= VIOLIN_MIN).then(|| violin.to_svg());
        Some([(n >= CDF_MIN).then(|| cdf.to_svg()), violin])
    }

    fn completed(&self) -> usize {
        self.report.report.flows.iter().filter(|f| f.fct_us.is_some()).count()
    }

    fn subtitle(&self) -> String {
        let report = &self.report.report;
        let cc = self.report.parameters.get("cc").filter(|cc| cc.as_str() != CcChoice::NONE);
        let cc = cc.map_or_else(String::new, |cc| format!(", {cc}"));
        format!("{}{cc}, seed {}", report.scenario, report.seed)
    }

    /// The HTML page with the figures `names`.
    fn page(&self, names: &[&str]) -> String {
        let r = &self.report.report;
        let title = escaped(&format!("spanwire sim run {}", r.scenario));
        let verdict = if r.checkers_ok { "ok" } else { "FAILED" };
        let mut rows: Vec<(&str, String)> =
            vec![("scenario", r.scenario.clone()), ("seed", r.seed.to_string())];
        rows.extend(self.report.parameters.iter().map(|(key, value)| (*key, value.clone())));
        rows.extend([
            ("flows completed", format!("{} of {}", self.completed(), r.flows.len())),
            ("simulated", format!("{} us", decimals(r.simulated_us))),
            ("events", r.events.to_string()),
            ("packet hops", r.packet_hops.to_string()),
            ("event hash", r.event_hash.clone()),
            ("checkers", verdict.to_owned()),
        ]);
        let counts = |counts: &BTreeMap<String, u64>| {
            let counts: Vec<String> = counts.iter().map(|(c, n)| format!("{c} {n}")).collect();
            if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
        };
        rows.push(("drops", counts(&r.drops)));
        rows.extend(r.violations.iter().map(|v| ("violation", v.clone())));
        html(&title, &rows, names)
    }
}

/// An HTML page with a table of names and values, and figures. `title` must be escaped.
fn html(title: &str, rows: &[(&str, String)], figures: &[impl AsRef<str>]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <table>\n"
    );
    for (name, value) in rows {
        let (name, value) = (escaped(name), escaped(value));
        // Writing to a String cannot fail.
        let _ = writeln!(page, "<tr><th>{name}</th><td>{value}</td></tr>");
    }
    page.push_str("</table>\n");
    for name in figures.iter().map(AsRef::as_ref) {
        let _ = writeln!(page, "<p><img src=\"{name}\" alt=\"{name}\"></p>");
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// Completion times in seconds, in groups of small, medium and large flows. If all flows are in
/// one size class, there is one group.
fn fct_groups(flows: &[FlowReport]) -> Vec<Group> {
    let class = |flow: &FlowReport| SIZES.iter().position(|(max, _)| flow.bytes <= *max);
    let mut groups: BTreeMap<Option<usize>, Group> = BTreeMap::new();
    for (flow, fct_us) in flows.iter().filter_map(|f| Some((f, f.fct_us?))) {
        let class = class(flow);
        let name = class.map_or("over 10 MB", |class| SIZES[class].1);
        let group = groups.entry(class).or_default();
        name.clone_into(&mut group.name);
        group.values.push(fct_us / 1e6);
    }
    // The map sorts `None`, the class of the largest flows, first.
    let large = groups.remove(&None);
    let mut groups: Vec<Group> = groups.into_values().chain(large).collect();
    if let [only] = &mut groups[..] {
        "all".clone_into(&mut only.name);
    }
    groups
}

/// The smallest and the largest value.
fn range(groups: &[Group]) -> Option<(f64, f64)> {
    let values = || groups.iter().flat_map(|g| g.values.iter().copied());
    Some((values().reduce(f64::min)?, values().reduce(f64::max)?))
}

/// Converts for figures; above 2^53 with rounding.
#[expect(clippy::cast_precision_loss, reason = "a place in a figure")]
pub(super) fn to_f64(n: u64) -> f64 {
    n as f64
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Size classes of flows: the largest size in bytes of small and medium flows, with their names.
///
/// # Source
/// The classes of pFabric 5 (SIGCOMM 2013).
const SIZES: [(u64, &str); 2] = [(100_000, "up to 100 kB"), (10_000_000, "up to 10 MB")];
const INDEX: &str = "index.html";
/// Limit of lines of flows in one figure; above it their sum is drawn.
const LINES_MAX: usize = 128;
/// Limit of queues in one figure: the number of distinct colours.
const QUEUES_MAX: usize = 6;
/// Minimum of flows for a distribution function.
const CDF_MIN: usize = 2;
/// Minimum of flows for a violin.
const VIOLIN_MIN: usize = 5;
const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:960px;margin:2em auto;color:#222}\
    h1{font-size:1.4em}th{text-align:left;font-weight:normal;color:#5f5f5f;padding-right:1.5em;\
    vertical-align:top}img{width:100%;max-width:900px}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{flow, report, series};
    use std::time::Duration;

    fn run_of(flows: Vec<FlowReport>) -> RunReport {
        RunReport::new(report(flows), BTreeMap::new(), Duration::from_secs(1))
    }

    fn names(report: &RunReport, series: &spanwire_sim::Series) -> Vec<&'static str> {
        let run = Run { report, series, rates: &[], thresholds: &[] };
        run.figures().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn figures__are_those_with_data() {
        let mut samples = spanwire_sim::Series::default();
        assert_eq!(names(&run_of(vec![]), &samples), Vec::<&str>::new());
        samples = series(2);
        samples.queues[0].bytes = vec![0, 0];
        let one = run_of(vec![flow(0, 1, 1, 3.0)]);
        assert_eq!(names(&one, &samples), ["rates.svg", "windows.svg"]);
        let five = run_of((0..5).map(|i| flow(i, 9, 1, 3.0)).collect());
        let all = ["rates.svg", "windows.svg", "queues.svg", "fct_cdf.svg", "fct_violin.svg"];
        assert_eq!(names(&five, &series(5)), all);
        let shared = spanwire_sim::Series { jain: vec![None, Some(0.9)], ..series(2) };
        assert!(names(&one, &shared).contains(&"jain.svg"));
    }

    #[test]
    fn figures__have_a_line_for_each_flow_up_to_a_limit() {
        let report = run_of(vec![]);
        let lines = |flows: u32| {
            let series = series(flows);
            let run = Run { report: &report, series: &series, rates: &[], thresholds: &[] };
            let svg = run.figures().remove(0).1;
            let document = roxmltree::Document::parse(&svg).expect("it is XML");
            let is_line = |n: &roxmltree::Node<'_, '_>| {
                let ink = n.attribute("stroke").unwrap_or_default();
                n.tag_name().name() == "polyline" && !["#E3E3E3", "#9A9A9A"].contains(&ink)
            };
            document.descendants().filter(is_line).count()
        };
        assert_eq!([1, 32, 128, 129].map(lines), [1, 32, 128, 1]);
    }

    #[test]
    fn subtitle__names_the_congestion_control_if_there_is_one() {
        let (mut report, series) = (run_of(vec![]), series(1));
        for (cc, says) in [("none", "incast-32, seed 7"), ("swift", "incast-32, swift, seed 7")] {
            report.parameters.insert("cc", cc.to_owned());
            let run = Run { report: &report, series: &series, rates: &[], thresholds: &[] };
            assert_eq!(run.subtitle(), says);
        }
    }

    #[test]
    fn rug__is_where_a_count_grew() {
        let (report, mut series) = (run_of(vec![]), series(1));
        series.at_us = vec![1.0, 2.0, 3.0, 4.0, 5.0];
        // There is no activity after the third sample; one more sample is shown.
        series.flows[0].in_flight_pkts = vec![1, 1, 1, 0, 0];
        let run = Run { report: &report, series: &series, rates: &[], thresholds: &[] };
        let rug = run.rug("drops", true, |i| [0, 2, 2, 3, 4][i]);
        assert_eq!(rug.at, [2e-6, 4e-6]);
    }

    #[test]
    fn fct_groups__are_by_size_where_sizes_differ() {
        let flows = [(1 << 30, 9.0), (10, 1.0), (500_000, 2.0)];
        let flows = flows.map(|(bytes, us)| flow(0, 1, bytes, us));
        let names: Vec<String> = fct_groups(&flows).into_iter().map(|g| g.name).collect();
        assert_eq!(names, ["up to 100 kB", "up to 10 MB", "over 10 MB"]);
        let mut flows = [10, 20, 30].map(|bytes| flow(0, 1, bytes, 1.0));
        flows[2].fct_us = None;
        let all = Group { name: "all".to_owned(), values: vec![1e-6, 1e-6] };
        assert_eq!(fct_groups(&flows), [all]);
    }

    #[test]
    fn page__escapes_and_shows_every_figure() {
        let mut report = run_of(vec![]);
        report.report.scenario = "<b>".to_owned();
        report.report.violations = vec!["1 < 2".to_owned()];
        report.report.checkers_ok = false;
        let series = spanwire_sim::Series::default();
        let run = Run { report: &report, series: &series, rates: &[], thresholds: &[] };
        let page = run.page(&["rates.svg"]);
        for part in ["&lt;b&gt;", "1 &lt; 2", "<img src=\"rates.svg\"", "<td>FAILED</td>"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<b>"));
    }
}
