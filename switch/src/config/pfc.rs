//! Configuration of priority flow control (PFC) of one port.

use crate::error::{ConfigError, check_range};
use crate::units::{self, Ratio};
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, Rate};

/// Priority flow control (IEEE 802.1Qbb): a sender is paused before its frames must be dropped.
///
/// Frames of a lossless priority are accounted to their ingress port. Bytes above `reserve_bytes`
/// are taken from the shared buffer. If they exceed `alpha` of its free bytes, the sender is
/// paused, and frames that still arrive go to the headroom. Sending resumes when the headroom is
/// empty and the shared part is `resume_offset_bytes` below the threshold. Only this limits such
/// frames, not the limits of their egress queues.
///
/// # Source
/// The rule and its defaults are those of the HPCC simulator (SIGCOMM'19, alibaba-edu repository).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PfcConfig {
    /// The lossless priorities, each 0..=7, which are classes of frames. Default 3 only, as is
    /// customary for RoCE.
    pub priorities: Vec<u8>,
    /// The pause threshold, as a fraction of the free bytes of the shared buffer. Default 1/8.
    pub alpha: Ratio,
    /// Reserved bytes of each priority. Default 4096.
    #[serde(with = "units")]
    pub reserve_bytes: u64,
    /// Headroom of each priority for frames in flight when the pause is sent. Default 100 kB; see
    /// [`PfcConfig::headroom_for`].
    #[serde(with = "units")]
    pub headroom_bytes: u64,
    /// Distance below the threshold at which sending resumes. Default 3072.
    #[serde(with = "units")]
    pub resume_offset_bytes: u64,
    /// Duration of a pause; it is renewed at half of it. Unit 512 bit times, 64..=65535, default
    /// 65535: 336 us at 100 Gbit/s.
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
    /// The headroom without loss on a link of this rate and delay: the bytes in flight in both
    /// directions, the frame that exceeded the threshold, and at each end a frame in transmission.
    #[must_use]
    pub fn headroom_for(rate: Rate, delay: Dur, max_frame_bytes: u32) -> u64 {
        // The frame above the threshold is already in the headroom. The pause frame itself (84
        // bytes with overhead) waits for a whole frame in transmission. The sender may have begun a
        // frame when it arrives. One byte is for rounding.
        let in_flight = rate.bytes_in(delay).saturating_mul(2);
        in_flight + 3 * (u64::from(max_frame_bytes) + 24) + 84 + 1
    }

    /// The lossless priorities as a bit mask.
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

/// Traffic classes, and priorities of PFC.
pub const CLASSES: usize = 8;
