//! Congestion control as a parameter: a name, and its own parameters.

use spanwire_cc::Algorithm;
use std::fmt;

/// A congestion control that was chosen by name, with parameters of its own: `swift`, or
/// `swift,beta=0.5`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CcChoice {
    /// The name that it was chosen by, which may be that of a preset.
    chosen: Option<(&'static str, Algorithm)>,
}

impl CcChoice {
    /// The text of none.
    pub const NONE: &'static str = "none";

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name == Self::NONE {
            return Some(Self::default());
        }
        let name = Algorithm::known().into_iter().find(|known| *known == name)?;
        Some(Self { chosen: Some((name, Algorithm::named(name).ok()?)) })
    }

    /// What was chosen; `None` for none.
    #[must_use]
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.chosen.map(|(_, algorithm)| algorithm)
    }

    /// The name that it was chosen by.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.chosen.map_or(Self::NONE, |(name, _)| name)
    }

    /// What there is to choose from.
    #[must_use]
    pub fn known() -> Vec<&'static str> {
        [vec![Self::NONE], Algorithm::known()].concat()
    }

    /// Sets one of its own parameters; why not, in a sentence, if that cannot be.
    pub(super) fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
        match &mut self.chosen {
            Some((name, algorithm)) => {
                algorithm.set(field, text).map_err(|e| format!("{name}: {e}"))
            }
            None => Err("no congestion control is chosen that would have parameters".to_owned()),
        }
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

impl fmt::Display for CcChoice {
    /// The name, and what is set otherwise than by the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let Some((name, algorithm)) = &self.chosen else { return Ok(()) };
        let plain = Algorithm::named(name).map_or_else(|_| Vec::new(), |a| a.values());
        for ((field, value), plain) in algorithm.fields().iter().zip(algorithm.values()).zip(plain)
        {
            if value.to_bits() != plain.to_bits() {
                write!(f, ",{}={value}", field.name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__reads_every_name_and_its_own_display() {
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
        assert!(CcChoice::default().set("beta", "1").is_err());
    }
}
