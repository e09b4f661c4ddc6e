//! Negotiation of the wire protocol between the two ends of a connection.
//!
//! Each end sends the other its [`Offer`] before the first packet, in the format of the set-up
//! protocol. [`agree`] depends on both offers only and is symmetric, so both ends reach the same
//! result without a further message. An offer comes from the network, so every value has a meaning
//! (docs/protocol/side-connection.md, "Negotiation").

use crate::attr::{CongestionControl, SrOptions, Wire, WireMode};
use crate::config::{Config, MIN_REORDER_PKTS, SEGMENT_BYTES};

/// The wire modes that one end supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// RC is supported.
    pub rc: bool,
    /// SR is supported, on these terms.
    pub sr: Option<SrOffer>,
}

/// The terms on which an end supports SR. Any value is allowed: [`agree`] defines its meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrOffer {
    /// Versions of the header.
    pub versions: SrVersions,
    /// Optional parts of it.
    pub features: SrFeatures,
    /// Payload bytes of the longest packet that it can send and receive. Below 64, SR is not
    /// supported; above 65280 it means 65280.
    pub segment_bytes: u32,
    /// Packets beyond the lowest missing one that it accepts. Below 256 it means 256, which every
    /// end accepts.
    pub reorder_pkts: u32,
}

/// A set of versions of the SR header, 1 to 15: the range of its four bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SrVersions(u16);

/// A set of SR's optional parts. Each but [`SrFeature::NoIcrc`] is a presence bit of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SrFeatures(u8);

/// An optional part of SR.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SrFeature {
    /// Credits and rates of MLCC, in telemetry and acknowledgements. Useless without
    /// [`SrFeature::Near`].
    Mlcc,
    /// Blocks of an erasure code.
    Block,
    /// In-band telemetry (INT), requested and echoed.
    Int,
    /// The sender's QPN in data, and feedback of switches to it.
    Near,
    /// Packets without an ICRC. Listed only by request ([`Offer::without_icrc`]), by ends whose
    /// packets have another checksum.
    NoIcrc,
}

/// The result of a negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agreed {
    /// RC; offers do not determine the path MTU.
    Rc,
    /// SR, on these terms.
    Sr(SrTerms),
}

/// The terms of an SR connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrTerms {
    /// Version of the header: the highest common one.
    pub version: u8,
    /// The common features.
    pub features: SrFeatures,
    /// Payload bytes of a full packet, 64..=65280: the smaller of both.
    pub segment_bytes: u32,
    /// Packets beyond the lowest missing one that both accept, at least 256. A wider window needs
    /// the peer's PSN limit.
    pub reorder_pkts: u32,
}

/// The protocol that `ours` and `theirs` agree on: SR if possible, else RC; `None` if one end
/// requires what the other does not support.
///
/// Symmetric. An end that offers RC agrees with every peer that does, whatever else they list.
#[must_use]
pub fn agree(ours: &Offer, theirs: &Offer) -> Option<Agreed> {
    let sr = ours.sr.zip(theirs.sr).and_then(|(ours, theirs)| ours.terms_with(&theirs));
    sr.map(Agreed::Sr).or((ours.rc && theirs.rc).then_some(Agreed::Rc))
}

impl Offer {
    /// The offer of a peer that sends none, because its software is older than offers.
    pub const SILENT: Self = Self { rc: true, sr: None };

    /// Everything that this engine supports, with the parameters `config` and packets of at most
    /// `segment_bytes` ([`Offer::segment_bytes`] computes it); RC alone if that is `None`.
    #[must_use]
    pub fn of(config: &Config, segment_bytes: Option<u32>) -> Self {
        let sr = segment_bytes.map(|segment_bytes| SrOffer {
            versions: SrVersions::ENGINE,
            features: SrFeatures::ENGINE,
            segment_bytes,
            reorder_pkts: config.reorder_pkts,
        });
        Self { rc: true, sr }
    }

