//! Erasure coding and load balancing as JSON, for the other end.

use super::congestion::numeric_flags;
use crate::fabric::Error;
use serde::{Deserialize, Serialize};
use spanwire_base::Dur;
use spanwire_erasure::Scheme;
use spanwire_loadbalance::Choice;
use spanwire_transport::{CodingWhen, ErasureCoding};

/// Parameters of an erasure code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Coding {
    /// The code.
    pub scheme: CodingScheme,
    /// Source packets of a full block.
    pub data: u8,
    /// Parity packets of each block.
    pub parity: u8,
    /// Minimum base RTT in nanoseconds for which packets are coded; if absent, packets are always
    /// coded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_base_rtt_ns: Option<u64>,
    /// Minimum and maximum of parity packets per block, if their number adapts to the loss rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<(u8, u8)>,
}

/// The erasure code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodingScheme {
    /// P and Q parity, as in RAID 6.
    Pq,
    /// Reed-Solomon code with a Cauchy matrix.
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
    /// The erasure coding that these parameters describe.
    ///
    /// # Errors
    /// The parameters describe no valid block.
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

/// A load balancer with its parameters, as a request has them.
#[must_use]
pub fn balance_text(choice: &Choice) -> String {
    numeric_flags(&choice.to_string())
}

/// The load balancing of that name and parameters.
///
/// # Errors
/// The name is unknown, or a parameter is wrong.
pub fn read_balance(text: &str) -> Result<Choice, Error> {
    Choice::parse(text).map_err(|e| e.to_string().into())
}

/// The error for a block that the engine does not support.
pub const NO_SUCH_BLOCKS: &str =
    "a block has 1 to 62 data packets and 1 to 32 of parity, at most 64 in all";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read__inverts_from() {
        let cauchy = ErasureCoding { scheme: Scheme::CAUCHY, ..ErasureCoding::new(8, 2) };
        let adaptive = ErasureCoding { adaptive: Some((1, 2)), ..ErasureCoding::new(10, 2) };
        for coding in [ErasureCoding::new(8, 2), cauchy, adaptive, ErasureCoding::default().auto()]
        {
            let json = serde_json::to_string(&Coding::from(&coding)).unwrap();
            let parsed: Coding = serde_json::from_str(&json).unwrap();
            assert_eq!(parsed.read().unwrap(), coding, "{json}");
        }
    }

    #[test]
    fn read__rejects_blocks_that_the_engine_rejects() {
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
    fn balance_text__has_flags_as_older_peers_read_them() {
        let choice = read_balance("plb,on_loss=true").unwrap();
        assert_eq!(balance_text(&choice), "plb,on_loss=1");
        assert_eq!(read_balance(&balance_text(&choice)).unwrap(), choice);
    }

    #[test]
    fn read_balance__rejects_unknown_names_and_parameters() {
        assert_eq!(read_balance("unolb,subflows=4").unwrap().name(), "unolb");
        assert!(read_balance("conga").unwrap_err().to_string().contains("unolb"));
    }
}
