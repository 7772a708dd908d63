//! Reward of an action: r = r_env + 0.1 · r_follow + r_cost (appendix F.1).

use crate::contract::Contract;
use cosplay_datasets::{Experience, SkillId};
use cosplay_envs::{EnvInfo, PredicateSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Constants, with the published values as defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ActionReward {
    /// Weight of the environment's reward.
    #[schemars(range(min = 0.0, max = 1.0e6))]
    pub env: f64,
    /// Weight of r_follow.
    #[schemars(range(min = 0.0, max = 1.0e6))]
    pub follow: f64,
    /// Part of r_follow for each clause of the active skill's contract that comes true.
    pub clause: f64,
    /// Part of r_follow when the whole contract has come true; paid once a use.
    pub complete: f64,
    /// Part of r_follow for a step on a skill on which no clause comes true.
    pub idle: f64,
    /// Cost of asking for a skill.
    pub query: f64,
    /// Cost of leaving one skill for another.
    pub switch: f64,
}

impl Default for ActionReward {
    fn default() -> Self {
        Self { env: 1.0, follow: 0.1, clause: 0.05, complete: 0.2, idle: -0.01, query: -0.05, switch: -0.1 }
    }
}

/// Terms of the reward of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ActionTerms {
    /// Reward of the environment.
    pub env: f64,
    /// r_follow, unweighted.
    pub follow: f64,
    /// r_cost.
    pub cost: f64,
    /// Weighted sum.
    pub total: f64,
}

/// Rewards of the steps of one episode, in order.
pub fn action_rewards(
    experiences: &[Experience],
    contracts: &BTreeMap<SkillId, Contract>,
    info: &EnvInfo,
    constants: &ActionReward,
) -> Vec<ActionTerms> {
    let mut previous: Option<SkillId> = None;
    let mut seen = Contract::default();
    let mut before = PredicateSet::EMPTY;
    experiences
        .iter()
        .map(|step| {
            let chosen = !matches!(step.switch_reason.as_str(), "keep" | "no_bank");
            if chosen || step.skill != previous {
                seen = Contract::default();
                before = info.set(step.predicates.iter().map(String::as_str)).0;
            }
            let mut terms = ActionTerms { env: step.reward, ..ActionTerms::default() };
            if let Some(contract) = step.skill.and_then(|skill| contracts.get(&skill)).filter(|contract| !contract.is_empty()) {
                let after = info.set(step.next_predicates.iter().map(String::as_str)).0;
                let events = info.set(step.events.iter().map(String::as_str)).0;
                let now = Contract {
                    adds: after.minus(before).intersection(contract.adds),
                    deletes: before.minus(after).intersection(contract.deletes),
                    events: events.intersection(contract.events),
                };
                terms.follow = follow(&mut seen, &now, contract, constants);
            }
            if chosen {
                terms.cost += constants.query;
                if previous.is_some() && step.skill != previous {
                    terms.cost += constants.switch;
                }
            }
            previous = step.skill;
            terms.total = constants.env * terms.env + constants.follow * terms.follow + terms.cost;
            terms
        })
        .collect()
}

/// r_follow of a step; `seen` are the clauses that have come true since the skill was chosen.
fn follow(seen: &mut Contract, now: &Contract, contract: &Contract, constants: &ActionReward) -> f64 {
    let was_complete = seen.len() == contract.len();
    let new = now.minus(seen).len();
    seen.adds = seen.adds.union(now.adds);
    seen.deletes = seen.deletes.union(now.deletes);
    seen.events = seen.events.union(now.events);
    if was_complete {
        return 0.0;
    }
    if new == 0 {
        return constants.idle;
    }
    let complete = if seen.len() == contract.len() { constants.complete } else { 0.0 };
    new as f64 * constants.clause + complete
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> EnvInfo {
        cosplay_envs::environments().remove(0)
    }

    fn step(t: u32, skill: Option<u32>, reason: &str, before: &[&str], after: &[&str], events: &[&str]) -> Experience {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Experience {
            t,
            reward: 4.0,
            skill: skill.map(SkillId),
            switch_reason: reason.into(),
            predicates: names(before),
            next_predicates: names(after),
            events: names(events),
            ..Experience::default()
        }
    }

    fn contracts() -> BTreeMap<SkillId, Contract> {
        let set = |names: &[&str]| info().set(names.iter().copied()).0;
        let contract = Contract { adds: set(&["max_ge_64"]), deletes: set(&["empty_ge_8"]), events: set(&["event.max_up"]) };
        BTreeMap::from([(SkillId(1), contract), (SkillId(2), Contract::default())])
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-12
    }

    #[test]
    fn clauses_pay_once_and_the_whole_contract_pays_once() {
        let before = &["empty_ge_8"][..];
        let steps = [
            step(0, Some(1), "unavailable", before, before, &[]),
            step(1, Some(1), "keep", before, &["max_ge_64"], &[]),
            step(2, Some(1), "keep", &["max_ge_64"], &["max_ge_64"], &["event.max_up"]),
            step(3, Some(1), "keep", &["max_ge_64"], &["max_ge_64"], &["event.max_up"]),
        ];
        let terms = action_rewards(&steps, &contracts(), &info(), &ActionReward::default());
        let follow: Vec<f64> = terms.iter().map(|terms| terms.follow).collect();
        for (value, expected) in follow.iter().zip([-0.01, 0.1, 0.25, 0.0]) {
            assert!(near(*value, expected), "{follow:?}");
        }
        assert!(terms.iter().all(|terms| near(terms.total, terms.env + 0.1 * terms.follow + terms.cost)));
    }

    #[test]
    fn asking_costs_and_switching_costs_more() {
        let steps = [
            step(0, Some(1), "unavailable", &[], &[], &[]),
            step(1, Some(1), "keep", &[], &[], &[]),
            step(2, Some(1), "exhausted", &[], &[], &[]),
            step(3, Some(2), "exhausted", &[], &[], &[]),
            step(4, None, "no_bank", &[], &[], &[]),
        ];
        let terms = action_rewards(&steps, &contracts(), &info(), &ActionReward::default());
        let cost: Vec<f64> = terms.iter().map(|terms| terms.cost).collect();
        for (value, expected) in cost.iter().zip([-0.05, 0.0, -0.05, -0.15, 0.0]) {
            assert!(near(*value, expected), "{cost:?}");
        }
        assert!(near(terms[3].follow, 0.0), "an empty contract cannot be followed");
    }
}
