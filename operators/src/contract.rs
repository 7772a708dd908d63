//! Contracts and effects: what a skill promises, and what a segment did (COS-PLAY, section 4.2).
//!
//! A contract is a set of clauses. A clause is one *literal*: `+p` (predicate `p` is made true), `-p` (made false) or `event.e` (event
//! `e` occurs). There are two readings of a clause, and the code says everywhere which one it uses:
//!
//! * **occurs** (learning): `+p` occurs in a segment if `p` was false before and is true after it; `-p` the other way round; an event if
//!   it happened within the segment. Only occurrences count as evidence *for* a clause, so a predicate that is always true can never
//!   become part of a contract.
//! * **holds** (verification): `+p` holds if `p` is true after the segment, whether or not it was true before; `-p` if `p` is false after
//!   it; an event if it happened. A skill is not blamed for finding its goal already reached.

use crate::operator::OperatorError;
use cosplay_datasets::tables::{Segment, Skill};
use cosplay_envs::{EnvInfo, PredicateKind, PredicateSet};
use serde::{Deserialize, Serialize};

/// What a clause says about its predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ClauseKind {
    /// The predicate becomes true.
    Add,
    /// The predicate becomes false.
    Delete,
    /// The event occurs.
    Event,
}

impl ClauseKind {
    /// Name in the column `effect` of the table `contracts`.
    pub fn name(self) -> &'static str {
        match self {
            ClauseKind::Add => "add",
            ClauseKind::Delete => "delete",
            ClauseKind::Event => "event",
        }
    }

    /// Reads [`ClauseKind::name`].
    pub fn parse(name: &str) -> Option<Self> {
        [ClauseKind::Add, ClauseKind::Delete, ClauseKind::Event].into_iter().find(|kind| kind.name() == name)
    }
}

/// One literal: a kind and the index of a predicate in [`EnvInfo::predicates`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Literal {
    /// What it says.
    pub kind: ClauseKind,
    /// Index of the predicate.
    pub predicate: u8,
}

impl Literal {
    /// The literal that cannot be true together with this one; events have none.
    pub fn opposite(self) -> Option<Literal> {
        let kind = match self.kind {
            ClauseKind::Add => ClauseKind::Delete,
            ClauseKind::Delete => ClauseKind::Add,
            ClauseKind::Event => return None,
        };
        Some(Literal { kind, ..self })
    }

    /// Name of its predicate.
    pub fn name(self, info: &EnvInfo) -> &'static str {
        info.predicates.get(usize::from(self.predicate)).map_or("?", |predicate| predicate.name)
    }

    /// The literal as text: `+p`, `-p` or `event.e`.
    pub fn spell(self, info: &EnvInfo) -> String {
        let name = self.name(info);
        match self.kind {
            ClauseKind::Add => format!("+{name}"),
            ClauseKind::Delete => format!("-{name}"),
            ClauseKind::Event => name.to_owned(),
        }
    }

    /// Reads [`Literal::spell`]; `None` if the environment has no such predicate.
    pub fn parse(text: &str, info: &EnvInfo) -> Option<Self> {
        let (kind, name) = match text.as_bytes().first()? {
            b'+' => (ClauseKind::Add, &text[1..]),
            b'-' => (ClauseKind::Delete, &text[1..]),
            _ => (ClauseKind::Event, text),
        };
        let index = info.predicate_index(name)?;
        let is_event = info.predicates[index].kind == PredicateKind::Event;
        (is_event == (kind == ClauseKind::Event)).then_some(Literal { kind, predicate: u8::try_from(index).ok()? })
    }
}

/// What a skill promises: predicates that it makes true, predicates that it makes false, events that it brings about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Contract {
    /// Predicates that become true.
    pub adds: PredicateSet,
    /// Predicates that become false.
    pub deletes: PredicateSet,
    /// Events that occur.
    pub events: PredicateSet,
}

impl Contract {
    /// Whether it promises nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of clauses.
    pub fn len(&self) -> usize {
        self.adds.len() + self.deletes.len() + self.events.len()
    }

    /// The contract of a row of the table `skills`.
    ///
    /// # Errors
    /// [`OperatorError::Other`], with the skill and the name, if the environment has no such predicate.
    pub fn from_skill(skill: &Skill, info: &EnvInfo) -> Result<Self, OperatorError> {
        let set = |column, names: &[String]| known(info, names, || format!("skill {} (`{}`), {column}", skill.skill, skill.name));
        Ok(Self { adds: set("adds", &skill.adds)?, deletes: set("deletes", &skill.deletes)?, events: set("events", &skill.events)? })
    }

    /// Its clauses: adds, deletes, events, each in the order of the predicates.
    pub fn literals(&self) -> impl Iterator<Item = Literal> {
        let of = |kind, set: PredicateSet| set.iter().map(move |index| Literal { kind, predicate: index as u8 });
        of(ClauseKind::Add, self.adds).chain(of(ClauseKind::Delete, self.deletes)).chain(of(ClauseKind::Event, self.events))
    }

