//! Settings of an unmodified verbs program: `spanwire run` writes them to the program's
//! environment, and the library (`libibverbs.so.1`) reads them there. [`executable`] tells into
//! which programs the dynamic loader loads it.

mod congestion;
pub mod executable;
mod local;

pub use congestion::CongestionText;
pub use local::Local;

use crate::fabric::{Error, FabricChoice};
use crate::quantity::{ppm, ppm_text};
use spanwire_io::fault::FaultConfig;
use spanwire_transport::WireMode;
use std::net::Ipv4Addr;

/// The settings. By default the library chooses interface, address and congestion control.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgramSettings {
    /// The interface (`SPANWIRE_DEV`).
    pub dev: Option<String>,
    /// The local address (`SPANWIRE_ADDR`), which also selects the interface.
    pub addr: Option<Ipv4Addr>,
    /// The fabric (`SPANWIRE_FABRIC`): by default UDP sockets, which need no privilege; never a
    /// pipe.
    pub fabric: FabricChoice,
    /// Congestion control of every queue pair (`SPANWIRE_CC`).
    pub congestion: Option<CongestionText>,
    /// The wire mode (`SPANWIRE_MODE`): by default RC, which any RoCE adapter speaks.
    pub mode: WireMode,
    /// Faults on the receive side: their rates (`SPANWIRE_LOSS`, `SPANWIRE_DUP`,
    /// `SPANWIRE_REORDER` and `SPANWIRE_CORRUPT`, in percent) and their seed (`SPANWIRE_SEED`, by
    /// default [`SEED_DEFAULT`]). Without a rate above zero it is the same as `None`;
    /// `reorder_depth` is the default.
    pub faults: Option<FaultConfig>,
    /// Workers of an interface (`SPANWIRE_WORKERS`), 1..=16, by default one: completion vector `i`
    /// is worker `i`.
    pub workers: u32,
    /// The library prints a line on stderr when it opens a port, and its counters when a context is
    /// closed (`SPANWIRE_VERBOSE`).
    pub verbose: bool,
}

/// The seed of emulated faults, if none is given.
pub const SEED_DEFAULT: u64 = 1;

/// The environment variables of [`ProgramSettings`].
pub const VARIABLES: [&str; 12] =
    [DEV, ADDR, FABRIC, CC, MODE, LOSS, DUP, REORDER, CORRUPT, SEED, WORKERS, VERBOSE];

const DEV: &str = "SPANWIRE_DEV";
const ADDR: &str = "SPANWIRE_ADDR";
const FABRIC: &str = "SPANWIRE_FABRIC";
const CC: &str = "SPANWIRE_CC";
const MODE: &str = "SPANWIRE_MODE";
const LOSS: &str = "SPANWIRE_LOSS";
const DUP: &str = "SPANWIRE_DUP";
const REORDER: &str = "SPANWIRE_REORDER";
const CORRUPT: &str = "SPANWIRE_CORRUPT";
const SEED: &str = "SPANWIRE_SEED";
const WORKERS: &str = "SPANWIRE_WORKERS";
const VERBOSE: &str = "SPANWIRE_VERBOSE";

impl Default for ProgramSettings {
    fn default() -> Self {
        Self {
            dev: None,
            addr: None,
            fabric: FabricChoice::Udp,
            congestion: None,
            mode: WireMode::Rc,
            faults: None,
            workers: 1,
            verbose: false,
        }
    }
}

