//! The report of a running switch: counters and configuration of every port.

use super::agents::AgentReport;
use serde::Serialize;
use spanwire_base::{Dur, PortId, Time};
use spanwire_host::text::bytes;
use spanwire_io::clock::Clock;
use spanwire_io::driver::DriverCounters;
use spanwire_io::hotplug::HotplugPort;
use spanwire_io::thread_time;
use spanwire_io::xdp::XdpPort;
use spanwire_switch::{
    ForwardingCounters, Human, LineConfig, LineCounters, PortCounters, PortSnapshot, Shaped,
    ShapedCounters,
};
use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

/// The state of a switch at one time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct SwitchReport {
    /// Time of the report in seconds since 1970.
    pub(super) at_unix_s: f64,
    /// Seconds since the switch started forwarding.
    pub(super) up_s: f64,
    /// CPU time of the switch's thread in seconds.
    pub(super) cpu_s: f64,
    /// Its ports, in the order of the file.
    pub(super) ports: Vec<PortReport>,
    /// Counters of forwarding.
    pub(super) forwarding: ForwardingCounters,
    /// Frames in flight on the lines.
    pub(super) in_flight: ShapedCounters,
    /// Bytes of the shared buffer in use.
    pub(super) buffer_used_bytes: u64,
    /// Bytes of its shared part that are free.
    pub(super) buffer_free_bytes: u64,
    /// Agents, by port; absent if the switch has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) agents: Vec<AgentReport>,
    /// Counters of the loop.
    pub(super) driver: DriverReport,
}

/// One port.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct PortReport {
    pub(super) name: String,
    pub(super) device: String,
    /// Attach mode of the AF_XDP socket; `None` while the interface is gone.
    pub(super) mode: Option<&'static str>,
    /// Current configuration of the port's line.
    pub(super) line: LineConfig,
    /// Bytes queued for the line.
    pub(super) queue_bytes: u64,
    /// Priorities that are paused, and the length of each queue.
    #[serde(flatten)]
    pub(super) state: PortSnapshot,
    /// Counters of the switch.
    pub(super) counters: PortCounters,
    /// Counters of the line.
    pub(super) line_counters: LineCounters,
    /// Nonzero counters of the socket and the kernel, and of frames dropped while the interface was
    /// gone.
    pub(super) xdp: serde_json::Map<String, serde_json::Value>,
}

/// Counters of the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct DriverReport {
    steps: u64,
    idle_steps: u64,
    timeouts: u64,
    waits: u64,
}

