//! Interleaved rounds: each has one sample of every subject, so that slow drift of the machine
//! affects all subjects alike.

use spanwire_base::usize_from;

/// The round and the subject of each sample of `subjects` subjects. Every other round is in reverse
/// order of the one before, so that no subject is always first; each two begin one further.
pub(crate) fn interleaved(rounds: u32, subjects: usize) -> impl Iterator<Item = (u32, usize)> {
    (0..rounds).flat_map(move |round| {
        (0..subjects).map(move |n| {
            let at = if round % 2 == 0 { n } else { subjects - 1 - n };
            (round, (at + usize_from((round / 2).into())) % subjects)
        })
    })
}

/// The samples of each of the subjects called `names`, and whether the run was interrupted.
///
/// `watch` receives the round and the name of the next subject, before and after its sample, and
/// ends the run by returning true.
pub(crate) fn samples<T: Clone>(
    rounds: u32,
    names: &[String],
    mut watch: impl FnMut(u32, &str) -> bool,
    mut take: impl FnMut(usize) -> T,
) -> (Vec<Vec<T>>, bool) {
    let mut taken = vec![Vec::new(); names.len()];
    let interrupted = interleaved(rounds, names.len()).any(|(round, n)| {
        if watch(round, &names[n]) {
            return true;
        }
        let sample = take(n);
        // An interrupt from the terminal also ends the processes of the sample.
        let is_over = watch(round, &names[n]);
        if !is_over {
            taken[n].push(sample);
        }
        is_over
    });
    (taken, interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved__every_round_has_all_and_rotates() {
        let order = |rounds, of| interleaved(rounds, of).map(|(_, n)| n).collect::<Vec<_>>();
        assert_eq!(order(3, 4), [0, 1, 2, 3, 3, 2, 1, 0, 1, 2, 3, 0]);
        assert_eq!([order(4, 2), order(3, 0)], [vec![0, 1, 1, 0, 1, 0, 0, 1], vec![]]);
    }
}