impl ProgramSettings {
    /// The variables that differ from their defaults, for [`ProgramSettings::from_env`].
    #[must_use]
    pub fn to_env(&self) -> Vec<(&'static str, String)> {
        let default = Self::default();
        let faults = self.faults.filter(FaultConfig::has_faults);
        let rate = |of: fn(&FaultConfig) -> u32| {
            faults.as_ref().map(of).filter(|ppm| *ppm > 0).map(ppm_text)
        };
        let seed = faults.map(|faults| faults.seed).filter(|seed| *seed != SEED_DEFAULT);
        let fabric = Some(self.fabric).filter(|fabric| *fabric != default.fabric);
        let mode = Some(self.mode).filter(|mode| *mode != default.mode);
        let all = [
            (DEV, self.dev.clone()),
            (ADDR, self.addr.map(|addr| addr.to_string())),
            (FABRIC, fabric.map(|fabric| fabric.as_str().to_owned())),
            (CC, self.congestion.as_ref().map(ToString::to_string)),
            (MODE, mode.map(|mode| mode.name().to_owned())),
            (LOSS, rate(|faults| faults.loss_ppm)),
            (DUP, rate(|faults| faults.dup_ppm)),
            (REORDER, rate(|faults| faults.reorder_ppm)),
            (CORRUPT, rate(|faults| faults.corrupt_ppm)),
            (SEED, seed.map(|seed| seed.to_string())),
            (WORKERS, (self.workers > 1).then(|| self.workers.to_string())),
            (VERBOSE, self.verbose.then(|| "1".to_owned())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The settings in an environment. A variable that is absent or empty leaves the default.
    ///
    /// # Arguments
    /// - `get`: the value of a variable.
    ///
    /// # Errors
    /// A value is invalid. The message has the variable, its value and the values allowed. Whether
    /// interface and address exist is checked by [`ProgramSettings::local`].
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let default = Self::default();
        let faults = FaultConfig {
            loss_ppm: read(&get, LOSS, ppm)?.unwrap_or(0),
            dup_ppm: read(&get, DUP, ppm)?.unwrap_or(0),
            reorder_ppm: read(&get, REORDER, ppm)?.unwrap_or(0),
            corrupt_ppm: read(&get, CORRUPT, ppm)?.unwrap_or(0),
            seed: read(&get, SEED, seed)?.unwrap_or(SEED_DEFAULT),
            ..FaultConfig::default()
        };
        Ok(Self {
            dev: read(&get, DEV, |text| Ok(text.to_owned()))?,
            addr: read(&get, ADDR, addr)?,
            fabric: read(&get, FABRIC, fabric)?.unwrap_or(default.fabric),
            congestion: read(&get, CC, str::parse)?,
            mode: read(&get, MODE, mode)?.unwrap_or(default.mode),
            faults: faults.has_faults().then_some(faults),
            workers: read(&get, WORKERS, workers)?.unwrap_or(default.workers),
            verbose: read(&get, VERBOSE, flag)?.unwrap_or(default.verbose),
        })
    }
}

/// Parses a fabric between processes.
///
/// # Errors
/// It is none; the message lists them.
pub fn fabric(text: &str) -> Result<FabricChoice, String> {
    FabricChoice::from_name(text)
        .filter(|fabric| *fabric != FabricChoice::Pipe)
        .ok_or_else(|| format!("{text} is no fabric of a program (udp, xdp, auto)"))
}

/// Parses a wire mode.
///
/// # Errors
/// It is none; the message lists them.
pub fn mode(text: &str) -> Result<WireMode, String> {
    let mut modes = [WireMode::Rc, WireMode::Sr].into_iter();
    let found = modes.find(|mode| mode.name() == text);
    found.ok_or_else(|| format!("{text} is no wire mode of a program (rc, sr)"))
}

/// Parses a number of workers.
///
/// # Errors
/// It is not within 1 and 16.
pub fn workers(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| (1..=16).contains(n));
    number.ok_or_else(|| format!("{text} is no number of workers (1 to 16)"))
}

/// Reads variable `name`, unless it is absent or empty.
fn read<T>(
    get: &impl Fn(&str) -> Option<String>,
    name: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Error> {
    let Some(text) = get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    parse(&text).map(Some).map_err(|why| format!("{name}={text}: {why}").into())
}

fn addr(text: &str) -> Result<Ipv4Addr, String> {
    text.parse().map_err(|_| format!("{text} is no IPv4 address, such as 127.0.0.1"))
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number from 0 to {}", u64::MAX))
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("{text} is neither 0 nor 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(env: &[(&'static str, String)]) -> Result<ProgramSettings, Error> {
        let value = |name: &str| env.iter().find(|(known, _)| *known == name);
        ProgramSettings::from_env(|name| value(name).map(|(_, text)| text.clone()))
    }

    fn full() -> ProgramSettings {
        ProgramSettings {
            dev: Some("lo".to_owned()),
            addr: Some(Ipv4Addr::new(127, 0, 0, 2)),
            fabric: FabricChoice::Auto,
            congestion: Some("swift, beta=0.5".parse().expect("valid")),
            mode: WireMode::Sr,
            faults: Some(FaultConfig {
                seed: u64::MAX,
                loss_ppm: 1,
                dup_ppm: 15_000,
                reorder_ppm: 333_333,
                corrupt_ppm: 1_000_000,
                ..FaultConfig::default()
            }),
            workers: 16,
            verbose: true,
        }
    }

    #[test]
    fn to_env__has_what_differs_from_the_default() {
        assert_eq!(ProgramSettings::default().to_env(), []);
        let none = FaultConfig { seed: 7, ..FaultConfig::default() };
        let seed_only = ProgramSettings { faults: Some(none), ..ProgramSettings::default() };
        assert_eq!(seed_only.to_env(), [], "no faults, no seed");
        let loss = FaultConfig { seed: SEED_DEFAULT, loss_ppm: 5_000, ..none };
        let lossy = ProgramSettings { faults: Some(loss), ..ProgramSettings::default() };
        assert_eq!(lossy.to_env(), [("SPANWIRE_LOSS", "0.5".to_owned())]);
        assert_eq!(full().to_env().iter().map(|(name, _)| *name).collect::<Vec<_>>(), VARIABLES);
    }

    #[test]
    fn from_env__inverts_to_env() {
        for settings in [ProgramSettings::default(), full()] {
            assert_eq!(read_back(&settings.to_env()).unwrap(), settings);
        }
        // Each setting alone.
        let env = full().to_env();
        for variable in env.iter().filter(|(name, _)| *name != SEED) {
            let alone = read_back(std::slice::from_ref(variable)).unwrap();
            assert_eq!(alone.to_env(), std::slice::from_ref(variable));
        }
    }

    #[test]
    fn from_env__an_empty_variable_is_absent() {
        let empty = ProgramSettings::from_env(|_| Some(String::new())).unwrap();
        assert_eq!(empty, ProgramSettings::default());
    }

    #[test]
    fn from_env__errors_have_variable_value_and_what_is_allowed() {
        for (name, value, allowed) in [
            (ADDR, "::1", "127.0.0.1"),
            (FABRIC, "pipe", "udp, xdp, auto"),
            (FABRIC, "UDP", "udp, xdp, auto"),
            (CC, "cubic", "swift"),
            (CC, "swift,beta=7", "beta"),
            (MODE, "auto", "rc, sr"),
            (LOSS, "101", "0 to 100"),
            (DUP, "nan", "0 to 100"),
            (REORDER, "-1", "0 to 100"),
            (CORRUPT, "x", "0 to 100"),
            (SEED, "-1", "18446744073709551615"),
            (WORKERS, "0", "1 to 16"),
            (WORKERS, "17", "1 to 16"),
            (VERBOSE, "yes", "0 nor 1"),
        ] {
            let error = read_back(&[(name, value.to_owned())]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
            assert!(error.contains(allowed), "{error}");
        }
    }
}