    /// Payload bytes of the longest SR packet of at most `ip_bytes`, IP header included, over IPv4
    /// or IPv6; `None` when less than 64 fit.
    ///
    /// A multiple of 4, so that the packet needs no padding. The longest header with payload is
    /// assumed, that of a WRITE with immediate: IP 20 or 40, UDP 8, BTH 12, SR 24, RETH 16, ImmDt
    /// 4, receive number 4, and the ICRC 4. Of the 1500 bytes of Ethernet, 1408 or 1388 are left.
    #[must_use]
    pub fn segment_bytes(ip_bytes: u32, is_ipv4: bool) -> Option<u32> {
        let ip = if is_ipv4 { 20 } else { 40 };
        let fits = ip_bytes.checked_sub(ip + SR_HEADERS_BYTES)? / 4 * 4;
        (fits >= *SEGMENT_BYTES.start()).then_some(fits.min(*SEGMENT_BYTES.end()))
    }

    /// The same offer restricted to `mode`: there is no connection with a peer that does not
    /// support it.
    #[must_use]
    pub fn only(self, mode: WireMode) -> Self {
        match mode {
            WireMode::Rc => Self { sr: None, ..self },
            WireMode::Sr => Self { rc: false, ..self },
        }
    }
}

impl Offer {
    /// The same offer with SR packets without an ICRC, if the peer offers them too. RC is
    /// unchanged.
    #[must_use]
    pub fn without_icrc(self) -> Self {
        let sr = self.sr.map(|sr| SrOffer { features: sr.features.with(SrFeature::NoIcrc), ..sr });
        Self { sr, ..self }
    }
}

impl SrOffer {
    fn terms_with(&self, other: &Self) -> Option<SrTerms> {
        let version = self.versions.highest_common(other.versions)?;
        let segment_bytes = self.segment_bytes.min(other.segment_bytes).min(*SEGMENT_BYTES.end());
        SEGMENT_BYTES.contains(&segment_bytes).then_some(SrTerms {
            version,
            features: self.features.and(other.features),
            segment_bytes,
            reorder_pkts: self.reorder_pkts.min(other.reorder_pkts).max(MIN_REORDER_PKTS),
        })
    }
}

impl SrVersions {
    /// The versions that this engine supports.
    pub const ENGINE: Self = Self(1 << 1);

    /// The valid ones of `versions`.
    #[must_use]
    pub fn of(versions: impl IntoIterator<Item = u64>) -> Self {
        let possible = versions.into_iter().filter(|v| (1..=VERSION_MAX).contains(v));
        Self(possible.fold(0, |set, version| set | 1 << version))
    }

    /// All versions, ascending.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (1..16).filter(move |version| self.0 >> version & 1 == 1)
    }

    fn highest_common(self, other: Self) -> Option<u8> {
        Self(self.0 & other.0).iter().last()
    }
}

impl SrFeatures {
    /// No feature.
    pub const NONE: Self = Self(0);

    /// The features that this engine supports: FEC blocks, feedback of switches, and MLCC.
    pub const ENGINE: Self =
        Self(SrFeature::Block.bit() | SrFeature::Near.bit() | SrFeature::Mlcc.bit());

    /// The known features of `names`.
    #[must_use]
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let known = names.into_iter().filter_map(SrFeature::from_name);
        Self(known.fold(0, |set, feature| set | feature.bit()))
    }

    /// All features, in the order of their presence bits.
    pub fn iter(self) -> impl Iterator<Item = SrFeature> {
        SrFeature::ALL.into_iter().filter(move |f| self.0 & f.bit() != 0)
    }

    /// `feature` is in the set.
    #[must_use]
    pub const fn has(self, feature: SrFeature) -> bool {
        self.0 & feature.bit() != 0
    }

    /// The set with `feature`.
    #[must_use]
    pub const fn with(self, feature: SrFeature) -> Self {
        Self(self.0 | feature.bit())
    }

    /// The intersection with `other`.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl SrFeature {
    /// All that have a name, in the order of their presence bits.
    pub const ALL: [Self; 5] = [Self::Mlcc, Self::Block, Self::Int, Self::Near, Self::NoIcrc];

    /// The name in set-up messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mlcc => "mlcc",
            Self::Block => "block",
            Self::Int => "int",
            Self::Near => "near",
            Self::NoIcrc => "no-icrc",
        }
    }

    /// The feature of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name)
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Mlcc => 1,
            Self::Block => 2,
            Self::Int => 4,
            Self::Near => 8,
            Self::NoIcrc => 16,
        }
    }
}

