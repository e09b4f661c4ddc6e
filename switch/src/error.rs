//! Errors of a configuration.

use std::fmt;

/// A configuration error: the field, the problem, and valid values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The path of the field: `ports[3].queues[0].ecn`.
    pub at: String,
    /// The problem and valid values.
    pub what: String,
}

impl ConfigError {
    /// An error at `at`.
    pub(crate) fn new(at: impl Into<String>, what: impl Into<String>) -> Self {
        Self { at: at.into(), what: what.into() }
    }

    /// Prefixes the path with `field` of the outer struct.
    pub(crate) fn within(mut self, field: &str) -> Self {
        let joint = if self.at.is_empty() { "" } else { "." };
        self.at = format!("{field}{joint}{}", self.at);
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

impl std::error::Error for ConfigError {}

/// Returns an error with field and range unless `value` is in `range`.
pub(crate) fn check_range<T: Copy + PartialOrd + fmt::Display>(
    at: &str,
    value: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (min, max) = (range.start(), range.end());
    Err(ConfigError::new(at, format!("is {value}; choose {min} to {max}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within__builds_the_path_from_the_inside() {
        let error = check_range("kmin_bytes", 9, 0..=8).unwrap_err();
        let error = error.within("ecn").within("ports[3]");
        assert_eq!(error.to_string(), "ports[3].ecn.kmin_bytes: is 9; choose 0 to 8");
        assert_eq!(ConfigError::new("", "no").within("ports").to_string(), "ports: no");
    }
}
