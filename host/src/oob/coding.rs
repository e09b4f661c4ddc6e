//! Erasure coding and load balancing in words, for the other end.

use crate::fabric::Error;
use serde::{Deserialize, Serialize};
use spanwire_base::Dur;
use spanwire_erasure::Scheme;
use spanwire_loadbalance::Choice;
use spanwire_transport::{CodingWhen, ErasureCoding};

/// Blocks of an erasure code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Coding {
    /// How parity is made.
    pub scheme: CodingScheme,
    /// Data packets of a whole block.
    pub data: u8,
    /// Parity packets of each block.
    pub parity: u8,
    /// Coded from this base round trip on, in nanoseconds; always without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_base_rtt_ns: Option<u64>,
    /// The least and the most parity packets, where they follow the loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<(u8, u8)>,
}

/// How parity is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodingScheme {
    /// P and Q.
    Pq,
    /// A Cauchy matrix.
    Cauchy,
}

impl From<&ErasureCoding> for Coding {
    fn from(coding: &ErasureCoding) -> Self {
        let ErasureCoding { data, parity, scheme, when, adaptive } = *coding;
        let scheme = match scheme {
            Scheme::PQ => CodingScheme::Pq,
            Scheme::CAUCHY => CodingScheme::Cauchy,
        };
        let from_base_rtt_ns = match when {
            CodingWhen::Always => None,
            CodingWhen::BaseRtt(rtt) => Some(rtt.as_ns()),
        };
        Self { scheme, data, parity, from_base_rtt_ns, adaptive }
    }
}

impl Coding {
    /// The erasure coding that is meant.
    ///
    /// # Errors
    /// There are no such blocks.
    pub fn read(&self) -> Result<ErasureCoding, Error> {
        let Self { scheme, data, parity, from_base_rtt_ns, adaptive } = *self;
        let scheme = match scheme {
            CodingScheme::Pq => Scheme::PQ,
            CodingScheme::Cauchy => Scheme::CAUCHY,
        };
        let when =
            from_base_rtt_ns.map_or(CodingWhen::Always, |ns| CodingWhen::BaseRtt(Dur::from_ns(ns)));
        let coding = ErasureCoding { data, parity, scheme, when, adaptive };
        match coding.is_valid() {
            true => Ok(coding),
            false => Err(format!("blocks of {data} and {parity}: {NO_SUCH_BLOCKS}").into()),
        }
    }
}

/// The load balancing that a peer names.
///
/// # Errors
/// It is not known here, or a parameter is wrong.
pub fn read_balance(text: &str) -> Result<Choice, Error> {
    Choice::parse(text).map_err(|e| e.to_string().into())
}

/// What is wrong with blocks that the engine does not take.
pub const NO_SUCH_BLOCKS: &str =
    "a block has 1 to 62 data packets and 1 to 32 of parity, at most 64 in all";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read__gives_back_what_was_said() {
        let cauchy = ErasureCoding { scheme: Scheme::CAUCHY, ..ErasureCoding::new(8, 2) };
        let adaptive = ErasureCoding { adaptive: Some((1, 2)), ..ErasureCoding::new(10, 2) };
        for coding in [ErasureCoding::new(8, 2), cauchy, adaptive, ErasureCoding::default().auto()]
        {
            let said = serde_json::to_string(&Coding::from(&coding)).unwrap();
            let heard: Coding = serde_json::from_str(&said).unwrap();
            assert_eq!(heard.read().unwrap(), coding, "{said}");
        }
    }

    #[test]
    fn read__refuses_what_the_engine_would() {
        for wrong in [
            r#"{"scheme":"pq","data":8,"parity":0}"#,
            r#"{"scheme":"pq","data":8,"parity":3}"#,
            r#"{"scheme":"cauchy","data":63,"parity":2}"#,
            r#"{"scheme":"pq","data":8,"parity":2,"adaptive":[0,2]}"#,
        ] {
            let coding: Coding = serde_json::from_str(wrong).unwrap();
            assert!(coding.read().is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<Coding>(r#"{"scheme":"xor","data":8,"parity":1}"#).is_err());
    }

    #[test]
    fn read_balance__refuses_what_it_does_not_know() {
        assert_eq!(read_balance("unolb,subflows=4").unwrap().name(), "unolb");
        assert!(read_balance("conga").unwrap_err().to_string().contains("unolb"));
    }
}
