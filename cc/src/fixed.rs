//! A constant window and rate: no congestion control.

use crate::params::params;
use crate::units::{rate, whole};
use crate::{Ack, Controller, Loss, Path};
use spanwire_base::{Rate, Time};

params! {
    /// The constants.
    struct Params of f64;
    /// The window in packets of the path's MTU.
    ///
    /// 192 fit the rings of a veth pair (docs/decisions/0004).
    window_pkts = 192.0 in 1.0..=1e6;
    /// The rate in Mbit/s of packets with their headers; 0 is the line rate.
    rate_mbps = 0.0 in 0.0..=1e6;
}

/// See [`Params`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fixed {
    cwnd: u64,
    rate: Option<Rate>,
}

impl Fixed {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let cwnd = whole(params.window_pkts * f64::from(path.mtu_bytes));
        let paced = params.rate_mbps > 0.0;
        Self { cwnd, rate: paced.then(|| rate(params.rate_mbps / 8e3)) }
    }
}

impl Controller for Fixed {
    fn cwnd_bytes(&self) -> u64 {
        self.cwnd
    }

    fn rate(&self) -> Option<Rate> {
        self.rate
    }

    fn on_ack(&mut self, _now: Time, _ack: &Ack<'_>) {}

    fn on_loss(&mut self, _now: Time, _loss: &Loss) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new__has_the_configured_values() {
        let path = Path { mtu_bytes: 1000, line_rate: Rate::from_gbps(100), base_rtt: None };
        let cc =
            Fixed::new(&Params { window_pkts: 1.5, rate_mbps: 200.0, ..Params::default() }, &path);
        assert_eq!((cc.cwnd_bytes(), cc.rate()), (1500, Some(Rate::from_bps(200_000_000))));
        assert_eq!(Fixed::new(&Params::default(), &path).rate(), None);
    }
}
