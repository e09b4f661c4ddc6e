//! Parameters of scenarios: typed, documented, and overridden by text.

mod cc;

pub use cc::CcChoice;

use serde::Serialize;
use spanwire_base::{Dur, Rate};
use spanwire_switch::{Human, Prob};
use std::fmt;

/// A parameter of a scenario.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Param {
    /// Its name, as in `--set name=value`.
    pub name: &'static str,
    /// What it means.
    pub about: &'static str,
    /// Its value: the default until it is set.
    #[serde(serialize_with = "show")]
    pub value: Value,
}

/// A typed value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A whole number in a range.
    Count {
        /// The number.
        n: u64,
        /// The smallest allowed.
        min: u64,
        /// The largest allowed.
        max: u64,
    },
    /// Bytes: `"64KiB"`.
    Bytes(u64),
    /// A rate: `"100Gbit"`.
    Rate(Rate),
    /// A time: `"2ms"`.
    Time(Dur),
    /// A probability: `"1%"`.
    Chance(Prob),
    /// Several times, separated by commas: `"20us,2ms"`.
    Times(Vec<Dur>),
    /// Several probabilities, separated by commas: `"0.1%,5%"`.
    Chances(Vec<Prob>),
    /// `true` or `false`.
    Flag(bool),
    /// A congestion control: `"unocc"`.
    Cc(CcChoice),
    /// One of several words.
    Word {
        /// The word.
        word: String,
        /// All that are allowed.
        of: Vec<&'static str>,
    },
}

/// The parameters of one scenario.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Params {
    list: Vec<Param>,
}

/// Why a parameter cannot be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamError {
    /// The scenario has no parameter of this name; those that it has.
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// A parameter of a congestion control, as in `cc.alpha`, cannot be set.
    Cc {
        /// The parameter.
        name: String,
        /// Why not, and what can.
        why: String,
    },
    /// The text is no value of this parameter.
    Value {
        /// The parameter.
        name: &'static str,
        /// What was given.
        text: String,
        /// What is expected.
        expected: String,
    },
}

impl Params {
    /// Adds a parameter with its default.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Value, about: &'static str) -> Self {
        match self.list.iter_mut().find(|p| p.name == name) {
            // A scenario may give a common parameter another default.
            Some(param) => *param = Param { name, about, value },
            None => self.list.push(Param { name, about, value }),
        }
        self
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Param> {
        self.list.iter()
    }

    /// Without the parameter of this name: for a scenario to which it means nothing.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.list.retain(|p| p.name != name);
        self
    }

    /// Sets several, pairs of name and text. A congestion control is set before its parameters, in
    /// whatever order they come.
    ///
    /// # Errors
    /// The first that cannot be set.
    pub fn set_all<'a>(
        &mut self,
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), ParamError> {
        let (of_others, own): (Vec<_>, Vec<_>) =
            set.into_iter().partition(|(name, _)| name.contains('.'));
        own.into_iter().chain(of_others).try_for_each(|(name, text)| self.set(name, text))
    }

    /// Sets one from text. `cc.alpha` is the parameter `alpha` of the congestion control that `cc`
    /// is set to.
    ///
    /// # Errors
    /// See [`ParamError`]; then nothing has changed.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ParamError> {
        if let Some((of, field)) = name.split_once('.')
            && let Some(Value::Cc(choice)) =
                self.list.iter_mut().find(|p| p.name == of).map(|p| &mut p.value)
        {
            let error = |why| ParamError::Cc { name: name.to_owned(), why };
            return choice.set(field, text).map_err(error);
        }
        let known = || self.list.iter().map(|p| p.name).collect();
        let Some(i) = self.list.iter().position(|p| p.name == name) else {
            return Err(ParamError::Unknown { name: name.to_owned(), known: known() });
        };
        let param = &mut self.list[i];
        match param.value.parse(text) {
            Some(value) => param.value = value,
            None => {
                let (name, text, expected) = (param.name, text.to_owned(), param.value.expected());
                return Err(ParamError::Value { name, text, expected });
            }
        }
        Ok(())
    }

    /// Whether there is one of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.list.iter().any(|p| p.name == name)
    }

    /// A count.
    ///
    /// # Panics
    /// Here and below: if the scenario has no such parameter of this type, which is its author's
    /// mistake; a test builds every scenario.
    #[must_use]
    pub fn count(&self, name: &str) -> u32 {
        match self.get(name) {
            Value::Count { n, .. } => u32::try_from(*n).expect("counts are declared below 2^32"),
            other => mismatch(name, other),
        }
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(&self, name: &str) -> u64 {
        match self.get(name) {
            Value::Bytes(n) => *n,
            other => mismatch(name, other),
        }
    }

    /// A rate.
    #[must_use]
    pub fn rate(&self, name: &str) -> Rate {
        match self.get(name) {
            Value::Rate(rate) => *rate,
            other => mismatch(name, other),
        }
    }

    /// A time.
    #[must_use]
    pub fn time(&self, name: &str) -> Dur {
        match self.get(name) {
            Value::Time(time) => *time,
            other => mismatch(name, other),
        }
    }

    /// A probability.
    #[must_use]
    pub fn chance(&self, name: &str) -> Prob {
        match self.get(name) {
            Value::Chance(chance) => *chance,
            other => mismatch(name, other),
        }
    }

    /// Times.
    #[must_use]
    pub fn times(&self, name: &str) -> &[Dur] {
        match self.get(name) {
            Value::Times(times) => times,
            other => mismatch(name, other),
        }
    }

    /// Probabilities.
    #[must_use]
    pub fn chances(&self, name: &str) -> &[Prob] {
        match self.get(name) {
            Value::Chances(chances) => chances,
            other => mismatch(name, other),
        }
    }

    /// A flag.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Value::Flag(flag) => *flag,
            other => mismatch(name, other),
        }
    }

    /// A congestion control.
    #[must_use]
    pub fn cc(&self, name: &str) -> CcChoice {
        match self.get(name) {
            Value::Cc(choice) => *choice,
            other => mismatch(name, other),
        }
    }

    /// A word.
    #[must_use]
    pub fn word(&self, name: &str) -> &str {
        match self.get(name) {
            Value::Word { word, .. } => word,
            other => mismatch(name, other),
        }
    }

    fn get(&self, name: &str) -> &Value {
        let param = self.list.iter().find(|p| p.name == name);
        &param
            .unwrap_or_else(|| panic!("a scenario asks for {name}, which it has not declared"))
            .value
    }
}

