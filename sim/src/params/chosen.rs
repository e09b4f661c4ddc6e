//! Congestion control and load balancing as parameters: a name and a policy's own parameters.

use spanwire_cc::Algorithm;
use spanwire_loadbalance::Choice;
use spanwire_params::split;
use std::fmt;

/// A policy selected by name, with its own parameters: `swift`, or `swift,beta=0.5`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chosen<P> {
    /// The name that selected it, possibly a preset's.
    name: &'static str,
    policy: P,
}

/// A congestion control selected by name, or none.
pub type CcChoice = Chosen<Option<Algorithm>>;

/// A load balancer selected by name.
///
/// Besides the balancers' own names those of Uno's evaluation are known: `spray` is `rps`, and
/// `plb` is `plb-uno` with its authors' parameters.
pub type LbChoice = Chosen<Choice>;

/// A kind of policy that a scenario selects by one of the simulator's names.
pub trait Policy: Copy {
    /// The known names.
    fn known() -> Vec<&'static str>;

    /// The policy of this name, if it is known.
    fn named(name: &str) -> Option<Self>;

    /// Sets one of its own parameters, or returns the reason in a sentence.
    ///
    /// # Errors
    /// It has no parameter of this name, or the value is invalid.
    fn set(&mut self, field: &str, text: &str) -> Result<(), String>;

    /// Its parameters that differ from those of `plain`.
    fn differences(&self, plain: &Self) -> Vec<(&'static str, String)>;
}

impl CcChoice {
    /// The text for no congestion control.
    pub const NONE: &'static str = "none";

    /// The selected algorithm; `None` for none.
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
    /// No congestion control.
    fn default() -> Self {
        Self { name: Self::NONE, policy: None }
    }
}

impl<P: Policy> Chosen<P> {
    /// The policy of this name, if it is known.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = P::known().into_iter().find(|known| *known == name)?;
        Some(Self { name, policy: P::named(name)? })
    }

    /// The name that selected it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The known names.
    #[must_use]
    pub fn known() -> Vec<&'static str> {
        P::known()
    }

    /// Sets one of its own parameters, or returns the reason in a sentence.
    pub(super) fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
        self.policy.set(field, text).map_err(|e| format!("{}: {e}", self.name))
    }

    /// Parses a name and parameters separated by commas.
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
    /// The name, and the parameters that differ from its defaults.
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
        let none = "no congestion control is selected, so it has no parameters";
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

/// The balancer's own name for an alias.
fn own_name(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, own)| own)
}

/// Aliases from Uno's evaluation and the balancers' own names.
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
    fn set__lists_the_known_parameters() {
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
        assert!(error.contains("no congestion control is selected"), "{error}");
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
    fn named__uno_s_aliases_have_its_authors_parameters() {
        let of = |name| LbChoice::named(name).unwrap().choice();
        assert_eq!((of("spray"), of("plb")), (of("rps"), of("plb-uno")));
        assert_ne!(of("plb"), Choice::named("plb").unwrap());
    }
}
