//! Congestion control and load balancing as parameters: a name, and parameters of its own.

use spanwire_cc::Algorithm;
use spanwire_loadbalance::Choice;
use spanwire_params::split;
use std::fmt;

/// A policy that was chosen by name, with parameters of its own: `swift`, or `swift,beta=0.5`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chosen<P> {
    /// The name that it was chosen by, which may be that of a preset.
    name: &'static str,
    policy: P,
}

/// A congestion control that was chosen by name, or none.
pub type CcChoice = Chosen<Option<Algorithm>>;

/// A load balancer that was chosen by name.
///
/// Beside the balancers' own names there are those of Uno's evaluation: `spray` is `rps`, and
/// `plb` is `plb-uno`, as its authors ran it.
pub type LbChoice = Chosen<Choice>;

/// What a scenario chooses by name; the names are those of the simulator.
pub trait Policy: Copy {
    /// What there is to choose from.
    fn known() -> Vec<&'static str>;

    /// The one of this name, if there is one.
    fn named(name: &str) -> Option<Self>;

    /// Sets one of its own parameters; why not, in a sentence, if that cannot be.
    ///
    /// # Errors
    /// It has none of this name, or it cannot have this value.
    fn set(&mut self, field: &str, text: &str) -> Result<(), String>;

    /// The parameters that are set otherwise than in `plain`.
    fn differences(&self, plain: &Self) -> Vec<(&'static str, String)>;
}

impl CcChoice {
    /// The text of none.
    pub const NONE: &'static str = "none";

    /// What was chosen; `None` for none.
    #[must_use]
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.policy
    }
}

impl LbChoice {
    /// The balancer with its parameters.
    #[must_use]
    pub fn choice(&self) -> Choice {
        self.policy
    }
}

impl Default for CcChoice {
    /// None.
    fn default() -> Self {
        Self { name: Self::NONE, policy: None }
    }
}

impl<P: Policy> Chosen<P> {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = P::known().into_iter().find(|known| *known == name)?;
        Some(Self { name, policy: P::named(name)? })
    }

    /// The name that it was chosen by.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What there is to choose from.
    #[must_use]
    pub fn known() -> Vec<&'static str> {
        P::known()
    }

    /// Sets one of its own parameters; why not, in a sentence, if that cannot be.
    pub(super) fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
        self.policy.set(field, text).map_err(|e| format!("{}: {e}", self.name))
    }

    /// A name, and parameters behind commas.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, settings) = split(text);
        let mut choice = Self::named(name)?;
        for setting in settings {
            let (field, value) = setting.ok()?;
            choice.set(field, value).ok()?;
        }
        Some(choice)
    }
}

impl<P: Policy> fmt::Display for Chosen<P> {
    /// The name, and what is set otherwise than by the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let plain = P::named(self.name).unwrap_or(self.policy);
        let settings = self.policy.differences(&plain);
        settings.iter().try_for_each(|(field, text)| write!(f, ",{field}={text}"))
    }
}

impl Policy for Option<Algorithm> {
    fn known() -> Vec<&'static str> {
        [vec![CcChoice::NONE], Algorithm::known()].concat()
    }

    fn named(name: &str) -> Option<Self> {
        if name == CcChoice::NONE { Some(None) } else { Algorithm::named(name).ok().map(Some) }
    }

    fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
        let none = "no congestion control is chosen that would have parameters";
        self.as_mut().ok_or(none)?.set(field, text).map_err(|e| e.to_string())
    }

    fn differences(&self, plain: &Self) -> Vec<(&'static str, String)> {
        let both = self.as_ref().zip(plain.as_ref());
        both.map_or_else(Vec::new, |(algorithm, plain)| algorithm.differences(plain))
    }
}

impl Policy for Choice {
    fn known() -> Vec<&'static str> {
        let mut all: Vec<&'static str> = ALIASES.iter().map(|(alias, _)| *alias).collect();
        all.extend(Self::known().into_iter().filter(|name| own_name(name) == *name));
        all
    }

    fn named(name: &str) -> Option<Self> {
        Self::named(own_name(name)).ok()
    }

    fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
        self.set(field, text).map_err(|e| e.to_string())
    }

    fn differences(&self, plain: &Self) -> Vec<(&'static str, String)> {
        self.differences(plain)
    }
}

/// What is called `name` here, as the balancers themselves are called.
fn own_name(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, own)| own)
}

/// Names of Uno's evaluation, and what they are called here.
///
/// # Source
/// Uno 5.2.3 (SC'25).
const ALIASES: [(&str, &str); 2] = [("spray", "rps"), ("plb", "plb-uno")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__reads_every_congestion_control_and_its_own_display() {
        for name in CcChoice::known() {
            let choice = CcChoice::parse(name).unwrap();
            assert_eq!((choice.name(), choice.to_string().as_str()), (name, name));
            assert_eq!(choice.algorithm(), Algorithm::named(name).ok());
        }
        let choice = CcChoice::parse("timely-classic, beta = 0.5,high_us=3").unwrap();
        assert_eq!(choice.to_string(), "timely-classic,beta=0.5,high_us=3");
        assert_eq!(CcChoice::parse(&choice.to_string()), Some(choice));
        for bad in
            ["", "cubic", "swift,", "swift,beta", "swift,beta=2", "swift,alpha=1", "none,x=1"]
        {
            assert_eq!(CcChoice::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn set__says_what_there_is() {
        let mut choice = CcChoice::parse("swift").unwrap();
        choice.set("beta", "0.25").unwrap();
        assert_eq!(choice.to_string(), "swift,beta=0.25");
        for (field, text, expected) in
            [("gamma", "1", "max_decrease"), ("beta", "2", "between"), ("beta", "x", "a number")]
        {
            let error = choice.set(field, text).unwrap_err();
            assert!(error.contains(expected) && error.starts_with("swift: "), "{error}");
        }
        let error = CcChoice::default().set("beta", "1").unwrap_err();
        assert!(error.contains("no congestion control is chosen"), "{error}");
        let error = LbChoice::named("spray").unwrap().set("subflows", "1").unwrap_err();
        assert!(error.starts_with("spray: ") && error.contains("entropy_bits"), "{error}");
    }

    #[test]
    fn parse__reads_every_load_balancer_and_its_own_display() {
        for name in LbChoice::known() {
            let choice = LbChoice::parse(name).unwrap();
            assert_eq!(choice.to_string(), name);
            for field in choice.choice().fields() {
                let mut other = choice;
                let most = field.range().map_or(true.into(), |(_, max)| max.into());
                other.set(field.name, &field.text(most)).unwrap();
                assert_eq!(
                    LbChoice::parse(&other.to_string()).map(|c| c.choice()),
                    Some(other.choice())
                );
            }
        }
        assert_eq!(LbChoice::parse("drill"), None);
        assert_eq!(LbChoice::parse("unolb,subflows=x"), None);
    }

    #[test]
    fn named__uno_s_names_are_what_its_authors_ran() {
        let of = |name| LbChoice::named(name).unwrap().choice();
        assert_eq!((of("spray"), of("plb")), (of("rps"), of("plb-uno")));
        assert_ne!(of("plb"), Choice::named("plb").unwrap());
    }
}
