//! From values to places, and the values that an axis names.

/// A linear or logarithmic scale.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    values: [f64; 2],
    places: [f64; 2],
    is_log: bool,
}

impl Scale {
    /// Equal differences are equal distances.
    pub fn linear(values: [f64; 2], places: [f64; 2]) -> Self {
        Self { values, places, is_log: false }
    }

    /// Equal ratios are equal distances. Values are positive.
    pub fn log(values: [f64; 2], places: [f64; 2]) -> Self {
        Self { values, places, is_log: true }
    }

    /// The place of a value.
    pub fn at(&self, value: f64) -> f64 {
        let to = |value: f64| if self.is_log { value.ln() } else { value };
        let [low, high] = self.values.map(to);
        let [first, last] = self.places;
        first + (to(value) - low) / (high - low) * (last - first)
    }

    /// Its ends, as values.
    pub fn values(&self) -> [f64; 2] {
        self.values
    }

    /// Its ends, as places.
    pub fn places(&self) -> [f64; 2] {
        self.places
    }

    /// Round values inside, about `most` at most.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        let [low, high] = self.values;
        if self.is_log { log_ticks(low, high, most) } else { linear_ticks(low, high, most) }
    }
}

fn linear_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let step = round_up((high - low) / most as f64);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|tick| tick as f64 * step).collect()
}

fn log_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    // In a narrow range equal steps also look right on a logarithmic axis.
    if high < 4.0 * low {
        return linear_ticks(low, high, most);
    }
    let (low, high) = (low * (1.0 - 1e-9), high * (1.0 + 1e-9));
    // As many as there is room for: of each decade 1, 2 and 5, or 1 alone, or of each other one.
    for (factors, decades) in [
        (&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0][..], 1),
        (&[1.0, 2.0, 5.0], 1),
        (&[1.0, 3.0], 1),
        (&[1.0], 1),
        (&[1.0], 2),
        (&[1.0], 4),
    ] {
        let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let ticks: Vec<f64> = exponents
            .filter(|exponent| exponent % decades == 0)
            .flat_map(|exponent| factors.iter().map(move |factor| factor * 10f64.powi(exponent)))
            .filter(|tick| (low..=high).contains(tick))
            .collect();
        if ticks.len() <= most {
            return ticks;
        }
    }
    Vec::new()
}

/// The next of 1, 2, 2.5 and 5, times a power of ten.
pub fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
    let factor = factors.into_iter().find(|factor| factor * power >= value * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// A value as an axis names it: no more digits than it has.
pub fn tick(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:.1e}").replace(".0e", "e");
    }
    // Drops the rounding error of a sum of tenths.
    let rounded: f64 = format!("{value:.6}").parse().unwrap_or(value);
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_proportion() {
        let scale = Scale::linear([0.0, 10.0], [100.0, 200.0]);
        assert_eq!(scale.at(5.0), 150.0);
        let scale = Scale::log([1.0, 100.0], [300.0, 100.0]);
        approx::assert_relative_eq!(scale.at(10.0), 200.0);
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let ticks = |values, most| Scale::linear(values, [0.0, 1.0]).ticks(most);
        assert_eq!(ticks([0.0, 1.13], 6), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks([0.0, 60.0], 6), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        let ticks = |values, most| Scale::log(values, [0.0, 1.0]).ticks(most);
        assert_eq!(ticks([0.9, 4.0], 6), [1.0, 1.5, 2.0, 3.0]);
        assert_eq!(ticks([0.45, 1.1], 5), [0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks([0.1, 100.0], 4), [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(
            [0.6000000000000001, 2.5, 4.9999999999999996e-6].map(tick),
            ["0.6", "2.5", "5e-6"]
        );
    }
}
