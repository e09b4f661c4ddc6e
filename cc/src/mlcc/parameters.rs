//! Parameters of MLCC at both ends.

use crate::params::params;

params! {
    /// Parameters of MLCC.
    struct Params of f64;
    /// Round trip between sender and receiver without queues, in microseconds.
    ///
    /// MLCC V: links of 3 ms between datacenters.
    rtt_c_us = 6044.0 in 10.0..=1e6;
    /// Round trip between a DCI switch and the hosts of its datacenter without queues, in
    /// microseconds; less than `rtt_c_us`, and at least a 4096th of it.
    ///
    /// MLCC V.
    rtt_d_us = 22.0 in 0.1..=1e5;
    /// Time in milliseconds in which queue management removes an excess of the queueing delay;
    /// more than `rtt_c_us`.
    ///
    /// MLCC V.
    theta_ms = 18.0 in 0.01..=1e5;
    /// D_t, the queueing delay at the receiver's DCI switch that queue management keeps, in
    /// microseconds.
    ///
    /// MLCC V.
    target_us = 1000.0 in 1.0..=1e6;
    /// m, the rounds whose credit rates are averaged for the delay of the queue.
    ///
    /// MLCC V.
    rounds = 5.0 in 1.0..=64.0;
    /// The gain of a token; any other than 0.5 drifts.
    ///
    /// MLCC V; Accel-Brake Control.
    alpha = 0.5 in 0.01..=1.0;
    /// How the suggested rate approaches that of queue management: by the present suggested rate,
    /// by the credit rate, or as printed, which only increases. With `off` nothing is suggested.
    ///
    /// Only the first settles.
    dqm = 0.0 of "smoothed" | "credit" | "printed" | "off";
    /// The law of the near-source loop and of the credit loop.
    ///
    /// MLCC takes any that reads telemetry.
    law = 0.0 of "hpcc" | "powertcp";
    /// Target utilisation of the law.
    ///
    /// HPCC 4.
    eta = 0.95 in 0.5..=1.0;
    /// Round trips of additive increase before the next multiplicative one.
    ///
    /// HPCC 4.
    max_stage = 5.0 in 0.0..=1000.0;
    /// Additive increase of the law in bytes.
    ///
    /// HPCC 5: 80 bytes.
    increase_bytes = 80.0 in 0.0..=1e6;
    /// The near-source loop limits the rate.
    near_loop = true;
    /// The credit loop sets the rate at the receiver's DCI switch; otherwise that is the line's.
    credit_loop = true;
}

/// The least suggested rate as a part of the line's.
pub(super) const LEAST_SHARE: f64 = 0.01;
