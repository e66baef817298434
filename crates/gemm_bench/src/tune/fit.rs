//! Least squares: fits predictions to measured times.
//!
//! Residuals are differences of logarithms, so that a percent counts the same for short and long
//! times. A large residual counts less than its square (soft L1): some times are no fault of a
//! number. The method is Levenberg-Marquardt on the logarithms of the numbers, with the Jacobian
//! from differences. A weak prior keeps a number that nothing depends on.

/// The residual beyond which the loss becomes linear.
const SOFT: f64 = 0.1;

/// The prior's weight, for a factor of e.
const PRIOR: f64 = 0.05;

/// Steps of the method. More change nothing that can be measured.
const STEPS: usize = 60;

/// The difference for the Jacobian, in the logarithm.
const DIFFERENCE: f64 = 1e-4;

/// Fits positive numbers, from their initial values.
///
/// `residuals` returns the weighted residuals of some numbers. Their count never varies.
pub fn fit(initial: &[f64], residuals: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let prior: Vec<f64> = initial.iter().map(|value| value.ln()).collect();
    let at = |logs: &[f64]| residuals(&logs.iter().map(|log| log.exp()).collect::<Vec<_>>());
    let cost = |logs: &[f64], residuals: &[f64]| {
        let soft =
            |residual: &f64| 2.0 * SOFT * SOFT * ((1.0 + (residual / SOFT).powi(2)).sqrt() - 1.0);
        let of_prior = |(log, prior): (&f64, &f64)| (PRIOR * (log - prior)).powi(2);
        residuals.iter().map(soft).sum::<f64>() + logs.iter().zip(&prior).map(of_prior).sum::<f64>()
    };
    let mut logs = prior.clone();
    let mut current = at(&logs);
    let mut least = cost(&logs, &current);
    let mut damping = 1e-2;
    for _ in 0..STEPS {
        let columns: Vec<Vec<f64>> = (0..logs.len())
            .map(|i| {
                let mut moved = logs.clone();
                moved[i] += DIFFERENCE;
                let moved = at(&moved);
                moved.iter().zip(&current).map(|(to, from)| (to - from) / DIFFERENCE).collect()
            })
            .collect();
        let weights: Vec<f64> =
            current.iter().map(|residual| 1.0 / (1.0 + (residual / SOFT).powi(2)).sqrt()).collect();
        let dot = |one: &[f64], other: &[f64]| -> f64 {
            one.iter()
                .zip(other)
                .zip(&weights)
                .map(|((one, other), weight)| weight * one * other)
                .sum()
        };
        let mut matrix: Vec<Vec<f64>> = columns
            .iter()
            .map(|one| columns.iter().map(|other| dot(one, other)).collect())
            .collect();
        let mut gradient: Vec<f64> = columns.iter().map(|one| -dot(one, &current)).collect();
        for i in 0..logs.len() {
            matrix[i][i] += PRIOR * PRIOR;
            gradient[i] -= PRIOR * PRIOR * (logs[i] - prior[i]);
        }
        let mut damped = matrix.clone();
        (0..logs.len()).for_each(|i| damped[i][i] *= 1.0 + damping);
        let Some(step) = solved(damped, gradient) else { break };
        let next: Vec<f64> =
            logs.iter().zip(&step).map(|(log, by)| log + by.clamp(-1.0, 1.0)).collect();
        let there = at(&next);
        let reached = cost(&next, &there);
        if reached < least {
            let gained = (least - reached) / least;
            (logs, current, least) = (next, there, reached);
            damping = (damping / 3.0).max(1e-9);
            if gained < 1e-7 {
                break;
            }
        } else {
            damping *= 4.0;
            if damping > 1e9 {
                break;
            }
        }
    }
    logs.into_iter().map(f64::exp).collect()
}

/// Solves a linear system by Cholesky's method. The matrix is symmetric. `None` if it is not
/// positive definite.
fn solved(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let size = right.len();
    for i in 0..size {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
            let rest = matrix[i][j] - dot;
            matrix[i][j] = if i > j { rest / matrix[j][j] } else { rest.sqrt() };
        }
        if matrix[i][i].is_nan() || matrix[i][i] <= 0.0 {
            return None;
        }
    }
    for i in 0..size {
        let dot: f64 = (0..i).map(|k| matrix[i][k] * right[k]).sum();
        right[i] = (right[i] - dot) / matrix[i][i];
    }
    for i in (0..size).rev() {
        let dot: f64 = (i + 1..size).map(|k| matrix[k][i] * right[k]).sum();
        right[i] = (right[i] - dot) / matrix[i][i];
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times `a + b x`, with one outlier.
    #[test]
    fn numbers_are_found_despite_an_outlier() {
        let truth = [300.0, 7.0];
        let time = |of: &[f64], x: f64| of[0] + of[1] * x;
        let mut times: Vec<(f64, f64)> =
            (0..30).map(|i| f64::from(i * i)).map(|x| (x, time(&truth, x))).collect();
        times[11].1 *= 3.0;
        let residuals = |of: &[f64]| -> Vec<f64> {
            times.iter().map(|(x, ns)| (time(of, *x) / ns).ln()).collect()
        };
        let found = fit(&[10.0, 100.0], residuals);
        for (found, truth) in found.iter().zip(truth) {
            approx::assert_relative_eq!(*found, truth, max_relative = 0.01);
        }
    }

    #[test]
    fn a_number_that_nothing_depends_on_stays() {
        let found = fit(&[5.0, 2.0], |of| vec![(of[0] / 50.0).ln(); 9]);
        approx::assert_relative_eq!(found[0], 50.0, max_relative = 0.01);
        approx::assert_relative_eq!(found[1], 2.0, max_relative = 1e-6);
    }

    #[test]
    fn a_singular_system_has_no_solution() {
        assert_eq!(solved(vec![vec![1.0, 1.0], vec![1.0, 1.0]], vec![1.0, 2.0]), None);
        let solution = solved(vec![vec![4.0, 2.0], vec![2.0, 3.0]], vec![8.0, 8.0]).unwrap();
        approx::assert_relative_eq!(solution[0], 1.0, epsilon = 1e-12);
        approx::assert_relative_eq!(solution[1], 2.0, epsilon = 1e-12);
    }
}
