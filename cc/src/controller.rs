//! The [`Controller`] trait.

use crate::sample::{Ack, Hop, Loss, PseudoAck, Sent};
use crate::status::Status;
use spanwire_base::{Dur, Rate, Time};

/// The methods of [`Controller`], passed to the macro `$to` before what follows: the trait and the
/// forwarding to the algorithms have one list. A new congestion signal is added here alone.
macro_rules! with_methods {
    ($to:ident! { $($more:tt)* }) => {
        $to! {
            required {
                /// Payload bytes that may be in flight; `u64::MAX` without a window. A smaller
                /// window does not recall packets in flight.
                fn cwnd_bytes(&self) -> u64;

                /// An acknowledgement arrived.
                fn on_ack(&mut self, now: Time, ack: &Ack<'_>);

                /// Packets were lost or rejected.
                fn on_loss(&mut self, now: Time, loss: &Loss);
            }
            provided {
                /// The pacing rate, headers included; none if the window alone decides.
                fn rate(&self) -> Option<Rate> {
                    None
                }

                /// The least time between two packets, which implements a window below one packet.
                /// Zero for none.
                fn min_gap(&self) -> Dur {
                    Dur::ZERO
                }

                /// The signals that the algorithm has chosen, and why; `None` if it has no choice.
                fn status(&self) -> Option<Status> {
                    None
                }

                /// The algorithm uses in-band telemetry ([`Ack::int`]): packets request it.
                fn wants_int(&self) -> bool {
                    false
                }

                /// The algorithm uses feedback of nearby switches ([`Controller::on_pseudo_ack`]):
                /// packets request it.
                fn wants_near(&self) -> bool {
                    false
                }

                /// The algorithm uses the credit loop of the receiver ([`Controller::on_credit`]):
                /// packets request telemetry that the receiver's DCI switch begins anew (MLCC).
                fn wants_credit(&self) -> bool {
                    false
                }

                /// A packet left.
                fn on_sent(&mut self, now: Time, sent: &Sent) {}

                /// A congestion notification packet arrived, from the peer or from a switch.
                fn on_cnp(&mut self, now: Time) {}

                /// A pseudo-ACK of a nearby switch arrived (Reflex). After the first, or from the
                /// start if the near round trip is configured, an algorithm learns round trips from
                /// pseudo-ACKs only.
                fn on_pseudo_ack(&mut self, now: Time, ack: &PseudoAck) {}

                /// In-band telemetry of nearby switches arrived (MLCC's near-source loop).
                fn on_near_int(&mut self, now: Time, int: &[Hop]) {}

                /// The receiver suggests a rate, in bytes of frames (MLCC's queue management).
                fn on_credit(&mut self, now: Time, suggested: Rate) {}

                /// Telemetry of later acknowledgements cannot be compared with that of earlier
                /// ones, because counters may have wrapped.
                fn on_int_discontinuity(&mut self) {}

                /// The rate and the base round trip of the path, as measured, have changed.
                fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {}

                /// Packets take another path from now on: the state of the old path's queues is
                /// void.
                fn on_path_change(&mut self, now: Time) {}

                /// The time at which [`Controller::handle_timeout`] is due.
                fn poll_timeout(&self) -> Option<Time> {
                    None
                }

                /// Applies the timers due at `now`. May be called early.
                fn handle_timeout(&mut self, now: Time) {}
            }

            $($more)*
        }
    };
}
pub(crate) use with_methods;

/// Declares the trait.
macro_rules! declare {
    (
        required { $($(#[$doc:meta])* fn $required:ident $args:tt $(-> $Out:ty)?;)* }
        provided {
            $($(#[$about:meta])* fn $provided:ident $inputs:tt $(-> $Result:ty)? $body:block)*
        }
    ) => {
        /// The congestion control of one flow: how much may be in flight, and how fast it may
        /// leave.
        ///
        /// A packet may leave only when the window *and* the pacer allow it. A controller knows no
        /// packets, has no clock and allocates nothing. Samples and `now` go in; window, rate and
        /// gap come out. A provided method does nothing.
        #[expect(unused_variables, reason = "provided methods ignore their arguments")]
        pub trait Controller {
            $($(#[$doc])* fn $required $args $(-> $Out)?;)*
            $($(#[$about])* fn $provided $inputs $(-> $Result)? $body)*
        }
    };
}

with_methods! { declare! {} }
