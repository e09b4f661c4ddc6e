//! Reduction of many samples to a mean and a band from the least to the most.

/// A series over equal intervals of x.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Band {
    /// (x, mean) in the middle of each interval that has points.
    pub(crate) mean: Vec<(f64, f64)>,
    /// (x, least) of the same intervals.
    pub(crate) least: Vec<(f64, f64)>,
    /// (x, most) of the same intervals.
    pub(crate) most: Vec<(f64, f64)>,
}

impl Band {
    /// Reduces `points`, in order of x, to at most `intervals` intervals over their range; `None`
    /// if they are so few that each of them can be seen.
    ///
    /// A point counts for as long as it holds, until the next one. Points at one x (those of
    /// several runs) count alike.
    pub(crate) fn of(points: &[(f64, f64)], intervals: usize) -> Option<Self> {
        let (first, last) = (points.first()?.0, points.last()?.0);
        let width = (last - first) / intervals as f64;
        if points.len() <= 2 * intervals || width <= 0.0 {
            return None;
        }
        let interval = |x: f64| ((x - first) / width).floor().min(intervals as f64 - 1.0);
        let mut band = Self { mean: Vec::new(), least: Vec::new(), most: Vec::new() };
        let mut from = 0;
        for chunk in points.chunk_by(|a, b| interval(a.0) == interval(b.0)) {
            let after = points.get(from + chunk.len()).map_or(last, |next| next.0);
            from += chunk.len();
            let x = first + (interval(chunk[0].0) + 0.5) * width;
            let y = chunk.iter().map(|p| p.1);
            band.mean.push((x, mean(chunk, after)));
            band.least.push((x, y.clone().fold(f64::INFINITY, f64::min)));
            band.most.push((x, y.fold(f64::NEG_INFINITY, f64::max)));
        }
        Some(band)
    }

    /// Its outline: along the most, and back along the least.
    pub(crate) fn outline(&self) -> Vec<(f64, f64)> {
        self.most.iter().chain(self.least.iter().rev()).copied().collect()
    }
}

/// The mean of points that each hold until the next one, the last until `after`; those at one x
/// count as their mean.
fn mean(points: &[(f64, f64)], after: f64) -> f64 {
    let plain =
        |points: &[(f64, f64)]| points.iter().map(|p| p.1).sum::<f64>() / points.len() as f64;
    let places: Vec<(f64, f64)> =
        points.chunk_by(|a, b| a.0 == b.0).map(|place| (place[0].0, plain(place))).collect();
    let ends = places[1..].iter().map(|p| p.0).chain([after]);
    let (sum, time) = places
        .iter()
        .zip(ends)
        .fold((0.0, 0.0), |(sum, time), (p, end)| (sum + p.1 * (end - p.0), time + (end - p.0)));
    if time > 0.0 { sum / time } else { plain(&places) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of__has_mean_least_and_most_of_each_interval() {
        // A saw from 0 to 9 over each unit of x.
        let points: Vec<(f64, f64)> =
            (0..1000u32).map(|i| (f64::from(i) / 10.0, f64::from(i % 10))).collect();
        let band = Band::of(&points, 10).expect("a hundred points an interval");
        assert_eq!((band.mean.len(), band.outline().len()), (10, 20));
        for i in 0..10 {
            assert!((band.mean[i].1 - 4.5).abs() < 0.1, "{:?}", band.mean[i]);
            assert_eq!((band.least[i].1, band.most[i].1), (0.0, 9.0));
            assert!((band.mean[i].0 - (i as f64 + 0.5) * 9.99).abs() < 1e-9);
        }
    }

    #[test]
    fn of__a_value_counts_for_as_long_as_it_holds() {
        // 100 for a thousandth of the time, 0 for the rest.
        let mut points = vec![(0.0, 0.0), (4.99, 100.0), (5.0, 0.0)];
        points.extend((0..50).map(|i| (5.0 + f64::from(i) / 10.0, 0.0)));
        let band = Band::of(&points, 1).expect("more than two points");
        assert!((band.mean[0].1 - 100.0 * 0.01 / 9.9).abs() < 1e-9, "{:?}", band.mean);
        assert_eq!(band.most[0].1, 100.0);
    }

    #[test]
    fn of__points_of_several_runs_at_one_place_count_alike() {
        let at = |i: u32| [3.0, 1.0, 2.0].map(|y| (f64::from(i), y));
        let points: Vec<(f64, f64)> = (0..300).flat_map(at).collect();
        let band = Band::of(&points, 200).expect("900 points");
        assert!(band.mean.iter().all(|p| (p.1 - 2.0).abs() < 1e-12), "{:?}", band.mean);
        assert!(band.least.iter().all(|p| p.1 == 1.0) && band.most.iter().all(|p| p.1 == 3.0));
    }

    #[test]
    fn of__few_points_stay_as_they_are() {
        assert_eq!(Band::of(&[(0.0, 1.0); 400], 200), None, "as many as can be seen");
        assert_eq!(Band::of(&[(1.0, 1.0); 1000], 200), None, "all at one place");
        assert_eq!(Band::of(&[], 200), None);
    }
}
