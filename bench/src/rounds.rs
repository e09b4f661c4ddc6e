//! Interleaved rounds: each has one sample of every subject, so that slow drift of the machine
//! affects all subjects alike.

use spanwire_base::usize_from;

/// The round and the subject of each sample of `subjects` subjects. Every other round is in reverse
/// order, and each begins one subject further.
pub(crate) fn interleaved(rounds: u32, subjects: usize) -> impl Iterator<Item = (u32, usize)> {
    (0..rounds).flat_map(move |round| {
        (0..subjects).map(move |n| {
            let n = (n + usize_from(round.into())) % subjects;
            (round, if round % 2 == 0 { n } else { subjects - 1 - n })
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
        let order: Vec<usize> = interleaved(3, 4).map(|(_, n)| n).collect();
        assert_eq!(order, [0, 1, 2, 3, 2, 1, 0, 3, 2, 3, 0, 1]);
        assert_eq!(interleaved(3, 0).count(), 0);
    }
}
