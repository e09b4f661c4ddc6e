//! Parameters of an AF_XDP port, validated before anything is opened.

use super::error::XdpError;
use af_xdp::{AttachMode, CopyMode, Traffic};

/// Parameters of an [`XdpPort`](super::XdpPort). The defaults of [`XdpConfig::new`] were measured
/// to be best on a veth pair with a window of up to 200 packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdpConfig {
    /// The interface, in the network namespace of the thread that opens the port.
    pub ifname: String,
    /// Receive and transmit queue of the interface, from 0. Default 0.
    pub queue: u32,
    /// Chunks of the UMEM. `fill_size` of them receive, the rest transmit; at least 32 must
    /// transmit. Default 1024: 4 MiB, within the usual RLIMIT_MEMLOCK of 8 MiB; see
    /// [`XdpConfig::within`].
    pub frames: u32,
    /// Bytes of a chunk, 2048 or 4096. Default 4096: the longest frame is 256 bytes less.
    pub chunk: u32,
    /// Entries of the fill ring, and the number of chunks that receive; a power of two, 16 to
    /// 65536. Default 256: covers the window and the ACKs, and stays in the cache.
    pub fill_size: u32,
    /// Entries of the RX ring; a power of two, at least `fill_size`, so that it cannot be full.
    /// Default 256.
    pub rx_size: u32,
    /// Entries of the TX ring; a power of two, 32 to 65536. Default 256.
    pub tx_size: u32,
    /// Entries of the completion ring; a power of two, at least `tx_size`, because the kernel sends
    /// no frame whose completion has no room. Default 256.
    pub completion_size: u32,
    /// The frames of the queue that the port receives. Default [`Traffic::RoceV2`]. With
    /// [`Traffic::All`] the kernel receives no frame of the queue, and the interface accepts frames
    /// to any address.
    pub traffic: Traffic,
    /// The modes that may be used. Default [`XdpPreference::Auto`].
    pub preference: XdpPreference,
    /// Allows the driver to sleep until woken. Default true; false only to measure the difference.
    pub need_wakeup: bool,
    /// Frames sent by one system call in copy mode, 32 to `tx_size`. Default `None`, the kernel's
    /// 32; kernels before Linux 6.17 reject other values.
    pub tx_budget: Option<u32>,
}

/// The modes of attaching and binding that are tried, best first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum XdpPreference {
    /// Native zero-copy, native copy, generic copy.
    #[default]
    Auto,
    /// Native zero-copy, native copy.
    Native,
    /// Native copy only.
    Copy,
    /// Generic copy only ("SKB mode"), which any interface supports.
    Skb,
}

/// The mode of an open port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum XdpMode {
    /// Native program, zero-copy.
    NativeZeroCopy,
    /// Native program, frames are copied.
    NativeCopy,
    /// Generic program, frames are copied.
    GenericCopy,
}

impl XdpConfig {
    /// The defaults for queue 0 of an interface.
    #[must_use]
    pub fn new(ifname: impl Into<String>) -> Self {
        Self {
            ifname: ifname.into(),
            queue: 0,
            frames: 1024,
            chunk: 4096,
            fill_size: 256,
            rx_size: 256,
            tx_size: 256,
            completion_size: 256,
            traffic: Traffic::RoceV2,
            preference: XdpPreference::Auto,
            need_wakeup: true,
            tx_budget: None,
        }
    }

    /// Bytes of the UMEM. The kernel counts them as locked memory of the user.
    #[must_use]
    pub fn umem_bytes(&self) -> u64 {
        u64::from(self.frames) * u64::from(self.chunk)
    }

    /// This configuration with the longest receive ring whose UMEM has at most `bytes`, of at least
    /// 256 entries. `None` if the UMEM is still longer.
    #[must_use]
    pub fn within(&self, bytes: u64) -> Option<Self> {
        let halved = |times: u32| {
            let fill_size = self.fill_size >> times;
            Self {
                fill_size,
                rx_size: self.rx_size >> times,
                frames: self.frames - self.fill_size + fill_size,
                ..self.clone()
            }
        };
        (0..u32::BITS)
            .map(halved)
            .take_while(|shorter| shorter.fill_size >= FITTED_FILL_MIN.min(self.fill_size))
            .find(|shorter| shorter.umem_bytes() <= bytes)
    }

