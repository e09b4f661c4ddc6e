//! `--cc` and its options: congestion control and line rate.

use spanwire_base::{Dur, Rate};
use spanwire_host::fabric::Error;
use spanwire_host::oob::congestion_control;
use spanwire_host::window::{self, CC_WINDOW_PKTS};
use spanwire_switch::Human;
use spanwire_transport::CongestionControl;

/// Congestion control of every queue pair.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct CcArgs {
    /// Congestion control by name (docs/cc.md); none: only --window limits packets in flight
    /// [default: auto]
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Set a parameter of the congestion control; repeatable. preset=paper: the constants of the
    /// paper, without calibration to the path
    #[arg(long, value_name = "KEY=VALUE")]
    cc_set: Vec<String>,
    /// Base RTT for congestion control, such as 4ms [default: the smallest measured]
    #[arg(long, value_name = "TIME", value_parser = time)]
    cc_rtt: Option<Dur>,
    /// Least time between two CNPs that count, such as 3us for a switch that sends one each 4us;
    /// only in RC [default: a round trip]
    #[arg(long, value_name = "TIME", value_parser = time)]
    cnp_spacing: Option<Dur>,
    /// Limit of all that the port sends, headers and gaps included, such as 1Gbit [default: none;
    /// congestion control assumes the link speed that the kernel reports, else 100Gbit]
    #[arg(long, value_name = "RATE", value_parser = human::<Rate>)]
    line_rate: Option<Rate>,
}

impl CcArgs {
    /// The congestion control of `--cc`; `None` for the default.
    ///
    /// # Errors
    /// The algorithm is unknown, or a parameter is invalid.
    pub(crate) fn choice(&self) -> Result<Option<CongestionControl>, Error> {
        let rest = self.cc_rtt.or(self.cnp_spacing);
        if self.cc.is_none() && self.cc_set.is_empty() && rest.is_none() {
            return Ok(None);
        }
        let name = self.cc.as_deref().unwrap_or(DEFAULT);
        let settings: Result<Vec<(&str, &str)>, Error> = self
            .cc_set
            .iter()
            .map(|setting| {
                let pair = setting.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
                pair.ok_or_else(|| format!("--cc-set {setting} is no KEY=VALUE").into())
            })
            .collect();
        Ok(Some(CongestionControl {
            base_rtt: self.cc_rtt,
            cnp_spacing: self.cnp_spacing,
            ..congestion_control(name, &settings?)?
        }))
    }

    /// The line rate of the port: `--line-rate`, else the link speed that ethtool reports for
    /// `dev`, else the engine's default.
    pub(crate) fn line_rate(&self, dev: &str) -> Rate {
        self.line_rate.unwrap_or_else(|| window::link_rate(dev))
    }

    /// The limit of the port: `--line-rate`. A link of its own speed needs none.
    pub(crate) fn port_rate(&self) -> Option<Rate> {
        self.line_rate
    }

    /// The default of `--window`: with congestion control, large enough not to limit it.
    pub(crate) fn window(&self) -> Option<u32> {
        (self.cc.as_deref() != Some("none")).then_some(CC_WINDOW_PKTS)
    }
}

/// The algorithm without `--cc`.
const DEFAULT: &str = "auto";

/// Bounds of a round trip: of a cable of a few metres, and beyond a geostationary satellite.
const TIME_MIN: Dur = Dur::from_ns(1);
const TIME_MAX: Dur = Dur::from_secs(10);

/// A round trip, or a part of it.
fn time(text: &str) -> Result<Dur, String> {
    let range = TIME_MIN..=TIME_MAX;
    human::<Dur>(text).and_then(|time| match range.contains(&time) {
        true => Ok(time),
        false => Err(format!("expected from {} to {}", TIME_MIN.show(), TIME_MAX.show())),
    })
}