/// What commas separate; nothing is a list, too.
fn list<T: Human>(text: &str) -> Option<Vec<T>> {
    let parts = text.split(',').filter(|_| !text.is_empty());
    let number = |part: &str| part.parse().ok().and_then(T::from_number);
    parts.map(str::trim).map(|part| T::parse(part).or_else(|| number(part))).collect()
}

fn shown<T: Human>(list: &[T]) -> String {
    list.iter().map(Human::show).collect::<Vec<_>>().join(",")
}

fn mismatch(name: &str, value: &Value) -> ! {
    panic!("a scenario has declared {name} as {value:?} and asks for another type")
}

impl Value {
    /// A count from 1 to `max`.
    #[must_use]
    pub const fn count(n: u64, max: u64) -> Self {
        Self::Count { n, min: 1, max }
    }

    /// A value of the same type from text; `None` when it is not one.
    fn parse(&self, text: &str) -> Option<Self> {
        Some(match self {
            Self::Count { min, max, .. } => {
                let (min, max) = (*min, *max);
                let n = text.parse().ok().filter(|n| (min..=max).contains(n))?;
                Self::Count { n, min, max }
            }
            Self::Bytes(_) => {
                Self::Bytes(text.parse().ok().or_else(|| u64::parse(text)).filter(|n| *n > 0)?)
            }
            Self::Rate(_) => Self::Rate(Rate::parse(text)?),
            Self::Time(_) => Self::Time(Dur::parse(text)?),
            Self::Chance(_) => Self::Chance(Prob::parse(text)?),
            Self::Times(_) => Self::Times(list(text)?),
            Self::Chances(_) => Self::Chances(list(text)?),
            Self::Flag(_) => Self::Flag(text.parse().ok()?),
            Self::Cc(_) => Self::Cc(CcChoice::parse(text)?),
            Self::Word { of, .. } => {
                let word = of.iter().find(|w| **w == text)?;
                Self::Word { word: (*word).to_owned(), of: of.clone() }
            }
        })
    }

    fn expected(&self) -> String {
        match self {
            Self::Count { min, max, .. } => format!("a whole number from {min} to {max}"),
            Self::Bytes(_) => "a number of bytes such as 64KiB or 1000000, above 0".to_owned(),
            Self::Rate(_) => Rate::EXPECTED.to_owned(),
            Self::Time(_) => Dur::EXPECTED.to_owned(),
            Self::Chance(_) => Prob::EXPECTED.to_owned(),
            Self::Times(_) => format!("nothing, or one or several of {}", Dur::EXPECTED),
            Self::Chances(_) => format!("nothing, or one or several of {}", Prob::EXPECTED),
            Self::Flag(_) => "true or false".to_owned(),
            Self::Cc(_) => format!("one of {}", CcChoice::known().join(", ")),
            Self::Word { of, .. } => format!("one of {}", of.join(", ")),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { n, .. } => write!(f, "{n}"),
            Self::Bytes(n) => f.write_str(&n.show()),
            Self::Rate(rate) => f.write_str(&rate.show()),
            Self::Time(time) => f.write_str(&time.show()),
            Self::Chance(chance) => f.write_str(&chance.show()),
            Self::Times(times) => f.write_str(&shown(times)),
            Self::Chances(chances) => f.write_str(&shown(chances)),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Cc(choice) => write!(f, "{choice}"),
            Self::Word { word, .. } => f.write_str(word),
        }
    }
}

