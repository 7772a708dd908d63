//! Delayed reward of a skill choice: it is known when the skill is given up (appendix F.1), and it belongs to the choice that began the
//! behaviour.

use crate::contract::Contract;
use cosplay_datasets::{Experience, SkillId};
use cosplay_envs::{EnvInfo, PredicateSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Confidence of the retrieval: the constant of the published loop. It is not the probability of the choice: that would pay the policy for being
/// sure of itself, whatever comes of it.
pub const RETRIEVAL_CONFIDENCE: f64 = 0.5;

/// Weights, with the published values as defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetrievalReward {
    /// Weight of the mean environment reward a step, in units of `reward_unit` and clipped to 0 to 1.
    pub reward: f64,
    /// Weight of economy: 1 if the skill took at most its longest time.
    pub economy: f64,
    /// Weight of success: the contract was fulfilled.
    pub success: f64,
    /// Weight of not having been aborted.
    pub not_aborted: f64,
    /// Weight of the confidence of the retrieval, which is 0.5 for every choice, as in the published loop.
    pub confidence: f64,
    /// Environment reward a step that counts as 1; 0 takes twice the mean over the step's episodes, since the published clip at 1 would make
    /// every 2048 move look the same.
    #[schemars(range(min = 0.0, max = 1.0e9))]
    pub reward_unit: f64,
}

impl Default for RetrievalReward {
    fn default() -> Self {
        Self { reward: 0.4, economy: 0.2, success: 0.2, not_aborted: 0.1, confidence: 0.1, reward_unit: 0.0 }
    }
}

/// One use of a skill, from its choice to the next one or the end of the episode.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillUse {
    /// Time of the choice.
    pub t: u32,
    /// Skill.
    pub skill: SkillId,
    /// Steps.
    pub steps: u32,
    /// Sum of the environment's rewards.
    pub reward: f64,
    /// True if the contract was fulfilled.
    pub success: bool,
    /// True if it was given up as aborted.
    pub aborted: bool,
}

/// Uses of skills in one episode, in order.
pub fn skill_uses(experiences: &[Experience], contracts: &BTreeMap<SkillId, Contract>, info: &EnvInfo) -> Vec<SkillUse> {
    let mut uses: Vec<SkillUse> = Vec::new();
    let mut open = false;
    let mut events = PredicateSet::EMPTY;
    for step in experiences {
        if step.switch_reason != "keep" {
            if let Some(last) = uses.last_mut().filter(|_| open) {
                last.aborted = step.switch_reason == "aborted";
                // The agent saw the contract fulfilled before it chose again.
                last.success |= step.switch_reason == "succeeded";
            }
            open = step.skill.is_some();
            events = PredicateSet::EMPTY;
            if let Some(skill) = step.skill {
                uses.push(SkillUse { t: step.t, skill, steps: 0, reward: 0.0, success: false, aborted: false });
            }
        }
        let Some(current) = uses.last_mut().filter(|_| open) else { continue };
        current.steps += 1;
        current.reward += step.reward;
        events = events.union(info.set(step.events.iter().map(String::as_str)).0);
        if let Some(contract) = contracts.get(&current.skill).filter(|contract| !contract.is_empty()) {
            let after = info.set(step.next_predicates.iter().map(String::as_str)).0;
            current.success |= contract.adds.minus(after).is_empty()
                && contract.deletes.intersection(after).is_empty()
                && contract.events.minus(events).is_empty();
        }
    }
    uses
}

/// 0.40 · clip(R/steps, 0, 1) + 0.20 · min(1, longest/steps) + 0.20 · success + 0.10 · (not aborted) + 0.10 · confidence.
pub fn retrieval_reward(used: &SkillUse, longest: u32, confidence: f64, unit: f64, weights: &RetrievalReward) -> f64 {
    let steps = f64::from(used.steps.max(1));
    let truth = |value: bool| f64::from(u8::from(value));
    weights.reward * (used.reward / steps / unit.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
        + weights.economy * (f64::from(longest) / steps).min(1.0)
        + weights.success * truth(used.success)
        + weights.not_aborted * truth(!used.aborted)
        + weights.confidence * confidence
}

#[cfg(test)]
mod tests {
    use super::*;

    // Published vectors: R=5 in 10 steps, longest 13, success; and so on (confidence 0.5 unless said).
    #[test]
    fn published_vectors() {
        let case = |reward, steps, longest, success, aborted, confidence| {
            let used = SkillUse { t: 0, skill: SkillId(1), steps, reward, success, aborted };
            retrieval_reward(&used, longest, confidence, 1.0, &RetrievalReward::default())
        };
        for (value, expected) in [
            (case(5.0, 10, 13, true, false, 0.5), 0.75),
            (case(0.0, 4, 13, false, false, 0.5), 0.35),
            (case(20.0, 5, 5, false, true, 0.9), 0.69),
            (case(3.0, 20, 10, false, false, 0.5), 0.31),
        ] {
            assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
        }
    }
}
