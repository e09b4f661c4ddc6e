//! `spanwire plot`: figures of several runs.
//!
//! One kind shows the rates of `spanwire perf` processes over time, with queue and marks of a
//! `spanwire switch` between them. The other compares completion times of `spanwire sim run`.

mod picture;
mod read;
mod violins;

pub(crate) use picture::picture;
pub(crate) use read::{Run, Sample};

use crate::exit::Exit;
use crate::report::print_text;
use spanwire_host::fabric::Error;
use spanwire_host::file::read_text;
use spanwire_host::text::printable_within;
use spanwire_plot::Level;
use spanwire_switch::Human;
use std::fs;
use std::path::{Path, PathBuf};
use violins::{Of, SeedsRun, violins};

/// Arguments of `spanwire plot`.
#[derive(clap::Args, Clone, Debug)]
pub struct PlotArgs {
    /// Output of `spanwire perf client --json`; repeatable, a line for each
    #[arg(long, required_unless_present = "violin", value_name = "[NAME=]FILE")]
    perf: Vec<String>,
    /// Output of `spanwire sim run NAME --seeds N --json`; repeatable, a violin for each
    #[arg(long, conflicts_with = "perf", value_name = "[NAME=]FILE")]
    violin: Vec<String>,
    /// Values of which a violin shows the distribution
    #[arg(long, value_enum, default_value = "fct", requires = "violin")]
    of: Of,
    /// Use a logarithmic axis for these values
    #[arg(long, requires = "violin")]
    log: bool,
    /// Output of `spanwire switch ctl show --interval 0.05 --json`
    #[arg(long, value_name = "FILE", requires_all = ["port", "perf"])]
    switch: Option<PathBuf>,
    /// The switch's port whose queue and marks are drawn
    #[arg(long, value_name = "NAME", requires = "switch")]
    port: Option<String>,
    /// Draw a threshold of the queue, such as Kmin=25kB; repeatable
    #[arg(long, value_name = "NAME=BYTES", value_parser = level)]
    level: Vec<Level>,
    /// Title of the figure
    #[arg(long)]
    title: Option<String>,
    /// SVG file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// An input file has the wrong format, or the output cannot be written.
pub fn run(args: &PlotArgs) -> Result<Exit, Error> {
    let svg = if args.violin.is_empty() { over_time(args)? } else { side_by_side(args)? };
    fs::write(&args.out, svg).map_err(|e| at(&args.out, &e.into()))?;
    print_text(&format!("{}\n", args.out.display()));
    Ok(Exit::Success)
}

fn side_by_side(args: &PlotArgs) -> Result<String, Error> {
    let mut runs = Vec::new();
    for given in &args.violin {
        let (name, path) = named(given);
        runs.push((name, SeedsRun::parse(&text(path, RUN_BYTES_MAX)?).map_err(|e| at(path, &e))?));
    }
    let title = args.title.as_deref().unwrap_or("Completion times");
    violins(title, args.of, args.log, &runs)
}

fn over_time(args: &PlotArgs) -> Result<String, Error> {
    let mut runs = Vec::new();
    for given in &args.perf {
        let (name, path) = named(given);
        runs.push(Run::parse(&name, &text(path, RUN_BYTES_MAX)?).map_err(|e| at(path, &e))?);
    }
    let samples = match (&args.switch, &args.port) {
        (Some(path), Some(port)) => {
            Sample::parse_all(port, &text(path, SWITCH_BYTES_MAX)?).map_err(|e| at(path, &e))?
        }
        _ => Vec::new(),
    };
    let title = args.title.as_deref().unwrap_or("Goodput");
    Ok(picture(title, &runs, &samples, &args.level))
}

/// Splits `[NAME=]FILE`; the default name is the file's stem.
fn named(given: &str) -> (String, &Path) {
    if let Some((name, path)) = given.split_once('=') {
        return (name.to_owned(), Path::new(path));
    }
    let path = Path::new(given);
    let own = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    (own.unwrap_or_default(), path)
}

fn text(path: &Path, max: u64) -> Result<String, Error> {
    read_text(path, "reports", max).map_err(|e| at(path, &e.into()))
}

fn at(path: &Path, e: &Error) -> Error {
    // The error may quote the file.
    format!("{}: {}", path.display(), printable_within(e.to_string(), ERROR_CHARS_MAX)).into()
}

fn level(text: &str) -> Result<Level, String> {
    let (name, bytes) = text.split_once('=').ok_or("write NAME=BYTES")?;
    let bytes = u64::parse(bytes).ok_or_else(|| format!("expected {}", u64::EXPECTED))?;
    #[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
    let at = bytes as f64;
    Ok(Level { name: name.to_owned(), at })
}

/// The longest text of an error: the names of all ports of a switch, and more.
const ERROR_CHARS_MAX: usize = 8000;
/// The most of a run's report: six hours in intervals of 0.1 s.
const RUN_BYTES_MAX: u64 = 64 << 20;
/// The most of a switch's reports, a line of some kilobytes for each.
const SWITCH_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text__a_device_without_an_end_is_an_error() {
        let error = text(Path::new("/dev/zero"), 1 << 20).unwrap_err().to_string();
        assert!(error.starts_with("/dev/zero: "), "{error}");
        assert!(error.ends_with("reports have at most 1 MiB"), "{error}");
    }

    #[test]
    fn at__quotes_a_file_without_its_control_characters() {
        let evil = r"x\u001b[2J\r\nerror: forged";
        let shown = |result: Result<(), Error>| {
            let text = at(Path::new("f"), &result.unwrap_err()).to_string();
            assert!(!text.chars().any(char::is_control), "{text:?}");
        };
        let ports = format!("{{\"at_unix_s\":1,\"ports\":[{{\"name\":\"{evil}\"}}]}}");
        shown(Sample::parse_all("a", &ports).map(drop));
        shown(Run::parse("a", &format!("{{\"start_unix_s\":\"{evil}\"}}")).map(drop));
        shown(SeedsRun::parse(&format!("{{\"scenario\":1,\"{evil}\":1}}")).map(drop));
        let run = SeedsRun::parse(&format!("{{\"scenario\":\"{evil}\",\"seeds\":[]}}")).unwrap();
        let svg = violins("t", Of::Mean, false, &[("a".to_owned(), run)]).unwrap();
        assert!(!svg.contains('\x1b') && !svg.contains('\r'), "{svg}");
    }

    #[test]
    fn level__is_a_name_and_bytes() {
        assert_eq!(level("Kmin=25kB"), Ok(Level { name: "Kmin".to_owned(), at: 25_000.0 }));
        assert!(level("25kB").is_err());
        assert!(level("a=b").unwrap_err().contains("22MB"));
    }
}
