//! `spanwire plot`: the rates of several `spanwire perf` over time, with what a `spanwire switch`
//! between them saw, in one picture.

mod picture;
mod read;

pub(crate) use picture::picture;
pub(crate) use read::{Run, Sample};

use crate::fabric::Error;
use crate::plot::Level;
use crate::report::say;
use spanwire_switch::Human;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `spanwire plot`.
#[derive(clap::Args, Clone, Debug)]
pub struct PlotArgs {
    /// What `spanwire perf client --json` printed; repeatable, a line for each
    #[arg(long, required = true, value_name = "[NAME=]FILE")]
    perf: Vec<String>,
    /// What `spanwire switch ctl show --interval 0.05 --json` printed
    #[arg(long, value_name = "FILE", requires = "port")]
    switch: Option<PathBuf>,
    /// The switch's port whose queue and marks are shown
    #[arg(long, value_name = "NAME", requires = "switch")]
    port: Option<String>,
    /// A level to hold the queue against, such as Kmin=25kB; repeatable
    #[arg(long, value_name = "NAME=BYTES", value_parser = level)]
    level: Vec<Level>,
    /// What stands above it
    #[arg(long, default_value = "Goodput")]
    title: String,
    /// Where to write the SVG
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// A file is not what it should be, or cannot be written.
pub fn run(args: &PlotArgs) -> Result<ExitCode, Error> {
    let mut runs = Vec::new();
    for given in &args.perf {
        let (name, path) = match given.split_once('=') {
            Some((name, path)) => (Some(name), Path::new(path)),
            None => (None, Path::new(given)),
        };
        let own = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = name.map_or_else(|| own.unwrap_or_default(), str::to_owned);
        runs.push(Run::parse(&name, &text(path)?).map_err(|e| at(path, &e))?);
    }
    let samples = match (&args.switch, &args.port) {
        (Some(path), Some(port)) => {
            Sample::parse_all(port, &text(path)?).map_err(|e| at(path, &e))?
        }
        _ => Vec::new(),
    };
    let svg = picture(&args.title, &runs, &samples, &args.level);
    fs::write(&args.out, svg).map_err(|e| at(&args.out, &e.into()))?;
    say(&format!("{}\n", args.out.display()));
    Ok(ExitCode::SUCCESS)
}

fn text(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|e| at(path, &e.into()))
}

fn at(path: &Path, e: &Error) -> Error {
    format!("{}: {e}", path.display()).into()
}

fn level(text: &str) -> Result<Level, String> {
    let (name, bytes) = text.split_once('=').ok_or("write NAME=BYTES")?;
    let bytes = u64::parse(bytes).ok_or_else(|| format!("expected {}", u64::EXPECTED))?;
    #[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
    let at = bytes as f64;
    Ok(Level { name: name.to_owned(), at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level__is_a_name_and_bytes() {
        assert_eq!(level("Kmin=25kB"), Ok(Level { name: "Kmin".to_owned(), at: 25_000.0 }));
        assert!(level("25kB").is_err());
        assert!(level("a=b").unwrap_err().contains("22MB"));
    }
}
