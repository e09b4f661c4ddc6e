//! The seam, and every algorithm by name.

use crate::sample::{Ack, Hop, Loss, Path, PseudoAck, Sent};
use crate::{gemini, powertcp, timely};
use spanwire_base::{Dur, Rate, Time};

/// How much may be in flight, and how fast it may leave: one flow's congestion control.
///
/// A packet may leave only when the window *and* the pacer allow it. Nothing here knows packets,
/// has a clock or allocates: samples and `now` in, window, rate and gap out. Every method that an
/// algorithm does not need has a body that does nothing.
pub trait Controller {
    /// Payload bytes that may be in flight; `u64::MAX` without a window. What is in flight when
    /// the window shrinks is not taken back.
    fn cwnd_bytes(&self) -> u64;

    /// How fast packets may leave, headers and all; none if the window alone decides.
    fn rate(&self) -> Option<Rate> {
        None
    }

    /// The least time between two packets: what a window below one packet is. Zero for none.
    fn min_gap(&self) -> Dur {
        Dur::ZERO
    }

    /// It listens to telemetry of switches ([`Ack::int`]): packets are to ask for it.
    fn wants_int(&self) -> bool {
        false
    }

    /// A packet left.
    fn on_sent(&mut self, _now: Time, _sent: &Sent) {}

