//! Lists of numbers by seed.

/// A list of numbers for each seed. A constant has one list.
pub(in crate::sim::reproduce) type Values = Vec<Vec<f64>>;

/// Joins the lists of each seed. A constant fits any number of seeds.
pub(super) fn concatenated(a: &Values, b: &Values) -> Result<Values, String> {
    let n = common(a.len(), b.len(), "seeds")?;
    let of = |all: &Values, i: usize| all[if all.len() == 1 { 0 } else { i }].clone();
    Ok((0..n).map(|i| [of(a, i), of(b, i)].concat()).collect())
}

/// Applies `op` seed by seed and element by element.
pub(super) fn by_seed(
    a: &Values,
    b: &Values,
    op: impl Fn(f64, f64) -> f64,
) -> Result<Values, String> {
    let n = common(a.len(), b.len(), "seeds")?;
    let of = |all: &'_ Values, i: usize| if all.len() == 1 { 0 } else { i };
    (0..n).map(|i| joined(&a[of(a, i)], &b[of(b, i)], &op)).collect()
}

/// Applies `op` element by element; a list of one element fits any other.
pub(super) fn joined<T>(
    a: &[f64],
    b: &[f64],
    op: impl Fn(f64, f64) -> T,
) -> Result<Vec<T>, String> {
    let n = common(a.len(), b.len(), "elements")?;
    let of = |list: &[f64], i: usize| list[if list.len() == 1 { 0 } else { i }];
    Ok((0..n).map(|i| op(of(a, i), of(b, i))).collect())
}

fn common(a: usize, b: usize, what: &str) -> Result<usize, String> {
    match (a, b) {
        (1, n) | (n, 1) => Ok(n),
        (a, b) if a == b => Ok(a),
        (a, b) => Err(format!("{a} {what} on one side and {b} on the other")),
    }
}

/// The median of each element over the seeds.
pub(in crate::sim::reproduce) fn medians(values: &Values) -> Result<Vec<f64>, String> {
    Ok(columns(values)?.iter().map(|column| median(column)).collect())
}

/// The elements by place, each over all seeds.
pub(super) fn columns(values: &Values) -> Result<Vec<Vec<f64>>, String> {
    let n = values.first().map_or(0, Vec::len);
    if n == 0 || values.iter().any(|list| list.len() != n) {
        return Err("lists are empty or of different lengths: reduce them with min, max, mean, \
                    sum, count or spread"
            .to_owned());
    }
    Ok((0..n).map(|i| values.iter().map(|list| list[i]).collect()).collect())
}

/// The median. Not a number if there are no values.
pub(in crate::sim::reproduce) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 {
        return f64::NAN;
    }
    let (low, high) = (values[(n - 1) / 2], values[n / 2]);
    // The mean of two infinities is computed as it is, since midpoint() would be NaN.
    if low.to_bits() == high.to_bits() { low } else { f64::midpoint(low, high) }
}

pub(in crate::sim::reproduce) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

pub(in crate::sim::reproduce) fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
