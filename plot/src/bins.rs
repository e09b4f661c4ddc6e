//! Reduction of many points to bins, each with a mean, a least and a most value.
//!
//! Thousands of points that vary quickly cover the figure with one colour. The mean of a bin shows
//! their course, and a band shows how far they vary.

/// The points of a line in an interval of x.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bin {
    /// Mean of x.
    pub(crate) x: f64,
    /// Mean of y.
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// The points in [`BINS`] intervals of equal width, without empty ones; `None` if there are not
/// even two for each. `points` are in order of x.
pub(crate) fn bins(points: &[(f64, f64)]) -> Option<Vec<Bin>> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    if points.len() <= 2 * BINS || last <= first {
        return None;
    }
    // BINS is small, so the product is exact enough that equal x have the same bin.
    let place = |x: f64| ((x - first) / (last - first) * COUNT).floor().min(COUNT - 1.0);
    let of = |chunk: &[(f64, f64)]| {
        let mut bin = Bin { x: 0.0, mean: 0.0, least: f64::INFINITY, most: f64::NEG_INFINITY };
        let mut n = 0.0;
        for (x, y) in chunk {
            n += 1.0;
            bin.x += (x - bin.x) / n;
            bin.mean += (y - bin.mean) / n;
            bin.least = bin.least.min(*y);
            bin.most = bin.most.max(*y);
        }
        bin
    };
    Some(points.chunk_by(|a, b| place(a.0) == place(b.0)).map(of).collect())
}

/// The outline of the band: the most of each bin, and back along the least.
pub(crate) fn outline(bins: &[Bin]) -> Vec<(f64, f64)> {
    let above = bins.iter().map(|bin| (bin.x, bin.most));
    let below = bins.iter().rev().map(|bin| (bin.x, bin.least));
    above.chain(below).collect()
}

/// A bin is about four pixels wide.
const BINS: usize = 200;
const COUNT: f64 = 200.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins__have_mean_least_and_most() {
        // Ten points a bin, alternately 0 and 4.
        let points: Vec<(f64, f64)> =
            (0..2000u32).map(|i| (f64::from(i), f64::from(i % 2 * 4))).collect();
        let bins = bins(&points).expect("many points");
        assert_eq!(bins.len(), BINS);
        for bin in &bins {
            assert_eq!((bin.least, bin.most), (0.0, 4.0));
            assert!((bin.mean - 2.0).abs() < 0.3, "{bin:?}");
        }
        assert!(bins.is_sorted_by(|a, b| a.x < b.x));
        let band = outline(&bins[..2]);
        assert_eq!(band.iter().map(|p| p.1).collect::<Vec<_>>(), [4.0, 4.0, 0.0, 0.0]);
    }

    #[test]
    fn bins__few_points_are_drawn_as_they_are() {
        let points: Vec<(f64, f64)> = (0..400u32).map(|i| (f64::from(i), 1.0)).collect();
        assert_eq!(bins(&points), None);
        assert_eq!((bins(&[]), bins(&[(1.0, 2.0); 1000])), (None, None));
    }
}
