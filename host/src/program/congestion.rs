//! Congestion control in one line of text.

use crate::oob::congestion_control;
use spanwire_cc::params::split;
use spanwire_transport::CongestionControl;
use std::fmt;
use std::str::FromStr;

/// A congestion control with its text, `NAME[,KEY=VALUE]...`: names and parameters as in
/// docs/cc.md, `none`, and `preset=paper`.
#[derive(Clone, PartialEq, Debug)]
pub struct CongestionText {
    text: String,
    control: CongestionControl,
}

impl CongestionText {
    /// The congestion control.
    #[must_use]
    pub const fn control(&self) -> CongestionControl {
        self.control
    }
}

impl FromStr for CongestionText {
    type Err = String;

    /// Parses the text. The error lists the known names and the nearest one.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = split(text);
        let settings: Vec<_> = settings.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        let control = congestion_control(name, &settings).map_err(|e| e.to_string())?;
        Ok(Self { text: text.to_owned(), control })
    }
}

impl fmt::Display for CongestionText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_cc::Algorithm;
    use spanwire_transport::Preset;

    #[test]
    fn from_str__is_a_name_with_parameters() {
        let none: CongestionText = "none".parse().unwrap();
        assert_eq!(none.control(), CongestionControl::NONE);
        let paper: CongestionText = "swift, beta = 0.5,preset=paper".parse().unwrap();
        let algorithm = Some(Algorithm::parse("swift,beta=0.5").unwrap());
        let preset = Preset::Paper;
        let expected = CongestionControl { algorithm, preset, ..CongestionControl::NONE };
        assert_eq!(paper.control(), expected);
        assert_eq!(paper.to_string().parse(), Ok(paper));
    }

    #[test]
    fn from_str__errors_list_and_suggest_names() {
        for (text, words) in [
            ("unoc", "did you mean `unocc`?"),
            ("swift,bta=0.5", "did you mean `beta`?"),
            ("swift,beta", "beta"),
            ("none,beta=1", "no parameters"),
            ("", "swift"),
        ] {
            let error = text.parse::<CongestionText>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
