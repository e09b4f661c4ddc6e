//! Congestion control of connections, for reports: what was configured, and the signals in use.

use crate::oob::Congestion;
use serde::Serialize;
use spanwire_base::Dur;
use spanwire_transport::{CongestionControl, Endpoint, FlowInfo};
use spanwire_wire::Qpn;

/// The congestion control of one queue pair's packets.
#[derive(Clone, PartialEq, Debug)]
pub struct ConnectionCongestion {
    /// The number of the local queue pair.
    pub qpn: u32,
    /// Its congestion control.
    pub report: CongestionReport,
}

/// Congestion control: the configured one, and the signals that it uses.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CongestionReport {
    /// Name and parameters.
    #[serde(flatten)]
    pub configured: Congestion,
    /// Absent for a static window.
    #[serde(flatten)]
    pub signals: Option<FlowCongestion>,
}

/// The signals that the congestion control of a flow uses.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FlowCongestion {
    /// The signals that decide, or the algorithm's name.
    pub chosen: &'static str,
    /// Why, as a clause.
    pub reason: &'static str,
    /// The round trip without queues in microseconds; null if the algorithm knows none.
    pub base_rtt_us: Option<f64>,
    /// The queueing delay above which the window shrinks, in microseconds; null without one.
    pub target_us: Option<f64>,
    /// Mean time from the arrival of an ACK at this host to its processing, in microseconds.
    pub host_late_us: f64,
}

impl ConnectionCongestion {
    /// That of queue pair `qpn`; `None` if there is no such queue pair.
    #[must_use]
    pub fn look(endpoint: &Endpoint, qpn: Qpn) -> Option<Self> {
        let info = endpoint.query_qp(qpn)?;
        let signals = info.flow.as_ref().map(FlowCongestion::from);
        let report = CongestionReport::new(info.attr.congestion, signals);
        Some(Self { qpn: qpn.get(), report })
    }
}

impl CongestionReport {
    /// The report of the configured `choice`, or of the default, with the signals that it uses.
    #[must_use]
    pub fn new(choice: Option<CongestionControl>, signals: Option<FlowCongestion>) -> Self {
        Self { configured: Congestion::from(&choice.unwrap_or_default()), signals }
    }

    /// A line of text: name, signals with the reason, base RTT, lateness of this host.
    #[must_use]
    pub fn text(&self) -> String {
        let name = &self.configured.name;
        let Some(flow) = &self.signals else { return format!("  congestion control: {name}\n") };
        let ms = |us: f64| format!("{:.3} ms", us / 1e3);
        let by = match flow.chosen == name {
            true => String::new(),
            false => format!(" by {}: {}", flow.chosen, flow.reason),
        };
        let base = flow.base_rtt_us.map_or_else(String::new, |us| format!("; base RTT {}", ms(us)));
        format!("  congestion control: {name}{by}{base}; host late by {}\n", ms(flow.host_late_us))
    }
}

impl From<&FlowInfo> for FlowCongestion {
    fn from(flow: &FlowInfo) -> Self {
        let (chosen, reason) = match flow.status {
            Some(status) => (status.chosen, status.reason),
            None => (flow.algorithm, "it was requested by name"),
        };
        Self {
            chosen,
            reason,
            base_rtt_us: flow.status.and_then(|s| s.base_rtt).map(us),
            target_us: flow.status.and_then(|s| s.target).map(us),
            host_late_us: us(flow.host_late),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a report's figure")]
fn us(time: Dur) -> f64 {
    time.as_ns() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_pair;
    use serde_json::json;
    use spanwire_cc::Algorithm;
    use spanwire_transport::{Access, QpCaps, QpInit, ValidConfig};

    fn delay() -> FlowCongestion {
        FlowCongestion {
            chosen: "delay",
            reason: "no packet was marked",
            base_rtt_us: Some(2_034.5),
            target_us: Some(1_250.0),
            host_late_us: 81.0,
        }
    }

    fn named(name: &str) -> Option<CongestionControl> {
        let algorithm = Some(Algorithm::named(name).expect("known"));
        Some(CongestionControl { algorithm, ..CongestionControl::NONE })
    }

    #[test]
    fn new__is_flat_in_json_and_of_the_default_without_a_choice() {
        let json = serde_json::to_value(CongestionReport::new(None, Some(delay()))).unwrap();
        let expected = json!({
            "name": "auto", "chosen": "delay", "reason": "no packet was marked",
            "base_rtt_us": 2_034.5, "target_us": 1_250.0, "host_late_us": 81.0,
        });
        assert_eq!(json, expected);
        let none = CongestionReport::new(Some(CongestionControl::NONE), None);
        assert_eq!(serde_json::to_value(none).unwrap(), json!({"name": "none"}));
    }

    #[test]
    fn text__names_the_signals_and_the_reason() {
        let text = CongestionReport::new(None, Some(delay())).text();
        let line = "  congestion control: auto by delay: no packet was marked; base RTT 2.034 ms; \
                    host late by 0.081 ms\n";
        assert_eq!(text, line);
        let unmeasured = FlowCongestion { chosen: "swift", base_rtt_us: None, ..delay() };
        let text = CongestionReport::new(named("swift"), Some(unmeasured)).text();
        assert_eq!(text, "  congestion control: swift; host late by 0.081 ms\n");
        let none = CongestionReport::new(Some(CongestionControl::NONE), None);
        assert_eq!(none.text(), "  congestion control: none\n");
    }

    #[test]
    fn look__is_that_of_the_queue_pair() {
        let mut endpoint = Endpoint::new(ValidConfig::default(), [7; 32]);
        let pd = endpoint.alloc_pd().unwrap();
        let cq = endpoint.create_cq(1).unwrap();
        let init = QpInit::new(pd, cq, cq, QpCaps::default());
        let qp = queue_pair::create(&mut endpoint, &init, Access::ALL).unwrap();
        let found = ConnectionCongestion::look(&endpoint, Qpn::new(qp.qpn)).expect("it exists");
        assert_eq!((found.qpn, &*found.report.configured.name), (qp.qpn, "auto"));
        assert_eq!(found.report.signals, None, "no peer, no flow");
        assert_eq!(ConnectionCongestion::look(&endpoint, Qpn::new(qp.qpn ^ 1)), None);
    }
}
