//! `--ec` and `--lb`: erasure coding and load balancing.

use spanwire_erasure::Scheme;
use spanwire_host::fabric::Error;
use spanwire_host::oob::NO_SUCH_BLOCKS;
use spanwire_host::seed;
use spanwire_loadbalance::Choice;
use spanwire_transport::{Balance, ErasureCoding};

/// Erasure coding and load balancing of every queue pair. Only SR has them.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct EcArgs {
    /// Erasure coding of sent data: blocks of X data and Y parity packets; auto is 8,2 if the base
    /// RTT is 0.5 ms or more, else off
    #[arg(long, value_name = "off|auto|X,Y[,cauchy]", default_value = "off", value_parser = coding)]
    ec: Coding,
    /// Adapt the parity to the measured loss, between MIN and MAX packets of a block
    #[arg(long, value_name = "MIN,MAX", value_parser = bounds)]
    ec_adaptive: Option<(u8, u8)>,
    /// Load balancing of sent data by name (docs/loadbalance.md) [default: one path]
    #[arg(long, value_name = "NAME[,KEY=VALUE...]", value_parser = choice)]
    lb: Option<Choice>,
}

impl EcArgs {
    /// The erasure coding of `--ec`, if given.
    ///
    /// # Errors
    /// The block size is invalid, or `--ec-adaptive` is given without `--ec`.
    pub(crate) fn erasure(&self) -> Result<Option<ErasureCoding>, Error> {
        let Some(coding) = self.ec.0 else {
            return match self.ec_adaptive {
                None => Ok(None),
                Some(_) => Err("--ec-adaptive needs --ec".into()),
            };
        };
        // P and Q have at most two parity packets. If parity may exceed that, use a scheme that
        // supports the maximum from the start.
        let scheme = match self.ec_adaptive {
            Some((_, most)) if coding.scheme == Scheme::PQ => Scheme::for_parity(most.into()),
            _ => coding.scheme,
        };
        let coding = ErasureCoding { scheme, adaptive: self.ec_adaptive, ..coding };
        match self.ec_adaptive {
            Some((least, most)) if !(least..=most).contains(&coding.parity) => {
                let parity = coding.parity;
                Err(format!("--ec-adaptive {least},{most}: --ec begins with {parity}").into())
            }
            _ if coding.is_valid() => Ok(Some(coding)),
            _ => Err(format!("--ec {}: {NO_SUCH_BLOCKS}", text(&coding)).into()),
        }
    }

    /// The load balancing of `--lb`, if given, with a random seed.
    ///
    /// # Errors
    /// The system provides no random seed.
    pub(crate) fn balance(&self) -> Result<Option<Balance>, Error> {
        let Some(choice) = self.lb else { return Ok(None) };
        let seed = seed::random().map_err(|e| format!("no randomness for --lb: {e}"))?;
        Ok(Some(Balance { choice, seed: u64::from_ne_bytes(seed) }))
    }
}

/// An erasure code in the syntax of `--ec`.
pub(crate) fn text(coding: &ErasureCoding) -> String {
    let ErasureCoding { data, parity, scheme, .. } = coding;
    let usual = *scheme == Scheme::for_parity((*parity).into());
    format!("{data},{parity}{}", if usual { "" } else { ",cauchy" })
}

/// The value of `--ec`; `None` for `off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Coding(Option<ErasureCoding>);

fn coding(text: &str) -> Result<Coding, String> {
    let blocks = |data: &str, parity: &str| -> Option<ErasureCoding> {
        let (data, parity) = (data.trim().parse().ok()?, parity.trim().parse().ok()?);
        Some(ErasureCoding::new(data, parity))
    };
    let parts: Vec<&str> = text.split(',').collect();
    let coding = match parts[..] {
        ["off"] => return Ok(Coding(None)),
        ["auto"] => Some(ErasureCoding::default().auto()),
        [data, parity] => blocks(data, parity),
        [data, parity, "cauchy"] => {
            blocks(data, parity).map(|coding| ErasureCoding { scheme: Scheme::CAUCHY, ..coding })
        }
        _ => None,
    };
    let coding = coding.ok_or("expected off, auto, or packets of data and parity such as 8,2")?;
    match coding.is_valid() {
        true => Ok(Coding(Some(coding))),
        false => Err(NO_SUCH_BLOCKS.to_owned()),
    }
}

