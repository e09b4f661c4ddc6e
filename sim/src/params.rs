//! Parameters of scenarios: typed, documented, and overridden by text.

mod agents;
mod bounds;
mod chosen;
mod ec;
mod value;

pub use agents::AgentChoice;
pub use chosen::{CcChoice, Chosen, LbChoice};
pub use ec::{EcBlocks, EcChoice};
pub use value::Value;
#[cfg(test)]
pub(crate) use value::ends;

use serde::Serialize;
use spanwire_base::{Dur, Rate};
use spanwire_switch::Prob;
use std::fmt;

/// A parameter of a scenario.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Param {
    /// Its name, as in `--set name=value`.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Its value: the default until it is set.
    #[serde(serialize_with = "show")]
    pub value: Value,
}

/// The parameters of one scenario.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Params {
    list: Vec<Param>,
    /// See [`Params::compared`].
    #[serde(skip)]
    compared: &'static str,
}

/// The reason why a parameter cannot be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamError {
    /// The scenario has no parameter of this name.
    Unknown {
        /// The name given.
        name: String,
        /// The names of its parameters.
        known: Vec<&'static str>,
    },
    /// A parameter of a congestion control or load balancer, such as `cc.alpha`, cannot be set.
    Own {
        /// The parameter.
        name: String,
        /// The reason, and the alternatives.
        why: String,
    },
    /// The text is not a value of this parameter.
    Value {
        /// The parameter.
        name: &'static str,
        /// The text given.
        text: String,
        /// The expected form.
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

    /// All parameters, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Param> {
        self.list.iter()
    }

    /// Removes a parameter that does not apply to a scenario.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.list.retain(|p| p.name != name);
        self
    }

    /// Declares the parameter in which runs of the scenario are compared.
    #[must_use]
    pub fn compared_by(mut self, name: &'static str) -> Self {
        self.compared = name;
        self
    }

    /// The parameter in which runs of the scenario are compared, unless another one is named; empty
    /// if none was declared.
    #[must_use]
    pub fn compared(&self) -> &'static str {
        self.compared
    }

    /// Sets several parameters from pairs of name and text. A congestion control is set before its
    /// own parameters, regardless of their order.
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

    /// Sets one parameter from text. `cc.alpha` is the parameter `alpha` of the congestion control
    /// that `cc` names; the same applies to load balancers and agents.
    ///
    /// # Errors
    /// See [`ParamError`]; the parameters are unchanged then.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ParamError> {
        if let Some((of, field)) = name.split_once('.')
            && let Some(param) = self.list.iter_mut().find(|p| p.name == of)
        {
            let error = |why| ParamError::Own { name: name.to_owned(), why };
            match &mut param.value {
                Value::Cc(choice) => return choice.set(field, text).map_err(error),
                Value::Lb(choice) => return choice.set(field, text).map_err(error),
                Value::Agents(choice) => {
                    choice.set(field, text);
                    return Ok(());
                }
                _ => {}
            }
        }
        let known = || self.list.iter().map(|p| p.name).collect();
        let Some(i) = self.list.iter().position(|p| p.name == name) else {
            return Err(ParamError::Unknown { name: name.to_owned(), known: known() });
        };
        let param = &mut self.list[i];
        // `src` is the former name of SR.
        let text = if (name, text) == ("mode", "src") { "sr" } else { text };
        match param.value.parse(param.name, text) {
            Some(value) => param.value = value,
            None => {
                let (name, text) = (param.name, text.to_owned());
                let expected = param.value.expected(name);
                return Err(ParamError::Value { name, text, expected });
            }
        }
        Ok(())
    }

    /// True if there is a parameter of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.list.iter().any(|p| p.name == name)
    }

    /// The value of a count.
    ///
    /// # Panics
    /// Like all accessors below: if the scenario has declared no parameter of this name and type.
    /// That is an error of the scenario's author, and a test builds every scenario.
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

    /// A load balancer.
    #[must_use]
    pub fn lb(&self, name: &str) -> LbChoice {
        match self.get(name) {
            Value::Lb(choice) => *choice,
            other => mismatch(name, other),
        }
    }

    /// Blocks of an erasure code.
    #[must_use]
    pub fn ec(&self, name: &str) -> EcChoice {
        match self.get(name) {
            Value::Ec(choice) => *choice,
            other => mismatch(name, other),
        }
    }

    /// Parameters of agents.
    #[must_use]
    pub fn agents(&self, name: &str) -> &AgentChoice {
        match self.get(name) {
            Value::Agents(choice) => choice,
            other => mismatch(name, other),
        }
    }

    /// Text.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Value::Text(text) => text,
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
        &param.unwrap_or_else(|| panic!("a scenario reads {name}, which it has not declared")).value
    }
}

