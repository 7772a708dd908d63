//! Advantage estimators.

use super::baseline::ridge_values;
use cosplay_datasets::Experience;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An estimator, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Advantage {
    /// GRPO as in the paper: an episode's return against mean and standard deviation of its group (episodes from one start); the same for
    /// every step of the episode.
    Group,
    /// Discounted return from a step on, minus the group's mean at the same step; one standard deviation for the batch.
    RewardToGo,
    /// Generalised advantage estimation with a ridge regression on state words as its baseline; standardised over the batch.
    #[default]
    Gae,
}

/// Figures that the estimators need.
#[derive(Clone, Copy, Debug)]
pub struct Discounts {
    /// Discount γ.
    pub gamma: f64,
    /// λ of GAE.
    pub lambda: f64,
    /// Ridge penalty.
    pub ridge: f64,
    /// Cap on the length of episodes.
    pub max_steps: u32,
}

/// Advantages of every step of a batch of episodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    /// Discounted returns.
    pub returns: Vec<Vec<f64>>,
    /// Baselines.
    pub baselines: Vec<Vec<f64>>,
    /// Advantages, normalised.
    pub advantages: Vec<Vec<f64>>,
    /// Standard deviation before normalisation.
    pub spread: f64,
    /// Number of groups.
    pub groups: usize,
    /// Groups in which all episodes have exactly the same return: they teach `group` nothing.
    pub zero_variance_groups: usize,
    /// Share of the returns' variance that the baseline explains.
    pub explained_variance: f64,
}

/// Estimates advantages. `rewards` and `groups` belong to `episodes` in order.
pub fn estimate(method: Advantage, episodes: &[&[Experience]], rewards: &[Vec<f64>], groups: &[u32], discounts: &Discounts) -> Estimates {
    let gamma = if method == Advantage::Group { 1.0 } else { discounts.gamma };
    let returns: Vec<Vec<f64>> = rewards.iter().map(|rewards| discounted(rewards, gamma)).collect();
    let members = members(groups);
    let totals: Vec<f64> = rewards.iter().map(|rewards| rewards.iter().sum()).collect();
    let zero_variance_groups =
        members.values().filter(|group| group.iter().all(|&index| totals[index].to_bits() == totals[group[0]].to_bits())).count();
    let mut estimates = Estimates { groups: members.len(), zero_variance_groups, ..Estimates::default() };
    match method {
        Advantage::Group => {
            (estimates.baselines, estimates.advantages, estimates.spread) = group_advantages(rewards, &totals, &members);
        }
        Advantage::RewardToGo => {
            estimates.baselines = group_means(&returns, &members);
            estimates.advantages = difference(&returns, &estimates.baselines);
            estimates.spread = standardise(&mut estimates.advantages, false);
        }
        Advantage::Gae => {
            estimates.baselines = ridge_values(episodes, &returns, discounts.max_steps, discounts.ridge);
            estimates.advantages = rewards
                .iter()
                .zip(&estimates.baselines)
                .map(|(rewards, values)| gae(rewards, values, discounts.gamma, discounts.lambda))
                .collect();
            estimates.spread = standardise(&mut estimates.advantages, true);
        }
    }
    estimates.explained_variance = explained(&returns, &estimates.baselines);
    estimates.returns = returns;
    estimates
}

fn members(groups: &[u32]) -> BTreeMap<u32, Vec<usize>> {
    let mut members: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, &group) in groups.iter().enumerate() {
        members.entry(group).or_default().push(index);
    }
    members
}

/// Discounted returns from every step on.
fn discounted(rewards: &[f64], gamma: f64) -> Vec<f64> {
    let mut returns = vec![0.0; rewards.len()];
    let mut next = 0.0;
    for (index, reward) in rewards.iter().enumerate().rev() {
        next = reward + gamma * next;
        returns[index] = next;
    }
    returns
}

/// Σ (γλ)^k δ_{t+k}, δ_t = r_t + γ V_{t+1} − V_t; after the last step V is 0.
fn gae(rewards: &[f64], values: &[f64], gamma: f64, lambda: f64) -> Vec<f64> {
    let mut advantages = vec![0.0; rewards.len()];
    let (mut next_value, mut next) = (0.0, 0.0);
    for index in (0..rewards.len()).rev() {
        let delta = rewards[index] + gamma * next_value - values[index];
        next = delta + gamma * lambda * next;
        advantages[index] = next;
        next_value = values[index];
    }
    advantages
}

type PerStep = Vec<Vec<f64>>;

/// (R − mean) / std of the group, the population's standard deviation; zero in groups without variance.
fn group_advantages(rewards: &[Vec<f64>], totals: &[f64], members: &BTreeMap<u32, Vec<usize>>) -> (PerStep, PerStep, f64) {
    let mut baselines: PerStep = rewards.iter().map(|rewards| vec![0.0; rewards.len()]).collect();
    let mut advantages = baselines.clone();
    let mut spreads = 0.0;
    for group in members.values() {
        let (mean, spread) = moments(group.iter().map(|&index| totals[index]));
        let flat = group.iter().all(|&index| totals[index].to_bits() == totals[group[0]].to_bits());
        spreads += if flat { 0.0 } else { spread };
        for &index in group {
            let advantage = if flat || spread == 0.0 { 0.0 } else { (totals[index] - mean) / spread };
            baselines[index].fill(mean);
            advantages[index].fill(advantage);
        }
    }
    (baselines, advantages, spreads / members.len().max(1) as f64)
}

