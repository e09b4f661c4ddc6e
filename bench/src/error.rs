//! The error of a measurement.

/// An error with its cause, its place, and a remedy.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