impl SwitchReport {
    /// The report of a switch whose port n has the name `names[n]`.
    pub(super) fn of(
        (now, clock): (Time, Clock),
        names: &[String],
        shaped: &Shaped,
        ports: &[HotplugPort<XdpPort>],
        driver: DriverCounters,
    ) -> Self {
        let (switch, snapshot) = (shaped.switch().counters(), shaped.switch().snapshot(now));
        let counted = switch.ports.into_iter().zip(snapshot.ports).zip(shaped.line_counters());
        let named = names.iter().zip(ports).zip(counted);
        let ports = named.enumerate().filter_map(
            |(n, ((name, port), ((counters, state), line_counters)))| {
                let id = PortId::new(u8::try_from(n).ok()?)?;
                let counted = port.counters().into_iter().filter(|(_, count)| *count > 0);
                Some(PortReport {
                    name: name.clone(),
                    device: port.device().to_owned(),
                    mode: port.mode(),
                    line: shaped.line(id)?.config().clone(),
                    queue_bytes: shaped.switch().port_bytes(id),
                    state,
                    counters,
                    line_counters: *line_counters,
                    xdp: counted.map(|(name, count)| (name.to_owned(), count.into())).collect(),
                })
            },
        );
        let up_s = crate::report::seconds(now.since(Time::ZERO));
        let began = clock.wall_start().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            at_unix_s: began.as_secs_f64() + up_s,
            up_s,
            cpu_s: crate::report::seconds(cpu_time()),
            ports: ports.collect(),
            forwarding: switch.forwarding,
            in_flight: shaped.counters(),
            buffer_used_bytes: snapshot.used_bytes,
            buffer_free_bytes: snapshot.shared_free_bytes,
            agents: AgentReport::all(shaped.switch().agents(now), names),
            driver: DriverReport {
                steps: driver.steps,
                idle_steps: driver.idle_steps,
                timeouts: driver.timeouts,
                waits: driver.waits,
            },
        }
    }

    /// Rates since `before`, one line for each port.
    pub(super) fn interval(&self, before: &Self) -> String {
        let mut text = String::new();
        let seconds = self.up_s - before.up_s;
        let width = self.name_width();
        for (port, was) in self.ports.iter().zip(&before.ports) {
            let (now, was_line) = (&port.counters, &was.line_counters);
            let line = &port.line_counters;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:8.1} s  {:<width$}  in {:>8.1} Mbit/s  out {:>8.1} Mbit/s  waiting {:>9}  \
                 dropped {:>6}  lost {:>6}{}",
                self.up_s,
                port.name,
                mbps(now.rx_bytes - was.counters.rx_bytes, seconds),
                mbps(line.bytes - was_line.bytes, seconds),
                bytes(port.queue_bytes),
                now.dropped() - was.counters.dropped(),
                line.dropped() - was_line.dropped(),
                if port.mode.is_some() { "" } else { "  gone" },
            );
        }
        text
    }

    /// The report as text.
    pub(super) fn to_text(&self) -> String {
        let width = self.name_width();
        let cpu = if self.up_s > 0.0 { 100.0 * self.cpu_s / self.up_s } else { 0.0 };
        let mut text = format!("up {:.1} s, {cpu:.0} % of a core\n", self.up_s);
        for port in &self.ports {
            let (c, l) = (&port.counters, &port.line_counters);
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "  {:<width$}  {} ({}): {}\n\
                 \x20   in  {} frames {}, out {} frames {}\n\
                 \x20   waiting {}, at most {} in a queue",
                port.name,
                port.device,
                port.mode.unwrap_or("gone"),
                line_text(&port.line),
                c.rx_pkts,
                bytes(c.rx_bytes),
                l.delivered,
                bytes(l.bytes),
                bytes(port.queue_bytes),
                bytes(c.queues.iter().map(|queue| queue.max_bytes).max().unwrap_or(0)),
            );
            for (name, counted) in [
                ("dropped", nonzero(c, "drop_")),
                ("lost on the line", nonzero(l, "drop_")),
                ("marked", nonzero(c, "mark_")),
                ("pause frames", nonzero(c, "pfc_")),
                ("other faults", nonzero(l, "reordered duplicated corrupted jittered")),
            ] {
                if !counted.is_empty() {
                    let _ = writeln!(text, "    {name}: {}", counted.join(", "));
                }
            }
            let missed = nonzero(&port.xdp, "kernel_rx kernel_fill tx_busy tx_nobufs drop_gone");
            if !missed.is_empty() {
                let _ = writeln!(text, "    lost around the switch: {}", missed.join(", "));
            }
        }
        let under_way = &self.in_flight;
        let _ = writeln!(
            text,
            "  under way {} frames {}, at most {}; {} dropped by the limit budget_bytes",
            under_way.in_flight_pkts,
            bytes(under_way.in_flight_bytes),
            bytes(under_way.max_in_flight_bytes),
            under_way.drop_budget_full
        );
        text
    }

    fn name_width(&self) -> usize {
        self.ports.iter().map(|port| port.name.len()).max().unwrap_or(0)
    }
}

/// A line's configuration as text: `1Gbit, delay 2ms, loss 1%`.
pub(super) fn line_text(line: &LineConfig) -> String {
    let mut words = vec![
        line.rate.map_or_else(|| "no rate".to_owned(), |rate| rate.show()),
        format!("delay {}", line.delay.show()),
    ];
    // Impairments with default values are left out.
    let defaults = serde_json::to_value(LineConfig::default().impairments);
    let now = serde_json::to_value(&line.impairments);
    if let (Ok(serde_json::Value::Object(now)), Ok(defaults)) = (now, defaults) {
        let changed = now.into_iter().filter(|(key, value)| defaults.get(key) != Some(value));
        words.extend(changed.map(|(key, value)| match value {
            serde_json::Value::String(text) => format!("{key} {text}"),
            other => format!("{key} {other}"),
        }));
    }
    words.join(", ")
}

/// The nonzero counters whose names begin with a word of `prefixes`; counters of queues are summed.
fn nonzero<T: Serialize>(counters: &T, prefixes: &str) -> Vec<String> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    if let Ok(value) = serde_json::to_value(counters) {
        add_up(&value, &mut sums);
    }
    let wanted = |name: &str| prefixes.split(' ').any(|prefix| name.starts_with(prefix));
    let counted = sums.into_iter().filter(|(name, count)| *count > 0 && wanted(name));
    counted.map(|(name, count)| format!("{name} {count}")).collect()
}