impl Agreed {
    /// The mode, without its terms.
    #[must_use]
    pub fn mode(&self) -> WireMode {
        match self {
            Self::Rc => WireMode::Rc,
            Self::Sr(_) => WireMode::Sr,
        }
    }

    /// The wire protocol on these terms. Of `options`, it has those that the result allows: load
    /// balancing and FEC need SR, FEC a peer that accepts blocks, feedback of switches one that
    /// accepts the sender's QPN, and credits one that knows MLCC. Feedback and credits are
    /// requested if they are allowed, and `options` or `congestion` ask for them: without credits,
    /// the congestion control in its place ([`CongestionControl::without_credit`]).
    #[must_use]
    pub fn wire(&self, options: &SrOptions, congestion: &CongestionControl) -> Wire {
        let Self::Sr(terms) = self else { return Wire::Rc };
        let credit = self.has_credit() && (options.credit || congestion.wants_credit());
        let congestion = if credit { *congestion } else { congestion.without_credit() };
        Wire::Sr(SrOptions {
            segment_bytes: Some(terms.segment_bytes),
            peer_reorder_pkts: terms.reorder_pkts,
            icrc: !self.has_no_icrc(),
            erasure: options.erasure.filter(|_| self.why_no_erasure().is_none()),
            balance: options.balance,
            near: self.has_near() && (options.near || congestion.wants_near()),
            credit,
        })
    }

    /// Packets have no ICRC.
    #[must_use]
    pub fn has_no_icrc(&self) -> bool {
        match self {
            Self::Rc => false,
            Self::Sr(terms) => terms.features.has(SrFeature::NoIcrc),
        }
    }

    /// Feedback of switches may be requested.
    #[must_use]
    pub fn has_near(&self) -> bool {
        match self {
            Self::Rc => false,
            Self::Sr(terms) => terms.features.has(SrFeature::Near),
        }
    }

    /// Credits of MLCC may be requested and sent, which needs feedback of switches.
    #[must_use]
    pub fn has_credit(&self) -> bool {
        match self {
            Self::Rc => false,
            Self::Sr(terms) => self.has_near() && terms.features.has(SrFeature::Mlcc),
        }
    }

    /// The reason why FEC is not available, for the user; `None` if it is.
    #[must_use]
    pub fn why_no_erasure(&self) -> Option<&'static str> {
        match self {
            Self::Rc => Some(SPEAKS_RC),
            Self::Sr(terms) if terms.features.has(SrFeature::Block) => None,
            Self::Sr(_) => Some("the peer takes no blocks"),
        }
    }

    /// The reason why load balancing is not available, for the user; `None` if it is.
    #[must_use]
    pub fn why_no_balance(&self) -> Option<&'static str> {
        match self {
            Self::Rc => Some(SPEAKS_RC),
            Self::Sr(_) => None,
        }
    }
}

/// UDP, BTH, the header of a WRITE's last segment with immediate, ICRC.
const SR_HEADERS_BYTES: u32 = 8 + 12 + (24 + 16 + 4 + 4) + 4;

const SPEAKS_RC: &str = "the connection speaks RC";

