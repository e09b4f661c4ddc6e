//! Reduction of points without a visible change.

/// Removes points that a line would hide. In each column of `width` units it keeps the first, the
/// lowest, the highest and the last point, which draw the same pixels.
///
/// `at` returns a point's position in drawing units; points are in order of x.
///
/// # Source
/// Jugel et al., "M4: A Visualization-Oriented Time Series Data Aggregation", VLDB 2014.
pub(crate) fn thin<P: Copy>(points: &[P], width: i32, at: impl Fn(&P) -> (i32, i32)) -> Vec<P> {
    let mut kept = Vec::new();
    let column = |p: &P| at(p).0.div_euclid(width);
    for chunk in points.chunk_by(|a, b| column(a) == column(b)) {
        let height = |i: &usize| at(&chunk[*i]).1;
        let lowest = (0..chunk.len()).min_by_key(height).unwrap_or(0);
        let highest = (0..chunk.len()).max_by_key(height).unwrap_or(0);
        let mut stay = [0, lowest, highest, chunk.len() - 1];
        stay.sort_unstable();
        let mut last = None;
        for i in stay {
            if last.replace(i) != Some(i) {
                kept.push(chunk[i]);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thin__keeps_visible_points() {
        let points = [(0, 5), (1, 9), (2, 1), (3, 6), (4, 7), (5, 7), (9, 2)];
        let kept = thin(&points, 4, |p| *p);
        assert_eq!(kept, [(0, 5), (1, 9), (2, 1), (3, 6), (4, 7), (5, 7), (9, 2)]);
        let crowd: Vec<(i32, i32)> = (0..1000).map(|i| (i / 100, i % 100)).collect();
        let kept = thin(&crowd, 5, |p| *p);
        assert_eq!(kept, [(0, 0), (4, 99), (5, 0), (9, 99)]);
    }

    #[test]
    fn thin__of_nothing_is_nothing() {
        assert!(thin(&[] as &[(i32, i32)], 4, |p| *p).is_empty());
    }
}
