//! Means with confidence intervals.

/// Mean with the half-width of its 95 % t interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Mean.
    pub mean: f64,
    /// Half-width; NaN for fewer than two values.
    pub half: f64,
    /// Number of values.
    pub count: usize,
}

impl Interval {
    /// Interval of the mean of `values`.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count.max(1) as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count.saturating_sub(1).max(1) as f64;
        let half = if count < 2 { f64::NAN } else { t_quantile(count - 1) * (variance / count as f64).sqrt() };
        Self { mean, half, count }
    }

    /// Interval of a mean from the standard deviation of the values themselves (not the estimate for what they were drawn from).
    pub fn from_spread(mean: f64, spread: f64, count: usize) -> Self {
        let half = if count < 2 { f64::NAN } else { t_quantile(count - 1) * spread / ((count - 1) as f64).sqrt() };
        Self { mean, half, count }
    }

    /// Interval of the mean difference of paired values.
    pub fn paired(after: &[f64], before: &[f64]) -> Self {
        Self::of(&after.iter().zip(before).map(|(after, before)| after - before).collect::<Vec<_>>())
    }

    /// True if zero lies outside.
    pub fn excludes_zero(&self) -> bool {
        self.mean.abs() > self.half
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.half.is_nan() { write!(f, "{:.0}", self.mean) } else { write!(f, "{:.0} ± {:.0}", self.mean, self.half) }
    }
}

/// 97.5 % quantiles of Student's t with 1 to 10 degrees of freedom.
const T_TABLE: [f64; 10] = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281];

/// 97.5 % quantile of Student's t with `freedom` degrees of freedom: from a table up to ten, else the expansion of Cornish and Fisher around
/// the normal quantile, good to three digits.
pub fn t_quantile(freedom: usize) -> f64 {
    match freedom {
        0 => f64::NAN,
        1..=10 => T_TABLE[freedom - 1],
        _ => {
            let (z, n) = (1.959_964_f64, freedom as f64);
            z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_interval_for_one_sample() {
        let values = [1.0, 4.0, 4.5, 9.0];
        let all = Interval::of(&values);
        let spread = (values.iter().map(|value| (value - all.mean).powi(2)).sum::<f64>() / 4.0).sqrt();
        assert!((Interval::from_spread(all.mean, spread, 4).half - all.half).abs() < 1e-12);
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, quantile) in [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (127, 1.979)] {
            assert!((t_quantile(freedom) - quantile).abs() < 0.01, "{freedom}: {}", t_quantile(freedom));
        }
    }

    #[test]
    fn pairing_removes_what_both_share() {
        let before = [100.0, 900.0, 400.0, 250.0];
        let after = before.map(|value| value + 10.0);
        let paired = Interval::paired(&after, &before);
        assert!(paired.excludes_zero() && (paired.mean - 10.0).abs() < 1e-9);
        assert!(!Interval { mean: Interval::of(&after).mean - Interval::of(&before).mean, ..Interval::of(&before) }.excludes_zero());
    }
}
