//! A switch with a line behind each port, for real interfaces.
//!
//! A real interface has no wire that pulls the next frame when it is free, and no delay. [`Shaped`]
//! pulls for it: a frame leaves its queue when the port's [`Line`] is free, is kept while it is
//! under way, and is offered to the driver when it arrives.
//!
//! A driver is late: it sleeps, and other work runs on its core. Lines run in their own time: what
//! should have left since the last call leaves at the instants at which it should have, so lateness
//! delays a frame and does not cost rate.

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

/// A switch with a line behind each port.
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
    /// Where a frame is between its queue and its line.
    scratch: Vec<u8>,
}

/// A switch, the lines behind its ports, and memory for what is under way.
///
/// A port without a rate takes that of its line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapedConfig {
    /// The switch.
    pub switch: SwitchConfig,
    /// The line behind each port, as many as ports.
    pub lines: Vec<LineConfig>,
    /// Bytes of frames under way on all lines. Rate times delay of all lines must fit. Default
    /// 64 MB: five times what 100 ms at 1 Gbit/s hold.
    #[serde(with = "units", default = "default_budget_bytes")]
    pub budget_bytes: u64,
}

impl ShapedConfig {
    /// Perfect lines of no delay behind every port, at the port's rate.
    #[must_use]
    pub fn new(switch: SwitchConfig) -> Self {
        let line = |rate| LineConfig { rate, ..LineConfig::default() };
        let lines = switch.ports.iter().map(|p| line(p.rate)).collect();
        Self { switch, lines, budget_bytes: default_budget_bytes() }
    }

    /// Checks every range, and that what the lines hold fits the budget.
    ///
    /// # Errors
    /// The first that is wrong; for the budget, the arithmetic.
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
    /// A switch with lines, their faults decided by the switch's seed.
    ///
    /// # Errors
    /// What [`ShapedConfig::validate`] finds.
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

    /// The line behind a port, or `None` when there is no such port.
    #[must_use]
    pub fn line(&self, port: PortId) -> Option<&Line> {
        self.lines.get(port.index())
    }

    /// Changes the line behind a port; the port takes its rate. Frames under way arrive when they
    /// would have.
    ///
    /// # Errors
    /// No such port, a field out of range, no rate where the port needs one, or a budget that the
    /// lines then exceed; nothing has changed then.
    pub fn set_line(&mut self, port: PortId, config: LineConfig) -> Result<(), ConfigError> {
        let n = port.index();
        if n >= self.lines.len() {
            let what = format!("is not there; the switch has {} ports", self.lines.len());
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

    /// What each line has counted.
    pub fn line_counters(&self) -> impl Iterator<Item = &LineCounters> {
        self.lines.iter().map(Line::counters)
    }

    /// What is under way, and what was lost for want of memory.
    #[must_use]
    pub fn counters(&self) -> ShapedCounters {
        self.flight.counters()
    }

    /// Does, in order of time, everything that was due up to `now`: the switch's own timers, and
    /// frames that leave their queues for lines that are free.
    fn advance(&mut self, now: Time) {
        while let Some((at, event)) = self.next_event().filter(|(at, _)| *at <= now) {
            // An event may be from before the last call only if that call made it: then it is new.
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

    /// The earliest of what is to happen.
    fn next_event(&self) -> Option<(Time, Event)> {
        let timer = self.switch.poll_timeout().map(|at| (at, Event::Timer));
        let ports = (0..).map_while(PortId::new).zip(self.waiting.iter().zip(&self.lines));
        let frees = ports
            .filter(|(_, (waiting, _))| **waiting)
            .map(|(port, (_, line))| (line.free_at(), Event::Free(port)));
        timer.into_iter().chain(frees).min_by_key(|(at, _)| *at)
    }

    /// Remembers which ports' queues may have a frame.
    fn note_ready(&mut self) {
        let mut ready = self.switch.take_ready();
        while let Some(port) = ready.pop() {
            self.waiting[port.index()] = true;
        }
    }

    /// Sends the next frame of a port into its line; if there is none, the port waits no longer.
    fn pull(&mut self, port: PortId) {
        let Some(meta) = self.switch.poll_transmit(self.now, port, &mut self.scratch) else {
            self.waiting[port.index()] = false;
            return;
        };
        // Whatever comes to this port from now on says so: no need to look again when it is free.
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
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: RxMeta) {
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

/// What the lines hold when they are full, against the memory for it.
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

/// What a switch may add to a frame: telemetry.
const SCRATCH_ROOM: usize = 512;

#[cfg(test)]
mod tests;
