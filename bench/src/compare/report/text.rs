//! The report as text.

use super::super::lab::PING_BYTES;
use super::super::plan::Plan;
use super::{CpuRow, LatencyRow, RateRow, Report, Tally};
use crate::stats::{Ratio, Spread, cell};
use std::fmt;

impl Report {
    fn write_rates(&self, out: &mut fmt::Formatter<'_>, link_mtu: u32) -> fmt::Result {
        let rows = || self.rates.iter().filter(|row| row.link_mtu == link_mtu);
        if rows().next().is_none() {
            return Ok(());
        }
        writeln!(
            out,
            "\n{:<40} {:>7}  {:>20}  {:>18}  {:>17}  {:>16} {:>6} {:>6} {:>12}",
            format!("one way, link MTU {link_mtu}"),
            "payload",
            "goodput Gbit/s",
            "over TCP, by round",
            "CPU s/GB",
            "1000 packets/s",
            "a call",
            "lost",
            "kept/dropped"
        )?;
        rows().try_for_each(|row| row.write(out))?;
        for share in self.shares.iter().filter(|share| share.link_mtu == link_mtu) {
            let Ratio { of_medians, paired } = share.ratio;
            let mark = if share.headline { "  <- best raw" } else { "" };
            let by_round = paired.map_or("no round has both".to_owned(), |s| {
                format!("by round: {} %", cell(Some(s.over(0.01)), 0))
            });
            writeln!(
                out,
                "  WRITE 64 KiB is {:.0} % of {} ({by_round}){mark}",
                of_medians * 100.0,
                share.of
            )?;
        }
        Ok(())
    }

    fn write_cpu(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cpu.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\n{:<40} {:>20}  {:>21}  {:>17}  {:>22} {:>12}",
            "processor time of both ends",
            "cores",
            "over TCP, by round",
            "cores not idle",
            "goodput Mbit/s",
            "kept/dropped"
        )?;
        self.cpu.iter().try_for_each(|row| row.write(out))
    }

    fn write_latencies(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.latencies.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\n{:<40} {:>24} {:>26} {:>8} {:>12}",
            format!("{PING_BYTES} bytes, one at a time"),
            "RTT p50 us",
            "RTT p99 us",
            "RTT/2 us",
            "kept/dropped"
        )?;
        self.latencies.iter().try_for_each(|row| row.write(out))
    }

    fn write_failures(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = self.rates.iter().map(|row| (&row.name, row.link_mtu, &row.failures));
        let latencies = self.latencies.iter().map(|row| (&row.name, row.link_mtu, &row.failures));
        let cpu = self.cpu.iter().map(|row| (&row.name, row.link_mtu, &row.failures));
        for (name, link_mtu, failures) in rates.chain(latencies).chain(cpu) {
            for why in failures {
                writeln!(out, "failed: {name}, MTU {link_mtu}: {why}")?;
            }
        }
        Ok(())
    }
}

/// The report as text.
impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { rounds, ms, .. } = self.plan;
        if let Some(label) = &self.label {
            writeln!(out, "{label}")?;
        }
        writeln!(out, "{}", self.machine)?;
        let over = if self.interrupted { ", interrupted" } else { "" };
        writeln!(
            out,
            "{rounds} interleaved rounds of {ms} ms in {:.0} s{over}; median [min..max]",
            self.seconds
        )?;
        if let Some(d) = self.distance_ns {
            let Spread { median, min, max, .. } = d;
            writeln!(out, "core to core and back {median:.0} ns [{min:.0}..{max:.0}]")?;
        }
        for link_mtu in &self.plan.link_mtus {
            self.write_rates(out, *link_mtu)?;
        }
        self.write_cpu(out)?;
        self.write_latencies(out)?;
        self.write_failures(out)?;
        writeln!(out, "\ndropped: cores apart (a), stolen (s), failed (f), no time left (n)")
    }
}

impl RateRow {
    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, tally, .. } = self;
        if let Some(why) = &self.not_possible {
            return writeln!(out, "  {name:<38} not possible: {why}");
        }
        let ratio = self.ratio.and_then(|ratio| ratio.paired);
        writeln!(
            out,
            "  {name:<38} {:>7}  {:>20}  {:>18}  {:>17}  {:>16} {:>6} {:>6} {:>12}",
            self.payload.map_or("-".to_owned(), |bytes| bytes.to_string()),
            cell(self.goodput_gbps, 2),
            cell(ratio, 2),
            cell(self.cpu_s_per_gb, 2),
            cell(self.packets_per_s.map(|s| s.over(1e3)), 0),
            self.packets_per_call.map_or("-".to_owned(), |s| format!("{:.1}", s.median)),
            self.lost,
            tally.to_string(),
        )
    }
}

impl CpuRow {
    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = self.ratio.and_then(|ratio| ratio.paired);
        writeln!(
            out,
            "  {:<38} {:>20}  {:>21}  {:>17}  {:>22} {:>12}",
            self.name,
            cell(self.cores, 3),
            cell(ratio, 1),
            cell(self.busy_cores, 2),
            cell(self.goodput_mbps, 0),
            self.tally.to_string(),
        )
    }
}

impl LatencyRow {
    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "  {:<38} {:>24} {:>26} {:>8} {:>12}",
            self.name,
            cell(self.rtt_p50_us, 1),
            cell(self.rtt_p99_us, 1),
            self.one_way_us.map_or("-".to_owned(), |us| format!("{us:.2}")),
            self.tally.to_string(),
        )
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kept, dropped_cores_apart, dropped_stolen, failed, not_run } = *self;
        let apart = (dropped_cores_apart, "a");
        let parts = [apart, (dropped_stolen, "s"), (failed, "f"), (not_run, "n")];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, mark)| format!("{count}{mark}"))
            .collect();
        let dropped = if parts.is_empty() { "0".to_owned() } else { parts.join("+") };
        write!(f, "{kept}/{dropped}")
    }
}
