//! Limits and defaults of a network and its connections, with their reasons.

use spanwire_base::u32_from;
pub use spanwire_transport::ConfigError;
use spanwire_transport::{Balance, CongestionControl, ErasureCoding};
use std::time::Duration;

/// Limits and defaults of a [`Network`](crate::Network). Turn it into a [`ValidConfig`] to use it.
///
/// A connection takes three descriptors and two rings, whose memory is allocated when first used.
/// Where both ends specify a limit for rings or messages, the smaller one applies.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Bytes of the ring for each direction of a connection, 4096..=2^30. Default 4 MiB. It limits
    /// the bytes sent and not yet taken by the other application; sending blocks then. It must hold
    /// the bandwidth-delay product and what the other application leaves unread: 1 Gbit/s over 20
    /// ms needs 2.5 MB.
    pub ring_bytes: u32,
    /// Maximum bytes of a fragment, 64..=ring_bytes / 4. Default 256 KiB: few completions, and the
    /// ring still advances smoothly.
    pub fragment_bytes: u32,
    /// Fragments in flight in each direction, 16..=4096. Default 256: with lone messages of 64
    /// bytes that is a window of packets. Messages of a burst share a fragment.
    pub fragments: u32,
    /// Longest message, 1..=three quarters of the ring less 4. Default 1 MiB. `send` rejects a
    /// longer one.
    pub max_message_bytes: u32,
    /// Connections, open and half-open, 1..=1000. Default 256. Further ones are rejected.
    pub max_connections: u32,
    /// Connections from one peer address to our listeners: open, waiting to be accepted or
    /// half-open; 1..=1000. IPv6 addresses count by their /64. Default 64: a quarter of all, so
    /// that one client leaves room for others. A connection counts until both of its halves are
    /// dropped.
    pub max_connections_per_peer: u32,
    /// Bytes of the rings that connections from one peer address write to, ring_bytes..=2^40.
    /// Default 256 MiB, of an address as above: 64 rings of 4 MiB, a quarter of those of all
    /// connections. A peer that writes to a ring makes its memory resident, even if no message
    /// arrives. Smaller rings, which either end may ask for, allow more connections.
    pub max_ring_bytes_per_peer: u64,
    /// Handshakes of connections to our listeners, 1..=1000. Default 64: each takes a thread for a
    /// few milliseconds. Beyond it the one that has been silent for longest is dropped.
    pub max_half_open: u32,
    /// The same for one peer address, 1..=max_half_open. Default 8, so that one silent client
    /// leaves room for others.
    pub max_half_open_per_peer: u32,
    /// Time limit of a handshake, 10 ms..=60 s. Default 5 s.
    pub handshake_timeout: Duration,
    /// Time limit for a connection to be accepted by the application, 10 ms..=1 h. Default 30 s.
    /// Then it is aborted, so that unaccepted connections do not use up the limits above.
    pub accept_timeout: Duration,
    /// Time limit without a fragment, credit or acknowledgement in either direction, 10 ms..=24 h;
    /// then the connection is aborted. It starts with the handshake, so it should be longer than
    /// `accept_timeout`. Default none: keep-alive is left to the application.
    pub idle_timeout: Option<Duration>,
    /// Time limit for a connection whose handles were dropped to deliver its data, 0..=1 h. Default
    /// 30 s. Then it is aborted.
    pub linger: Duration,
    /// Local ACK Timeout exponent, 4.096 us * 2^n, 8..=20. Default 14 (67 ms).
    pub timeout: u8,
    /// Retransmissions without an ACK before the peer is considered dead, 1..=7. Default 7: 1.8 s
    /// with the timeout above.
    pub retry_cnt: u8,
    /// Congestion control of each connection; `None` for the default, `auto`.
    /// [`CongestionControl::NONE`] leaves the engine's window alone (`NetworkOptions::engine`).
    pub congestion: Option<CongestionControl>,
    /// Erasure coding of each connection, used if both ends support SR with blocks
    /// ([`About::agreed`](crate::About::agreed) shows it). Default none.
    pub erasure: Option<ErasureCoding>,
    /// Load balancing of each connection, used if both ends support SR. Default one path.
    pub balance: Option<Balance>,
}

/// A [`Config`] that was validated.
#[derive(Clone, PartialEq, Debug)]
pub struct ValidConfig(Config);

impl Default for Config {
    fn default() -> Self {
        Self {
            ring_bytes: 4 << 20,
            fragment_bytes: 256 << 10,
            fragments: 256,
            max_message_bytes: 1 << 20,
            max_connections: 256,
            max_connections_per_peer: 64,
            max_ring_bytes_per_peer: 256 << 20,
            max_half_open: 64,
            max_half_open_per_peer: 8,
            handshake_timeout: Duration::from_secs(5),
            accept_timeout: Duration::from_secs(30),
            idle_timeout: None,
            linger: Duration::from_secs(30),
            timeout: 14,
            retry_cnt: 7,
            congestion: None,
            erasure: None,
            balance: None,
        }
    }
}