fn show<S: serde::Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } => {
                write!(f, "there is no parameter {name}; there are {}", known.join(", "))
            }
            Self::Cc { name, why } => write!(f, "{name} cannot be set: {why}"),
            Self::Value { name, text, expected } => {
                write!(f, "{name} is {text:?}, but must be {expected}")
            }
        }
    }
}

impl std::error::Error for ParamError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Params {
        let of = vec!["red", "blue"];
        Params::default()
            .with("n", Value::count(3, 9), "a count")
            .with("bytes", Value::Bytes(1 << 20), "bytes")
            .with("rate", Value::Rate(Rate::from_gbps(100)), "a rate")
            .with("time", Value::Time(Dur::from_us(2)), "a time")
            .with("chance", Value::Chance(Prob::from_ppm(10_000)), "a probability")
            .with("times", Value::Times(vec![Dur::from_us(2)]), "times")
            .with("chances", Value::Chances(vec![Prob::from_ppm(10_000)]), "probabilities")
            .with("flag", Value::Flag(true), "a flag")
            .with("cc", Value::Cc(CcChoice::default()), "a congestion control")
            .with("word", Value::Word { word: "red".to_owned(), of }, "a word")
    }

    #[test]
    fn set__reads_each_type_and_its_own_display() {
        let mut p = all();
        for (name, text) in [
            ("n", "9"),
            ("bytes", "64KiB"),
            ("rate", "25Gbit"),
            ("time", "3ms"),
            ("chance", "5%"),
            ("times", "3ms, 20us"),
            ("chances", "0, 1%"),
            ("flag", "false"),
            ("cc", "swift"),
            ("cc.beta", "0.5"),
            ("word", "blue"),
        ] {
            p.set(name, text).unwrap();
        }
        assert_eq!((p.count("n"), p.bytes("bytes"), p.flag("flag")), (9, 65_536, false));
        assert_eq!((p.rate("rate"), p.time("time")), (Rate::from_gbps(25), Dur::from_ms(3)));
        assert_eq!((p.chance("chance"), p.word("word")), (Prob::from_ppm(50_000), "blue"));
        assert_eq!(p.times("times"), [Dur::from_ms(3), Dur::from_us(20)]);
        assert_eq!(p.cc("cc").to_string(), "swift,beta=0.5");
        assert_eq!(p.chances("chances"), [Prob::ZERO, Prob::from_ppm(10_000)]);
        p.set("chances", "").unwrap();
        assert_eq!(p.chances("chances"), []);
        let again = p.clone();
        for param in again.iter() {
            p.set(param.name, &param.value.to_string()).unwrap();
        }
        assert_eq!(p, again);
    }

    #[test]
    fn set__says_what_is_expected_and_changes_nothing() {
        let mut p = all();
        for (name, text, expected) in [
            ("n", "0", "from 1 to 9"),
            ("n", "x", "from 1 to 9"),
            ("bytes", "0", "above 0"),
            ("rate", "fast", "25Gbit"),
            ("times", "1ms,,2ms", "several"),
            ("chances", "1%;2%", "several"),
            ("flag", "yes", "true or false"),
            ("cc", "cubic", "unocc, swift"),
            ("cc.beta", "1", "no congestion control"),
            ("word", "green", "red, blue"),
        ] {
            let error = p.set(name, text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(name), "{error}");
        }
        let error = p.set("speed", "1").unwrap_err().to_string();
        assert!(error.contains("no parameter speed") && error.contains("rate"), "{error}");
        assert_eq!(p, all());
    }

    #[test]
    fn set_all__sets_a_congestion_control_before_what_is_its_own() {
        let mut p = all();
        p.set_all([("cc.beta", "0.5"), ("n", "4"), ("cc", "swift")]).unwrap();
        assert_eq!((p.count("n"), p.cc("cc").to_string()), (4, "swift,beta=0.5".to_owned()));
        let error = p.set_all([("n.beta", "1")]).unwrap_err().to_string();
        assert!(error.contains("no parameter n.beta"), "{error}");
        let error = p.set("cc.alpha", "1").unwrap_err().to_string();
        assert!(error.contains("cc.alpha") && error.contains("max_decrease"), "{error}");
        assert_eq!(p.without("rate").iter().filter(|p| p.name == "rate").count(), 0);
    }

    #[test]
    fn with__a_later_default_replaces_an_earlier_one() {
        let p = all().with("n", Value::count(5, 9), "again");
        assert_eq!((p.count("n"), p.iter().count()), (5, all().iter().count()));
    }
}
