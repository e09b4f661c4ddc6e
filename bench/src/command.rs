//! The `spanwire` command that benchmarks run.

use crate::sample::Error;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command in the directory of this one. `cargo run` builds only the benchmark, so cargo builds
/// this one too, with the same profile: a stale one would be measured in place of the sources.
///
/// # Errors
/// It does not build.
pub fn spanwire() -> Result<PathBuf, Error> {
    let path = beside()?;
    if let Some(cargo) = env::var_os("CARGO") {
        let mut build = build(&cargo, &path);
        let status = build.status()?;
        if !status.success() {
            return Err(format!("{build:?}: {status}").into());
        }
    }
    Ok(path)
}

/// The path of the command in the directory of this one.
pub(crate) fn beside() -> Result<PathBuf, Error> {
    Ok(env::current_exe()?.with_file_name("spanwire"))
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