impl Config {
    /// Checks every field against its range and its relation to the others.
    ///
    /// # Errors
    /// The first field that is outside its range; durations in milliseconds.
    pub fn validate(self) -> Result<ValidConfig, ConfigError> {
        let shape = Shape::wanted(&self);
        shape.validate()?;
        let within = ConfigError::check;
        within("max_connections", self.max_connections.into(), 1, 1000)?;
        within("max_connections_per_peer", self.max_connections_per_peer.into(), 1, 1000)?;
        let ring_bytes = u64::from(self.ring_bytes);
        within("max_ring_bytes_per_peer", self.max_ring_bytes_per_peer, ring_bytes, 1 << 40)?;
        within("max_half_open", self.max_half_open.into(), 1, 1000)?;
        let half_open = u64::from(self.max_half_open);
        within("max_half_open_per_peer", self.max_half_open_per_peer.into(), 1, half_open)?;
        within("handshake_timeout", ms(self.handshake_timeout), 10, 60_000)?;
        within("accept_timeout", ms(self.accept_timeout), 10, 3_600_000)?;
        if let Some(idle_timeout) = self.idle_timeout {
            within("idle_timeout", ms(idle_timeout), 10, 86_400_000)?;
        }
        within("linger", ms(self.linger), 0, 3_600_000)?;
        within("timeout", self.timeout.into(), 8, 20)?;
        within("retry_cnt", self.retry_cnt.into(), 1, 7)?;
        match self.erasure {
            Some(erasure) if !erasure.is_valid() => {
                let (data, value) = (u64::from(erasure.data), u64::from(erasure.parity));
                let max = BLOCK_PKTS_MAX.saturating_sub(data).min(PARITY_PKTS_MAX);
                return Err(ConfigError { field: "erasure.parity", value, min: 1, max });
            }
            _ => {}
        }
        Ok(ValidConfig(self))
    }
}

impl std::ops::Deref for ValidConfig {
    type Target = Config;
    fn deref(&self) -> &Config {
        &self.0
    }
}

impl Default for ValidConfig {
    fn default() -> Self {
        Config::default().validate().expect("the defaults are inside their ranges, tested below")
    }
}

/// The limits of one connection, the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) ring_bytes: u32,
    pub(crate) fragment_bytes: u32,
    pub(crate) fragments: u32,
    pub(crate) max_message_bytes: u32,
}

impl Shape {
    /// The shape that `config` requests.
    pub(crate) fn wanted(config: &Config) -> Self {
        let Config { ring_bytes, fragment_bytes, fragments, max_message_bytes, .. } = *config;
        Self { ring_bytes, fragment_bytes, fragments, max_message_bytes }
    }

    /// The minimum of both shapes, with messages shortened to what fits then.
    ///
    /// # Errors
    /// The other end requests an invalid shape.
    pub(crate) fn agree(self, theirs: Self) -> Result<Self, ConfigError> {
        theirs.validate()?;
        let ring_bytes = self.ring_bytes.min(theirs.ring_bytes);
        let fragment_bytes =
            self.fragment_bytes.min(theirs.fragment_bytes).min(ring_bytes / QUARTERS);
        let fragments = self.fragments.min(theirs.fragments);
        let smaller = self.max_message_bytes.min(theirs.max_message_bytes);
        let agreed = Self { ring_bytes, fragment_bytes, fragments, max_message_bytes: smaller };
        let max_message_bytes = smaller.min(agreed.message_limit());
        Ok(Self { max_message_bytes, ..agreed })
    }

    fn validate(self) -> Result<(), ConfigError> {
        let within = ConfigError::check;
        within("ring_bytes", self.ring_bytes.into(), 4096, 1 << 30)?;
        let fragment_max = self.ring_bytes / QUARTERS;
        within("fragment_bytes", self.fragment_bytes.into(), 64, fragment_max.into())?;
        within("fragments", self.fragments.into(), 16, 4096)?;
        let limit = self.message_limit();
        within("max_message_bytes", self.max_message_bytes.into(), 1, limit.into())
    }

    /// The longest message that always fits with its length once the receiver has taken everything.
    /// Credit for just under a quarter of the ring may not have been sent yet.
    fn message_limit(self) -> u32 {
        self.ring_bytes - self.ring_bytes / QUARTERS - u32_from(LENGTH_BYTES)
    }

    /// Bytes and fragments taken after which credit is sent.
    pub(crate) fn credit_after(self) -> (u64, u64) {
        ((self.ring_bytes / QUARTERS).into(), (self.fragments / QUARTERS).into())
    }

    /// The ring offset of byte number `position`.
    pub(crate) fn offset(self, position: u64) -> u64 {
        position % u64::from(self.ring_bytes)
    }