    fn set_of(&mut self, kind: ClauseKind) -> &mut PredicateSet {
        match kind {
            ClauseKind::Add => &mut self.adds,
            ClauseKind::Delete => &mut self.deletes,
            ClauseKind::Event => &mut self.events,
        }
    }

    /// Whether it has this clause.
    pub fn contains(&self, literal: Literal) -> bool {
        let set = match literal.kind {
            ClauseKind::Add => self.adds,
            ClauseKind::Delete => self.deletes,
            ClauseKind::Event => self.events,
        };
        set.contains(usize::from(literal.predicate))
    }

    /// Adds a clause.
    pub fn insert(&mut self, literal: Literal) {
        self.set_of(literal.kind).insert(usize::from(literal.predicate));
    }

    /// Takes a clause out.
    pub fn remove(&mut self, literal: Literal) {
        self.set_of(literal.kind).remove(usize::from(literal.predicate));
    }

    /// Clauses of `self` that `other` lacks.
    #[must_use]
    pub fn minus(&self, other: &Contract) -> Contract {
        Contract { adds: self.adds.minus(other.adds), deletes: self.deletes.minus(other.deletes), events: self.events.minus(other.events) }
    }

    /// Number of clauses that both have.
    pub fn shared(&self, other: &Contract) -> usize {
        self.adds.intersection(other.adds).len()
            + self.deletes.intersection(other.deletes).len()
            + self.events.intersection(other.events).len()
    }

    /// Jaccard similarity of the clauses, in 0 to 1. Two empty contracts have nothing in common: 0.
    pub fn jaccard(&self, other: &Contract) -> f64 {
        let shared = self.shared(other);
        let union = self.len() + other.len() - shared;
        if union == 0 { 0.0 } else { shared as f64 / union as f64 }
    }

    /// The clauses as text, in the order of [`Contract::literals`].
    pub fn spell(&self, info: &EnvInfo) -> Vec<String> {
        self.literals().map(|literal| literal.spell(info)).collect()
    }
}

impl FromIterator<Literal> for Contract {
    fn from_iter<I: IntoIterator<Item = Literal>>(literals: I) -> Self {
        let mut contract = Contract::default();
        literals.into_iter().for_each(|literal| contract.insert(literal));
        contract
    }
}

/// What a segment found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Effect {
    /// Predicates that hold before the segment.
    pub preconditions: PredicateSet,
    /// Predicates that hold after it.
    pub end: PredicateSet,
    /// Predicates that hold after it and did not before.
    pub added: PredicateSet,
    /// Predicates that held before it and do not after.
    pub deleted: PredicateSet,
    /// Events within it.
    pub events: PredicateSet,
}

impl Effect {
    /// The effect of going from one state to another, with the events on the way.
    pub fn between(before: PredicateSet, after: PredicateSet, events: PredicateSet) -> Self {
        Self { preconditions: before, end: after, added: after.minus(before), deleted: before.minus(after), events }
    }

    /// The effect of a row of the table `segments`.
    ///
    /// # Errors
    /// [`OperatorError::Other`], with the segment and the name, if the environment has no such predicate.
    pub fn from_segment(segment: &Segment, info: &EnvInfo) -> Result<Self, OperatorError> {
        let set = |column, names: &[String]| known(info, names, || format!("segment {}, {column}", segment.segment));
        let before = set("preconditions", &segment.preconditions)?;
        let (added, deleted) = (set("added", &segment.added)?, set("deleted", &segment.deleted)?);
        let events = set("events", &segment.events)?;
        Ok(Self { preconditions: before, end: before.union(added).minus(deleted), added, deleted, events })
    }

    /// All that *occurred*, as a contract that this segment alone would give.
    pub fn occurred(&self) -> Contract {
        Contract { adds: self.added, deletes: self.deleted, events: self.events }
    }

    /// Whether a clause *occurs* in the segment (see the module's text).
    pub fn occurs(&self, literal: Literal) -> bool {
        let set = match literal.kind {
            ClauseKind::Add => self.added,
            ClauseKind::Delete => self.deleted,
            ClauseKind::Event => self.events,
        };
        set.contains(usize::from(literal.predicate))
    }

    /// Whether a clause *holds* after the segment (see the module's text).
    pub fn holds(&self, literal: Literal) -> bool {
        let index = usize::from(literal.predicate);
        match literal.kind {
            ClauseKind::Add => self.end.contains(index),
            ClauseKind::Delete => !self.end.contains(index),
            ClauseKind::Event => self.events.contains(index),
        }
    }

    /// Number of clauses that hold.
    pub fn held(&self, contract: &Contract) -> usize {
        contract.adds.intersection(self.end).len()
            + contract.deletes.minus(self.end).len()
            + contract.events.intersection(self.events).len()
    }

    /// Share of the clauses that hold, in 0 to 1. An empty contract promises nothing and so is never fulfilled: 0.
    pub fn fulfilled(&self, contract: &Contract) -> f64 {
        if contract.is_empty() { 0.0 } else { self.held(contract) as f64 / contract.len() as f64 }
    }
}

