//! Load balancing as a parameter: a name, and its own parameters.

use spanwire_loadbalance::Choice;
use std::fmt;

/// A load balancer that was chosen by name, with parameters of its own: `unolb`, or
/// `unolb,subflows=20`.
///
/// Beside the balancers' own names there are those of Uno's evaluation: `spray` is `rps`, and
/// `plb` is `plb-uno`, as its authors ran it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LbChoice {
    /// The name that it was chosen by, which may be that of a preset.
    name: &'static str,
    choice: Choice,
}

impl LbChoice {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = Self::known().into_iter().find(|known| *known == name)?;
        Some(Self { name, choice: Choice::named(own_name(name)).ok()? })
    }

    /// The balancer with its parameters.
    #[must_use]
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// What there is to choose from.
    #[must_use]
    pub fn known() -> Vec<&'static str> {
        let mut all: Vec<&'static str> = ALIASES.iter().map(|(alias, _)| *alias).collect();
        all.extend(Choice::known().into_iter().filter(|name| own_name(name) == *name));
        all
    }

    /// Sets one of its own parameters; why not, in a sentence, if that cannot be.
    pub(super) fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
        self.choice.set(field, text).map_err(|e| e.to_string())
    }

    /// A name, and parameters behind commas.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(',').map(str::trim);
        let mut choice = Self::named(parts.next()?)?;
        for part in parts {
            let (field, value) = part.split_once('=')?;
            choice.set(field.trim(), value.trim()).ok()?;
        }
        Some(choice)
    }
}

impl fmt::Display for LbChoice {
    /// The name, and what is set otherwise than by the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let plain = Choice::named(own_name(self.name)).unwrap_or(self.choice);
        let values = plain.values().into_iter().zip(self.choice.values());
        for (field, (plain, now)) in self.choice.fields().iter().zip(values) {
            if plain != now {
                write!(f, ",{}={}", field.name, field.text(now))?;
            }
        }
        Ok(())
    }
}

/// What is called `name` here, as the balancers themselves are called.
fn own_name(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, own)| own)
}

/// Names of Uno's evaluation, and what they are called here.
///
/// # Source
/// Uno (SC'25), section 5.2.3.
const ALIASES: [(&str, &str); 2] = [("spray", "rps"), ("plb", "plb-uno")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__takes_what_display_writes() {
        for name in LbChoice::known() {
            let choice = LbChoice::parse(name).unwrap();
            assert_eq!(choice.to_string(), name);
            for field in choice.choice().fields() {
                let mut other = choice;
                other.set(field.name, &field.max.to_string()).unwrap();
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
