//! Wire modes that an end supports, as JSON: `"modes"` of a hello
//! (docs/protocol/side-connection.md, "Negotiation").

use serde::{Deserialize, Serialize};
use spanwire_transport::{
    Agreed, Config, Offer, SrFeature, SrFeatures, SrOffer, SrVersions, WireMode, agree,
};
use std::net::IpAddr;

/// The wire modes in a hello. Empty in the hello of an end that predates the negotiation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Modes(Vec<Mode>);

/// One wire mode. Unknown fields are ignored, and so are unknown modes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
enum Mode {
    /// On the wire the mode has its former name `src`, because older peers know no other.
    #[serde(rename = "src", alias = "sr")]
    Sr(Sr),
    Rc,
    #[serde(other)]
    Unknown,
}

/// The terms of SR. Missing fields default to zero or empty, so that incomplete terms yield no
/// agreement.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Sr {
    versions: Vec<u64>,
    features: Vec<String>,
    segment_bytes: u32,
    reorder_pkts: u32,
}

/// The user's choice of wire modes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ModeChoice {
    /// SR if both ends support it, else RC.
    #[default]
    Auto,
    /// RoCEv2 Reliable Connection, which every RoCE adapter supports.
    Rc,
    /// SR (selective repeat) only.
    Sr,
}

/// The mode of a connection between the client that offers `client` and the server that offers
/// `server`.
///
/// # Errors
/// The ends have no mode in common. The message lists the modes of each end and what to do.
pub fn settle(client: &Offer, server: &Offer) -> Result<Agreed, String> {
    agree(client, server).ok_or_else(|| {
        format!(
            "no wire mode in common: the client speaks {}, the server {}; start both with --mode \
             auto, or update the older one",
            spoken(client),
            spoken(server)
        )
    })
}

/// The mode of a connection between this end and its peer. This end is the client if `we_called`.
///
/// # Errors
/// As [`settle`].
pub fn settle_between(we_called: bool, ours: &Offer, theirs: &Offer) -> Result<Agreed, String> {
    if we_called { settle(ours, theirs) } else { settle(theirs, ours) }
}

fn spoken(offer: &Offer) -> String {
    let sr = offer.sr.map(|sr| {
        let versions: Vec<_> = sr.versions.iter().map(|v| v.to_string()).collect();
        format!("SR (version {}, {} bytes a packet)", versions.join(" or "), sr.segment_bytes)
    });
    match (offer.rc, sr) {
        (true, Some(sr)) => format!("RC and {sr}"),
        (true, None) => "RC only".to_owned(),
        (false, Some(sr)) => format!("{sr} only"),
        (false, None) => "nothing known here".to_owned(),
    }
}

impl ModeChoice {
    /// The choice named `auto`, `rc` or `sr`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "rc" => Some(Self::Rc),
            // `src` is its former name.
            "sr" | "src" => Some(Self::Sr),
            _ => None,
        }
    }

    /// The offer of an end at address `ip`: its engine has `config`, its port carries IP packets of
    /// `ip_bytes`, and its SR packets carry at most `segment_bytes_max`.
    #[must_use]
    pub fn offer(
        self,
        config: &Config,
        ip_bytes: u32,
        ip: IpAddr,
        segment_bytes_max: u32,
    ) -> Offer {
        let fits = Offer::segment_bytes(ip_bytes, ip.is_ipv4());
        self.of(Offer::of(config, fits.map(|bytes| bytes.min(segment_bytes_max))))
    }

    /// The part of `all`, an end's full offer, that this choice permits.
    #[must_use]
    pub fn of(self, all: Offer) -> Offer {
        match self {
            Self::Auto => all,
            Self::Rc => all.only(WireMode::Rc),
            Self::Sr => all.only(WireMode::Sr),
        }
    }
}

impl Modes {
    /// Bytes of the process's memory that they hold.
    #[cfg(feature = "fuzzing")]
    #[doc(hidden)]
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let inside = |mode: &Mode| match mode {
            Mode::Sr(sr) => {
                let names: usize = sr.features.iter().map(String::capacity).sum();
                let lists = sr.versions.capacity() * size_of::<u64>();
                names + lists + sr.features.capacity() * size_of::<String>()
            }
            Mode::Rc | Mode::Unknown => 0,
        };
        let own = self.0.capacity() * size_of::<Mode>();
        own + self.0.iter().map(inside).sum::<usize>()
    }

    /// True if the hello names no modes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Offer> for Modes {
    fn from(offer: Offer) -> Self {
        let sr = offer.sr.map(|sr| {
            Mode::Sr(Sr {
                versions: sr.versions.iter().map(u64::from).collect(),
                features: sr.features.iter().map(|f: SrFeature| f.name().to_owned()).collect(),
                segment_bytes: sr.segment_bytes,
                reorder_pkts: sr.reorder_pkts,
            })
        });
        Self(sr.into_iter().chain(offer.rc.then_some(Mode::Rc)).collect())
    }
}

