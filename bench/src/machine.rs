//! The machine, for the report.

use serde::{Deserialize, Serialize};
use spanwire_io::affinity;
use std::fmt;

/// The machine of a measurement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name in `/proc/cpuinfo`.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
    /// Cores this process may use.
    pub cores: usize,
    /// The processor reports a hypervisor.
    pub virtual_machine: bool,
}

impl Machine {
    /// This machine; fields that the system does not report are `unknown`.
    #[must_use]
    pub fn this() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or(UNKNOWN).to_owned(),
            kernel: match release.trim() {
                "" => UNKNOWN.to_owned(),
                release => release.to_owned(),
            },
            cores: affinity::usable_cores().len(),
            virtual_machine: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        }
    }

    /// Ticks in a nanosecond of an x86 processor's counter (TSC), if it is constant. It may differ
    /// from the processor's frequency.
    #[must_use]
    pub fn ticks_per_ns() -> Option<f64> {
        ticks_per_ns(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, kernel, cores, virtual_machine } = self;
        let guest = if *virtual_machine { " (virtual machine)" } else { "" };
        write!(f, "{cpu}, {cores} cores{guest}, Linux {kernel}")
    }
}

/// The value of the first `name : value` line.
fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = pairs.find(|(key, _)| key.trim_end() == name)?;
    Some(value.trim())
}

/// On x86, Linux derives BogoMIPS from the counter's rate: two for each million ticks a second.
fn ticks_per_ns(cpuinfo: &str) -> Option<f64> {
    field(cpuinfo, "flags")?.split(' ').find(|flag| *flag == "constant_tsc")?;
    let bogomips: f64 = field(cpuinfo, "bogomips")?.parse().ok()?;
    Some(bogomips / 2.0 / 1e3)
}

const UNKNOWN: &str = "unknown";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this__knows_its_cores_and_kernel() {
        let machine = Machine::this();
        assert!(machine.cores > 0);
        assert_ne!(machine.kernel, UNKNOWN);
    }

    #[test]
    fn ticks_per_ns__of_a_counter_that_is_even() {
        let text = "flags\t\t: fpu constant_tsc\nbogomips\t: 5192.30\n";
        assert!((ticks_per_ns(text).unwrap() - 2.59615).abs() < 1e-9);
        assert_eq!(ticks_per_ns(&text.replace("constant_tsc", "tsc")), None);
        assert_eq!(ticks_per_ns("BogoMIPS\t: 100.00\n"), None);
    }

    #[test]
    fn field__is_the_first_of_that_name() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC: 7\nmodel name\t: other\nflags\t\t:\n";
        assert_eq!(field(text, "model name"), Some("AMD EPYC: 7"));
        assert_eq!(field(text, "model"), None);
        assert_eq!(field(text, "flags"), Some(""));
    }
}
