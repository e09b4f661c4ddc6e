//! Random numbers of the system: keys of engines, seeds of generators.

use spanwire_transport::{Endpoint, ValidConfig};
use std::io;

/// `N` random bytes.
///
/// # Errors
/// The system provides no random numbers.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// An engine with unpredictable keys and first PSNs.
///
/// # Errors
/// The system provides no random numbers.
pub fn endpoint(config: ValidConfig) -> io::Result<Endpoint> {
    Ok(Endpoint::new(config, random()?))
}
