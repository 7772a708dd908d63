//! The labels: active skills of the bank, prepared for scoring, and NEW.

use super::Config;
use crate::contract::{Contract, Effect};
use crate::operator::OperatorError;
use cosplay_datasets::SkillId;
use cosplay_datasets::tables::Skill;
use cosplay_envs::{EnvInfo, PredicateSet, Tag};
use rustc_hash::FxHashMap;

/// Least value of the duration term before its weight: a strange length alone must not outweigh everything else.
const DURATION_FLOOR: f64 = -4.0;
/// Bounds of a skill's spread of the logarithm of its length: a skill with two instances is not known to a step, and one whose instances
/// differ wildly still has a length.
const SPREAD: (f64, f64) = (0.25, 1.0);

/// Label of a stretch.
#[derive(Clone, Debug)]
struct Label {
    skill: Option<SkillId>,
    contract: Contract,
    tag: Option<Tag>,
    /// What does not depend on the stretch.
    constant: f64,
    /// Median of the logarithm of the length, and its spread.
    duration: (f64, f64),
}

/// All labels, NEW first and then the active skills by id, and the environment's predicates. Retired skills are never labels.
#[derive(Clone, Debug)]
pub struct Labels {
    labels: Vec<Label>,
    predicates: FxHashMap<&'static str, usize>,
}

/// What is known of a stretch besides its effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch<'a> {
    /// What it found and did.
    pub(super) effect: Effect,
    /// Number of steps.
    pub(super) length: f64,
    /// Plausibility of its two boundaries, 0 to 1.
    pub(super) plausibility: f64,
    /// Number of steps by tag, in the order of [`Tag::all`]; none if intentions tell nothing in this episode.
    pub(super) tags: Option<&'a [u32; 13]>,
}

impl Labels {
    /// Labels from the rows of `skills`, in any order.
    ///
    /// # Errors
    /// If a contract names a predicate that the environment does not have.
    pub fn new(skills: &[Skill], env: &EnvInfo, config: &Config) -> Result<Self, OperatorError> {
        let new_duration = (config.new_duration.max(1.0).ln(), config.new_spread);
        let mut labels =
            vec![Label { skill: None, contract: Contract::default(), tag: None, constant: config.new_score, duration: new_duration }];
        let mut active: Vec<&Skill> = skills.iter().filter(|skill| skill.state == "active").collect();
        active.sort_by_key(|skill| skill.skill);
        for skill in active {
            let known = skill.duration > 0.0 && skill.duration_spread.is_finite();
            let spread = (skill.duration_spread / skill.duration).clamp(SPREAD.0, SPREAD.1);
            labels.push(Label {
                skill: Some(skill.skill),
                contract: Contract::from_skill(skill, env)?,
                tag: Tag::parse(&skill.tag),
                constant: config.support_weight * f64::from(skill.instances).ln_1p(),
                duration: if known { (skill.duration.ln(), spread) } else { new_duration },
            });
        }
        let predicates = env.predicates.iter().enumerate().map(|(index, predicate)| (predicate.name, index)).collect();
        Ok(Self { labels, predicates })
    }

    /// Number of labels, NEW included.
    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Skill of a label; none is NEW.
    pub(super) fn skill(&self, label: usize) -> Option<SkillId> {
        self.labels.get(label).and_then(|label| label.skill)
    }

    /// Index of a predicate, if the environment has it.
    pub(super) fn predicate(&self, name: &str) -> Option<usize> {
        self.predicates.get(name).copied()
    }

    /// The known ones among the named predicates.
    pub(super) fn set<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> PredicateSet {
        names.into_iter().filter_map(|name| self.predicate(name)).collect()
    }

    /// Scores of a stretch under all labels.
    pub(super) fn score(&self, stretch: &Stretch<'_>, config: &Config, scores: &mut [f64]) {
        let boundary = config.boundary_weight * stretch.plausibility;
        let log_length = stretch.length.ln();
        for (score, label) in scores.iter_mut().zip(&self.labels) {
            let (median, spread) = label.duration;
            let z = (log_length - median) / spread;
            *score = boundary + label.constant + config.duration_weight * (-0.5 * z * z).max(DURATION_FLOOR);
            if label.skill.is_some() {
                *score += config.contract_weight * overlap(&stretch.effect, &label.contract);
                if let (Some(tag), Some(counts)) = (label.tag, stretch.tags) {
                    *score += config.intention_weight * f64::from(counts[tag as usize]) / stretch.length;
                }
            }
        }
    }
}

/// How far a stretch did what a contract promises, in its own clauses: those that occurred minus those that were missed, over their number
/// plus one. A clause whose goal had been reached before counts neither way, so that skills whose effects last (a largest tile, say) do
/// not claim every later stretch. What the stretch did besides does not matter.
fn overlap(effect: &Effect, contract: &Contract) -> f64 {
    let clauses = contract.len();
    let occurred = contract.adds.intersection(effect.added).len()
        + contract.deletes.intersection(effect.deleted).len()
        + contract.events.intersection(effect.events).len();
    let missed = clauses - effect.held(contract);
    (occurred as f64 - missed as f64) / (clauses as f64 + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(indices: &[usize]) -> PredicateSet {
        indices.iter().copied().collect()
    }

    #[test]
    fn overlap_counts_what_occurred_against_what_was_missed() {
        let contract = Contract { adds: set(&[0]), deletes: set(&[1]), events: set(&[2]) };
        let fulfilled = Effect::between(set(&[1]), set(&[0]), set(&[2]));
        assert_eq!(overlap(&fulfilled, &contract), 0.75);
        let nothing = Effect::between(set(&[1]), set(&[1]), set(&[]));
        assert_eq!(overlap(&nothing, &contract), -0.75);
        // The add had been reached before: one clause occurred, one missed, one neutral.
        let half = Effect::between(set(&[0, 1]), set(&[0]), set(&[]));
        assert_eq!(overlap(&half, &contract), 0.0);
        // Other effects do not matter.
        let more = Effect::between(set(&[1]), set(&[0, 7]), set(&[2, 9]));
        assert_eq!(overlap(&more, &contract), 0.75);
        assert_eq!(overlap(&fulfilled, &Contract::default()), 0.0);
    }

    #[test]
    fn a_lasting_effect_does_not_claim_later_stretches() {
        let contract = Contract { adds: set(&[0]), ..Contract::default() };
        let later = Effect::between(set(&[0]), set(&[0]), set(&[]));
        assert_eq!(overlap(&later, &contract), 0.0);
    }

    #[test]
    fn tags_are_numbered_in_canonical_order() {
        for (index, tag) in Tag::all().into_iter().enumerate() {
            assert_eq!(tag as usize, index);
        }
    }
}
