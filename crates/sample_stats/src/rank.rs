//! A test by ranks alone: is one group of samples larger than another?

use crate::middle::median;

/// The most samples per group that are compared.
const MAX_SAMPLES: usize = 2000;

/// The most samples of both groups for which every arrangement of ranks is counted.
///
/// With more samples, the normal distribution is as good.
const COUNTED: usize = 80;

/// The probability that [`Comparison::interval`] misses.
const MISS: f64 = 0.05;

/// The standard normal distribution's quantile for half of [`MISS`].
const QUANTILE: f64 = 1.959_964;

/// Two groups of samples, as [`compare`] finds them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The size of the second group relative to the first.
    ///
    /// This is the median over all pairs of samples (Hodges and Lehmann's estimator).
    pub ratio: f64,
    /// The 95 % interval of that ratio; `None` if there are too few samples.
    pub interval: Option<(f64, f64)>,
    /// The probability of ranks at least as far apart, if both groups have one distribution.
    ///
    /// This is the two-sided test of Mann and Whitney.
    pub p: f64,
}

/// Compares two groups of positive samples, whatever their distributions.
///
/// Samples within a group must be independent of each other. `None` means that a group is empty, or
/// has a sample that is not positive and finite.
///
/// ```
/// use sample_stats::compare;
///
/// let before = [1.00, 1.01, 0.99, 1.02, 1.00, 1.01];
/// let found = compare(&before, &before.map(|value| 1.10 * value)).unwrap();
/// assert!((found.ratio - 1.10).abs() < 0.01 && found.p < 0.01);
/// assert_eq!(compare(&before, &before).unwrap().p, 1.0);
/// ```
pub fn compare(before: &[f64], after: &[f64]) -> Option<Comparison> {
    let [before, after] = [before, after].map(thinned);
    let (before, after) = (&before[..], &after[..]);
    let is_fine = |value: &f64| value.is_finite() && *value > 0.0;
    if before.is_empty() || after.is_empty() || !before.iter().chain(after).all(is_fine) {
        return None;
    }
    let mut ratios: Vec<f64> =
        after.iter().flat_map(|after| before.iter().map(move |before| after / before)).collect();
    ratios.sort_by(f64::total_cmp);
    let cut = cut(before.len(), after.len());
    let interval = cut.map(|cut| (ratios[cut], ratios[ratios.len() - 1 - cut]));
    Some(Comparison { ratio: median(&ratios), interval, p: p_value(before, after) })
}

/// At most [`MAX_SAMPLES`] samples, at equal distances, to bound the time.
fn thinned(samples: &[f64]) -> Vec<f64> {
    let step = samples.len().div_ceil(MAX_SAMPLES).max(1);
    samples.iter().step_by(step).copied().collect()
}

