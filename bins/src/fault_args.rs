//! Emulated impairments of frames received, as arguments.

use spanwire_host::quantity::ppm;
use spanwire_io::fault::FaultConfig;

/// Rates of emulated faults, in millionths.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct FaultArgs {
    /// Drop this share of the frames received, in percent
    #[arg(long, value_parser = ppm, value_name = "PERCENT")]
    loss: Option<u32>,
    /// Receive this share of the frames twice, in percent
    #[arg(long, value_parser = ppm, value_name = "PERCENT")]
    dup: Option<u32>,
    /// Delay this share of the frames received, so that later ones overtake them, in percent
    #[arg(long, value_parser = ppm, value_name = "PERCENT")]
    reorder: Option<u32>,
    /// Flip a bit in this share of the frames received, in percent
    #[arg(long, value_parser = ppm, value_name = "PERCENT")]
    corrupt: Option<u32>,
}

impl FaultArgs {
    /// `base` with the rates that were given.
    pub(crate) fn over(&self, base: FaultConfig) -> FaultConfig {
        FaultConfig {
            loss_ppm: self.loss.unwrap_or(base.loss_ppm),
            dup_ppm: self.dup.unwrap_or(base.dup_ppm),
            reorder_ppm: self.reorder.unwrap_or(base.reorder_ppm),
            corrupt_ppm: self.corrupt.unwrap_or(base.corrupt_ppm),
            ..base
        }
    }
}