fn human<T: Human>(text: &str) -> Result<T, String> {
    T::parse(text).ok_or_else(|| format!("expected {}", T::EXPECTED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use spanwire_cc::Algorithm;
    use spanwire_transport::{Config, Preset};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cc: CcArgs,
    }

    fn args(words: &[&str]) -> CcArgs {
        Line::try_parse_from([&["x"], words].concat()).expect("a command line").cc
    }

    fn refused(words: &[&str]) -> String {
        args(words).choice().expect_err("refused").to_string()
    }

    #[test]
    fn choice__is_the_default_without_a_name_and_nothing_with_none() {
        let default = args(&[]);
        assert_eq!(default.choice().unwrap(), None);
        assert_eq!(default.window(), Some(CC_WINDOW_PKTS));
        let none = args(&["--cc", "none"]);
        assert_eq!(none.choice().unwrap(), Some(CongestionControl::NONE));
        assert_eq!(none.window(), None);
        assert!(refused(&["--cc", "none", "--cc-set", "x=1"]).contains("no parameters"));
    }

    #[test]
    fn choice__parameters_without_a_name_are_of_the_default() {
        for words in [["--cc-set", "loss=0.02"], ["--cc-rtt", "1ms"], ["--cnp-spacing", "3us"]] {
            let choice = args(&words).choice().unwrap().expect("a choice");
            assert_eq!(choice.algorithm.map(|a| a.name()), Some("auto"));
            let named = args(&[&["--cc", "auto"], &words[..]].concat()).choice().unwrap();
            assert_eq!(Some(choice), named);
        }
        assert!(refused(&["--cc-set", "alpha=1"]).contains("alpha"));
    }

    #[test]
    fn choice__has_the_parameters_that_were_set() {
        let words = ["--cc", "unocc", "--cc-set", "alpha=0.01", "--cc-set", "quick_adapt = off"];
        let args = args(&[&words[..], &["--cc-rtt", "4ms"]].concat());
        let choice = args.choice().unwrap().expect("named");
        let mut algorithm = Algorithm::named("unocc").unwrap();
        algorithm.set("alpha", "0.01").unwrap();
        algorithm.set("quick_adapt", "0").unwrap();
        assert_eq!(
            choice,
            CongestionControl {
                algorithm: Some(algorithm),
                base_rtt: Some(Dur::from_ms(4)),
                preset: Preset::Calibrated,
                cnp_spacing: None
            }
        );
        assert_eq!(args.window(), Some(CC_WINDOW_PKTS));
    }

    #[test]
    fn choice__errors_list_and_suggest_names() {
        let text = refused(&["--cc", "unoc"]);
        assert!(text.contains("did you mean `unocc`?") && text.contains("swift"), "{text}");
        let text = refused(&["--cc", "swift", "--cc-set", "bta=0.5"]);
        assert!(text.contains("no parameter of swift `bta`: did you mean `beta`?"), "{text}");
        let text = refused(&["--cc", "swift", "--cc-set", "beta=7"]);
        assert!(text.starts_with("swift: beta is 7, but must be"), "{text}");
        let text = refused(&["--cc", "swift", "--cc-set", "beta"]);
        assert!(text.contains("KEY=VALUE"), "{text}");
        let text = refused(&["--cc", "swift", "--cc-set", "preset=papr"]);
        assert!(text.contains("did you mean `paper`?") && text.contains("calibrated"), "{text}");
        let paper = args(&["--cc", "swift", "--cc-set", "preset=paper"]).choice().unwrap();
        assert_eq!(paper.unwrap().preset, Preset::Paper);
    }

    #[test]
    fn line_rate__is_the_option_or_the_default() {
        let given = args(&["--line-rate", "200Mbit"]);
        assert_eq!(given.line_rate("lo"), Rate::from_bps(200_000_000));
        assert_eq!(given.port_rate(), Some(Rate::from_bps(200_000_000)));
        assert_eq!(args(&[]).line_rate("lo"), Config::default().line_rate);
        assert_eq!(args(&[]).port_rate(), None, "a link paces itself");
        assert!(Line::try_parse_from(["x", "--line-rate", "fast"]).is_err());
    }
}
