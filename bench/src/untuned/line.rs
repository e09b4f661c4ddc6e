//! A line of the software switch: rate, delay, queue and impairments.

use serde::Serialize;

/// The keys of a port of the switch. Both directions have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Line {
    /// Bits a second on the wire.
    pub rate_bps: u64,
    /// One-way delay in microseconds.
    pub delay_us: u64,
    /// Limit of the queue.
    pub queue_bytes: u64,
    /// Random loss in millionths.
    pub loss_ppm: u32,
    /// Frames delayed by a quarter of the round trip, in millionths.
    pub reorder_ppm: u32,
}

impl Line {
    /// A line without impairments, with a queue of 1 MB or two bandwidth-delay products, whichever
    /// is larger.
    pub(crate) const fn new(mbit: u64, delay_us: u64) -> Self {
        let queue_bytes = 1_000_000;
        let line =
            Self { rate_bps: mbit * 1_000_000, delay_us, queue_bytes, loss_ppm: 0, reorder_ppm: 0 };
        let two = 2 * line.bdp_bytes();
        Self { queue_bytes: if two > queue_bytes { two } else { queue_bytes }, ..line }
    }

    /// The product of rate and round-trip time, without queueing.
    pub(super) const fn bdp_bytes(&self) -> u64 {
        self.rate_bps * 2 * self.delay_us / 8 / 1_000_000
    }

    /// The probability that a frame arrives.
    pub(super) fn arrives(&self) -> f64 {
        1.0 - f64::from(self.loss_ppm) / 1e6
    }

    /// Its name: `200M/1ms`.
    pub(super) fn name(&self) -> String {
        let mbit = self.rate_bps / 1_000_000;
        let rate = match mbit {
            mbit if mbit >= 1000 && mbit % 1000 == 0 => format!("{}G", mbit / 1000),
            mbit => format!("{mbit}M"),
        };
        match self.delay_us {
            us if us >= 1000 => format!("{rate}/{}ms", us / 1000),
            us => format!("{rate}/{us}us"),
        }
    }

    /// The changes of the switch that give `port` this line, whatever it had before.
    pub(super) fn changes(&self, port: &str) -> Vec<String> {
        let Self { rate_bps, delay_us, queue_bytes, loss_ppm, reorder_ppm } = self;
        let reorder = match reorder_ppm {
            0 => "none".to_owned(),
            ppm => {
                format!("{{probability='{ppm}ppm',extra_delay='{}us'}}", (delay_us / 2).max(1))
            }
        };
        let keys = [
            format!("rate={rate_bps}bit"),
            format!("delay={delay_us}us"),
            format!("queue.limit_bytes={queue_bytes}"),
            format!("loss={loss_ppm}ppm"),
            format!("reorder={reorder}"),
        ];
        keys.iter().map(|key| format!("port.{port}.{key}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new__the_queue_is_a_megabyte_or_two_products() {
        let line = Line::new(200, 1000);
        assert_eq!((line.bdp_bytes(), line.queue_bytes), (50_000, 1_000_000));
        let long = Line::new(500, 5000);
        assert_eq!((long.bdp_bytes(), long.queue_bytes), (625_000, 1_250_000));
    }

    #[test]
    fn name__is_rate_and_delay() {
        let names = [(100, 10), (200, 1000), (1000, 10), (50, 50_000)]
            .map(|(mbit, us)| Line::new(mbit, us).name());
        assert_eq!(names, ["100M/10us", "200M/1ms", "1G/10us", "50M/50ms"]);
    }

    #[test]
    fn changes__set_every_key() {
        let line = Line { loss_ppm: 5000, reorder_ppm: 50_000, ..Line::new(200, 1000) };
        let keys = ["rate=200000000bit", "delay=1000us", "queue.limit_bytes=1000000"];
        let faults = ["loss=5000ppm", "reorder={probability='50000ppm',extra_delay='500us'}"];
        let expected: Vec<String> =
            keys.iter().chain(&faults).map(|key| format!("port.a.{key}")).collect();
        assert_eq!(line.changes("a"), expected);
        let perfect = Line::new(200, 1000).changes("a");
        assert_eq!((perfect.len(), &*perfect[4]), (5, "port.a.reorder=none"));
        assert!((line.arrives() - 0.995).abs() < 1e-12);
    }
}