    /// An acknowledgement came.
    fn on_ack(&mut self, now: Time, ack: &Ack<'_>);

    /// Something was lost, or refused.
    fn on_loss(&mut self, now: Time, loss: &Loss);

    /// A congestion notification packet came, from the peer or from a switch.
    fn on_cnp(&mut self, _now: Time) {}

    /// A sign of the network nearby: the only round trips to learn from, once there are any.
    fn on_pseudo_ack(&mut self, _now: Time, _ack: &PseudoAck) {}

    /// Telemetry of the network nearby (MLCC's near-source loop).
    fn on_near_int(&mut self, _now: Time, _int: &[Hop]) {}

    /// Packets take another path from now on: what was learnt of the old one's queues is void.
    fn on_path_change(&mut self, _now: Time) {}

    /// When [`Controller::handle_timeout`] has something to do.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Does what is due at `now`. May be called early.
    fn handle_timeout(&mut self, _now: Time) {}
}

/// Lists the algorithms: a module each, with a `Params` and a type of the variant's name that has
/// `new(&Params, &Path)`. Then names for one of them with other parameters than its defaults.
macro_rules! algorithms {
    (
        $($(#[$doc:meta])* $Name:ident = $name:literal in $module:ident;)*
        $($preset:literal = $value:expr;)*
    ) => {
        spanwire_params::choices! {
            /// Which algorithm, with its parameters.
            #[derive(Clone, Copy, PartialEq, Debug)]
            enum Algorithm of f64, "congestion control";
            $($(#[$doc])* $Name(crate::$module::Params) = $name;)*
            $($preset = $value;)*
        }

        /// One flow's congestion control.
        #[derive(Clone, Debug)]
        pub enum Cc {
            $($(#[$doc])* $Name(crate::$module::$Name),)*
        }

        impl Algorithm {
            /// A controller for one flow.
            #[must_use]
            pub fn start(&self, path: &Path) -> Cc {
                match self {
                    $(Self::$Name(params) => Cc::$Name(crate::$module::$Name::new(params, path)),)*
                }
            }
        }

        impl Controller for Cc {
            algorithms!(@to [$($Name)*] cwnd_bytes(&self) -> u64);
            algorithms!(@to [$($Name)*] rate(&self) -> Option<Rate>);
            algorithms!(@to [$($Name)*] min_gap(&self) -> Dur);
            algorithms!(@to [$($Name)*] wants_int(&self) -> bool);
            algorithms!(@to [$($Name)*] on_sent(&mut self, now: Time, sent: &Sent) (now, sent));
            algorithms!(@to [$($Name)*] on_ack(&mut self, now: Time, ack: &Ack<'_>) (now, ack));
            algorithms!(@to [$($Name)*] on_loss(&mut self, now: Time, loss: &Loss) (now, loss));
            algorithms!(@to [$($Name)*] on_cnp(&mut self, now: Time) (now));
            algorithms!(
                @to [$($Name)*] on_pseudo_ack(&mut self, now: Time, ack: &PseudoAck) (now, ack)
            );
            algorithms!(@to [$($Name)*] on_near_int(&mut self, now: Time, int: &[Hop]) (now, int));
            algorithms!(@to [$($Name)*] on_path_change(&mut self, now: Time) (now));
            algorithms!(@to [$($Name)*] poll_timeout(&self) -> Option<Time>);
            algorithms!(@to [$($Name)*] handle_timeout(&mut self, now: Time) (now));
        }
    };
    (@to [$($Name:ident)*] $method:ident(&self) -> $Out:ty) => {
        fn $method(&self) -> $Out {
            match self {
                $(Self::$Name(cc) => cc.$method(),)*
            }
        }
    };
    (@to [$($Name:ident)*] $method:ident(&mut self $(, $arg:ident: $Arg:ty)*) $args:tt) => {
        fn $method(&mut self $(, $arg: $Arg)*) {
            match self {
                $(Self::$Name(cc) => cc.$method $args,)*
            }
        }
    };
}

algorithms! {
    /// A window and a rate that never change.
    Fixed = "fixed" in fixed;
    /// Uno's.
    UnoCc = "unocc" in unocc;
    /// Swift.
    Swift = "swift" in swift;
    /// TIMELY.
    Timely = "timely" in timely;
    /// DCQCN, as the paper has it.
    Dcqcn = "dcqcn" in dcqcn;
    /// DCQCN, as adapters have it.
    DcqcnRnic = "dcqcn-rnic" in dcqcn_rnic;
    /// HPCC.
    Hpcc = "hpcc" in hpcc;
    /// PowerTCP, and theta-PowerTCP.
    PowerTcp = "powertcp" in powertcp;
    /// Gemini.
    Gemini = "gemini" in gemini;
    /// BBR, version 1.
    Bbr = "bbr" in bbr;
    /// MP-RDMA's window.
    MpRdma = "mprdma" in mprdma;
    /// DCTCP.
    Dctcp = "dctcp" in dctcp;
    "theta-powertcp" = Self::PowerTcp(powertcp::Params { theta: true, ..Default::default() });
    "timely-classic" = Self::Timely(timely::Params { patched: false, ..Default::default() });
    "gemini-paper" = Self::Gemini(gemini::Params::paper());
}

/// A row of Markdown for each parameter: name, default, range, what it means and where the default
/// is from. docs/cc.md has these tables.
#[must_use]
pub fn table(algorithm: &Algorithm) -> String {
    spanwire_params::table(algorithm.fields(), &algorithm.values())
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_params::{ParamError, Value};

    #[test]
    fn named__every_one_has_valid_defaults_and_a_documented_range() {
        for name in Algorithm::NAMES {
            let algorithm = Algorithm::named(name).unwrap();
            assert_eq!(algorithm.name(), *name);
            algorithm.validate().unwrap();
            for (field, value) in algorithm.fields().iter().zip(algorithm.values()) {
                assert!(field.about.len() > 10, "{name}.{} says what it is", field.name);
                assert_eq!(field.default, value, "{name}.{}", field.name);
            }
        }
        for name in Algorithm::PRESETS {
            let algorithm = Algorithm::named(name).unwrap();
            algorithm.validate().unwrap();
            assert_ne!(algorithm, Algorithm::named(algorithm.name()).unwrap());
        }
        let known = Algorithm::known();
        let name = "cubic".to_owned();
        let what = "congestion control";
        assert_eq!(Algorithm::named("cubic"), Err(ParamError::NoChoice { what, name, known }));
    }

    #[test]
    fn wants_int__of_those_whose_laws_are_written_in_it() {
        let path = Path { mtu_bytes: 1000, line_rate: Rate::from_gbps(1), base_rtt: None };
        let wants = |name: &&str| Algorithm::named(name).unwrap().start(&path).wants_int();
        let known = Algorithm::known();
        let all: Vec<&&str> = known.iter().filter(|name| wants(name)).collect();
        assert_eq!(all, [&"hpcc", &"powertcp"]);
    }

    #[test]
    fn set__takes_numbers_in_range_and_nothing_else() {
        for name in Algorithm::NAMES {
            let mut algorithm = Algorithm::named(name).unwrap();
            for field in algorithm.fields() {
                let ends = field.range().map(|(min, max)| [min, max].map(Value::Number));
                for value in ends.unwrap_or([false, true].map(Value::Bool)) {
                    algorithm.set(field.name, &field.text(value)).unwrap();
                    assert!(algorithm.values().contains(&value), "{name}.{}", field.name);
                }
                for bad in ["NaN", "inf", "1e400", "x", ""] {
                    let before = algorithm;
                    assert!(algorithm.set(field.name, bad).is_err(), "{name}.{}", field.name);
                    assert_eq!(algorithm, before);
                }
                algorithm.set(field.name, &field.text(field.default)).unwrap();
            }
            assert_eq!(algorithm, Algorithm::named(name).unwrap());
        }
        let mut algorithm = Algorithm::named("unocc").unwrap();
        assert!(algorithm.set("nothing", "1").unwrap_err().to_string().contains("quick_adapt"));
    }

    #[test]
    fn table__has_a_row_for_each_parameter() {
        for name in Algorithm::known() {
            let algorithm = Algorithm::named(name).unwrap();
            let text = table(&algorithm);
            assert_eq!(text.lines().count(), 2 + algorithm.fields().len());
        }
        let fixed = table(&Algorithm::named("fixed").unwrap());
        assert!(
            fixed.contains("| `window_pkts` | 192 | 1 to 1e6 | The window in packets"),
            "{fixed}"
        );
    }
}
