//! The `spanwire` command that benchmarks run.

use crate::sample::Error;
use serde::Serialize;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The options that all benchmarks have that run the command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, clap::Args)]
pub struct Common {
    /// Measure only rows whose name contains this
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Print JSON instead of tables
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
    /// The command [default: in the directory of this one; cargo run builds it]
    #[arg(long, value_name = "PATH")]
    spanwire: Option<PathBuf>,
}

impl Common {
    /// True of the rows that are measured.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }

    /// No row is left of `these`.
    pub(crate) fn no_row(&self, these: &str) -> Error {
        let only = self.only.as_deref().unwrap_or_default();
        format!("--only {only:?}: no row{these} has this in its name").into()
    }

    /// Without the option, takes the command in the directory of this one. `cargo run` builds only
    /// the benchmark, so cargo builds that one too, with the same profile: a stale one would be
    /// measured in place of the sources.
    ///
    /// # Errors
    /// It does not build.
    pub fn build(&mut self) -> Result<(), Error> {
        if self.spanwire.is_some() {
            return Ok(());
        }
        let path = env::current_exe()?.with_file_name("spanwire");
        if let Some(cargo) = env::var_os("CARGO") {
            let mut build = build(&cargo, &path);
            let status = build.status()?;
            if !status.success() {
                return Err(format!("{build:?}: {status}").into());
            }
        }
        self.spanwire = Some(path);
        Ok(())
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.spanwire.as_deref().unwrap_or(Path::new("spanwire"))
    }

    /// # Errors
    /// It does not exist.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let path = self.path();
        if path.exists() {
            return Ok(());
        }
        let remedy = "cargo build --release builds it, --spanwire sets its path";
        Err(format!("{} does not exist; {remedy}", path.display()).into())
    }
}

/// The call of cargo that builds `path`, which is `TARGET/PROFILE/spanwire`.
fn build(cargo: &OsStr, path: &Path) -> Command {
    let directory = path.parent();
    let profile = directory.and_then(Path::file_name).unwrap_or(OsStr::new("release"));
    let profile = if profile == "debug" { OsStr::new("dev") } else { profile };
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "spanwire-bins", "--bin", "spanwire"]);
    build.arg("--profile").arg(profile);
    if let Some(target) = directory.and_then(Path::parent) {
        build.arg("--target-dir").arg(target);
    }
    build.current_dir(env::var_os("CARGO_MANIFEST_DIR").unwrap_or(".".into()));
    build
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build__has_the_profile_and_the_directory_of_the_benchmark() {
        for (path, profile) in [("/t/release/spanwire", "release"), ("/t/debug/spanwire", "dev")] {
            let build = build(OsStr::new("cargo"), Path::new(path));
            let args: Vec<_> = build.get_args().collect();
            let tail = ["--profile", profile, "--target-dir", "/t"].map(OsStr::new);
            assert!(args.ends_with(&tail), "{args:?}");
        }
    }
}
