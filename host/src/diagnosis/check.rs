//! The result of one check, and how to fix it.

use serde::Serialize;
use std::fmt::{self, Display, Formatter};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The subject of the check, in one word.
    pub name: &'static str,
    /// Severity.
    pub status: Status,
    /// The finding and its consequence.
    pub found: String,
    /// A command that fixes it, to be run as root if it changes the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Severity of a check, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// No problem.
    Ok,
    /// Spanwire works, but slower, or not with every peer.
    Warn,
    /// Spanwire cannot work.
    Fail,
}

impl Check {
    /// A check without a problem.
    #[must_use]
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, found: found.into(), fix: None }
    }

    /// A check with a problem that leaves Spanwire usable.
    #[must_use]
    pub fn warn(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, found: found.into(), fix: Some(fix.into()) }
    }

    /// A check with a problem that makes Spanwire unusable.
    #[must_use]
    pub fn fail(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Status::Fail, found: found.into(), fix: Some(fix.into()) }
    }
}

/// The worst of some checks.
#[must_use]
pub fn worst(checks: &[Check]) -> Status {
    checks.iter().map(|check| check.status).max().unwrap_or(Status::Ok)
}

impl Display for Check {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<4}  {:<9} {}", self.status, self.name, self.found)?;
        match &self.fix {
            Some(fix) => write!(f, "\n        fix:      {fix}"),
            None => Ok(()),
        }
    }
}

impl Display for Status {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst__is_the_worst() {
        assert_eq!(worst(&[]), Status::Ok);
        let checks = [Check::warn("a", "", ""), Check::fail("b", "", ""), Check::ok("c", "")];
        assert_eq!(worst(&checks), Status::Fail);
        assert_eq!(worst(&checks[..1]), Status::Warn);
    }

    #[test]
    fn check__shows_its_fix() {
        let text = Check::warn("mtu", "too big", "ip link").to_string();
        assert_eq!(text, "  warn  mtu       too big\n        fix:      ip link");
        assert_eq!(Check::ok("mtu", "1500").to_string(), "  ok    mtu       1500");
    }
}