impl From<&Modes> for Offer {
    /// If a mode is listed twice, the first entry counts.
    fn from(modes: &Modes) -> Self {
        if modes.is_empty() {
            return Self::SILENT;
        }
        let sr = modes.0.iter().find_map(|mode| match mode {
            Mode::Sr(sr) => Some(SrOffer {
                versions: SrVersions::of(sr.versions.iter().copied()),
                features: SrFeatures::of(sr.features.iter().map(String::as_str)),
                segment_bytes: sr.segment_bytes,
                reorder_pkts: sr.reorder_pkts,
            }),
            Mode::Rc | Mode::Unknown => None,
        });
        Self { rc: modes.0.contains(&Mode::Rc), sr }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Offer {
        Offer::of(&Config::default(), Some(1408))
    }

    fn offer(json: &str) -> Offer {
        Offer::from(&serde_json::from_str::<Modes>(json).expect("JSON of modes"))
    }

    #[test]
    fn settle__the_error_lists_the_modes_of_each_end() {
        let sr_only = ModeChoice::Sr.of(full());
        assert!(settle(&sr_only, &full()).is_ok());
        let no = settle(&sr_only, &ModeChoice::Rc.of(full())).expect_err("nothing in common");
        for words in ["client speaks SR (version 1, 1408 bytes", "server RC only", "--mode auto"] {
            assert!(no.contains(words), "no {words:?} in {no:?}");
        }
        let warp = offer(r#"[{"mode":"warp"}]"#);
        let no = settle(&warp, &ModeChoice::Auto.of(full())).expect_err("nothing in common");
        assert!(no.contains("client speaks nothing known here, the server RC and SR"), "{no}");
    }

    #[test]
    fn from__an_offer_survives_a_round_trip() {
        for original in [full(), full().only(WireMode::Rc), full().only(WireMode::Sr)] {
            let json = serde_json::to_string(&Modes::from(original)).expect("plain data");
            assert_eq!(offer(&json), original, "{json}");
        }
    }

    #[test]
    fn from__is_as_protocol_md_shows_it() {
        let json = serde_json::to_value(Modes::from(full())).expect("plain data");
        let shown = serde_json::json!([
            {"mode": "src", "versions": [1], "features": ["mlcc", "block", "near"],
             "segment_bytes": 1408, "reorder_pkts": 65536},
            {"mode": "rc"},
        ]);
        assert_eq!(json, shown);
    }

    #[test]
    fn from__no_modes_mean_rc() {
        assert_eq!(offer("[]"), Offer::SILENT);
        assert_eq!(Offer::from(&Modes::default()), Offer::SILENT);
    }

    #[test]
    fn from__unknown_modes_and_fields_are_ignored() {
        let future = r#"[{"mode":"warp","versions":"all","segment_bytes":{}},
            {"mode":"src","versions":[2,1,77777777777],"features":["tunnel","int"],
             "segment_bytes":1408,"reorder_pkts":65536,"paths":[1,2]},
            {"mode":"rc","since":"2004"}, {"mode":"src"}]"#;
        let offer = offer(future);
        assert!(offer.rc);
        let sr = offer.sr.expect("the first entry");
        assert_eq!(sr.versions.iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(sr.features.iter().collect::<Vec<_>>(), [SrFeature::Int]);
        assert_eq!(sr.segment_bytes, 1408);
    }

    #[test]
    fn from__incomplete_sr_terms_yield_rc() {
        let half = offer(r#"[{"mode":"src"},{"mode":"rc"}]"#);
        assert_eq!(settle(&full(), &half), Ok(Agreed::Rc));
    }

    #[test]
    fn from__rejects_what_is_not_a_list_of_modes() {
        for wrong in ["7", "{}", "[1]", r#"[{}]"#, r#"[{"mode":"src","versions":["x"]}]"#] {
            assert!(serde_json::from_str::<Modes>(wrong).is_err(), "{wrong}");
        }
    }
}