/// The two-sided test of Mann and Whitney.
fn p_value(before: &[f64], after: &[f64]) -> f64 {
    let (ranks, ties) = doubled_ranks(before, after);
    let (few, all) = (before.len(), ranks.len());
    let sum: usize = ranks[..few].iter().sum();
    // Twice the mean sum of ranks.
    let mean = few * (all + 1);
    let distance = sum.abs_diff(mean);
    if all <= COUNTED {
        let probabilities = rank_sums(&ranks, few);
        let far =
            probabilities.iter().enumerate().filter(|(sum, _)| sum.abs_diff(mean) >= distance);
        return far.map(|(_, probability)| probability).sum::<f64>().min(1.0);
    }
    let [few, many, all] = [few, all - few, all].map(|count| count as f64);
    let variance = few * many / 12.0 * ((all + 1.0) - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    // Sums of ranks are whole numbers: half a step is the correction for continuity.
    let z = (distance as f64 / 2.0 - 0.5).max(0.0) / variance.sqrt();
    libm::erfc(z / std::f64::consts::SQRT_2)
}

/// Twice the rank of each sample among all, and the sum of `t^3 - t` over groups of `t` equal
/// samples.
///
/// Equal samples share the middle of their ranks.
fn doubled_ranks(before: &[f64], after: &[f64]) -> (Vec<usize>, f64) {
    let values: Vec<f64> = before.iter().chain(after).copied().collect();
    let below = |value: f64| values.iter().filter(|other| **other < value).count();
    let equal = |value: f64| values.iter().filter(|other| **other == value).count();
    // The samples below are in front, and so are half of the equal ones, itself included.
    let rank = |value: &f64| 2 * below(*value) + equal(*value) + 1;
    let ties = values.iter().map(|value| (equal(*value) as f64).powi(2) - 1.0).sum();
    (values.iter().map(rank).collect(), ties)
}

/// The probability of each sum of `few` of these numbers, if all choices are equally likely.
fn rank_sums(ranks: &[usize], few: usize) -> Vec<f64> {
    let largest: usize = ranks.iter().sum();
    // The number of choices of `chosen` numbers that have this sum.
    let mut choices = vec![vec![0.0f64; largest + 1]; few + 1];
    choices[0][0] = 1.0;
    for (place, rank) in ranks.iter().enumerate() {
        for chosen in (1..=few.min(place + 1)).rev() {
            let (smaller, this) = choices.split_at_mut(chosen);
            let with = smaller[chosen - 1].iter().zip(&mut this[0][*rank..]);
            with.for_each(|(without, sum)| *sum += without);
        }
    }
    let sums = choices.swap_remove(few);
    let all: f64 = sums.iter().sum();
    sums.into_iter().map(|count| count / all).collect()
}

/// The number of sorted ratios outside the 95 % interval at either end.
fn cut(few: usize, many: usize) -> Option<usize> {
    let all = few + many;
    if all <= COUNTED {
        // Mann and Whitney's U is the sum of ranks less its least value; ranks are doubled here.
        let doubled: Vec<usize> = (1..=all).map(|rank| 2 * rank).collect();
        let probabilities = rank_sums(&doubled, few);
        let mut below = 0.0;
        let counts = probabilities.iter().skip(few * (few + 1)).step_by(2);
        let is_outside = |probability: &&f64| {
            below += **probability;
            below <= MISS / 2.0
        };
        return counts.take_while(is_outside).count().checked_sub(1);
    }
    let [few, many, all] = [few, many, all].map(|count| count as f64);
    let middle = few * many / 2.0;
    let spread = (few * many * (all + 1.0) / 12.0).sqrt();
    let cut = (middle - QUANTILE * spread - 0.5).floor();
    (cut >= 0.0).then_some(cut as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    fn p(before: &[f64], after: &[f64]) -> f64 {
        compare(before, after).unwrap().p
    }

    #[test]
    fn probabilities_are_the_published_ones() {
        // All of one group below all of the other: 2 of C(n + m, n) arrangements.
        assert_relative_eq!(p(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.1);
        assert_relative_eq!(p(&[4.0, 5.0, 6.0, 7.0], &[1.0, 2.0, 3.0]), 2.0 / 35.0);
        let low: Vec<f64> = (1..=6).map(f64::from).collect();
        let high: Vec<f64> = (7..=12).map(f64::from).collect();
        assert_relative_eq!(p(&low, &high), 2.0 / 924.0, max_relative = 1e-12);
        // From SciPy's mannwhitneyu, with method="exact".
        let found = p(&[1.0, 2.0, 4.0, 5.0, 9.0], &[3.0, 6.0, 7.0, 8.0, 10.0]);
        assert_relative_eq!(found, 0.222_222_222_222, max_relative = 1e-9);
    }

    #[test]
    fn intervals_have_the_published_ranks() {
        // Critical values of U at 5 %, two-sided: both group sizes, and U.
        for (few, many, critical) in
            [(4, 4, 0), (5, 5, 2), (6, 6, 5), (8, 8, 13), (5, 8, 6), (10, 10, 23), (20, 20, 127)]
        {
            assert_eq!(cut(few, many), Some(critical), "{few} and {many}");
        }
        assert_eq!([cut(3, 3), cut(1, 30)], [None; 2]);
    }

    #[test]
    fn many_samples_agree_with_another_implementation() {
        let group = |count: usize, shift: f64| -> Vec<f64> {
            (0..count).map(|i| 1.0 + 0.01 * ((i * 37) % count) as f64 + shift).collect()
        };
        // SciPy's mannwhitneyu: 40 samples with method="exact", 41 with method="asymptotic", and 60
        // with ties.
        for (count, expected) in [(40, 0.008_480_482_834_3), (41, 0.009_668_929_875_7)] {
            let found = p(&group(count, 0.0), &group(count, 0.0715));
            assert_relative_eq!(found, expected, max_relative = 1e-9);
        }
        let [before, after] = [[1.0, 1.0, 2.0, 2.0, 3.0, 3.0], [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]];
        let found = p(&before.repeat(10), &after.repeat(10));
        assert_relative_eq!(found, 0.005_984_903_951_9, max_relative = 1e-9);
    }

    #[test]
    fn equal_samples_are_counted_as_halves() {
        assert_eq!(p(&[1.0; 6], &[1.0; 6]), 1.0);
        assert_eq!(p(&[1.0; 50], &[1.0; 50]), 1.0);
        // Two of the C(4, 2) choices from ranks 1.5, 1.5, 3.5 and 3.5 are as far from the middle.
        assert_relative_eq!(p(&[1.0, 1.0], &[2.0, 2.0]), 2.0 / 6.0);
    }

    #[test]
    fn what_is_no_sample_is_refused() {
        assert_eq!(compare(&[], &[1.0]), None);
        assert_eq!(compare(&[1.0], &[0.0]), None);
        assert_eq!(compare(&[1.0], &[f64::NAN]), None);
    }
}