/// The highest version: four bits.
const VERSION_MAX: u64 = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Balance;
    use crate::coding::ErasureCoding;
    use proptest::prelude::*;
    use spanwire_base::u32_from;
    use spanwire_cc::Algorithm;
    use spanwire_loadbalance::Choice;
    use spanwire_wire::{RethRepr, SrDataRepr, SrKind};

    const SEGMENTS: [u32; 9] = [0, 1, 63, 64, 1024, 1408, 65_280, 65_281, u32::MAX];

    fn full(segment_bytes: u32) -> Offer {
        Offer::of(&Config::default(), Some(segment_bytes))
    }

    fn sr_offers() -> impl Strategy<Value = SrOffer> {
        let versions = prop::collection::vec(prop_oneof![0..20_u64, any::<u64>()], 0..20);
        let names = prop::collection::vec("mlcc|block|int|near|[a-z]{0,9}", 0..20);
        let segments = prop_oneof![prop::sample::select(&SEGMENTS[..]), any::<u32>()];
        (versions, names, segments, any::<u32>()).prop_map(
            |(versions, names, segment_bytes, reorder_pkts)| SrOffer {
                versions: SrVersions::of(versions),
                features: SrFeatures::of(names.iter().map(String::as_str)),
                segment_bytes,
                reorder_pkts,
            },
        )
    }

    fn offers() -> impl Strategy<Value = Offer> {
        let sr = prop::option::weighted(0.8, sr_offers());
        (any::<bool>(), sr).prop_map(|(rc, sr)| Offer { rc, sr })
    }

    /// The options of SR that result of these offers.
    fn options(ours: &Offer, theirs: &Offer, of: SrOptions, cc: Option<&str>) -> SrOptions {
        let algorithm = cc.map(|text| Algorithm::parse(text).unwrap());
        let congestion = CongestionControl { algorithm, ..CongestionControl::NONE };
        let wire = agree(ours, theirs).unwrap().wire(&of, &congestion);
        wire.sr().copied().unwrap_or_default()
    }

    #[test]
    fn wire__has_no_options_that_the_peer_does_not_support() {
        let (erasure, choice) = (ErasureCoding::default(), Choice::named("unolb").unwrap());
        let balance = Some(Balance { choice, seed: 1 });
        let asked = SrOptions { erasure: Some(erasure), balance, ..SrOptions::default() };
        let both = full(1408);
        let of = |theirs: &Offer| {
            let got = options(&both, theirs, asked, None);
            (got.erasure, got.balance)
        };
        assert_eq!(of(&both), (Some(erasure), balance));
        assert_eq!(of(&Offer::SILENT), (None, None));
        let mut old = both;
        old.sr.as_mut().unwrap().features = SrFeatures::NONE;
        assert_eq!(of(&old), (None, balance));
        let agreed = agree(&both, &old).unwrap();
        assert_eq!(agreed.why_no_erasure(), Some("the peer takes no blocks"));
        assert_eq!(agreed.why_no_balance(), None);
    }

    #[test]
    fn wire__requests_feedback_if_it_is_used_and_the_peer_accepts_it() {
        let (plain, asked) = (SrOptions::default(), SrOptions { near: true, ..Default::default() });
        let uses_near = Some("swift,near_base_us=6.5");
        let both = full(1408);
        let of = |theirs: &Offer, asked, cc| options(&both, theirs, asked, cc).near;
        assert!(of(&both, plain, uses_near));
        assert!(!of(&both, plain, Some("swift")));
        assert!(!of(&both, plain, None));
        assert!(of(&both, asked, None));
        let mut old = both;
        old.sr.as_mut().unwrap().features = SrFeatures::of(["block"]);
        for peer in [Offer::SILENT, old] {
            assert!(!of(&peer, plain, uses_near));
            assert!(!of(&peer, asked, None));
        }
    }

    #[test]
    fn without_icrc__needs_both_ends_and_sr() {
        let all = Offer::of(&Config::default(), Some(1408));
        let icrc = |ours: Offer, theirs: Offer| {
            let agreed = agree(&ours, &theirs).unwrap();
            let wire = agreed.wire(&SrOptions::default(), &CongestionControl::NONE);
            assert_eq!(agreed.has_no_icrc(), wire.sr().is_some_and(|options| !options.icrc));
            !agreed.has_no_icrc()
        };
        let without = all.without_icrc();
        assert!(!icrc(without, without));
        assert!(icrc(without, all) && icrc(all, without) && icrc(all, all));
        let rc = without.only(WireMode::Rc);
        assert!(icrc(rc, without) && rc.without_icrc() == rc);
    }

    #[test]
    fn wire__requests_credits_if_they_are_used_and_the_peer_accepts_them() {
        let both = full(1408);
        let of = |theirs: &Offer, cc, credit| {
            let asked = SrOptions { credit, ..SrOptions::default() };
            let got = options(&both, theirs, asked, Some(cc));
            (got.credit, got.near)
        };
        assert_eq!(of(&both, "mlcc", false), (true, true));
        assert_eq!(of(&both, "hpcc", false), (false, false));
        // Without credits, `hpcc` needs no feedback.
        assert_eq!(of(&both, "hpcc", true), (true, false));
        let peer = |features: &[&str]| {
            let mut peer = both;
            peer.sr.as_mut().unwrap().features = SrFeatures::of(features.iter().copied());
            peer
        };
        let without = [peer(&["block", "near"]), peer(&["mlcc"]), peer(&[]), Offer::SILENT];
        for theirs in without {
            for asked in [false, true] {
                assert_eq!(of(&theirs, "mlcc", asked), (false, false), "{theirs:?}");
            }
        }
        assert_eq!(of(&peer(&["mlcc", "near"]), "mlcc", false), (true, true));
    }

    proptest! {
        #[test]
        fn agree__is_the_same_from_both_ends_and_within_both_offers(a in offers(), b in offers()) {
            let agreed = agree(&a, &b);
            prop_assert_eq!(agreed, agree(&b, &a));
            match agreed {
                Some(Agreed::Sr(terms)) => for offer in [a, b] {
                    let sr = offer.sr.expect("SR is agreed only if both offer it");
                    prop_assert!(sr.versions.iter().any(|v| v == terms.version));
                    prop_assert_eq!(sr.features.and(terms.features), terms.features);
                    prop_assert!(SEGMENT_BYTES.contains(&terms.segment_bytes));
                    prop_assert!(terms.segment_bytes <= sr.segment_bytes);
                    prop_assert!(terms.reorder_pkts >= MIN_REORDER_PKTS);
                    prop_assert!(terms.reorder_pkts <= sr.reorder_pkts.max(MIN_REORDER_PKTS));
                },
                Some(Agreed::Rc) => prop_assert!(a.rc && b.rc),
                None => prop_assert!(!(a.rc && b.rc)),
            }
        }

        #[test]
        fn agree__rc_is_agreed_if_both_offer_it(theirs in offers()) {
            let theirs = Offer { rc: true, ..theirs };
            prop_assert!(agree(&full(1408), &theirs).is_some());
            prop_assert_eq!(agree(&full(1408).only(WireMode::Rc), &theirs), Some(Agreed::Rc));
            prop_assert_eq!(agree(&Offer::SILENT, &theirs), Some(Agreed::Rc));
        }

        #[test]
        fn agree__unknown_versions_and_features_are_ignored(
            versions in prop::collection::vec(2_u64.., 0..20),
            names in prop::collection::vec("[a-z]{6,9}", 0..20),
        ) {
            let ours = full(1408);
            let mut theirs = full(1400);
            let sr = theirs.sr.as_mut().expect("offered");
            sr.versions = SrVersions::of(versions.into_iter().chain([1]));
            let known = ["block", "near", "mlcc"];
            sr.features = SrFeatures::of(names.iter().map(String::as_str).chain(known));
            prop_assert_eq!(agree(&ours, &theirs), agree(&ours, &full(1400)));
        }
    }

    #[test]
    fn agree__prefers_sr_if_both_support_it() {
        let terms = SrTerms {
            version: 1,
            features: SrFeatures::of(["mlcc", "block", "near"]),
            segment_bytes: 1388,
            reorder_pkts: Config::default().reorder_pkts,
        };
        assert_eq!(agree(&full(1408), &full(1388)), Some(Agreed::Sr(terms)));
        let insisting = full(1408).only(WireMode::Sr);
        assert_eq!(agree(&insisting, &full(1388)), Some(Agreed::Sr(terms)));
    }

    #[test]
    fn agree__a_required_mode_or_no_connection() {
        let (rc, sr) = (full(1408).only(WireMode::Rc), full(1408).only(WireMode::Sr));
        assert_eq!(agree(&rc, &sr), None);
        assert_eq!(agree(&sr, &Offer::SILENT), None);
        assert_eq!(agree(&rc, &full(1408)), Some(Agreed::Rc));
        let nothing = Offer { rc: false, sr: None };
        assert_eq!(agree(&full(1408), &nothing), None);
    }

    #[test]
    fn agree__invalid_terms_of_sr_leave_rc() {
        let with = |change: fn(&mut SrOffer)| {
            let mut offer = full(1408);
            change(offer.sr.as_mut().expect("offered"));
            agree(&full(1408), &offer)
        };
        assert_eq!(with(|sr| sr.segment_bytes = 0), Some(Agreed::Rc));
        assert_eq!(with(|sr| sr.segment_bytes = 63), Some(Agreed::Rc));
        assert_eq!(with(|sr| sr.versions = SrVersions::of([])), Some(Agreed::Rc));
        assert_eq!(
            with(|sr| sr.versions = SrVersions::of([0, 2, 16, 17, u64::MAX])),
            Some(Agreed::Rc)
        );
        let few = with(|sr| sr.reorder_pkts = 0);
        assert!(matches!(few, Some(Agreed::Sr(terms)) if terms.reorder_pkts == 256), "{few:?}");
    }

    #[test]
    fn agree__a_segment_beyond_the_ip_length_field_is_the_longest_valid() {
        let agreed = agree(&full(u32::MAX), &full(u32::MAX - 1));
        assert!(matches!(agreed, Some(Agreed::Sr(t)) if t.segment_bytes == 65_280), "{agreed:?}");
    }

    #[test]
    fn of__an_engine_without_room_for_a_segment_offers_rc() {
        assert_eq!(Offer::of(&Config::default(), None), Offer::SILENT);
    }

    #[test]
    fn segment_bytes__is_the_room_after_the_longest_header() {
        let reth = RethRepr { va: 0, rkey: 0, dma_len: 0 };
        let write = SrDataRepr {
            reth: Some(reth),
            imm: Some(0),
            receive: Some(0),
            ..SrDataRepr::new(SrKind::Write, 0, 0)
        };
        let behind_ip = u32_from(8 + 12 + write.header_len() + 4);
        for (is_ipv4, ip) in [(true, 20), (false, 40)] {
            for ip_bytes in [1280, 1499, 1500, 1501, 3506, 9000] {
                let fits = Offer::segment_bytes(ip_bytes, is_ipv4).expect("room");
                assert_eq!(fits % 4, 0);
                let left = ip_bytes - (ip + behind_ip + fits);
                assert!(left < 4, "{ip_bytes}: {left} bytes are left");
            }
        }
        assert_eq!(Offer::segment_bytes(1500, true), Some(1408));
        assert_eq!(Offer::segment_bytes(1500, false), Some(1388));
        assert_eq!(Offer::segment_bytes(155, true), None);
        assert_eq!(Offer::segment_bytes(156, true), Some(64));
        assert_eq!(Offer::segment_bytes(0, true), None);
        assert_eq!(Offer::segment_bytes(u32::MAX, true), Some(65_280));
    }

    #[test]
    fn from_name__inverts_name_and_rejects_others() {
        for feature in SrFeature::ALL {
            assert_eq!(SrFeature::from_name(feature.name()), Some(feature));
            assert_eq!(SrFeatures::of([feature.name()]).iter().collect::<Vec<_>>(), [feature]);
        }
        assert_eq!(SrFeatures::of(["", "INT", "warp"]), SrFeatures::NONE);
    }

    #[test]
    fn iter__returns_versions_ascending() {
        assert_eq!(SrVersions::of([15, 3, 1, 3]).iter().collect::<Vec<_>>(), [1, 3, 15]);
    }

    #[test]
    fn wire__has_the_terms() {
        let agreed = agree(&full(1408), &full(1388)).expect("SR");
        let wire = |agreed: Agreed| agreed.wire(&SrOptions::default(), &CongestionControl::NONE);
        let reorder_pkts = Config::default().reorder_pkts;
        let (segment_bytes, plain) = (Some(1388), SrOptions::default());
        let terms = SrOptions { segment_bytes, peer_reorder_pkts: reorder_pkts, ..plain };
        assert_eq!((wire(agreed), wire(Agreed::Rc)), (Wire::Sr(terms), Wire::Rc));
        assert_eq!((agreed.mode(), Agreed::Rc.mode()), (WireMode::Sr, WireMode::Rc));
    }
}
