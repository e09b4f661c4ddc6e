//! Configuration of the network emulation.

use spanwire_base::Dur;
use std::fmt;

/// Configuration of the network emulation. The default has no faults.
///
/// `seed`, the rates and the frames decide all faults. Each kind of fault has its own generator:
/// changing one rate does not change the others' draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultConfig {
    /// Seed of all draws.
    pub seed: u64,
    /// Frames lost, per million (0..=1,000,000).
    pub loss_ppm: u32,
    /// Frames delivered twice, per million of those not lost.
    pub dup_ppm: u32,
    /// Frames delayed until later ones have overtaken them, per million of those not lost.
    pub reorder_ppm: u32,
    /// Maximum frames that overtake a delayed one, and maximum delayed frames
    /// (1..=[`FaultConfig::REORDER_DEPTH_MAX`], default 3). Drawn uniformly from 1 to this.
    pub reorder_depth: u32,
    /// Frames with one bit flipped past the Ethernet header, per million of those not lost.
    pub corrupt_ppm: u32,
}

/// The reason why a fault configuration is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultConfigError {
    /// A rate above a million per million.
    Ppm {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// `reorder_depth` outside its range.
    ReorderDepth(u32),
}

impl FaultConfig {
    /// The largest `reorder_depth`: one burst of the driver.
    pub const REORDER_DEPTH_MAX: u32 = 64;

    /// Maximum delay of a frame that no other overtakes. It is far below any retry limit: the last
    /// frame of a transfer is late, never lost.
    pub const HOLD_MAX: Dur = Dur::from_ms(1);

    /// True if any rate is above zero.
    #[must_use]
    pub const fn has_faults(&self) -> bool {
        self.loss_ppm > 0 || self.dup_ppm > 0 || self.reorder_ppm > 0 || self.corrupt_ppm > 0
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// The first field out of its range.
    pub fn validate(&self) -> Result<(), FaultConfigError> {
        let rates = [
            ("loss_ppm", self.loss_ppm),
            ("dup_ppm", self.dup_ppm),
            ("reorder_ppm", self.reorder_ppm),
            ("corrupt_ppm", self.corrupt_ppm),
        ];
        for (field, value) in rates {
            if value > 1_000_000 {
                return Err(FaultConfigError::Ppm { field, value });
            }
        }
        if !(1..=Self::REORDER_DEPTH_MAX).contains(&self.reorder_depth) {
            return Err(FaultConfigError::ReorderDepth(self.reorder_depth));
        }
        Ok(())
    }
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self { seed: 0, loss_ppm: 0, dup_ppm: 0, reorder_ppm: 0, reorder_depth: 3, corrupt_ppm: 0 }
    }
}

impl fmt::Display for FaultConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ppm { field, value } => {
                write!(f, "{field} is {value}, above a million per million")
            }
            Self::ReorderDepth(depth) => {
                let max = FaultConfig::REORDER_DEPTH_MAX;
                write!(f, "reorder_depth is {depth}, not within 1..={max}")
            }
        }
    }
}

impl std::error::Error for FaultConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validate__accepts_the_ends_of_each_range() {
        let worst = FaultConfig {
            seed: u64::MAX,
            loss_ppm: 1_000_000,
            dup_ppm: 1_000_000,
            reorder_ppm: 1_000_000,
            reorder_depth: FaultConfig::REORDER_DEPTH_MAX,
            corrupt_ppm: 1_000_000,
        };
        assert_eq!(worst.validate(), Ok(()));
        assert_eq!(FaultConfig::default().validate(), Ok(()));
        assert!(
            worst.has_faults() && !FaultConfig { seed: 7, ..FaultConfig::default() }.has_faults()
        );
    }

    #[test]
    fn validate__names_the_rate_out_of_range() {
        type Change = fn(&mut FaultConfig);
        let set: [(&str, Change); 4] = [
            ("loss_ppm", |c| c.loss_ppm = 1_000_001),
            ("dup_ppm", |c| c.dup_ppm = 1_000_001),
            ("reorder_ppm", |c| c.reorder_ppm = 1_000_001),
            ("corrupt_ppm", |c| c.corrupt_ppm = 1_000_001),
        ];
        for (field, spoil) in set {
            let mut cfg = FaultConfig::default();
            spoil(&mut cfg);
            let said = cfg.validate().unwrap_err().to_string();
            assert_eq!(said, format!("{field} is 1000001, above a million per million"));
        }
    }

    #[test]
    fn validate__rejects_a_depth_out_of_range() {
        for depth in [0, FaultConfig::REORDER_DEPTH_MAX + 1] {
            let cfg = FaultConfig { reorder_depth: depth, ..FaultConfig::default() };
            let error = cfg.validate().unwrap_err();
            assert_eq!(error, FaultConfigError::ReorderDepth(depth));
            assert_eq!(error.to_string(), format!("reorder_depth is {depth}, not within 1..=64"));
        }
    }
}