fn known(info: &EnvInfo, names: &[String], place: impl Fn() -> String) -> Result<PredicateSet, OperatorError> {
    let (set, unknown) = info.set(names.iter().map(String::as_str));
    match unknown.first() {
        None => Ok(set),
        Some(name) => Err(OperatorError::Other(format!("{}: environment `{}` has no predicate `{name}`", place(), info.name))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use cosplay_envs::PredicateInfo;

    fn info() -> EnvInfo {
        let predicate = |name, kind| PredicateInfo { name, kind, about: "Something holds." };
        EnvInfo {
            name: "planted",
            about: "",
            players: 1,
            max_steps: 1,
            max_choices: 1,
            reward_unit: "",
            predicates: vec![
                predicate("a", PredicateKind::State),
                predicate("b", PredicateKind::State),
                predicate("c", PredicateKind::State),
                predicate("event.e", PredicateKind::Event),
            ],
            words: vec![],
            phases: vec![],
            outcomes: vec![],
            roles: vec![],
            teachers: vec![],
            baselines: vec![],
            version: 1,
        }
    }

    fn contract(literals: &[&str]) -> Contract {
        literals.iter().map(|text| Literal::parse(text, &info()).expect(text)).collect()
    }

    fn effect(before: &[usize], after: &[usize], events: &[usize]) -> Effect {
        Effect::between(before.iter().copied().collect(), after.iter().copied().collect(), events.iter().copied().collect())
    }

    #[test]
    fn literals_are_read_as_they_are_spelt_and_only_with_known_names_of_the_right_kind() {
        for text in ["+a", "-b", "event.e"] {
            assert_eq!(Literal::parse(text, &info()).unwrap().spell(&info()), text);
        }
        for text in ["", "+", "a", "+x", "+event.e", "event.f"] {
            assert_eq!(Literal::parse(text, &info()), None, "{text}");
        }
    }

    #[test]
    fn jaccard_of_clauses() {
        // A clause and its opposite are different clauses; nothing resembles an empty contract.
        let cases: &[(&[&str], &[&str], f64)] = &[
            (&["+a", "+b"], &["+a", "+b"], 1.0),
            (&["+a", "+b"], &["+a"], 0.5),
            (&["+a"], &["-a"], 0.0),
            (&["+a", "event.e"], &["+a", "-b"], 1.0 / 3.0),
            (&[], &[], 0.0),
            (&[], &["+a"], 0.0),
        ];
        for (a, b, expected) in cases {
            assert_eq!(contract(a).jaccard(&contract(b)), *expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_clause_holds_when_its_goal_was_already_reached_but_occurs_only_when_it_was_brought_about() {
        let already = effect(&[0], &[0], &[]);
        let add = Literal::parse("+a", &info()).unwrap();
        assert!(already.holds(add) && !already.occurs(add));
        let brought = effect(&[], &[0], &[]);
        assert!(brought.holds(add) && brought.occurs(add));
        let never = effect(&[], &[], &[]);
        let delete = Literal::parse("-a", &info()).unwrap();
        assert!(never.holds(delete) && !never.occurs(delete));
    }

    #[test]
    fn fulfilment_is_the_share_of_clauses_that_hold() {
        // Vector 57 of the reference: contract {a, b, c} on {a, b}, {a, b, c} and {a} with b true at the end.
        let promise = contract(&["+a", "+b", "+c"]);
        assert_eq!(effect(&[], &[0, 1], &[]).fulfilled(&promise), 2.0 / 3.0);
        assert_eq!(effect(&[], &[0, 1, 2], &[]).fulfilled(&promise), 1.0);
        assert_eq!(effect(&[1], &[0, 1], &[]).fulfilled(&promise), 2.0 / 3.0);
        let mixed = contract(&["+a", "-b", "event.e"]);
        assert_eq!(effect(&[1], &[1], &[3]).fulfilled(&mixed), 1.0 / 3.0);
    }

    #[test]
    fn b6_b7_an_empty_contract_is_never_fulfilled() {
        assert_eq!(effect(&[], &[0], &[3]).fulfilled(&Contract::default()), 0.0);
    }

    #[test]
    fn an_unknown_predicate_is_named_with_its_segment() {
        let segment = Segment { segment: cosplay_datasets::SegmentId(4711), added: vec!["z".into()], ..Segment::default() };
        let message = Effect::from_segment(&segment, &info()).unwrap_err().to_string();
        assert!(message.contains("4711") && message.contains("`z`") && message.contains("added"), "{message}");
    }

    #[test]
    fn the_end_of_a_segment_follows_from_its_changes() {
        let segment = Segment {
            preconditions: vec!["a".into(), "b".into()],
            added: vec!["c".into()],
            deleted: vec!["a".into()],
            events: vec!["event.e".into()],
            ..Segment::default()
        };
        assert_eq!(Effect::from_segment(&segment, &info()).unwrap(), effect(&[0, 1], &[1, 2], &[3]));
    }
}
