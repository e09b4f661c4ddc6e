//! The names of a lab, of its namespaces and of their devices.

use crate::error::LabError;

/// The namespace of a part of a lab.
#[must_use]
pub fn namespace(lab: &str, part: &str) -> String {
    format!("{lab}-{part}")
}

/// The alias of a device by which `down` identifies it.
pub(crate) fn mark(lab: &str) -> String {
    format!("spanwire lab {lab}")
}

/// Checks the name of a lab.
///
/// # Errors
/// [`LabError::BadName`].
pub fn check_name(name: &str) -> Result<(), LabError> {
    let clean = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(clean) && !name.starts_with('-') {
        return Ok(());
    }
    Err(LabError::BadName { lab: name.to_owned() })
}

/// The device of a host, in every namespace.
pub const DEVICE: &str = "sw0";

/// The default name of a lab.
pub const DEFAULT_NAME: &str = "sw";

/// The hosts at the two ends of a cable.
pub const CABLE_HOSTS: [&str; 2] = ["a", "b"];

/// The part of a lab's names that stands for its switch.
pub(crate) const SWITCH: &str = "switch";

/// Maximum length of a lab's name in bytes. It is part of file names and of the device alias.
const NAME_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_name__safe_in_paths_and_arguments() {
        for bad in ["", "-x", "a/b", "a b", "..", "ä", &"n".repeat(33)] {
            let error = check_name(bad).expect_err(bad);
            assert!(matches!(error, LabError::BadName { .. }), "{error}");
        }
        for good in ["sw", "my_lab-2", &"n".repeat(32)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
    }
}
