//! The processor's time-stamp counter (TSC), and whether it is trustworthy.

use super::Counter;
use rustix::time::{ClockId, clock_gettime};

/// This machine's TSC and monotonic clock.
#[derive(Debug)]
pub(crate) struct Machine {
    /// `CLOCK_MONOTONIC` at the start, ns.
    start_ns: u64,
}

impl Machine {
    pub(crate) fn start() -> Self {
        Self { start_ns: monotonic_ns() }
    }

    /// The start as a time of `CLOCK_MONOTONIC`, ns.
    pub(crate) fn start_ns(&self) -> u64 {
        self.start_ns
    }
}

/// `CLOCK_MONOTONIC`, ns.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let [s, ns] = [now.tv_sec, now.tv_nsec].map(|n| u64::try_from(n).unwrap_or(0));
    s.saturating_mul(1_000_000_000).saturating_add(ns)
}

impl Counter for Machine {
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn ticks(&self) -> u64 {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: both instructions are part of every x86-64; they read and write no memory. The
        // kernel could forbid RDTSC (prctl(PR_SET_TSC)), with SIGSEGV, but only for a process that
        // requests it.
        unsafe {
            _mm_lfence();
            _rdtsc()
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn ticks(&self) -> u64 {
        // Unused, because it is not trustworthy.
        self.monotonic_ps()
    }

    fn monotonic_ps(&self) -> u64 {
        monotonic_ns().saturating_sub(self.start_ns).saturating_mul(1000)
    }
}

/// True if the counter has a constant rate on all cores. The processor must report it as invariant.
/// The kernel, which compares the cores and checks it against other timers, must use it as its
/// clock source. False if this cannot be determined.
pub(crate) fn is_trustworthy() -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    cfg!(target_arch = "x86_64") && judge(&read(CPUINFO), &read(CLOCKSOURCE))
}

fn judge(cpuinfo: &str, clocksource: &str) -> bool {
    let mut flags = cpuinfo.lines().filter_map(|line| {
        let (key, flags) = line.split_once(':')?;
        (key.trim_end() == "flags").then_some(flags)
    });
    // Both names stand for the invariant TSC bit (CPUID 0x8000_0007, EDX bit 8).
    let invariant = |flags: &str| {
        ["constant_tsc", "nonstop_tsc"].iter().all(|want| flags.split(' ').any(|f| f == *want))
    };
    flags.next().is_some_and(invariant) && TSC_SOURCES.contains(&clocksource.trim())
}

const CPUINFO: &str = "/proc/cpuinfo";
const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// The kernel's clock sources based on the TSC: on bare metal, under KVM, under Hyper-V.
const TSC_SOURCES: [&str; 3] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks__advance_with_the_clock() {
        let machine = Machine::start();
        let before = (machine.ticks(), machine.monotonic_ps());
        std::thread::sleep(std::time::Duration::from_millis(2));
        let after = (machine.ticks(), machine.monotonic_ps());
        assert!(after.0 > before.0, "{before:?} {after:?}");
        assert!(after.1 - before.1 >= 2_000_000_000);
    }

    #[test]
    fn judge__requires_both_the_processor_and_the_kernel() {
        let good = "processor\t: 0\nflags\t\t: fpu constant_tsc rdtscp nonstop_tsc\n";
        for kernel in ["tsc\n", "kvm-clock\n", "hyperv_clocksource_tsc_page\n"] {
            assert!(judge(good, kernel));
        }
        for kernel in ["hpet\n", "acpi_pm\n", "jiffies\n", ""] {
            assert!(!judge(good, kernel));
        }
        for flags in ["constant_tsc", "nonstop_tsc", "constant_tsc_ nonstop_tsc", ""] {
            assert!(!judge(&format!("flags : {flags}\n"), "tsc\n"), "{flags}");
        }
        assert!(!judge("", "tsc"));
    }
}
