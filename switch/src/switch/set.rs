//! Changes of a switch while it runs.

use super::{FlowKey, Switch};
use crate::config::{EcnConfig, ForwardingConfig, PortConfig, QueueConfig};
use crate::error::ConfigError;
use crate::queue::Queue;
use spanwire_base::{PortId, Rate, Time};

impl Switch {
    /// Sets the rate of a flow's shaper, none: unshaped. False if the flow has no place there (it
    /// gets one with its first frame). The release time of a delayed frame does not change.
    pub fn set_flow_rate(
        &mut self,
        port: PortId,
        queue: usize,
        flow: FlowKey,
        rate: Option<Rate>,
    ) -> bool {
        let queue = self.ports.get_mut(port.index()).and_then(|p| p.queues.get_mut(queue));
        queue.and_then(Queue::flows_mut).is_some_and(|flows| flows.set_rate(flow.0, rate))
    }

    /// Replaces routes and static addresses. Queued frames stay, and learned addresses stay if the
    /// new configuration learns.
    ///
    /// # Errors
    /// The error of its validation; nothing has changed then.
    pub fn set_forwarding(&mut self, forwarding: ForwardingConfig) -> Result<(), ConfigError> {
        forwarding.validate(self.ports.len()).map_err(|e| e.within("forwarding"))?;
        self.forwarder.set(&forwarding);
        self.config.forwarding = forwarding;
        Ok(())
    }

    /// Changes limit, thresholds, priority or weight of a queue; its frames stay.
    ///
    /// # Errors
    /// No such queue, a field out of range, or a change of `flows`, which is not possible at run
    /// time; nothing has changed then.
    pub fn set_queue(
        &mut self,
        now: Time,
        port: PortId,
        queue: usize,
        config: QueueConfig,
    ) -> Result<(), ConfigError> {
        let at = format!("queues[{queue}]");
        self.set_port(now, port, |p| {
            let Some(old) = p.queues.get_mut(queue) else {
                return Err(ConfigError::new(at, "does not exist"));
            };
            if old.flows != config.flows {
                let what = "cannot change while the switch runs; set rates by flow instead";
                return Err(ConfigError::new(format!("{at}.flows"), what));
            }
            *old = config;
            Ok(())
        })
    }

    /// Changes the marking thresholds of a queue; `None`: its length marks nothing. Unlike
    /// [`Switch::set_queue`] it is O(1) and allocates nothing, so that thresholds may change as
    /// often as frames arrive.
    ///
    /// # Errors
    /// No such queue, or thresholds out of range; nothing has changed then.
    pub fn set_marking(
        &mut self,
        port: PortId,
        queue: usize,
        ecn: Option<EcnConfig>,
    ) -> Result<(), ConfigError> {
        let at = || format!("ports[{}].queues[{queue}]", port.index());
        let found = self.ports.get_mut(port.index()).and_then(|p| p.queues.get_mut(queue));
        let Some(found) = found else { return Err(ConfigError::new(at(), "does not exist")) };
        if let Some(ecn) = &ecn {
            ecn.validate().map_err(|e| e.within("ecn").within(&at()))?;
        }
        found.set_marking(ecn);
        self.config.ports[port.index()].queues[queue].ecn = ecn;
        Ok(())
    }

    /// Changes the rate of the link at a port, and with it pause times, phantom queues and
    /// telemetry.
    ///
    /// # Errors
    /// No such port, or no rate where one is needed; nothing has changed then.
    pub fn set_rate(
        &mut self,
        now: Time,
        port: PortId,
        rate: Option<Rate>,
    ) -> Result<(), ConfigError> {
        self.set_port(now, port, |p| {
            p.rate = rate;
            Ok(())
        })
    }

    fn set_port(
        &mut self,
        now: Time,
        port: PortId,
        change: impl FnOnce(&mut PortConfig) -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        let n = port.index();
        let name = format!("ports[{n}]");
        let Some(mut config) = self.config.ports.get(n).cloned() else {
            return Err(ConfigError::new(name, "does not exist"));
        };
        change(&mut config).and_then(|()| config.validate()).map_err(|e| e.within(&name))?;
        self.ports[n].set(now, &config);
        self.config.ports[n] = config;
        Ok(())
    }
}
