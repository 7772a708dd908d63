//! Synthetic episodes with a known structure, and rows of a bank, for tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cosplay_datasets::tables::{Experience, Skill};
use cosplay_datasets::{EpisodeId, SkillId};
use cosplay_envs::{EnvInfo, PredicateInfo, PredicateKind};

/// An environment with the state predicates `a` to `f` and the events `event.x` and `event.y`.
pub(crate) fn env() -> EnvInfo {
    let state = ["a", "b", "c", "d", "e", "f"].map(|name| (name, PredicateKind::State));
    let events = ["event.x", "event.y"].map(|name| (name, PredicateKind::Event));
    EnvInfo {
        name: "planted",
        about: "",
        players: 1,
        max_steps: 1000,
        max_choices: 1,
        reward_unit: "point",
        predicates: state.into_iter().chain(events).map(|(name, kind)| PredicateInfo { name, kind, about: "" }).collect(),
        words: vec![],
        phases: vec![],
        outcomes: vec![],
        roles: vec![],
        teachers: vec![],
        baselines: vec![],
        version: 1,
    }
}

/// An episode under construction: the predicates that hold now, and the steps so far.
pub(crate) struct Episode {
    id: EpisodeId,
    state: Vec<&'static str>,
    rows: Vec<Experience>,
}

impl Episode {
    /// An episode that starts with these predicates.
    pub(crate) fn new(id: u64, state: &[&'static str]) -> Self {
        Self { id: EpisodeId(id), state: state.to_vec(), rows: Vec::new() }
    }

    /// Adds `steps` steps with one intention. On the last of them the literals come about: `+p`, `-p`, `event.e`.
    pub(crate) fn behave(mut self, steps: usize, tag: &str, literals: &[&'static str]) -> Self {
        for step in 0..steps {
            let before = self.names();
            let mut events = Vec::new();
            if step + 1 == steps {
                for literal in literals {
                    match literal.split_at(1) {
                        ("+", name) => self.state.push(name),
                        ("-", name) => self.state.retain(|held| *held != name),
                        _ => events.push((*literal).to_owned()),
                    }
                }
            }
            let after = self.names();
            self.rows.push(Experience {
                episode: self.id,
                t: self.rows.len() as u32,
                predicates: before,
                next_predicates: after,
                events,
                intention_tag: tag.to_owned(),
                ..Experience::default()
            });
        }
        self
    }

    /// Its rows.
    pub(crate) fn rows(mut self) -> Vec<Experience> {
        if let Some(last) = self.rows.last_mut() {
            last.done = true;
        }
        self.rows
    }

    fn names(&mut self) -> Vec<String> {
        self.state.sort_unstable();
        self.state.dedup();
        self.state.iter().map(|name| (*name).to_owned()).collect()
    }
}

/// Rows of an episode of `length` steps in which nothing happens.
pub(crate) fn quiet(id: u64, length: usize) -> Vec<Experience> {
    Episode::new(id, &[]).behave(length, "", &[]).rows()
}

/// An active skill with this tag and contract, ten instances and a length of eight steps.
pub(crate) fn skill(id: u32, tag: &str, literals: &[&str]) -> Skill {
    let of = |sign: char| literals.iter().filter_map(|literal| literal.strip_prefix(sign)).map(str::to_owned).collect();
    Skill {
        skill: SkillId(id),
        name: format!("skill {id}"),
        state: "active".into(),
        tag: tag.into(),
        adds: of('+'),
        deletes: of('-'),
        events: literals.iter().filter(|literal| literal.starts_with("event.")).map(|literal| (*literal).to_owned()).collect(),
        instances: 10,
        duration: 8.0,
        duration_spread: 3.0,
        ..Skill::default()
    }
}
