//! Choices among options, in plain numbers: the policy is a softmax over the options' logits at a temperature.
//!
//! Sums are in `f64` and in the order of the options, so a choice's log-probability is exact and reproducible.

use crate::error::{ModelError, Result};
use rand::{Rng, RngExt};

/// Log-probabilities of options with the given logits at `temperature` (above 0).
///
/// # Errors
/// No options, a temperature out of range, or a logit that is not finite.
pub fn log_softmax(logits: &[f32], temperature: f64) -> Result<Vec<f64>> {
    if !(temperature.is_finite() && temperature > 0.0) {
        return Err(ModelError::Setting { name: "temperature", value: temperature, expected: "above 0" });
    }
    if logits.is_empty() {
        return Err(ModelError::NoOptions);
    }
    if let Some(index) = logits.iter().position(|l| !l.is_finite()) {
        return Err(ModelError::NonFinite { what: format!("the logit of option {index}") });
    }
    let scaled: Vec<f64> = logits.iter().map(|l| f64::from(*l) / temperature).collect();
    let largest = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log_total = scaled.iter().map(|s| (s - largest).exp()).sum::<f64>().ln();
    Ok(scaled.iter().map(|s| s - largest - log_total).collect())
}

/// Draws an option from its log-probabilities with one number of `rng`.
pub fn sample(log_probs: &[f64], rng: &mut impl Rng) -> usize {
    let mut left = rng.random::<f64>();
    for (index, log_prob) in log_probs.iter().enumerate() {
        left -= log_prob.exp();
        if left < 0.0 {
            return index;
        }
    }
    // Rounding can leave a remainder: it belongs to the last option that is possible at all.
    log_probs.iter().rposition(|l| *l > f64::NEG_INFINITY).unwrap_or(0)
}

/// The option with the largest number; the lowest index among equals.
pub fn greedy<T: PartialOrd>(scores: &[T]) -> usize {
    let mut best = 0;
    for index in 1..scores.len() {
        if scores[index] > scores[best] {
            best = index;
        }
    }
    best
}

/// Entropy in nats.
pub fn entropy(log_probs: &[f64]) -> f64 {
    -log_probs.iter().filter(|l| **l > f64::NEG_INFINITY).map(|l| l.exp() * l).sum::<f64>()
}

/// Exact Kullback–Leibler divergence `KL(p ‖ q)` in nats, over options in the same order.
pub fn kl(p: &[f64], q: &[f64]) -> f64 {
    p.iter().zip(q).filter(|(p, _)| **p > f64::NEG_INFINITY).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// The estimator `k3 = r − 1 − ln r` with `r = π_reference / π` of `KL(π ‖ reference)`, for one sampled token of a text.
pub fn kl_k3(log_prob: f64, reference: f64) -> f64 {
    let log_ratio = reference - log_prob;
    log_ratio.exp() - 1.0 - log_ratio
}

/// Derivatives of `ln π(chosen)` with respect to the logits: `(1[i = chosen] − π_i) / temperature`.
pub fn d_log_prob(log_probs: &[f64], chosen: usize, temperature: f64) -> Vec<f64> {
    let hit = |index: usize| if index == chosen { 1.0 } else { 0.0 };
    log_probs.iter().enumerate().map(|(i, l)| (hit(i) - l.exp()) / temperature).collect()
}

/// Derivatives of `KL(p ‖ q)` with respect to the logits of `p`: `p_i (ln p_i − ln q_i − KL) / temperature`.
pub fn d_kl(p: &[f64], q: &[f64], temperature: f64) -> Vec<f64> {
    let total = kl(p, q);
    let term = |(p, q): (&f64, &f64)| {
        if *p > f64::NEG_INFINITY { p.exp() * (p - q - total) / temperature } else { 0.0 }
    };
    p.iter().zip(q).map(term).collect()
}

/// Derivatives of the entropy of `p` with respect to its logits: `−p_i (ln p_i + H) / temperature`.
pub fn d_entropy(p: &[f64], temperature: f64) -> Vec<f64> {
    let total = entropy(p);
    let term = |p: &f64| {
        if *p > f64::NEG_INFINITY { -p.exp() * (p + total) / temperature } else { 0.0 }
    };
    p.iter().map(term).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const LOGITS: [f32; 4] = [0.3, -1.2, 2.0, 0.3];

    #[test]
    fn probabilities_sum_to_one_and_ties_go_to_the_lowest_index() {
        let log_probs = log_softmax(&LOGITS, 0.7).unwrap();
        assert!((log_probs.iter().map(|l| l.exp()).sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(log_probs[0], log_probs[3]);
        assert_eq!(greedy(&LOGITS), 2);
        assert_eq!(greedy(&[1.0, 3.0, 3.0]), 1);
    }

    #[test]
    fn samples_follow_the_probabilities() {
        let log_probs = log_softmax(&LOGITS, 1.0).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut counts = [0u32; 4];
        for _ in 0..40_000 {
            counts[sample(&log_probs, &mut rng)] += 1;
        }
        for (count, l) in counts.iter().zip(&log_probs) {
            assert!((f64::from(*count) / 40_000.0 - l.exp()).abs() < 0.01);
        }
    }

    #[test]
    fn derivatives_agree_with_finite_differences() {
        let reference = log_softmax(&[0.0, 0.5, -0.5, 1.0], 1.0).unwrap();
        let t = 0.8;
        let p = log_softmax(&LOGITS, t).unwrap();
        let h = 1e-3f32;
        for i in 0..4 {
            let at = |sign: f32| {
                let mut moved = LOGITS;
                moved[i] += sign * h;
                log_softmax(&moved, t).unwrap()
            };
            let (up, down) = (at(1.0), at(-1.0));
            let slope = |f: &dyn Fn(&[f64]) -> f64| (f(&up) - f(&down)) / (2.0 * f64::from(h));
            assert!((slope(&|l| l[1]) - d_log_prob(&p, 1, t)[i]).abs() < 1e-4);
            assert!((slope(&|l| kl(l, &reference)) - d_kl(&p, &reference, t)[i]).abs() < 1e-4);
            assert!((slope(&|l| entropy(l)) - d_entropy(&p, t)[i]).abs() < 1e-4);
        }
        assert!(kl(&p, &p).abs() < 1e-15 && kl(&p, &reference) > 0.0);
        let mean: f64 = p.iter().zip(&reference).map(|(p, q)| p.exp() * kl_k3(*p, *q)).sum();
        assert!((mean - kl(&p, &reference)).abs() < 1e-12);
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused() {
        assert!(matches!(log_softmax(&[0.0, f32::NAN], 1.0), Err(ModelError::NonFinite { .. })));
        assert!(matches!(log_softmax(&[0.0], 0.0), Err(ModelError::Setting { .. })));
        assert!(matches!(log_softmax(&[], 1.0), Err(ModelError::NoOptions)));
    }
}
