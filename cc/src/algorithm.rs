//! Every algorithm by name.

use crate::auto::Auto;
use crate::controller::{Controller, with_methods};
use crate::sample::{Ack, Hop, Loss, Path, PseudoAck, Sent};
use crate::status::Status;
use crate::{dcqcn_rnic, gemini, mlcc, powertcp, timely};
use spanwire_base::{Dur, Rate, Time};

/// Declares the algorithms, and forwards every method of [`Controller`] from [`Cc`] to them.
///
/// There is a line for each algorithm: a module with a `Params` and a type of the variant's name
/// that has `new(&Params, &Path)`. The last lines are presets: algorithms with certain parameters.
macro_rules! controllers {
    (
        required { $($required:tt)* }
        provided { $($provided:tt)* }
        $($(#[$doc:meta])* $Name:ident = $name:literal in $module:ident;)*
        $($preset:literal = $value:expr;)*
    ) => {
        controllers!(@methods [$($Name)*] { $($required)* } { $($provided)* });

        spanwire_params::choices! {
            /// The choice of an algorithm, with its parameters.
            #[derive(Clone, Copy, PartialEq, Debug)]
            enum Algorithm of f64, "congestion control";
            $($(#[$doc])* $Name(crate::$module::Params) = $name;)*
            $($preset = $value;)*
        }

        /// The congestion control of one flow.
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
    };
    (@methods $names:tt
        { $($(#[$doc:meta])* fn $required:ident $args:tt $(-> $Out:ty)?;)* }
        { $($(#[$about:meta])* fn $provided:ident $inputs:tt $(-> $Result:ty)? $body:block)* }
    ) => {
        impl Controller for Cc {
            $(controllers!(@forward $names $required $args $(-> $Out)?);)*
            $(controllers!(@forward $names $provided $inputs $(-> $Result)?);)*
        }
    };
    (@forward $names:tt $method:ident (&self) -> $Out:ty) => {
        fn $method(&self) -> $Out {
            controllers!(@match self $names $method ())
        }
    };
    (@forward $names:tt $method:ident (&mut self $(, $arg:ident: $Arg:ty)*)) => {
        fn $method(&mut self $(, $arg: $Arg)*) {
            controllers!(@match self $names $method ($($arg),*))
        }
    };
    (@match $cc:ident [$($Name:ident)*] $method:ident $args:tt) => {
        match $cc {
            $(Self::$Name(cc) => cc.$method $args,)*
        }
    };
}

with_methods! {
    controllers! {
        /// For any path, without tuning.
        Auto = "auto" in auto;
        /// A constant window and rate.
        Fixed = "fixed" in fixed;
        /// The congestion control of Uno.
        UnoCc = "unocc" in unocc;
        /// Swift.
        Swift = "swift" in swift;
        /// TIMELY.
        Timely = "timely" in timely;
        /// DCQCN of the paper.
        Dcqcn = "dcqcn" in dcqcn;
        /// DCQCN of RDMA adapters.
        DcqcnRnic = "dcqcn-rnic" in dcqcn_rnic;
        /// HPCC.
        Hpcc = "hpcc" in hpcc;
        /// PowerTCP, and theta-PowerTCP.
        PowerTcp = "powertcp" in powertcp;
        /// MLCC.
        Mlcc = "mlcc" in mlcc;
        /// Gemini.
        Gemini = "gemini" in gemini;
        /// BBR, version 1.
        Bbr = "bbr" in bbr;
        /// The window of MP-RDMA.
        MpRdma = "mprdma" in mprdma;
        /// DCTCP.
        Dctcp = "dctcp" in dctcp;
        "theta-powertcp" = Self::PowerTcp(powertcp::Params { theta: true, ..Default::default() });
        "dcqcn-ns3" = Self::DcqcnRnic(dcqcn_rnic::Params::ns3());
        "timely-ns3" = Self::Timely(timely::Params::ns3());
        "timely-vwin" = Self::Timely(timely::Params::ns3_with_window());
        "timely-classic" = Self::Timely(timely::Params { patched: false, ..Default::default() });
        "gemini-paper" = Self::Gemini(gemini::Params::paper());
    }
}

impl Algorithm {
    /// A controller for one flow on a path about which nothing but our own link is known, between
    /// hosts that may be late. `auto` and `fixed` are as with [`Algorithm::start`], and so is
    /// `mlcc`, whose signals do not come with acknowledgements. Of the others, `auto` measures the
    /// path and scales the parameters that were not set; they decide in congestion avoidance. An
    /// algorithm that needs telemetry is `auto` where there is none.
    #[must_use]
    pub fn start_calibrated(&self, path: &Path) -> Cc {
        match self {
            Self::Auto(_) | Self::Fixed(_) | Self::Mlcc(_) => self.start(path),
            _ => Cc::Auto(Auto::calibrated(self, path)),
        }
    }
}

impl Algorithm {
    /// Its flows use feedback of nearby switches ([`Controller::wants_near`]), with any path.
    #[must_use]
    pub fn wants_near(&self) -> bool {
        self.start(&ANY_PATH).wants_near()
    }

    /// Its flows use the credit loop of the receiver ([`Controller::wants_credit`]).
    #[must_use]
    pub fn wants_credit(&self) -> bool {
        self.start(&ANY_PATH).wants_credit()
    }

    /// The receiver's part of a flow on this path; only `mlcc` has one.
    #[must_use]
    pub fn receiver(&self, path: &Path) -> Option<mlcc::Receiver> {
        match self {
            Self::Mlcc(params) => Some(mlcc::Receiver::new(params, path)),
            _ => None,
        }
    }

    /// It uses in-band telemetry.
    #[must_use]
    pub fn wants_int(&self) -> bool {
        self.start(&ANY_PATH).wants_int()
    }
}

/// A path, for properties that do not depend on it.
const ANY_PATH: Path = Path { mtu_bytes: 1024, line_rate: Rate::from_gbps(1), base_rtt: None };

/// `auto`, which suits any path.
impl Default for Algorithm {
    fn default() -> Self {
        Self::Auto(crate::auto::Params::default())
    }
}

/// The parameters as a table of Markdown: name, default, range, meaning with the source of the
/// default. docs/cc.md contains these tables.
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
                assert!(field.about.len() > 10, "{name}.{} lacks a description", field.name);
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
    fn wants_int__of_telemetry_based_algorithms() {
        let wants = |name: &&str| Algorithm::named(name).unwrap().wants_int();
        let known = Algorithm::known();
        let all: Vec<&&str> = known.iter().filter(|name| wants(name)).collect();
        assert_eq!(all, [&"hpcc", &"powertcp", &"mlcc"]);
    }

    #[test]
    fn wants_near__of_algorithms_whose_near_base_is_set() {
        let wants = |text: &str| Algorithm::parse(text).unwrap().wants_near();
        let all: Vec<_> = Algorithm::known().into_iter().filter(|name| wants(name)).collect();
        assert_eq!(all, ["mlcc"]);
        assert!(wants("swift,near_base_us=6.5") && wants("timely-ns3,near_base_us=6"));
        let calibrated = Algorithm::parse("swift,near_base_us=6.5").unwrap();
        let path = Path { mtu_bytes: 1000, line_rate: Rate::from_gbps(1), base_rtt: None };
        assert!(calibrated.start_calibrated(&path).wants_near());
        assert!(!Algorithm::default().start_calibrated(&path).wants_near());
    }

    #[test]
    fn set__accepts_only_values_in_range() {
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
