//! Typed booleans about a state or about the last step.

use serde::{Deserialize, Serialize};

/// A set of predicates that hold, as bits over the predicate list of an environment ([`crate::EnvInfo::predicates`]).
///
/// An environment has at most 128 predicates. Indices from 128 up are never in a set.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PredicateSet(pub u128);

impl PredicateSet {
    /// The set without members.
    pub const EMPTY: PredicateSet = PredicateSet(0);

    /// Adds the predicate with this index; an index from 128 up is ignored.
    pub fn insert(&mut self, index: usize) {
        self.0 |= bit(index);
    }

    /// Adds the predicate with this index if `holds`.
    pub fn insert_if(&mut self, index: usize, holds: bool) {
        if holds {
            self.insert(index);
        }
    }

    /// Takes the predicate with this index out.
    pub fn remove(&mut self, index: usize) {
        self.0 &= !bit(index);
    }

    /// Whether the predicate with this index is a member.
    pub fn contains(self, index: usize) -> bool {
        self.0 & bit(index) != 0
    }

    /// Whether every member of `other` is a member of `self`.
    pub fn contains_all(self, other: PredicateSet) -> bool {
        other.0 & !self.0 == 0
    }

    /// Members of `self` that are not in `other`.
    #[must_use]
    pub fn minus(self, other: PredicateSet) -> PredicateSet {
        PredicateSet(self.0 & !other.0)
    }

    /// Members of either.
    #[must_use]
    pub fn union(self, other: PredicateSet) -> PredicateSet {
        PredicateSet(self.0 | other.0)
    }

    /// Members of both.
    #[must_use]
    pub fn intersection(self, other: PredicateSet) -> PredicateSet {
        PredicateSet(self.0 & other.0)
    }

    /// Indices of the members, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let index = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            Some(index)
        })
    }

    /// Number of members.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is no member.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<usize> for PredicateSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut set = PredicateSet::EMPTY;
        for index in indices {
            set.insert(index);
        }
        set
    }
}

fn bit(index: usize) -> u128 {
    u32::try_from(index).ok().and_then(|shift| 1u128.checked_shl(shift)).unwrap_or(0)
}

/// How a predicate behaves over an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PredicateKind {
    /// About the current state; comes and goes.
    State,
    /// About the current state; once true it stays true to the end of the episode.
    Monotone,
    /// About the last step; reported in [`crate::Transition::events`] and never part of a state.
    Event,
}

/// The description of one predicate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PredicateInfo {
    /// Stable name; events begin with `event.`.
    pub name: &'static str,
    /// How it behaves over an episode.
    pub kind: PredicateKind,
    /// What it says, in one sentence.
    pub about: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_follow_their_indices() {
        let mut set: PredicateSet = [3, 0, 127, 128, 500].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 127]);
        assert_eq!(set.len(), 3);
        assert!(set.contains(127) && !set.contains(128) && !set.contains(1));
        let other: PredicateSet = [3, 5].into_iter().collect();
        assert_eq!(set.minus(other).iter().collect::<Vec<_>>(), [0, 127]);
        assert_eq!(set.union(other).len(), 4);
        assert_eq!(set.intersection(other).iter().collect::<Vec<_>>(), [3]);
        assert!(set.contains_all(set.intersection(other)) && !set.contains_all(other));
        set.remove(0);
        assert!(!set.contains(0) && PredicateSet::EMPTY.is_empty());
    }
}
