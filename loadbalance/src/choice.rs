//! Every policy by name.

use crate::params::{Field, ParamError, parse};
use crate::{Entropy, Flow, LoadBalancer, Outgoing, PathAck, PathLoss, PathState, Pick, Round};
use spanwire_base::Time;
use std::fmt;

/// Lists the policies: a module each, with a `Params` and a type of the variant's name that has
/// `new(&Params, &Flow)`.
macro_rules! policies {
    ($($(#[$doc:meta])* $Name:ident = $name:literal in $module:ident;)*) => {
        /// Which policy, with its parameters.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Choice {
            $($(#[$doc])* $Name(crate::$module::Params),)*
        }

        /// One flow's policy.
        #[derive(Clone, Debug)]
        pub enum Policy {
            $($(#[$doc])* $Name(crate::$module::$Name),)*
        }

        impl Choice {
            /// Their names.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// The one of this name, with its defaults.
            ///
            /// # Errors
            /// There is none.
            pub fn named(name: &str) -> Result<Self, ParamError> {
                match name {
                    $($name => Ok(Self::$Name(crate::$module::Params::default())),)*
                    _ => Self::preset(name).ok_or_else(|| ParamError::NoPolicy {
                        name: name.to_owned(),
                        known: Self::known(),
                    }),
                }
            }

            /// Its name.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$Name(_) => $name,)*
                }
            }

            /// Its parameters, as people see them.
            #[must_use]
            pub fn fields(&self) -> &'static [Field] {
                match self {
                    $(Self::$Name(_) => crate::$module::Params::FIELDS,)*
                }
            }

            /// Their values, in the order of [`Choice::fields`].
            #[must_use]
            pub fn values(&self) -> Vec<u64> {
                match self {
                    $(Self::$Name(params) => params.values(),)*
                }
            }

            /// Checks all of them.
            ///
            /// # Errors
            /// The first that is outside its range.
            pub fn validate(&self) -> Result<(), ParamError> {
                match self {
                    $(Self::$Name(params) => params.validate(),)*
                }
            }

            /// A policy for one flow. A value outside its range counts as the nearest inside.
            #[must_use]
            pub fn start(&self, flow: &Flow) -> Policy {
                let valid = self.clamped();
                match &valid {
                    $(Self::$Name(p) => Policy::$Name(crate::$module::$Name::new(p, flow)),)*
                }
            }

            fn put(&mut self, name: &str, value: u64) {
                match self {
                    $(Self::$Name(params) => params.put(name, value),)*
                }
            }
        }

        impl LoadBalancer for Policy {
            fn pick(&mut self, out: &Outgoing) -> Pick {
                match self {
                    $(Self::$Name(policy) => policy.pick(out),)*
                }
            }

            fn on_ack(&mut self, now: Time, ack: &PathAck) {
                match self {
                    $(Self::$Name(policy) => policy.on_ack(now, ack),)*
                }
            }

            fn on_loss(&mut self, now: Time, loss: &PathLoss) {
                match self {
                    $(Self::$Name(policy) => policy.on_loss(now, loss),)*
                }
            }

            fn on_timeout(&mut self, now: Time) {
                match self {
                    $(Self::$Name(policy) => policy.on_timeout(now),)*
                }
            }

            fn on_round(&mut self, now: Time, round: &Round) {
                match self {
                    $(Self::$Name(policy) => policy.on_round(now, round),)*
                }
            }

            fn is_single_path(&self) -> bool {
                match self {
                    $(Self::$Name(policy) => policy.is_single_path(),)*
                }
            }

            fn state(&self, now: Time, path: Entropy) -> Option<PathState> {
                match self {
                    $(Self::$Name(policy) => policy.state(now, path),)*
                }
            }
        }
    };
}

policies! {
    /// One path, for ever.
    Ecmp = "ecmp" in ecmp;
    /// Packets sprayed over many paths.
    Rps = "rps" in rps;
    /// One path, until it is congested or dead.
    Plb = "plb" in plb;
    /// Uno's: some paths in turn, the dead ones replaced.
    UnoLb = "unolb" in unolb;
    /// Paths that were good are used again.
    Reps = "reps" in reps;
}

impl Choice {
    /// Names for a policy with certain parameters.
    pub const PRESETS: &'static [&'static str] = &["rps-rr", "plb-linux", "plb-uno", "plb-dc"];

    fn preset(name: &str) -> Option<Self> {
        use crate::{plb, rps};
        match name {
            "rps-rr" => Some(Self::Rps(rps::Params::round_robin())),
            "plb-linux" => Some(Self::Plb(plb::Params::linux())),
            "plb-uno" => Some(Self::Plb(plb::Params::uno())),
            "plb-dc" => Some(Self::Plb(plb::Params::default())),
            _ => None,
        }
    }

    /// Every name that [`Choice::named`] takes.
    #[must_use]
    pub fn known() -> Vec<&'static str> {
        [Self::NAMES, Self::PRESETS].concat()
    }

    /// From text: a name, and parameters behind it: `unolb,subflows=20,reroute=copy`.
    ///
    /// # Errors
    /// There is no such policy or parameter, or it cannot have that value.
    pub fn parse(text: &str) -> Result<Self, ParamError> {
        let mut parts = text.split(',').map(str::trim);
        let mut choice = Self::named(parts.next().unwrap_or_default())?;
        for part in parts {
            let pair = part.split_once('=');
            let (key, value) =
                pair.ok_or_else(|| ParamError::NotASetting { text: part.to_owned() })?;
            choice.set(key.trim(), value)?;
        }
        Ok(choice)
    }

    /// Sets a parameter from text: a whole number, or a word where its values have names.
    ///
    /// # Errors
    /// There is no such parameter, or it cannot have this value; then nothing has changed.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ParamError> {
        let (field, value) = parse(self.fields(), name, text)?;
        self.put(field.name, value);
        Ok(())
    }

    /// All packets of a flow take one path until it changes: they stay in order.
    #[must_use]
    pub fn is_single_path(&self) -> bool {
        self.start(&Flow { seed: 0, base_rtt: None }).is_single_path()
    }

    fn clamped(mut self) -> Self {
        for (field, value) in self.fields().iter().zip(self.values()) {
            self.put(field.name, value.clamp(field.min, field.max));
        }
        self
    }
}