fn mismatch(name: &str, value: &Value) -> ! {
    panic!("a scenario has declared {name} as {value:?} and reads another type")
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
            Self::Own { name, why } => write!(f, "{name} cannot be set: {why}"),
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
            .with("lb", Value::Lb(LbChoice::named("ecmp").unwrap()), "a load balancer")
            .with("ec", Value::Ec(EcChoice::default()), "erasure coding")
            .with("text", Value::Text(String::new()), "a text")
            .with("word", Value::Word { word: "red".to_owned(), of }, "a word")
    }

    #[test]
    fn set__the_former_name_of_sr_is_understood() {
        let word = Value::Word { word: "rc".to_owned(), of: vec!["rc", "sr"] };
        let mut p = Params::default().with("mode", word, "a mode");
        p.set("mode", "src").unwrap();
        assert_eq!(p.word("mode"), "sr");
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
            ("lb", "unolb"),
            ("lb.subflows", "20"),
            ("ec", "8,2"),
            ("text", "200M, "),
            ("word", "blue"),
        ] {
            p.set(name, text).unwrap();
        }
        assert_eq!((p.count("n"), p.bytes("bytes"), p.flag("flag")), (9, 65_536, false));
        assert_eq!((p.rate("rate"), p.time("time")), (Rate::from_gbps(25), Dur::from_ms(3)));
        assert_eq!(p.text("text"), "200M, ");
        assert_eq!((p.chance("chance"), p.word("word")), (Prob::from_ppm(50_000), "blue"));
        assert_eq!(p.times("times"), [Dur::from_ms(3), Dur::from_us(20)]);
        assert_eq!(p.cc("cc").to_string(), "swift,beta=0.5");
        assert_eq!(p.lb("lb").to_string(), "unolb,subflows=20");
        assert_eq!(p.ec("ec").0.map(|b| (b.data, b.parity)), Some((8, 2)));
        assert_eq!(p.chances("chances"), [Prob::ZERO, Prob::from_ppm(10_000)]);
        p.set("chances", "").unwrap();
        assert_eq!(p.chances("chances"), []);
        let parsed = p.clone();
        for param in parsed.iter() {
            p.set(param.name, &param.value.to_string()).unwrap();
        }
        assert_eq!(p, parsed);
    }

    #[test]
    fn set__says_what_is_expected_and_changes_nothing() {
        let mut p = all();
        for (name, text, expected) in [
            ("n", "0", "from 1 to 9"),
            ("n", "x", "from 1 to 9"),
            ("bytes", "0", "from 1B to 64GiB"),
            ("rate", "fast", "25Gbit"),
            ("rate", "1bit", "from 1Mbit to 10Tbit"),
            ("time", "0ms", "from 100ns to 3600s"),
            ("times", "1ms,,2ms", "several"),
            ("chances", "1%;2%", "several"),
            ("flag", "yes", "true or false"),
            ("cc", "cubic", "unocc, swift"),
            ("cc.beta", "1", "no congestion control"),
            ("lb", "drill", "spray, plb"),
            ("lb.subflows", "1", "subflows"),
            ("ec", "8;2", "data and parity"),
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
    fn set_all__sets_a_congestion_control_before_its_own_parameters() {
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
        let p = all().with("n", Value::count(5, 9), "parsed");
        assert_eq!((p.count("n"), p.iter().count()), (5, all().iter().count()));
    }
}
