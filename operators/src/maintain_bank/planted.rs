//! Planted evidence for tests: an environment with plain predicates and segments whose effects are known.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::contract::{Contract, Effect, Literal};
use crate::learn_contracts::Instance;
use cosplay_datasets::tables::Segment;
use cosplay_datasets::{EpisodeId, SegmentId, SkillId};
use cosplay_envs::{EnvInfo, PredicateInfo, PredicateKind};

/// Predicates `a` to `l` come and go, `m` and `n` are monotone, then two events.
pub(crate) const NAMES: [&str; 16] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "event.x", "event.y"];

pub(crate) fn info() -> EnvInfo {
    let predicate = |name: &'static str| {
        let kind = match name {
            "m" | "n" => PredicateKind::Monotone,
            _ if name.starts_with("event.") => PredicateKind::Event,
            _ => PredicateKind::State,
        };
        PredicateInfo { name, kind, about: "Something holds." }
    };
    EnvInfo {
        name: "planted",
        about: "",
        players: 1,
        max_steps: 200,
        max_choices: 4,
        reward_unit: "points",
        predicates: NAMES.into_iter().map(predicate).collect(),
        words: vec![],
        phases: vec![],
        outcomes: vec![],
        roles: vec![],
        teachers: vec![],
        baselines: vec![],
        version: 1,
    }
}

/// A contract, spelt as `+a -b event.x`.
pub(crate) fn contract(text: &str) -> Contract {
    let info = info();
    text.split_whitespace().map(|literal| Literal::parse(literal, &info).expect(literal)).collect()
}

/// An effect, spelt like a contract; ` | ` parts what holds before from what happens. Deleted predicates hold before by themselves.
pub(crate) fn effect(text: &str) -> Effect {
    Effect::from_segment(&segment(1, 0, text), &info()).expect(text)
}

/// The segment `ordinal` of an episode with this effect.
pub(crate) fn segment(episode: u64, ordinal: u32, text: &str) -> Segment {
    let (before, happens) = text.split_once('|').unwrap_or(("", text));
    let words = |prefix: &str| -> Vec<String> {
        happens.split_whitespace().filter_map(|word| word.strip_prefix(prefix)).map(str::to_owned).collect()
    };
    let deleted = words("-");
    let mut preconditions: Vec<String> = before.split_whitespace().map(str::to_owned).chain(deleted.iter().cloned()).collect();
    preconditions.sort();
    let episode = EpisodeId(episode);
    Segment {
        segment: SegmentId::new(episode, ordinal),
        episode,
        start: ordinal * 10,
        end: ordinal * 10 + 10,
        tag: "MERGE".to_owned(),
        preconditions,
        added: words("+"),
        deleted,
        events: happens.split_whitespace().filter(|word| word.starts_with("event.")).map(str::to_owned).collect(),
        ret: 10.0,
        // A fifth of the episodes is held out.
        holdout: episode.0 % 5 == 4,
        ..Segment::default()
    }
}

/// The same segment under a label.
pub(crate) fn labelled(segment: Segment, skill: u32) -> Segment {
    Segment { skill: Some(SkillId(skill)), ..segment }
}

pub(crate) fn instance(id: u64, text: &str, holdout: bool) -> Instance {
    Instance { segment: SegmentId(id), effect: effect(text), holdout }
}
