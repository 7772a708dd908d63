//! What one more episode costs beside a full rebuild: contract learning over the segments of 10,000 stored episodes, and one step of bank
//! maintenance over 50,000 segments.
//!
//! `cargo bench -p cosplay-operators --bench incremental` prints the ratio first, measured in one run, and then divan's table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use cosplay_datasets::tables::{Segment, Skill};
use cosplay_datasets::{EpisodeId, SegmentId, SkillId};
use cosplay_envs::{EnvInfo, PredicateKind, PredicateSet};
use cosplay_operators::contract::Effect;
use cosplay_operators::dataflow::evidence::learned;
use cosplay_operators::learn_contracts::{self, Instance};
use cosplay_operators::maintain_bank::evidence::Evidence;
use cosplay_operators::maintain_bank::{self, Config, maintain};
use differential_dataflow::input::{Input, InputSession};
use std::time::{Duration, Instant};
use timely::dataflow::ProbeHandle;

const EPISODES: u32 = 10_000;
const SEGMENTS_PER_EPISODE: u32 = 15;
const SKILLS: u32 = 16;

type Labelled = (SkillId, Instance);

/// A generator that is the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// The segments of one episode: each skill adds two predicates of its own, and a few others flip by chance.
fn episode(index: u32, info: &EnvInfo) -> Vec<Labelled> {
    let states = info.predicates.iter().filter(|predicate| predicate.kind != PredicateKind::Event).count() as u64;
    let episode = EpisodeId::new(u64::from(index / 64), 0, index % 64);
    let mut numbers = Numbers(u64::from(index) + 1);
    let segment = |ordinal| {
        let skill = (numbers.next() % u64::from(SKILLS)) as u32;
        let own: PredicateSet = [skill as usize, (skill as usize + 5) % states as usize].into_iter().collect();
        let before = PredicateSet(u128::from(numbers.next() & numbers.next()) & ((1 << states) - 1)).minus(own);
        let mut after = before.union(own);
        for _ in 0..3 {
            after.0 ^= 1 << (numbers.next() % states);
        }
        let effect = Effect::between(before, after, PredicateSet::EMPTY);
        (SkillId(skill), Instance { segment: SegmentId::new(episode, ordinal), effect, holdout: index.is_multiple_of(5) })
    };
    (0..SEGMENTS_PER_EPISODE).map(segment).collect()
}

/// Loads all episodes, then adds one at a time; returns the time of the load and the median time of an addition.
fn measure(episodes: u32, added: u32) -> (Duration, Duration) {
    timely::execute_directly(move |worker| {
        let info = cosplay_envs::environments().remove(0);
        let stored: Vec<Vec<Labelled>> = (0..episodes + added).map(|index| episode(index, &info)).collect();
        let probe = ProbeHandle::new();
        let mut input = worker.dataflow::<u64, _, _>(|scope| {
            let (input, segments) = scope.new_collection::<Labelled, isize>();
            learned(segments, &learn_contracts::Config::default()).probe_with(&probe);
            input
        });
        let mut settle = |input: &mut InputSession<u64, Labelled, isize>, rows: &[Vec<Labelled>]| {
            let start = Instant::now();
            rows.iter().flatten().for_each(|row| input.insert(*row));
            let next = *input.time() + 1;
            input.advance_to(next);
            input.flush();
            worker.step_or_park_while(Some(Duration::from_millis(1)), || probe.less_than(input.time()));
            start.elapsed()
        };
        let (history, new) = stored.split_at(episodes as usize);
        let load = settle(&mut input, history);
        let mut additions: Vec<Duration> = new.chunks(1).map(|one| settle(&mut input, one)).collect();
        additions.sort_unstable();
        (load, additions[additions.len() / 2])
    })
}

/// A bank with evidence of so many segments.
fn bank(segments: u32) -> (Evidence, Vec<Skill>, EnvInfo) {
    let info = cosplay_envs::environments().remove(0);
    let mut evidence = Evidence::default();
    let mut rows = Vec::new();
    for (skill, instance) in (0..segments / SEGMENTS_PER_EPISODE).flat_map(|index| episode(index, &info)) {
        let names = |set| info.names(set).into_iter().map(str::to_owned).collect();
        let Instance { segment, effect, holdout } = instance;
        rows.push(Segment {
            segment,
            episode: segment.episode(),
            end: 13,
            // A tenth is explained by no skill.
            skill: (segment.0 % 10 != 0).then_some(skill),
            tag: "MERGE".to_owned(),
            preconditions: names(effect.preconditions),
            added: names(effect.added),
            deleted: names(effect.deleted),
            ret: (segment.0 % 17) as f64,
            holdout,
            ..Segment::default()
        });
    }
    for step in 0..=u64::from(segments / SEGMENTS_PER_EPISODE / 64) {
        let of_step: Vec<Segment> = rows.iter().filter(|row| row.episode.step() == step).cloned().collect();
        evidence.ingest(step, &of_step, &info).unwrap();
    }
    let skills = (0..SKILLS).map(|id| skill(id, &info)).collect();
    (evidence, skills, info)
}

fn skill(id: u32, info: &EnvInfo) -> Skill {
    Skill {
        skill: SkillId(id),
        version: 1,
        name: format!("planted-{id}"),
        state: maintain_bank::ACTIVE.to_owned(),
        adds: vec![info.predicates[id as usize].name.to_owned()],
        ..Skill::default()
    }
}

#[divan::bench(sample_count = 5)]
fn maintain_50000_segments(bencher: divan::Bencher<'_, '_>) {
    let config = Config::default();
    bencher.with_inputs(|| bank(50_000)).bench_local_values(|(mut evidence, skills, info)| {
        let step = 50_000 / u64::from(SEGMENTS_PER_EPISODE) / 64;
        maintain(step, skills, &[], &mut evidence, &config, &info).unwrap()
    });
}

fn main() {
    // `cargo test --benches` runs this too: with a small load, as a check that it works.
    let quick = std::env::args().any(|argument| argument == "--test");
    let episodes = if quick { 200 } else { EPISODES };
    let (load, addition) = measure(episodes, 25);
    let share = 100.0 * addition.as_secs_f64() / load.as_secs_f64();
    println!("full rebuild of {episodes} episodes: {load:.2?}; one more episode: {addition:.2?}, {share:.3} % of it");
    divan::main();
}
