//! Mode fallback: the first mode that succeeds, with the errors of those before it.

use crate::error::Error;

/// A mode that was refused before another one succeeded.
#[derive(Debug)]
pub struct RejectedMode<M> {
    /// The mode that was tried.
    pub mode: M,
    /// The error that it failed with.
    pub error: Error,
}

/// Attempts `modes` in order until one succeeds. Also returns the modes refused before.
///
/// # Errors
/// The error of the last mode, or the first one that is not `is_about_the_mode`: no other mode
/// would succeed.
///
/// # Panics
/// If `modes` is empty.
pub(crate) fn first_mode<T, M: Copy>(
    modes: &[M],
    is_about_the_mode: impl Fn(&Error) -> bool,
    mut attempt: impl FnMut(M) -> Result<T, Error>,
) -> Result<(T, Vec<RejectedMode<M>>), Error> {
    let mut rejected = Vec::new();
    let (last, before) = modes.split_last().expect("validated: there is a mode");
    for mode in before.iter().copied() {
        match attempt(mode) {
            Ok(done) => return Ok((done, rejected)),
            Err(error) if is_about_the_mode(&error) => rejected.push(RejectedMode { mode, error }),
            Err(error) => return Err(error),
        }
    }
    attempt(*last).map(|done| (done, rejected))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mode that succeeded and those refused before, or the error's text.
    type Outcome = Result<(u8, Vec<u8>), String>;

    /// Attempts modes 1 to 3. Those in `works` succeed, those in `fatal` fail for all modes. Also
    /// returns the modes tried.
    fn attempts(works: &[u8], fatal: &[u8]) -> (Outcome, Vec<u8>) {
        let mut tried = Vec::new();
        let result = first_mode(
            &[1, 2, 3],
            |error| !error.to_string().contains("fatal"),
            |mode| {
                tried.push(mode);
                let kind = if fatal.contains(&mode) { "fatal" } else { "mode" };
                works.contains(&mode).then_some(mode).ok_or_else(|| Error::config("m", kind))
            },
        );
        let modes = |rejected: Vec<RejectedMode<u8>>| rejected.iter().map(|r| r.mode).collect();
        let result = result.map(|(mode, rejected)| (mode, modes(rejected)));
        (result.map_err(|error| error.to_string()), tried)
    }

    #[test]
    fn first_mode__returns_the_first_that_succeeds_and_those_refused_before() {
        assert_eq!(attempts(&[2, 3], &[]), (Ok((2, vec![1])), vec![1, 2]));
        assert_eq!(attempts(&[3], &[]), (Ok((3, vec![1, 2])), vec![1, 2, 3]));
    }

    #[test]
    fn first_mode__ends_at_an_error_common_to_all_modes_and_at_the_last() {
        assert_eq!(attempts(&[3], &[2]), (Err("m: fatal".to_owned()), vec![1, 2]));
        assert_eq!(attempts(&[], &[]), (Err("m: mode".to_owned()), vec![1, 2, 3]));
    }
}
