//! Raw AF_XDP round trips: the lower bound of a message and its reply over these ports.

use crate::raw::{Frames, both_sides, number_of, open_ports, watched};
use crate::sample::{Error, Latency, Reading, Sample};
use hdrhistogram::Histogram;
use spanwire_base::Time;
use spanwire_io::net::TwoHosts;
use spanwire_io::port::Port;
use spanwire_io::xdp::XdpPort;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Round trip times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Trips(Histogram<u64>);

impl Default for Trips {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, TRIP_NS_MAX, 3);
        Self(histogram.expect("bounds and digits are within the histogram's range"))
    }
}

impl Trips {
    /// Records one round trip; more than a second counts as one.
    pub fn record(&mut self, trip: Duration) {
        let ns = u64::try_from(trip.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(ns);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The quantiles.
    ///
    /// # Errors
    /// There was no round trip.
    pub fn latency(&self) -> Result<Latency, Error> {
        if self.is_empty() {
            return Err("no reply arrived".into());
        }
        let us = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Latency { rtt_p50_us: us(0.5), rtt_p99_us: us(0.99) })
    }
}

/// Measures round trips of frames with `payload` bytes (8 and up) for `time`: host `a` on the
/// first core sends, `b` on the second replies, both spinning.
///
/// # Errors
/// The ports cannot be opened, or nothing arrives.
pub fn ping_pong(
    hosts: &TwoHosts,
    cores: [usize; 2],
    payload: usize,
    side_poll: bool,
    time: Duration,
) -> Result<Sample, Error> {
    let there = Frames::new(&hosts.a, &hosts.b, payload)?;
    let back = Frames::new(&hosts.b, &hosts.a, payload)?;
    let [mut a, mut b] = open_ports(hosts, side_poll)?;
    let stop = AtomicBool::new(false);
    let client = || {
        let client_result = watched(cores[0], || run_client(&mut a, &there, time));
        // Also after an error; otherwise the other side would wait indefinitely.
        stop.store(true, Ordering::Relaxed);
        client_result
    };
    let server = || watched(cores[1], || run_server(&mut b, &back, &stop));
    let (client_result, server_result) = both_sides(client, server);
    let (trips, use_a) = client_result?;
    let ((), use_b) = server_result?;
    Ok(Sample { reading: Reading::Latency(trips.latency()?), stolen: [use_a.stolen, use_b.stolen] })
}

fn run_client(port: &mut XdpPort, frames: &Frames, time: Duration) -> Result<Trips, Error> {
    let mut trips = Trips::default();
    let start = Instant::now();
    let mut number = 0;
    // A trip at least, although a thread may have no core for all of the time.
    let none_until = time + SILENCE;
    while start.elapsed() < time || trips.is_empty() && start.elapsed() < none_until {
        let sent_at = Instant::now();
        if !frames.commit(port, number, None) {
            return Err("no transmit buffer for one frame".into());
        }
        let mut came_back = false;
        while !came_back && sent_at.elapsed() < LOST_AFTER {
            port.flush(Time::ZERO)?;
            port.rx_burst(&Time::ZERO, 1, &mut |frame, _| {
                came_back |= number_of(frame) == Some(number);
            });
        }
        if came_back {
            trips.record(sent_at.elapsed());
        }
        number += 1;
    }
    Ok(trips)
}

fn run_server(port: &mut XdpPort, frames: &Frames, stop: &AtomicBool) -> Result<(), Error> {
    while !stop.load(Ordering::Relaxed) {
        let mut number = None;
        port.rx_burst(&Time::ZERO, 1, &mut |frame, _| number = number_of(frame));
        if let Some(number) = number {
            frames.commit(port, number, None);
        }
        port.flush(Time::ZERO)?;
    }
    Ok(())
}

const TRIP_NS_MAX: u64 = 1_000_000_000;
/// A thousand round trips: a frame not back by then was lost.
const LOST_AFTER: Duration = Duration::from_millis(20);

/// After which no reply at all is an error.
const SILENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency__quantiles_in_microseconds() {
        let mut trips = Trips::default();
        assert!(trips.latency().is_err());
        for us in 1..=100 {
            trips.record(Duration::from_micros(us));
        }
        let latency = trips.latency().unwrap();
        assert!((latency.rtt_p50_us - 50.0).abs() < 0.1, "{latency:?}");
        assert!((latency.rtt_p99_us - 99.0).abs() < 0.1, "{latency:?}");
    }

    #[test]
    fn record__an_endless_trip_counts_as_a_second() {
        let mut trips = Trips::default();
        trips.record(Duration::MAX);
        assert!(trips.latency().unwrap().rtt_p50_us <= 1.001e6);
    }
}