    /// Bytes from `position` to the end of the ring.
    pub(crate) fn to_end(self, position: u64) -> u64 {
        u64::from(self.ring_bytes) - self.offset(position)
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes of the length before each message in the ring, big-endian.
pub(crate) const LENGTH_BYTES: usize = 4;

/// Limits of the engine for the packets of a block and for its parity packets.
const BLOCK_PKTS_MAX: u64 = 64;
const PARITY_PKTS_MAX: u64 = 32;

/// Credit is sent for each quarter of a ring.
const QUARTERS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default__is_valid() {
        assert_eq!(ValidConfig::default().ring_bytes, 4 << 20);
    }

    #[test]
    fn validate__names_the_field_and_its_range() {
        let wrong = Config { max_half_open_per_peer: 65, ..Config::default() };
        let e = wrong.validate().unwrap_err();
        assert_eq!(e.to_string(), "max_half_open_per_peer is 65, but must be between 1 and 64");
        let wrong = Config { linger: Duration::from_secs(3601), ..Config::default() };
        assert_eq!(wrong.validate().unwrap_err().field, "linger");
        let wrong = Config { max_connections_per_peer: 0, ..Config::default() };
        assert_eq!(wrong.validate().unwrap_err().field, "max_connections_per_peer");
        let wrong = Config { max_ring_bytes_per_peer: (4 << 20) - 1, ..Config::default() };
        assert_eq!(wrong.validate().unwrap_err().field, "max_ring_bytes_per_peer");
        let wrong = Config { accept_timeout: Duration::from_millis(9), ..Config::default() };
        assert_eq!(wrong.validate().unwrap_err().field, "accept_timeout");
        let wrong = Config { idle_timeout: Some(Duration::ZERO), ..Config::default() };
        assert_eq!(wrong.validate().unwrap_err().field, "idle_timeout");
    }

    #[test]
    fn validate__accepts_the_blocks_that_the_engine_accepts() {
        let with = |data, parity| {
            let erasure = Some(ErasureCoding::new(data, parity));
            Config { erasure, ..Config::default() }.validate()
        };
        assert!(with(8, 2).is_ok() && with(32, 32).is_ok());
        let e = with(60, 5).unwrap_err();
        assert_eq!(e.to_string(), "erasure.parity is 5, but must be between 1 and 4");
        assert!(with(8, 0).is_err());
    }

    #[test]
    fn validate__a_message_has_at_most_three_quarters_of_the_ring() {
        let with = |max_message_bytes| Config { max_message_bytes, ..Config::default() };
        let limit = (3 << 20) - 4;
        assert!(with(limit).validate().is_ok());
        let e = with(limit + 1).validate().unwrap_err();
        assert_eq!((e.field, e.max), ("max_message_bytes", limit.into()));
    }

    #[test]
    fn agree__is_the_minimum_with_shortened_messages() {
        let ours = Shape::wanted(&Config::default());
        let theirs =
            Shape { ring_bytes: 4096, fragment_bytes: 1024, max_message_bytes: 2000, ..ours };
        let agreed = ours.agree(theirs).unwrap();
        assert_eq!(agreed, Shape { ..theirs });
        let theirs = Shape { fragments: 16, fragment_bytes: 4096, max_message_bytes: 1, ..ours };
        let wide = Shape { max_message_bytes: 1 << 20, ..ours };
        assert_eq!(wide.agree(theirs).unwrap(), theirs);
        let long = Shape { max_message_bytes: (3 << 20) - 4, ..ours };
        let short_ring = Shape { ring_bytes: 1 << 20, max_message_bytes: 700_000, ..ours };
        assert_eq!(long.agree(short_ring).unwrap().max_message_bytes, 700_000);
        assert_eq!(long.agree(theirs).unwrap(), theirs.agree(long).unwrap());
    }

    #[test]
    fn agree__rejects_an_invalid_shape() {
        let ours = Shape::wanted(&Config::default());
        for theirs in [
            Shape { ring_bytes: 0, ..ours },
            Shape { ring_bytes: u32::MAX, ..ours },
            Shape { fragment_bytes: 0, ..ours },
            Shape { fragment_bytes: u32::MAX, ..ours },
            Shape { fragments: 0, ..ours },
            Shape { fragments: u32::MAX, ..ours },
            Shape { max_message_bytes: 0, ..ours },
            Shape { max_message_bytes: u32::MAX, ..ours },
        ] {
            assert!(ours.agree(theirs).is_err(), "{theirs:?}");
        }
    }

    #[test]
    fn offset__wraps() {
        let shape = Shape { ring_bytes: 5000, ..Shape::wanted(&Config::default()) };
        assert_eq!((shape.offset(4999), shape.to_end(4999)), (4999, 1));
        assert_eq!((shape.offset(5000), shape.to_end(5000)), (0, 5000));
    }
}
