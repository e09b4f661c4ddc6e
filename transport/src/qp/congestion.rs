//! Set-up of congestion control.

use super::QueuePair;
use super::flow::{self, Flow};
use crate::attr::CongestionControl;
use crate::config::Config;
use crate::sr::tx::int_request::IntRequest;

/// The interval between packets with AckReq in a window of `window_pkts`, at most `most` packets. A
/// small window must be acknowledged before it is used up. Packets that have arrived without an ACK
/// fill the window, but not the path. The window of congestion control is only as long as the path,
/// so it gets sixteen ACKs each window.
pub(crate) fn ack_interval(window_pkts: u32, most: u32, has_cc: bool) -> u32 {
    (window_pkts / if has_cc { 16 } else { 4 }).clamp(1, most.max(1))
}

impl QueuePair {
    /// Restarts the flow with this congestion control. Without the peer's agreement to credits and
    /// to feedback of switches, it is [`CongestionControl::without_credit`].
    pub(super) fn set_congestion(&mut self, choice: CongestionControl, config: &Config) {
        let has_credit = self.common.attr.sr().is_some_and(|sr| sr.near && sr.credit);
        let choice = if has_credit { choice } else { choice.without_credit() };
        self.common.attr.congestion = Some(choice);
        let full_bytes = self.common.full_bytes();
        let flow = Flow::new(&choice, full_bytes, config);
        let int = IntRequest {
            hops: if flow.as_ref().is_some_and(Flow::wants_int) { config.int_hops } else { 0 },
            format: config.int_format,
            has_credit: flow.as_ref().is_some_and(Flow::wants_credit),
        };
        let payload_bytes = match self.engine.sr_mut() {
            Some(sr) => sr.tx.request_int(int, full_bytes),
            None => full_bytes,
        };
        let flow = match payload_bytes == full_bytes {
            true => flow,
            false => Flow::new(&choice, payload_bytes, config),
        };
        self.common.flow = flow.map(Box::new);
        let path = flow::path(&choice, payload_bytes, config);
        if let Some(sr) = self.engine.sr_mut() {
            sr.rx.set_credit_loop(choice.algorithm.and_then(|cc| cc.receiver(&path)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_interval__is_short_for_small_windows_and_shorter_for_congestion_control() {
        let of = |has_cc| [1, 15, 42, 192, 1 << 16].map(|window| ack_interval(window, 16, has_cc));
        assert_eq!(of(false), [1, 3, 10, 16, 16]);
        assert_eq!(of(true), [1, 1, 2, 12, 16]);
        assert_eq!(ack_interval(192, 0, false), 1);
    }
}