fn add_up(value: &serde_json::Value, sums: &mut Vec<(String, u64)>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let Some(count) = value.as_u64() else {
                    add_up(value, sums);
                    continue;
                };
                match sums.iter_mut().find(|(known, _)| known == name) {
                    Some((_, sum)) => *sum += count,
                    None => sums.push((name.clone(), count)),
                }
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| add_up(value, sums)),
        _ => {}
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure of a report")]
fn mbps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / 1e6 / seconds } else { 0.0 }
}

/// CPU time of this thread.
fn cpu_time() -> Dur {
    Dur::from_ns(thread_time::work_ns())
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Rate;
    use spanwire_switch::Prob;

    fn report(up_s: f64, rx_bytes: u64, lost: u64) -> SwitchReport {
        let counters = PortCounters { rx_bytes, drop_no_route: 2, ..PortCounters::default() };
        let line_counters =
            LineCounters { bytes: rx_bytes / 2, drop_loss: lost, ..LineCounters::default() };
        let port = PortReport {
            name: "a".to_owned(),
            device: "eth0".to_owned(),
            mode: Some("native-copy"),
            line: LineConfig::default(),
            queue_bytes: 2048,
            state: PortSnapshot::default(),
            counters,
            line_counters,
            xdp: serde_json::Map::new(),
        };
        SwitchReport {
            at_unix_s: 0.0,
            up_s,
            cpu_s: up_s / 4.0,
            ports: vec![port],
            forwarding: ForwardingCounters::default(),
            in_flight: ShapedCounters::default(),
            buffer_used_bytes: 0,
            buffer_free_bytes: 0,
            agents: Vec::new(),
            driver: DriverReport { steps: 0, idle_steps: 0, timeouts: 0, waits: 0 },
        }
    }

    #[test]
    fn interval__has_differences() {
        let text = report(4.0, 3_000_000, 9).interval(&report(2.0, 1_000_000, 2));
        assert!(text.contains("in      8.0 Mbit/s"), "{text}");
        assert!(text.contains("out      4.0 Mbit/s"), "{text}");
        assert!(text.contains("dropped      0") && text.contains("lost      7"), "{text}");
        assert!(text.contains("2 KiB"), "{text}");
    }

    #[test]
    fn to_text__lists_drops_by_reason() {
        let text = report(4.0, 3_000_000, 9).to_text();
        assert!(text.contains("25 % of a core"), "{text}");
        assert!(text.contains("dropped: drop_no_route 2"), "{text}");
        assert!(text.contains("lost on the line: drop_loss 9"), "{text}");
        assert!(!text.contains("marked") && !text.contains("around"), "{text}");
        let mut missing = report(4.0, 3_000_000, 9);
        missing.ports[0].xdp.insert("kernel_fill_empty".to_owned(), 5.into());
        missing.ports[0].xdp.insert("kernel_tx_ring_empty".to_owned(), 7.into());
        let text = missing.to_text();
        assert!(text.contains("lost around the switch: kernel_fill_empty 5\n"), "{text}");
    }

    #[test]
    fn to_text__shows_a_missing_interface_and_its_drops() {
        let before = report(2.0, 3_000_000, 9);
        let mut gone = report(4.0, 3_000_000, 9);
        gone.ports[0].mode = None;
        gone.ports[0].xdp.insert("drop_gone".to_owned(), 11.into());
        let text = gone.to_text();
        assert!(text.contains("eth0 (gone): "), "{text}");
        assert!(text.contains("lost around the switch: drop_gone 11\n"), "{text}");
        assert!(
            gone.interval(&before).contains("gone") && !before.interval(&before).contains("gone")
        );
    }

    #[test]
    fn line_text__lists_non_default_impairments() {
        let mut line = LineConfig::new(Rate::from_gbps(1), Dur::from_ms(2));
        assert_eq!(line_text(&line), "1Gbit, delay 2ms");
        line.rate = None;
        line.impairments.loss = Prob::from_ppm(10_000);
        assert_eq!(line_text(&line), "no rate, delay 2ms, loss 1%");
    }

    #[test]
    fn cpu_time__grows_with_work() {
        let before = cpu_time();
        let mut sum = 0u64;
        for n in 0..50_000_000u64 {
            sum = std::hint::black_box(sum ^ n);
        }
        assert!(cpu_time() > before, "{sum}");
    }
}