    /// Validates every range and relation stated above.
    ///
    /// # Errors
    /// [`XdpError::Config`] with the field and the rule it breaks.
    pub fn validate(&self) -> Result<(), XdpError> {
        let refuse = |field, reason| Err(XdpError::Config { field, reason });
        if self.queue >= QUEUES_MAX {
            let reason = format!("{} is not below {QUEUES_MAX}", self.queue);
            return refuse("queue", reason);
        }
        if self.chunk != 2048 && self.chunk != 4096 {
            return refuse("chunk", format!("{} is not 2048 or 4096", self.chunk));
        }
        let rings = [
            ("fill_size", self.fill_size, 16),
            ("rx_size", self.rx_size, self.fill_size),
            ("tx_size", self.tx_size, 32),
            ("completion_size", self.completion_size, self.tx_size),
        ];
        for (field, size, min) in rings {
            if !size.is_power_of_two() || !(min..=RING_MAX).contains(&size) {
                let rule = format!("{size} is not a power of two in {min}..={RING_MAX}");
                return refuse(field, rule);
            }
        }
        let frames = self.fill_size + TX_FRAMES_MIN..=FRAMES_MAX;
        if !frames.contains(&self.frames) {
            let (min, max) = frames.into_inner();
            let reason = format!(
                "{} is not in {min}..={max} (the fill ring's {} and the transmit chunks)",
                self.frames, self.fill_size
            );
            return refuse("frames", reason);
        }
        let transmit = self.frames - self.fill_size;
        if transmit <= self.completion_size {
            // With fewer, the kernel could own all of them at once, and a sleeping worker would not
            // be woken when one is returned.
            let (fill, completion) = (self.fill_size, self.completion_size);
            let reason = format!(
                "{} leaves {transmit} to transmit beside the fill ring's {fill}, but that must be \
                 more than the completion ring's {completion}",
                self.frames
            );
            return refuse("frames", reason);
        }
        match self.tx_budget {
            Some(budget) if !(32..=self.tx_size).contains(&budget) => {
                let reason = format!("{budget} is not in 32..={}", self.tx_size);
                refuse("tx_budget", reason)
            }
            _ => Ok(()),
        }
    }
}

impl XdpPreference {
    /// "auto", "native", "copy" or "skb".
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Copy => "copy",
            Self::Skb => "skb",
        }
    }

    /// The preference of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Auto, Self::Native, Self::Copy, Self::Skb];
        all.into_iter().find(|one| one.as_str() == name)
    }

    pub(super) fn attach_modes(self) -> &'static [AttachMode] {
        match self {
            Self::Auto => &[AttachMode::Native, AttachMode::Generic],
            Self::Native | Self::Copy => &[AttachMode::Native],
            Self::Skb => &[AttachMode::Generic],
        }
    }

    /// The copy modes to try under a program attached in that mode: generic mode supports only
    /// copying.
    pub(super) fn copy_modes(self, attached: AttachMode) -> &'static [CopyMode] {
        match (self, attached) {
            (Self::Auto | Self::Native, AttachMode::Native) => {
                &[CopyMode::ZeroCopy, CopyMode::Copy]
            }
            _ => &[CopyMode::Copy],
        }
    }
}

impl XdpMode {
    /// "native-zc", "native-copy" or "generic-copy".
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NativeZeroCopy => "native-zc",
            Self::NativeCopy => "native-copy",
            Self::GenericCopy => "generic-copy",
        }
    }

    pub(super) fn of(attached: AttachMode, copy: CopyMode) -> Self {
        match (attached, copy) {
            (AttachMode::Native, CopyMode::ZeroCopy) => Self::NativeZeroCopy,
            (AttachMode::Native, CopyMode::Copy) => Self::NativeCopy,
            (AttachMode::Generic, _) => Self::GenericCopy,
        }
    }
}

