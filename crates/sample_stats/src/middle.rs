//! Middles and spreads.

/// The probability that [`median_interval`] misses the median.
const MISS: f64 = 0.05;

/// The median: the middle value, or the mean of the middle two.
///
/// NaN without values.
///
/// ```
/// assert_eq!(sample_stats::median(&[4.0, 1.0, 2.0, 800.0]), 3.0);
/// ```
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 0 => (sorted[half - 1] + sorted[half]) / 2.0,
        _ => sorted[half],
    }
}

/// The least value that at least `percent` % of the values do not exceed; NaN if there are none.
///
/// ```
/// use sample_stats::percentile;
///
/// let values: Vec<f64> = (1..=40).map(f64::from).collect();
/// assert_eq!(percentile(&values, 95.0), 38.0);
/// assert_eq!(percentile(&values, 100.0), 40.0);
/// ```
pub fn percentile(values: &[f64], percent: f64) -> f64 {
    let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
    let at = rank.clamp(1, values.len().max(1)) - 1;
    sorted(values).get(at).copied().unwrap_or(f64::NAN)
}

/// The median absolute deviation: the median distance from the median.
///
/// ```
/// assert_eq!(sample_stats::deviation(&[1.0, 2.0, 3.0, 4.0, 1000.0]), 1.0);
/// ```
pub fn deviation(values: &[f64]) -> f64 {
    let middle = median(values);
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

/// An interval that holds the true median with a probability of at least 95 %.
///
/// The values must be drawn independently of each other. `None` means fewer than six values.
///
/// Each value is below the median with probability 1/2. So the median is below the l-th smallest
/// value with the probability that fewer than l of n fair coins show heads. The interval lies
/// between the l-th smallest and the l-th largest value, with l as large as possible.
///
/// ```
/// use sample_stats::median_interval;
///
/// let ratios = [1.01, 1.02, 0.99, 1.03, 1.02, 1.01, 1.02, 1.01];
/// assert_eq!(median_interval(&ratios), Some((0.99, 1.03)), "it may be 1");
/// assert_eq!(median_interval(&ratios[..5]), None);
/// ```
pub fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    let n = sorted.len();
    // The logarithm of the probability of exactly `heads` heads, since 2^-n underflows for a large
    // n; and the probability of at most `heads` heads.
    let mut exactly = -(n as f64) * std::f64::consts::LN_2;
    let mut at_most = 0.0;
    let mut rank = 0;
    for heads in 0..n / 2 {
        at_most += exactly.exp();
        if at_most > MISS / 2.0 {
            break;
        }
        rank = heads + 1;
        exactly += ((n - heads) as f64 / (heads + 1) as f64).ln();
    }
    (rank > 0).then(|| (sorted[rank - 1], sorted[n - rank]))
}

/// The ratio of two times sampled in turn: the median over pairs, and its 95 % interval.
///
/// `None` if there is no finite ratio.
///
/// ```
/// use sample_stats::paired_ratio;
///
/// // Clocks that fall leave the ratio alone.
/// let own = [1.0, 1.2, 1.4, 1.6, 1.8, 2.0];
/// assert_eq!(paired_ratio(&own.map(|ms| 2.0 * ms), &own), Some((2.0, Some((2.0, 2.0)))));
/// ```
pub fn paired_ratio(one: &[f64], other: &[f64]) -> Option<(f64, Option<(f64, f64)>)> {
    let ratios: Vec<_> = one.iter().zip(other).map(|(one, other)| one / other).collect();
    let ratio = median(&ratios);
    let interval =
        median_interval(&ratios).filter(|(low, high)| low.is_finite() && high.is_finite());
    ratio.is_finite().then_some((ratio, interval))
}

/// The geometric mean of positive numbers; `None` without numbers.
///
/// ```
/// assert_eq!(sample_stats::geometric_mean(&[0.5, 2.0]), Some(1.0));
/// ```
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles_and_spreads() {
        assert_eq!(median(&[3.0, 1.0, 8.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 8.0]), 3.0);
        assert!(median(&[]).is_nan());
        // One outlier moves neither.
        assert_eq!(median(&[1.0, 2.0, 3.0, 4.0, 1000.0]), 3.0);
        assert_eq!(deviation(&[1.0, 2.0, 3.0, 4.0, 1000.0]), 1.0);
        assert_eq!(deviation(&[5.0]), 0.0);
    }

    #[test]
    fn percentiles_are_values() {
        let values = [3.0, 1.0, 2.0];
        for (percent, value) in [(0.0, 1.0), (33.0, 1.0), (34.0, 2.0), (95.0, 3.0), (100.0, 3.0)] {
            assert_eq!(percentile(&values, percent), value, "{percent}");
        }
        assert_eq!(percentile(&[7.0], 95.0), 7.0);
        assert!(percentile(&[], 95.0).is_nan());
    }

    #[test]
    fn intervals_have_the_published_ranks() {
        // From tables of the sign test at 5 %, two-sided: n, and the rank from either end.
        for (n, rank) in [(6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (25, 8), (50, 18), (2000, 956)]
        {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            let expected = (f64::from(rank), f64::from(n + 1 - rank));
            assert_eq!(median_interval(&values), Some(expected), "{n}");
        }
        assert_eq!(median_interval(&[1.0; 5]), None);
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn geometric_means() {
        approx::assert_relative_eq!(geometric_mean(&[0.5, 2.0]).unwrap(), 1.0);
        approx::assert_relative_eq!(geometric_mean(&[1.0, 8.0, 1.0]).unwrap(), 2.0);
        assert_eq!(geometric_mean(&[]), None);
    }
}
