//! The active skill of an episode, and when it is given up (paper section 4.1, eq. 1: keep the skill, or retrieve).
//!
//! The rule, asked before every action, first reason first:
//!
//! | reason | when |
//! | --- | --- |
//! | `no_bank` | the bank has no active skill, or the episode plays without one |
//! | `unavailable` | no skill is active: at the start, or because no skill applied at the last choice |
//! | `succeeded` | every clause of the contract holds: its additions, its deletions, and its events since the choice |
//! | `aborted` | an abort literal holds that did not hold when the skill was chosen |
//! | `exhausted` | it has run for its longest time: max(⌈1.5 · median duration⌉, 5), reference value 10 without a duration |
//! | `ineffective` | at least four steps, and their rewards sum to zero or less |
//! | `intention_shift` | for two steps running the intention has been neither the skill's tag nor the tag at its choice |
//! | `keep` | otherwise |

use crate::contract::Contract;
use cosplay_datasets::SkillId;
use cosplay_envs::{PredicateSet, Tag};

/// What the decision agent needs of a skill.
#[derive(Clone, Debug)]
pub struct AgentSkill {
    /// Key.
    pub skill: SkillId,
    /// Name, shown as the option's text.
    pub name: String,
    /// Tag.
    pub tag: Option<Tag>,
    /// Contract.
    pub contract: Contract,
    /// Predicates that must not appear.
    pub abort_true: PredicateSet,
    /// Predicates that must not vanish.
    pub abort_false: PredicateSet,
    /// Longest time on the skill, in steps.
    pub max_duration: u32,
}

/// Why a skill was kept or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchReason {
    /// See the table of this module.
    NoBank,
    /// See the table of this module.
    Unavailable,
    /// See the table of this module.
    Succeeded,
    /// See the table of this module.
    Aborted,
    /// See the table of this module.
    Exhausted,
    /// See the table of this module.
    Ineffective,
    /// See the table of this module.
    IntentionShift,
    /// See the table of this module.
    Keep,
}

impl SwitchReason {
    /// Spelling in `experiences.switch_reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoBank => "no_bank",
            Self::Unavailable => "unavailable",
            Self::Succeeded => "succeeded",
            Self::Aborted => "aborted",
            Self::Exhausted => "exhausted",
            Self::Ineffective => "ineffective",
            Self::IntentionShift => "intention_shift",
            Self::Keep => "keep",
        }
    }
}

/// The active skill of one episode. Choosing a skill, also the same one again, starts all counters anew.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    active: Option<Active>,
}

#[derive(Clone, Debug)]
struct Active {
    index: usize,
    start: PredicateSet,
    start_tag: Tag,
    now: PredicateSet,
    events: PredicateSet,
    steps: u32,
    reward: f64,
    shifted: u32,
}

impl Tracker {
    /// Index of the active skill.
    pub fn active(&self) -> Option<usize> {
        self.active.as_ref().map(|active| active.index)
    }

    /// Makes skill `index` the active one.
    pub fn choose(&mut self, index: Option<usize>, predicates: PredicateSet, tag: Tag) {
        self.active = index.map(|index| Active {
            index,
            start: predicates,
            start_tag: tag,
            now: predicates,
            events: PredicateSet::EMPTY,
            steps: 0,
            reward: 0.0,
            shifted: 0,
        });
    }

    /// Takes note of a step.
    pub fn observe(&mut self, predicates: PredicateSet, events: PredicateSet, reward: f64) {
        if let Some(active) = &mut self.active {
            active.now = predicates;
            active.events = active.events.union(events);
            active.steps += 1;
            active.reward += reward;
        }
    }

    /// Asks the rule before an action; `tag` is the intention of this step.
    pub fn reason(&mut self, skills: &[AgentSkill], tag: Tag) -> SwitchReason {
        if skills.is_empty() {
            return SwitchReason::NoBank;
        }
        let Some(active) = &mut self.active else { return SwitchReason::Unavailable };
        let skill = &skills[active.index];
        active.shifted = if tag == active.start_tag || Some(tag) == skill.tag { 0 } else { active.shifted + 1 };
        let added = active.now.minus(active.start);
        let deleted = active.start.minus(active.now);
        let contract = &skill.contract;
        let done = contract.adds.minus(active.now).is_empty()
            && contract.deletes.intersection(active.now).is_empty()
            && contract.events.minus(active.events).is_empty();
        let failed = !added.intersection(skill.abort_true).is_empty() || !deleted.intersection(skill.abort_false).is_empty();
        if done && !contract.is_empty() {
            SwitchReason::Succeeded
        } else if failed {
            SwitchReason::Aborted
        } else if active.steps >= skill.max_duration {
            SwitchReason::Exhausted
        } else if active.steps >= 4 && active.reward <= 0.0 {
            SwitchReason::Ineffective
        } else if active.shifted >= 2 {
            SwitchReason::IntentionShift
        } else {
            SwitchReason::Keep
        }
    }
}
