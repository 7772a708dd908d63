//! Value baseline: ridge regression of the discounted return on words of the state.
//!
//! The embedded default. It is refitted on every batch, so that it is never stale, and it is what lets a credit reach single moves of a
//! game of 200 steps.

use cosplay_datasets::Experience;
use std::collections::BTreeMap;

/// Width of the buckets of the steps that are left, and how many there are.
const LEFT_BUCKET: u32 = 5;
const LEFT_BUCKETS: usize = 7;
/// Features that do not come from words: a constant, the elapsed share of the episode, and the buckets.
const FIXED: usize = 2 + LEFT_BUCKETS;

/// Predicted returns of the states of a batch of episodes, by episode and time. `returns` are the discounted returns that are regressed on;
/// `penalty` is the ridge's, on every coefficient but the constant.
pub(super) fn ridge_values(episodes: &[&[Experience]], returns: &[Vec<f64>], max_steps: u32, penalty: f64) -> Vec<Vec<f64>> {
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for word in episodes.iter().flat_map(|episode| episode.iter()).flat_map(|step| &step.state_words) {
        words.entry(word).or_insert(0);
    }
    for (index, slot) in words.values_mut().enumerate() {
        *slot = FIXED + index;
    }
    let size = FIXED + words.len();
    let mut gram = vec![0.0; size * size];
    let mut moment = vec![0.0; size];
    let mut row = Vec::new();
    for (episode, returns) in episodes.iter().zip(returns) {
        for (step, value) in episode.iter().zip(returns) {
            features(step, max_steps, &words, &mut row);
            for &(i, x) in &row {
                moment[i] += x * value;
                for &(j, y) in &row {
                    gram[i * size + j] += x * y;
                }
            }
        }
    }
    for index in 0..size {
        // The constant is held by a hair, so that the system stays solvable without rows.
        gram[index * size + index] += if index == 0 { 1e-6 } else { penalty.max(1e-6) };
    }
    let weights = solve(gram, moment, size);
    episodes
        .iter()
        .map(|episode| {
            episode
                .iter()
                .map(|step| {
                    features(step, max_steps, &words, &mut row);
                    row.iter().map(|&(index, x)| weights[index] * x).sum()
                })
                .collect()
        })
        .collect()
}

/// Non-zero features of a state.
fn features(step: &Experience, max_steps: u32, words: &BTreeMap<&str, usize>, row: &mut Vec<(usize, f64)>) {
    row.clear();
    row.push((0, 1.0));
    row.push((1, f64::from(step.t) / f64::from(max_steps.max(1))));
    let bucket = (max_steps.saturating_sub(step.t) / LEFT_BUCKET) as usize;
    row.push((2 + bucket.min(LEFT_BUCKETS - 1), 1.0));
    row.extend(step.state_words.iter().filter_map(|word| words.get(word.as_str())).map(|&index| (index, 1.0)));
}

/// Solves a symmetric positive definite system by Cholesky's method.
fn solve(mut a: Vec<f64>, mut b: Vec<f64>, n: usize) -> Vec<f64> {
    for j in 0..n {
        for k in 0..j {
            let factor = a[j * n + k];
            for i in j..n {
                a[i * n + j] -= a[i * n + k] * factor;
            }
        }
        let root = a[j * n + j].max(1e-12).sqrt();
        for i in j..n {
            a[i * n + j] /= root;
        }
    }
    for i in 0..n {
        let sum: f64 = (0..i).map(|k| a[i * n + k] * b[k]).sum();
        b[i] = (b[i] - sum) / a[i * n + i];
    }
    for i in (0..n).rev() {
        let sum: f64 = (i + 1..n).map(|k| a[k * n + i] * b[k]).sum();
        b[i] = (b[i] - sum) / a[i * n + i];
    }
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(t: u32, word: &str) -> Experience {
        Experience { t, state_words: vec![word.to_owned()], ..Experience::default() }
    }

    #[test]
    fn cholesky_solves() {
        let solution = solve(vec![4.0, 2.0, 2.0, 3.0], vec![2.0, 5.0], 2);
        assert!((solution[0] + 0.5).abs() < 1e-12 && (solution[1] - 2.0).abs() < 1e-12, "{solution:?}");
    }

    #[test]
    fn words_predict_returns() {
        let episodes: Vec<Vec<Experience>> = (0..200).map(|index| vec![step(0, if index % 2 == 0 { "good" } else { "bad" })]).collect();
        let returns: Vec<Vec<f64>> = (0..200).map(|index| vec![if index % 2 == 0 { 10.0 } else { 2.0 }]).collect();
        let slices: Vec<&[Experience]> = episodes.iter().map(Vec::as_slice).collect();
        let values = ridge_values(&slices, &returns, 100, 1.0);
        assert!((values[0][0] - 10.0).abs() < 0.2 && (values[1][0] - 2.0).abs() < 0.2, "{:?}", &values[..2]);
    }

    #[test]
    fn no_episodes_no_values() {
        assert!(ridge_values(&[], &[], 100, 1.0).is_empty());
    }
}
