//! The kinds of agents: a line for each.

use super::api::{
    Agent, AgentCounters, AgentPorts, Departing, Effects, Params, Placement, Ports, Queued, Site,
    Thresholds,
};
use super::ecn::{Ecn, config::EcnAgentConfig, trace::EcnStep};
use super::mlcc::{Mlcc, config::MlccConfig, report::MlccFlow};
use super::ndt::{Ndt, config::NdtConfig};
use super::nsf::{Nsf, config::NsfConfig};
use super::pacc::{Pacc, config::PaccConfig};
use super::passing::{FlowEnds, Passing};
use crate::queue::QueueView;
use serde::{Deserialize, Serialize};
use spanwire_base::Time;
use spanwire_wire::Qpn;

/// Defines [`AgentConfig`] and [`Kind`] from lines of a documentation, the name of the agent, the
/// name of its kind in files, and its parameters.
macro_rules! agents {
    ($($(#[$doc:meta])* $Name:ident = $kind:literal, $Config:ident;)*) => {
        /// An agent and its parameters.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum AgentConfig {
            $($(#[$doc])* #[serde(rename = $kind)] $Name($Config),)*
        }

        impl AgentConfig {
            /// The kinds: the name, and the ports that a configuration names.
            #[must_use]
            pub fn kinds() -> Vec<(&'static str, AgentPorts)> {
                vec![$(($kind, <$Config>::default().side()),)*]
            }

            /// Its kind, as in files.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$Name(_) => $kind,)* }
            }

            pub(super) fn params(&self) -> &dyn Params {
                match self { $(Self::$Name(params) => params,)* }
            }

            pub(super) fn params_mut(&mut self) -> &mut dyn Params {
                match self { $(Self::$Name(params) => params,)* }
            }

            /// The agent of a validated configuration.
            pub(super) fn agent(&self, site: &Site<'_>) -> Kind {
                match self {
                    $(Self::$Name(params) => Kind::$Name($Name::new(params, site).into()),)*
                }
            }
        }

        $(impl From<$Config> for AgentConfig {
            fn from(params: $Config) -> Self {
                Self::$Name(params)
            }
        })*

        /// An agent of any kind.
        #[derive(Debug)]
        pub(super) enum Kind {
            $($Name(Box<$Name>),)*
        }

        impl Agent for Kind {
            #[inline]
            fn on_arrival(
                &mut self,
                now: Time,
                passing: &Passing,
                ports: Ports,
                sender: Option<Qpn>,
            ) -> (Placement, Effects) {
                match self { $(Self::$Name(own) => own.on_arrival(now, passing, ports, sender),)* }
            }

            #[inline]
            fn on_queued(&mut self, now: Time, passing: &Passing, queued: Queued) -> Effects {
                match self { $(Self::$Name(own) => own.on_queued(now, passing, queued),)* }
            }

            #[inline]
            fn on_departure(&mut self, now: Time, leaving: &Departing) -> Effects {
                match self { $(Self::$Name(own) => own.on_departure(now, leaving),)* }
            }

            fn flow_at(&self, place: u32) -> Option<(FlowEnds, Option<Qpn>)> {
                match self { $(Self::$Name(own) => own.flow_at(place),)* }
            }

            fn handle_timeout(&mut self, now: Time, view: impl Fn(u8) -> QueueView) -> Effects {
                match self { $(Self::$Name(own) => own.handle_timeout(now, view),)* }
            }

            #[inline]
            fn poll_timeout(&self) -> Option<Time> {
                match self { $(Self::$Name(own) => own.poll_timeout(),)* }
            }

            fn counters(&self, now: Time) -> Vec<AgentCounters> {
                match self { $(Self::$Name(own) => own.counters(now),)* }
            }

            fn thresholds(&self) -> Vec<Thresholds> {
                match self { $(Self::$Name(own) => own.thresholds(),)* }
            }

            fn set_hold(&mut self, hold: bool) -> bool {
                match self { $(Self::$Name(own) => own.set_hold(hold),)* }
            }

            fn steps(&self) -> &[EcnStep] {
                match self { $(Self::$Name(own) => own.steps(),)* }
            }

            fn rated_flows(&self, now: Time) -> Vec<MlccFlow> {
                match self { $(Self::$Name(own) => own.rated_flows(now),)* }
            }
        }
    };
}

agents! {
    /// CNPs to the senders of a long queue, by its length and growth.
    Pacc = "pacc", PaccConfig;
    /// Pseudo-ACKs to the senders of packets that are late at the border.
    Nsf = "nsf", NsfConfig;
    /// A queue of their own for flows that are congested behind the switch.
    Ndt = "ndt", NdtConfig;
    /// Marking thresholds by networks that have learned.
    Ecn = "ecn", EcnAgentConfig;
    /// Near telemetry and credit at the border of a datacenter.
    Mlcc = "mlcc", MlccConfig;
}
