//! Checks and constants of the parameters of every agent.

use crate::config::PortConfig;
use crate::error::ConfigError;
use crate::units::{Human, Ratio};
use spanwire_base::Dur;

/// Checks that ports exist and are named once.
pub(super) fn check_ports(at: &str, ports: &[u8], all: &[PortConfig]) -> Result<(), ConfigError> {
    for (n, port) in ports.iter().enumerate() {
        let at = format!("{at}[{n}]");
        if usize::from(*port) >= all.len() {
            let what = format!("is {port}, but the switch has {} ports", all.len());
            return Err(ConfigError::new(at, what));
        }
        if ports[..n].contains(port) {
            return Err(ConfigError::new(at, format!("is {port} again")));
        }
    }
    Ok(())
}

pub(super) fn check_time(
    at: &str,
    time: Dur,
    (least, most): (Dur, Dur),
) -> Result<(), ConfigError> {
    if (least..=most).contains(&time) {
        return Ok(());
    }
    let what = format!("is {}; choose {} to {}", time.show(), least.show(), most.show());
    Err(ConfigError::new(at, what))
}

pub(super) fn ratio(num: u32, den: u32) -> Ratio {
    Ratio::new(num, den).expect("a constant in range")
}
