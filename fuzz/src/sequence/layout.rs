//! The layout of an input.

/// Bytes of the setup, before the steps.
pub const SETUP_LEN: usize = 6;
/// Bytes of a step: its action and ten operands.
pub const STEP_LEN: usize = 11;