fn bounds(text: &str) -> Result<(u8, u8), String> {
    let pair = text.split_once(',').and_then(|(least, most)| {
        let (least, most) = (least.trim().parse().ok()?, most.trim().parse().ok()?);
        (1 <= least && least <= most).then_some((least, most))
    });
    pair.ok_or_else(|| "expected the least and the most parity packets, such as 1,4".to_owned())
}

fn choice(text: &str) -> Result<Choice, String> {
    Choice::parse(text).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use spanwire_transport::CodingWhen;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ec: EcArgs,
    }

    fn args(words: &[&str]) -> EcArgs {
        Line::try_parse_from([&["x"], words].concat()).expect("a command line").ec
    }

    fn refused(words: &[&str]) -> String {
        match Line::try_parse_from([&["x"], words].concat()) {
            Err(e) => e.to_string(),
            Ok(line) => line.ec.erasure().expect_err("refused").to_string(),
        }
    }

    #[test]
    fn erasure__follows_the_options() {
        let of = |words: &[&str]| args(words).erasure().unwrap();
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["--ec", "off"]), None);
        assert_eq!(of(&["--ec", "8,2"]), Some(ErasureCoding::new(8, 2)));
        let auto = of(&["--ec", "auto"]).unwrap();
        assert_eq!(auto.when, CodingWhen::BaseRtt(ErasureCoding::AUTO_BASE_RTT));
        let cauchy = ErasureCoding { scheme: Scheme::CAUCHY, ..ErasureCoding::new(8, 2) };
        assert_eq!(of(&["--ec", "8,2,cauchy"]), Some(cauchy));
        let adaptive = of(&["--ec", "8,2", "--ec-adaptive", "1,4"]).unwrap();
        assert_eq!((adaptive.adaptive, adaptive.scheme), (Some((1, 4)), Scheme::CAUCHY));
        let adaptive = of(&["--ec", "8,2", "--ec-adaptive", "1,2"]).unwrap();
        assert_eq!(adaptive.scheme, Scheme::PQ);
    }

    #[test]
    fn erasure__rejects_invalid_codes_with_a_reason() {
        for (words, said) in [
            (&["--ec", "8"][..], "such as 8,2"),
            (&["--ec", "8,2,xor"], "such as 8,2"),
            (&["--ec", "60,5"], "at most 64"),
            (&["--ec", "8,0"], "1 to 32 of parity"),
            (&["--ec-adaptive", "1,2"], "needs --ec"),
            (&["--ec", "8,2", "--ec-adaptive", "3,4"], "begins with 2"),
            (&["--ec", "8,2", "--ec-adaptive", "4,1"], "such as 1,4"),
            (&["--ec", "8,2", "--ec-adaptive", "0,2"], "such as 1,4"),
            (&["--ec", "60,2", "--ec-adaptive", "1,9"], "at most 64"),
            (&["--lb", "conga"], "unolb"),
            (&["--lb", "unolb,subflows=0"], "between 1 and 32"),
        ] {
            let text = refused(words);
            assert!(text.contains(said), "{words:?}: {text}");
        }
    }

    #[test]
    fn balance__seeds_differ_between_runs() {
        let args = args(&["--lb", "unolb,subflows=4"]);
        let (one, other) = (args.balance().unwrap().unwrap(), args.balance().unwrap().unwrap());
        assert_eq!(one.choice.to_string(), "unolb,subflows=4");
        assert!(one.choice == other.choice && one.seed != other.seed);
        assert_eq!(EcArgs::default().balance().unwrap(), None);
    }

    #[test]
    fn text__round_trips() {
        for said in ["8,2", "4,1", "10,4", "8,2,cauchy"] {
            let coding = coding(said).unwrap().0.unwrap();
            assert_eq!(text(&coding), said);
        }
    }
}
