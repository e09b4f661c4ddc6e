//! The settings that `spanwire run` puts into the environment.

use spanwire_host::fabric::Error;
pub(crate) use spanwire_host::program::ProgramSettings as Settings;
use std::io::Write;
use std::sync::OnceLock;

/// The settings of this process, read once.
///
/// # Errors
/// A variable has no valid value; its name and what is valid are in the message.
pub(crate) fn settings() -> Result<&'static Settings, Error> {
    static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();
    let read = || Settings::from_env(|name| std::env::var(name).ok()).map_err(|e| e.to_string());
    SETTINGS.get_or_init(read).as_ref().map_err(|why| why.as_str().into())
}

/// Says something on stderr, which is the program's: one line, and only if a call failed or it was
/// asked for.
pub(crate) fn say(line: &str) {
    // A closed stderr takes nothing away from the program.
    let _ = writeln!(std::io::stderr(), "spanwire: {line}");
}
