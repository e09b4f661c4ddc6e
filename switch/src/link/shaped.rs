//! A switch with a line at each port, for real interfaces.
//!
//! A real interface does not pull frames at the line's rate and has no emulated delay. [`Shaped`]
//! does: a frame leaves its queue when the port's [`Line`] is free, is kept while in flight, and is
//! offered to the driver when it arrives.
//!
//! A driver is late, because it sleeps and shares its core. Lines therefore run in virtual time:
//! frames that should have been sent since the last call are sent at the instants at which they
//! were due. Lateness thus delays a frame but does not reduce the rate.

mod flight;

pub use flight::ShapedCounters;

use crate::config::SwitchConfig;
use crate::error::ConfigError;
use crate::link::{Fate, Line, LineConfig, LineCounters};
use crate::switch::Switch;
use crate::units::{self, Human};
use flight::Flight;
use serde::{Deserialize, Serialize};
use spanwire_base::{Node, PortId, PortMask, Rng, RxMeta, Time, TxMeta, usize_from};

/// A switch with a line at each port.
#[derive(Debug)]
pub struct Shaped {
    switch: Switch,
    lines: Vec<Line>,
    flight: Flight,
    budget_bytes: u64,
    /// The last `now`.
    now: Time,
    ready: PortMask,
    /// By port: its queues may have a frame.
    waiting: Vec<bool>,
    /// Buffer of a frame between its queue and its line.
    scratch: Vec<u8>,
}

/// A switch, the lines at its ports, and memory for frames in flight.
///
/// A port without a rate takes that of its line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapedConfig {
    /// The switch.
    pub switch: SwitchConfig,
    /// The line at each port, as many as ports.
    pub lines: Vec<LineConfig>,
    /// Maximum bytes in flight on all lines, at least the sum of rate times delay. Default 64 MB:
    /// five times the bandwidth-delay product of 100 ms at 1 Gbit/s.
    #[serde(with = "units", default = "default_budget_bytes")]
    pub budget_bytes: u64,
}

impl ShapedConfig {
    /// Lines at the ports' rates without delay and impairments.
    #[must_use]
    pub fn new(switch: SwitchConfig) -> Self {
        let line = |rate| LineConfig { rate, ..LineConfig::default() };
        let lines = switch.ports.iter().map(|p| line(p.rate)).collect();
        Self { switch, lines, budget_bytes: default_budget_bytes() }
    }

    /// Validates every range, and that the lines' capacity fits the budget.
    ///
    /// # Errors
    /// The first error; for the budget, with its computation.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.switch.validate().map_err(|e| e.within("switch"))?;
        if self.lines.len() != self.switch.ports.len() {
            let what = format!(
                "has {} entries for {} ports; give one for each",
                self.lines.len(),
                self.switch.ports.len()
            );
            return Err(ConfigError::new("lines", what));
        }
        for (n, line) in self.lines.iter().enumerate() {
            line.validate().map_err(|e| e.within(&format!("lines[{n}]")))?;
        }
        check_budget(self.lines.iter(), self.budget_bytes)
    }
}

impl Shaped {
    /// A switch with lines whose impairments are decided by the switch's seed.
    ///
    /// # Errors
    /// The error of [`ShapedConfig::validate`].
    pub fn new(mut config: ShapedConfig) -> Result<Self, ConfigError> {
        for (port, line) in config.switch.ports.iter_mut().zip(&config.lines) {
            port.rate = port.rate.or(line.rate);
        }
        config.validate()?;
        let mut rng = Rng::new(config.switch.seed).fork();
        let mut line = |c: LineConfig| Line::new(c, rng.next_u64());
        let max_frame_bytes = usize_from(u64::from(config.switch.max_frame_bytes)) + SCRATCH_ROOM;
        let waiting = vec![false; config.lines.len()];
        Ok(Self {
            lines: config.lines.into_iter().map(&mut line).collect::<Result<_, _>>()?,
            flight: Flight::new(config.switch.ports.len(), max_frame_bytes),
            switch: Switch::new(config.switch).map_err(|e| e.within("switch"))?,
            budget_bytes: config.budget_bytes,
            now: Time::ZERO,
            ready: PortMask::EMPTY,
            waiting,
            scratch: vec![0; max_frame_bytes],
        })
    }

