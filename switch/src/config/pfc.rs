//! Priority flow control of one port.

use crate::config::CLASSES;
use crate::error::{ConfigError, check_range};
use crate::units::{self, Ratio};
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, Rate};

/// Priority flow control (IEEE 802.1Qbb): who sends too much is told to pause before it must be
/// dropped.
///
/// Frames of a lossless priority are counted by the port they came in by. What exceeds
/// `reserve_bytes` is taken from the shared buffer, and when that part exceeds `alpha` of what is
/// free of it, the sender is paused; what still comes goes to the headroom. It is told to go on
/// when the headroom is empty and its part is `resume_offset_bytes` below the threshold. Such
/// frames are bound by this alone, not by the limits of the queues they leave by.
///
/// # Source
/// The rule and its defaults are those of the HPCC simulator (SIGCOMM'19, alibaba-edu repository).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PfcConfig {
    /// The lossless priorities, each 0..=7, which are the classes of frames. Default 3 alone, the
    /// custom for RoCE.
    pub priorities: Vec<u8>,
    /// The pause threshold, as a fraction of what is free of the shared buffer. Default 1/8.
    pub alpha: Ratio,
    /// Bytes of each priority that are never refused. Default 4096.
    #[serde(with = "units")]
    pub reserve_bytes: u64,
    /// Bytes kept for what is under way when the pause is sent, per priority. Default 100 kB; see
    /// [`PfcConfig::headroom_for`].
    #[serde(with = "units")]
    pub headroom_bytes: u64,
    /// How far below the threshold sending begins again. Default 3072.
    #[serde(with = "units")]
    pub resume_offset_bytes: u64,
    /// How long a pause lasts unless it is renewed, which happens at half of it. Unit 512 bit
    /// times, 64..=65535, default 65535: 336 us at 100 Gbit/s.
    pub quanta: u16,
}

impl Default for PfcConfig {
    fn default() -> Self {
        Self {
            priorities: vec![3],
            alpha: Ratio::new(1, 8).expect("both are small and positive"),
            reserve_bytes: 4_096,
            headroom_bytes: 100_000,
            resume_offset_bytes: 3_072,
            quanta: u16::MAX,
        }
    }
}

impl PfcConfig {
    /// The headroom that loses nothing on a link of this rate and delay: what is under way in both
    /// directions, the frame that did not fit any more, and on either side a frame that is being
    /// sent and cannot be stopped.
    #[must_use]
    pub fn headroom_for(rate: Rate, delay: Dur, max_frame_bytes: u32) -> u64 {
        // The frame that is over the threshold is in the headroom already. The pause frame itself
        // (84 bytes with overhead) waits for a whole frame of ours to leave; the sender may have
        // begun a frame when it arrives; one byte for rounding.
        let in_flight = rate.bytes_in(delay).saturating_mul(2);
        in_flight + 3 * (u64::from(max_frame_bytes) + 24) + 84 + 1
    }

    /// The lossless priorities as bits.
    #[must_use]
    pub fn mask(&self) -> u8 {
        self.priorities.iter().filter(|p| usize::from(**p) < CLASSES).fold(0, |m, p| m | 1 << p)
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        check_range("quanta", self.quanta, 64..=u16::MAX)?;
        for (name, value) in [
            ("reserve_bytes", self.reserve_bytes),
            ("headroom_bytes", self.headroom_bytes),
            ("resume_offset_bytes", self.resume_offset_bytes),
        ] {
            check_range(name, value, 0..=64_000_000_000)?;
        }
        for (i, p) in self.priorities.iter().enumerate() {
            if self.priorities[..i].contains(p) || usize::from(*p) >= CLASSES {
                let what = format!("is {p}; name each of 0 to 7 at most once");
                return Err(ConfigError::new(format!("priorities[{i}]"), what));
            }
        }
        Ok(())
    }
}