/// Above the number of queues in use on any interface; bounds the map.
pub(super) const QUEUES_MAX: u32 = 4096;
const RING_MAX: u32 = 1 << 16;
const TX_FRAMES_MIN: u32 = 32;
/// The shortest receive ring that locked memory is fitted by: the default.
const FITTED_FILL_MIN: u32 = 256;
/// 4 GiB of 4 KiB chunks: a sanity limit.
const FRAMES_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(change: impl FnOnce(&mut XdpConfig)) -> String {
        let mut config = XdpConfig::new("sw0");
        change(&mut config);
        config.validate().expect_err("refused").to_string()
    }

    #[test]
    fn within__halves_the_receive_ring_until_the_memory_fits() {
        let frames = 4096 + 768;
        let wanted = XdpConfig { fill_size: 4096, rx_size: 8192, frames, ..XdpConfig::new("sw0") };
        assert_eq!(wanted.umem_bytes(), 19 << 20);
        let fits = |bytes| {
            let config = wanted.within(bytes)?;
            config.validate().expect("sound");
            assert!(config.umem_bytes() <= bytes && config.rx_size == 2 * config.fill_size);
            assert_eq!(config.frames - config.fill_size, 768, "the transmit chunks stay");
            Some(config.fill_size)
        };
        assert_eq!(wanted.within(19 << 20), Some(wanted.clone()));
        assert_eq!([u64::MAX, (19 << 20) - 1].map(fits), [Some(4096), Some(2048)]);
        assert_eq!(
            [8 << 20, 7 << 20, (7 << 20) - 1].map(fits),
            [Some(1024), Some(1024), Some(512)]
        );
        assert_eq!([4 << 20, (4 << 20) - 1, 0].map(fits), [Some(256), None, None]);
        let short = XdpConfig { fill_size: 64, frames: 512, ..XdpConfig::new("sw0") };
        assert_eq!(short.within(2 << 20), Some(short.clone()));
        assert_eq!(short.within((2 << 20) - 1), None);
    }

    #[test]
    fn validate__accepts_the_defaults() {
        XdpConfig::new("sw0").validate().expect("sound");
    }

    #[test]
    fn validate__names_the_field_and_the_rule() {
        assert!(error_of(|c| c.queue = 4096).starts_with("queue: "));
        assert!(error_of(|c| c.chunk = 1024).starts_with("chunk: "));
        assert!(error_of(|c| c.fill_size = 8).starts_with("fill_size: "));
        assert!(error_of(|c| c.fill_size = 300).starts_with("fill_size: "));
        assert!(error_of(|c| c.rx_size = 128).starts_with("rx_size: 128 is not"));
        assert!(error_of(|c| c.tx_size = 1 << 20).starts_with("tx_size: "));
        assert!(error_of(|c| c.completion_size = 128).starts_with("completion_size: "));
        assert!(error_of(|c| c.frames = 287).starts_with("frames: 287 is not in 288..="));
        assert!(error_of(|c| c.frames = u32::MAX).starts_with("frames: "));
        assert!(error_of(|c| c.tx_budget = Some(31)).starts_with("tx_budget: "));
    }

    #[test]
    fn from_name__is_the_inverse_of_as_str() {
        for name in ["auto", "native", "copy", "skb"] {
            let preference = XdpPreference::from_name(name).expect("a name");
            assert_eq!(preference.as_str(), name);
        }
        assert_eq!(XdpPreference::from_name("zero"), None);
    }

    #[test]
    fn copy_modes__zero_copy_is_only_tried_in_native_mode() {
        let auto = XdpPreference::Auto;
        assert_eq!(auto.copy_modes(AttachMode::Native).len(), 2);
        assert_eq!(auto.copy_modes(AttachMode::Generic), [CopyMode::Copy]);
        let copy = XdpPreference::Copy;
        assert_eq!(copy.copy_modes(AttachMode::Native), [CopyMode::Copy]);
    }

    #[test]
    fn of__combines_attach_and_copy_mode() {
        let of = |attached, copy| XdpMode::of(attached, copy).as_str();
        assert_eq!(of(AttachMode::Native, CopyMode::ZeroCopy), "native-zc");
        assert_eq!(of(AttachMode::Native, CopyMode::Copy), "native-copy");
        assert_eq!(of(AttachMode::Generic, CopyMode::Copy), "generic-copy");
    }
}