    /// The switch.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// The switch, to change thresholds and routes.
    pub fn switch_mut(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// The line at a port, or `None` if there is no such port.
    #[must_use]
    pub fn line(&self, port: PortId) -> Option<&Line> {
        self.lines.get(port.index())
    }

    /// Changes the line at a port; the port takes its rate. Frames in flight keep their arrival
    /// times.
    ///
    /// # Errors
    /// No such port, a field out of range, no rate where the port needs one, or a budget that the
    /// lines then exceed; nothing has changed then.
    pub fn set_line(&mut self, port: PortId, config: LineConfig) -> Result<(), ConfigError> {
        let n = port.index();
        if n >= self.lines.len() {
            let what = format!("does not exist; the switch has {} ports", self.lines.len());
            return Err(ConfigError::new(format!("lines[{n}]"), what));
        }
        config.validate().map_err(|e| e.within(&format!("lines[{n}]")))?;
        let others = self.lines.iter().enumerate();
        let all = others.map(|(i, line)| if i == n { &config } else { line.config() });
        check_budget(all, self.budget_bytes)?;
        if config.rate != self.lines[n].config().rate {
            self.switch.set_rate(self.now, port, config.rate)?;
        }
        self.lines[n].set_config(config)
    }

    /// The counters of each line.
    pub fn line_counters(&self) -> impl Iterator<Item = &LineCounters> {
        self.lines.iter().map(Line::counters)
    }

    /// Counters of frames in flight and of those lost for lack of memory.
    #[must_use]
    pub fn counters(&self) -> ShapedCounters {
        self.flight.counters()
    }

    /// Handles all events due up to `now` in order of time: the switch's own timers, and frames
    /// that leave their queues for free lines.
    fn advance(&mut self, now: Time) {
        while let Some((at, event)) = self.next_event().filter(|(at, _)| *at <= now) {
            // An event may be earlier than the last call only if that call created it.
            self.now = self.now.max(at);
            match event {
                Event::Timer => self.switch.handle_timeout(self.now),
                Event::Free(port) => self.pull(port),
            }
            self.note_ready();
        }
        self.now = self.now.max(now);
        self.ready.merge(self.flight.due(now));
    }

    /// The earliest pending event.
    fn next_event(&self) -> Option<(Time, Event)> {
        let timer = self.switch.poll_timeout().map(|at| (at, Event::Timer));
        let ports = (0..).map_while(PortId::new).zip(self.waiting.iter().zip(&self.lines));
        let frees = ports
            .filter(|(_, (waiting, _))| **waiting)
            .map(|(port, (_, line))| (line.free_at(), Event::Free(port)));
        timer.into_iter().chain(frees).min_by_key(|(at, _)| *at)
    }

    /// Records the ports whose queues may have a frame.
    fn note_ready(&mut self) {
        let mut ready = self.switch.take_ready();
        while let Some(port) = ready.pop() {
            self.waiting[port.index()] = true;
        }
    }

    /// Sends the next frame of a port into its line; without one, the port is no longer waiting.
    fn pull(&mut self, port: PortId) {
        let Some(meta) = self.switch.poll_transmit(self.now, port, &mut self.scratch) else {
            self.waiting[port.index()] = false;
            return;
        };
        // Later frames of this port are reported as ready, so it need not be polled when the line
        // is free.
        self.waiting[port.index()] = self.switch.port_bytes(port) > 0;
        let frame = &mut self.scratch[..meta.len];
        let sent = self.lines[port.index()].send(self.now, frame, meta.elided_bytes);
        for fate in &sent.fates {
            if let Fate::Arrives(at) = fate {
                self.flight.add(port, *at, frame, meta.elided_bytes, self.budget_bytes);
            }
        }
    }
}

impl Node for Shaped {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        self.advance(now);
        self.switch.handle_packet(now, port, frame, meta);
        self.note_ready();
        self.advance(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        self.advance(now);
        self.flight.take(now, port, frame)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let event = self.next_event().map(|(at, _)| at);
        event.into_iter().chain(self.flight.next_arrival(self.now)).min()
    }

    fn take_ready(&mut self) -> PortMask {
        self.ready.take()
    }
}

enum Event {
    Timer,
    Free(PortId),
}

/// Checks the lines' total capacity against the budget.
fn check_budget<'a>(
    lines: impl Iterator<Item = &'a LineConfig>,
    budget_bytes: u64,
) -> Result<(), ConfigError> {
    let mut sum = 0u64;
    let mut terms = Vec::new();
    for (n, line) in lines.enumerate() {
        let Some(rate) = line.rate else { continue };
        let held = rate.bytes_in(line.longest_delay());
        if held > 0 {
            let delay = line.longest_delay().show();
            terms.push(format!("lines[{n}] {} x {delay} = {held}", rate.show()));
        }
        sum = sum.saturating_add(held);
    }
    if sum <= budget_bytes {
        return Ok(());
    }
    let what = format!(
        "is {budget_bytes}, but the lines hold {sum} bytes when they are full ({}): raise it, or \
         lower a rate or a delay",
        terms.join(", ")
    );
    Err(ConfigError::new("budget_bytes", what))
}

fn default_budget_bytes() -> u64 {
    64_000_000
}

/// Maximum growth of a frame in a switch: telemetry.
const SCRATCH_ROOM: usize = 512;

#[cfg(test)]
mod tests;
