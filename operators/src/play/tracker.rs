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

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bits: &[usize]) -> PredicateSet {
        let mut set = PredicateSet::EMPTY;
        bits.iter().for_each(|&bit| set.insert(bit));
        set
    }

    fn skill() -> AgentSkill {
        AgentSkill {
            skill: SkillId(7),
            name: "test".into(),
            tag: Some(Tag::Merge),
            contract: Contract { adds: set(&[1]), deletes: set(&[2]), events: set(&[9]) },
            abort_true: set(&[3]),
            abort_false: set(&[4]),
            max_duration: 6,
        }
    }

    /// Plays steps (predicates after it, events, reward, tag of the next view) and returns the last reason.
    fn reason(steps: &[(PredicateSet, PredicateSet, f64, Tag)]) -> SwitchReason {
        let skills = [skill()];
        let mut tracker = Tracker::default();
        assert_eq!(tracker.reason(&skills, Tag::Merge), SwitchReason::Unavailable);
        tracker.choose(Some(0), set(&[2, 4]), Tag::Setup);
        let mut last = SwitchReason::Keep;
        for (predicates, events, reward, tag) in steps {
            tracker.observe(*predicates, *events, *reward);
            last = tracker.reason(&skills, *tag);
        }
        last
    }

    #[test]
    fn every_reason_of_the_rule() {
        let (start, none) = (set(&[2, 4]), PredicateSet::EMPTY);
        let calm = (start, none, 1.0, Tag::Merge);
        assert_eq!(reason(&[calm; 5]), SwitchReason::Keep);
        assert_eq!(reason(&[calm; 6]), SwitchReason::Exhausted);
        assert_eq!(reason(&[(start, none, 0.0, Tag::Merge); 3]), SwitchReason::Keep);
        assert_eq!(reason(&[(start, none, 0.0, Tag::Merge); 4]), SwitchReason::Ineffective);
        assert_eq!(reason(&[(set(&[2, 3, 4]), none, 1.0, Tag::Merge)]), SwitchReason::Aborted);
        assert_eq!(reason(&[(set(&[2]), none, 1.0, Tag::Merge)]), SwitchReason::Aborted);
        let shifted = (start, none, 1.0, Tag::Survive);
        assert_eq!(reason(&[shifted]), SwitchReason::Keep);
        assert_eq!(reason(&[shifted, shifted]), SwitchReason::IntentionShift);
        assert_eq!(reason(&[shifted, calm, shifted]), SwitchReason::Keep);
        assert_eq!(reason(&[(set(&[1, 4]), none, 1.0, Tag::Merge)]), SwitchReason::Keep, "the event is missing");
        assert_eq!(reason(&[(start, set(&[9]), 1.0, Tag::Merge), (set(&[1, 4]), none, 1.0, Tag::Merge)]), SwitchReason::Succeeded);
        assert_eq!(Tracker::default().reason(&[], Tag::Merge), SwitchReason::NoBank);
    }

    // In the published code choosing the same skill again left its counters, so that it was chosen anew in every step from then on.
    #[test]
    fn choosing_the_same_skill_again_starts_its_counters_anew() {
        let skills = [skill()];
        let mut tracker = Tracker::default();
        tracker.choose(Some(0), PredicateSet::EMPTY, Tag::Merge);
        for _ in 0..6 {
            tracker.observe(PredicateSet::EMPTY, PredicateSet::EMPTY, 1.0);
        }
        assert_eq!(tracker.reason(&skills, Tag::Merge), SwitchReason::Exhausted);
        tracker.choose(Some(0), PredicateSet::EMPTY, Tag::Merge);
        tracker.observe(PredicateSet::EMPTY, PredicateSet::EMPTY, 1.0);
        assert_eq!(tracker.reason(&skills, Tag::Merge), SwitchReason::Keep);
    }
}
