//! Every policy by name.

use crate::{Entropy, Flow, LoadBalancer, Outgoing, PathAck, PathLoss, PathState, Pick, Round};
use crate::{plb, rps};
use spanwire_base::Time;
use spanwire_params::Slot;

/// Lists the policies: a module each, with a `Params` and a type of the variant's name that has
/// `new(&Params, &Flow)`. Then presets: names for a policy with certain parameters.
macro_rules! policies {
    (
        $($(#[$doc:meta])* $Name:ident = $name:literal in $module:ident;)*
        $($preset:literal = $value:expr;)*
    ) => {
        spanwire_params::choices! {
            /// The choice of a policy, with its parameters.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            enum Choice of u64, "load balancing";
            $($(#[$doc])* $Name(crate::$module::Params) = $name;)*
            $($preset = $value;)*
        }

        /// The policy of one flow.
        #[derive(Clone, Debug)]
        pub enum Policy {
            $($(#[$doc])* $Name(crate::$module::$Name),)*
        }

        impl Choice {
            /// A policy for one flow. A value outside its range is clamped to it.
            #[must_use]
            pub fn start(&self, flow: &Flow) -> Policy {
                let valid = self.clamped();
                match &valid {
                    $(Self::$Name(p) => Policy::$Name(crate::$module::$Name::new(p, flow)),)*
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
    /// One path for the whole flow.
    Ecmp = "ecmp" in ecmp;
    /// Packets sprayed over many paths.
    Rps = "rps" in rps;
    /// One path, replaced when it is congested or dead.
    Plb = "plb" in plb;
    /// The load balancing of Uno: several paths in turn, dead ones replaced.
    UnoLb = "unolb" in unolb;
    /// Recycling of paths with unmarked acknowledgements.
    Reps = "reps" in reps;
    "rps-rr" = Self::Rps(rps::Params::round_robin());
    "plb-linux" = Self::Plb(plb::Params::linux());
    "plb-uno" = Self::Plb(plb::Params::uno());
    "plb-dc" = Self::Plb(plb::Params::default());
}

impl Choice {
    /// True if all packets of a flow take one path until it changes, and so stay in order.
    #[must_use]
    pub fn is_single_path(&self) -> bool {
        self.start(&Flow { seed: 0, base_rtt: None }).is_single_path()
    }

    fn clamped(mut self) -> Self {
        for (field, slot) in self.fields().iter().zip(self.values_mut()) {
            if let (Slot::Number(number), Some((min, max))) = (slot, field.range()) {
                *number = (*number).clamp(min, max);
            }
        }
        self
    }
}

/// The parameters as a table of Markdown: name, default, range, meaning with the source of the
/// default. docs/loadbalance.md contains these tables.
#[must_use]
pub fn table(choice: &Choice) -> String {
    spanwire_params::table(choice.fields(), &choice.values())
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_params::ParamError;

    #[test]
    fn named__every_one_has_valid_defaults_and_a_documented_range() {
        for name in Choice::NAMES {
            let choice = Choice::named(name).unwrap();
            assert_eq!(choice.name(), *name);
            choice.validate().unwrap();
            for (field, value) in choice.fields().iter().zip(choice.values()) {
                assert!(field.about.len() > 10, "{name}.{} lacks a description", field.name);
                assert_eq!(field.default, value);
            }
        }
        for name in Choice::PRESETS {
            Choice::named(name).unwrap().validate().unwrap();
        }
        let known = Choice::known();
        let name = "conga".to_owned();
        let what = "load balancing";
        assert_eq!(Choice::named("conga"), Err(ParamError::NoChoice { what, name, known }));
    }

    #[test]
    fn parse__accepts_what_display_writes() {
        for name in Choice::known() {
            let mut choice = Choice::parse(name).unwrap();
            assert_eq!(Choice::parse(&choice.to_string()), Ok(choice));
            for field in choice.fields() {
                let ends = field.range().map(|(min, max)| [min, max].map(|n| n.to_string()));
                for value in ends.unwrap_or(["false", "true"].map(str::to_owned)) {
                    choice.set(field.name, &value).unwrap();
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
            ("unolb,subflows", "\"subflows\" is not KEY=VALUE"),
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
    fn is_single_path__of_order_preserving_policies() {
        let is = |text: &&&str| Choice::parse(text).unwrap().is_single_path();
        let known = Choice::known();
        let names: Vec<_> = known.iter().filter(is).collect();
        assert_eq!(names, [&"ecmp", &"plb", &"plb-linux", &"plb-uno", &"plb-dc"]);
        assert!(is(&&"unolb,subflows=1") && is(&&"rps,entropy_bits=0"));
    }

    #[test]
    fn start__clamps_values_out_of_range() {
        let params = crate::unolb::Params { subflows: 0, ..Default::default() };
        let mut policy = Choice::UnoLb(params).start(&Flow { seed: 1, base_rtt: None });
        policy.pick(&crate::testing::data(Time::ZERO, 7));
    }

    #[test]
    fn table__has_a_row_for_each_parameter() {
        for name in Choice::known() {
            let choice = Choice::named(name).unwrap();
            assert_eq!(table(&choice).lines().count(), 2 + choice.fields().len());
        }
        let unolb = table(&Choice::named("unolb").unwrap());
        assert!(unolb.contains("| `subflows` | 10 | 1 to 32 | Paths in use"), "{unolb}");
        assert!(unolb.contains("| `reroute` | fresh | fresh, copy |"), "{unolb}");
    }
}
