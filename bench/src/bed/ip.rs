//! The command `ip`.

use crate::sample::Error;
use std::process::Command;

/// Runs the command `ip`.
pub(crate) fn ip(args: &[&str]) -> Result<(), Error> {
    let line = format!("ip {}", args.join(" "));
    let done = Command::new("ip")
        .args(args)
        .output()
        .map_err(|e| format!("{line}: {e}; apt-get install iproute2 installs it"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("{line}: {}", String::from_utf8_lossy(&done.stderr).trim()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip__errors_name_the_command() {
        let why = ip(&["link", "show", "dev", "no-such-device"]).unwrap_err().to_string();
        assert!(why.starts_with("ip link show dev no-such-device: "), "{why}");
    }
}