/// Mean return of the group at the same step, over the episodes that got that far.
fn group_means(returns: &[Vec<f64>], members: &BTreeMap<u32, Vec<usize>>) -> PerStep {
    let mut baselines: PerStep = returns.iter().map(|returns| vec![0.0; returns.len()]).collect();
    for group in members.values() {
        let longest = group.iter().map(|&index| returns[index].len()).max().unwrap_or(0);
        for t in 0..longest {
            let (mean, _) = moments(group.iter().filter_map(|&index| returns[index].get(t).copied()));
            for &index in group {
                if let Some(slot) = baselines[index].get_mut(t) {
                    *slot = mean;
                }
            }
        }
    }
    baselines
}

fn difference(left: &[Vec<f64>], right: &[Vec<f64>]) -> PerStep {
    left.iter().zip(right).map(|(left, right)| left.iter().zip(right).map(|(a, b)| a - b).collect()).collect()
}

/// Divides by the standard deviation (after taking off the mean if `centre`) and returns it. Without spread everything becomes zero.
fn standardise(values: &mut [Vec<f64>], centre: bool) -> f64 {
    let (mean, spread) = moments(values.iter().flatten().copied());
    // Spread that is only rounding must not be blown up.
    let flat = spread <= 1e-9 * (1.0 + mean.abs());
    for value in values.iter_mut().flatten() {
        *value = if flat { 0.0 } else { (*value - if centre { mean } else { 0.0 }) / spread };
    }
    if flat { 0.0 } else { spread }
}

/// Mean and population standard deviation.
pub(super) fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

fn explained(returns: &[Vec<f64>], baselines: &[Vec<f64>]) -> f64 {
    let (_, total) = moments(returns.iter().flatten().copied());
    let (_, rest) = moments(difference(returns, baselines).iter().flatten().copied());
    if total > 0.0 { 1.0 - (rest / total).powi(2) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISCOUNTS: Discounts = Discounts { gamma: 0.5, lambda: 0.5, ridge: 1.0, max_steps: 10 };

    fn run(method: Advantage, rewards: &[&[f64]], groups: &[u32]) -> Estimates {
        let rewards: Vec<Vec<f64>> = rewards.iter().map(|rewards| rewards.to_vec()).collect();
        let experiences: Vec<Vec<Experience>> = rewards
            .iter()
            .map(|rewards| (0..rewards.len()).map(|t| Experience { t: t as u32, ..Experience::default() }).collect())
            .collect();
        let episodes: Vec<&[Experience]> = experiences.iter().map(Vec::as_slice).collect();
        estimate(method, &episodes, &rewards, groups, &DISCOUNTS)
    }

    #[test]
    fn group_is_a_z_score_of_returns() {
        let estimates = run(Advantage::Group, &[&[0.0], &[0.0], &[0.5, 0.5], &[1.0]], &[0, 0, 0, 0]);
        assert_eq!(estimates.advantages, vec![vec![-1.0], vec![-1.0], vec![1.0, 1.0], vec![1.0]]);
    }

    #[test]
    fn groups_without_variance_teach_nothing_and_are_counted() {
        let estimates = run(Advantage::Group, &[&[0.1, 0.2], &[0.1, 0.2], &[1.0], &[3.0]], &[0, 0, 1, 1]);
        assert_eq!(estimates.advantages[0], vec![0.0, 0.0]);
        assert_eq!((estimates.groups, estimates.zero_variance_groups), (2, 1));
    }

    #[test]
    fn gae_sums_discounted_differences() {
        // By hand: deltas 1 + 0.5·4 − 2 = 1 and 3 − 4 = −1; advantages 1 + 0.25·(−1) and −1.
        assert_eq!(gae(&[1.0, 3.0], &[2.0, 4.0], 0.5, 0.5), vec![0.75, -1.0]);
    }

    #[test]
    fn reward_to_go_compares_within_the_group_at_the_same_step() {
        let estimates = run(Advantage::RewardToGo, &[&[0.0, 2.0], &[0.0, 0.0]], &[0, 0]);
        assert_eq!(estimates.returns[0], vec![1.0, 2.0]);
        assert_eq!(estimates.baselines[0], vec![0.5, 1.0]);
        assert!(estimates.advantages[0][1] > estimates.advantages[0][0] && estimates.advantages[1][1] < 0.0);
    }

    #[test]
    fn equal_rewards_give_zero_advantages() {
        for method in [Advantage::Group, Advantage::RewardToGo] {
            let estimates = run(method, &[&[0.1; 3], &[0.1; 3]], &[0, 0]);
            assert!(estimates.advantages.iter().flatten().all(|&advantage| advantage == 0.0), "{method:?}");
        }
    }
}