/// As [`Choice::parse`] takes it: the name, and the parameters that are not at their defaults.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        for (field, value) in self.fields().iter().zip(self.values()) {
            if value != field.default {
                write!(f, ",{}={}", field.name, field.text(value))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named__every_one_has_valid_defaults_and_a_documented_range() {
        for name in Choice::NAMES {
            let choice = Choice::named(name).unwrap();
            assert_eq!(choice.name(), *name);
            choice.validate().unwrap();
            for (field, value) in choice.fields().iter().zip(choice.values()) {
                assert!(field.about.len() > 10, "{name}.{} says what it is", field.name);
                assert!(field.min <= value && value <= field.max, "{name}.{}", field.name);
                assert_eq!(field.default, value);
            }
        }
        for name in Choice::PRESETS {
            Choice::named(name).unwrap().validate().unwrap();
        }
        let known = Choice::known();
        let name = "conga".to_owned();
        assert_eq!(Choice::named("conga"), Err(ParamError::NoPolicy { name, known }));
    }

    #[test]
    fn parse__takes_what_display_writes() {
        for name in Choice::known() {
            let mut choice = Choice::parse(name).unwrap();
            assert_eq!(Choice::parse(&choice.to_string()), Ok(choice));
            for field in choice.fields() {
                for value in [field.min, field.max] {
                    choice.set(field.name, &value.to_string()).unwrap();
                    assert_eq!(Choice::parse(&choice.to_string()), Ok(choice));
                }
            }
        }
        let text = "unolb,subflows=20,reroute=copy";
        assert_eq!(Choice::parse(text).unwrap().to_string(), text);
        assert_eq!(Choice::parse("plb").unwrap().to_string(), "plb");
    }

    #[test]
    fn parse__names_the_choices_in_its_errors() {
        for (text, said) in [
            ("conga", "ecmp, rps, plb, unolb, reps, rps-rr, plb-linux, plb-uno, plb-dc"),
            ("", "no load balancing is called ;"),
            ("unolb,flows=2", "no parameter flows; it has subflows,"),
            ("ecmp,x=1", "nor any other"),
            ("unolb,subflows", "\"subflows\" is no KEY=VALUE"),
            ("unolb,subflows=0", "subflows is 0, but must be between 1 and 32"),
            ("unolb,subflows=-1", "subflows is a whole number, not \"-1\""),
            ("unolb,reroute=back", "reroute is one of fresh, copy, not \"back\""),
            ("unolb,reroute=2", "between 0 and 1"),
        ] {
            let error = Choice::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn set__changes_nothing_when_it_fails() {
        for name in Choice::NAMES {
            let mut choice = Choice::named(name).unwrap();
            for field in choice.fields() {
                for bad in ["NaN", "1.5", "99999999999999999999", "x", ""] {
                    let before = choice;
                    assert!(choice.set(field.name, bad).is_err(), "{name}.{}", field.name);
                    assert_eq!(choice, before);
                }
            }
        }
    }

    #[test]
    fn is_single_path__of_those_that_keep_packets_in_order() {
        let is = |text: &&&str| Choice::parse(text).unwrap().is_single_path();
        let known = Choice::known();
        let names: Vec<_> = known.iter().filter(is).collect();
        assert_eq!(names, [&"ecmp", &"plb", &"plb-linux", &"plb-uno", &"plb-dc"]);
        assert!(is(&&"unolb,subflows=1") && is(&&"rps,entropy_bits=0"));
    }

    #[test]
    fn start__values_out_of_range_are_brought_inside() {
        let params = crate::unolb::Params { subflows: 0, ..Default::default() };
        let mut policy = Choice::UnoLb(params).start(&Flow { seed: 1, base_rtt: None });
        policy.pick(&crate::testing::data(Time::ZERO, 7));
    }
}
