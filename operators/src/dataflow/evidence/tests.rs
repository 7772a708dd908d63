//! The differential collections against their sequential twin, under additions, relabellings and retractions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::kind::Kind;
use crate::learn_contracts::learn_contract;
use crate::maintain_bank::planted::{NAMES, instance};
use crate::operator::{Inputs, PortTables, Silent};
use crate::settings::{EnvSettings, ModelSettings, RunSettings};
use cosplay_datasets::{EpisodeId, Table, TableName, sort_batch};
use differential_dataflow::input::Input;
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use timely::dataflow::operators::Probe;
use timely::dataflow::{InputHandle, ProbeHandle};

type Labelled = (SkillId, Instance);
type Bank = BTreeMap<SkillId, Learned>;

/// Feeds rounds of updates and returns what is known of all skills after each.
fn differential(workers: usize, rounds: Vec<Vec<(Labelled, isize)>>, config: Config) -> Vec<Bank> {
    let count = rounds.len() as u64;
    let seen = Arc::new(Mutex::new(Vec::<Change>::new()));
    let sink = Arc::clone(&seen);
    timely::execute(timely::Config::process(workers), move |worker| {
        let probe = ProbeHandle::new();
        let sink = Arc::clone(&sink);
        let mut input = worker.dataflow::<u64, _, _>(|scope| {
            let (input, segments) = scope.new_collection::<Labelled, isize>();
            learned(segments, &config).inspect(move |change| sink.lock().unwrap().push(change.clone())).probe_with(&probe);
            input
        });
        for (round, updates) in rounds.iter().enumerate() {
            for (index, (data, count)) in updates.iter().enumerate() {
                if index % worker.peers() == worker.index() {
                    input.update(*data, *count);
                }
            }
            input.advance_to(round as u64 + 1);
            input.flush();
            worker.step_or_park_while(Some(Duration::from_millis(10)), || probe.less_than(input.time()));
        }
    })
    .unwrap();
    let changes = Arc::try_unwrap(seen).unwrap().into_inner().unwrap();
    (0..count).map(|round| state(&changes, round)).collect()
}

fn state(changes: &[Change], round: u64) -> Bank {
    let mut sums: BTreeMap<(SkillId, Learned), isize> = BTreeMap::new();
    for (data, _, count) in changes.iter().filter(|(_, time, _)| *time <= round) {
        *sums.entry(data.clone()).or_insert(0) += count;
    }
    sums.retain(|_, count| *count != 0);
    assert!(sums.values().all(|count| *count == 1), "one row a skill");
    let known = sums.len();
    let bank: Bank = sums.into_keys().collect();
    assert_eq!(bank.len(), known, "one row a skill");
    bank
}

/// The twin: the sum of all rounds so far, learnt anew.
fn sequential(rounds: &[Vec<(Labelled, isize)>], config: &Config) -> Vec<Bank> {
    let mut held: BTreeMap<Labelled, isize> = BTreeMap::new();
    let mut banks = Vec::new();
    for round in rounds {
        round.iter().for_each(|(data, count)| *held.entry(*data).or_insert(0) += count);
        held.retain(|_, count| *count != 0);
        let mut by_skill: BTreeMap<SkillId, Vec<Instance>> = BTreeMap::new();
        held.keys().for_each(|(skill, instance)| by_skill.entry(*skill).or_default().push(*instance));
        banks.push(by_skill.into_iter().map(|(skill, all)| (skill, learn_contract(&all, config))).collect());
    }
    banks
}

#[derive(Clone, Debug)]
enum Step {
    Add { skill: u32, effect: u16, before: u16, holdout: bool },
    Relabel { which: usize, skill: Option<u32> },
    Retract { which: usize },
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        6 => (0..3u32, any::<u16>(), any::<u16>(), prop::bool::weighted(0.3))
            .prop_map(|(skill, effect, before, holdout)| Step::Add { skill, effect, before, holdout }),
        2 => (any::<usize>(), prop::option::of(0..3u32)).prop_map(|(which, skill)| Step::Relabel { which, skill }),
        1 => any::<usize>().prop_map(|which| Step::Retract { which }),
    ];
    prop::collection::vec(prop::collection::vec(step, 0..24), 1..5)
}

/// Turns abstract steps into updates; a relabelling is -1 for the earlier label and +1 for the new one.
fn updates(rounds: &[Vec<Step>]) -> Vec<Vec<(Labelled, isize)>> {
    let mut live: Vec<(Option<SkillId>, Instance)> = Vec::new();
    let mut next = 0;
    let mut all = Vec::new();
    for round in rounds {
        let mut updates = Vec::new();
        let mut move_to = |live: &mut (Option<SkillId>, Instance), skill: Option<SkillId>| {
            updates.extend(live.0.map(|skill| ((skill, live.1), -1)));
            updates.extend(skill.map(|skill| ((skill, live.1), 1)));
            live.0 = skill;
        };
        for step in round {
            match step {
                Step::Add { skill, effect, before, holdout } => {
                    // Spread over buckets of evidence; three effects are common so that contracts come and go.
                    let segment = SegmentId((next * 37 % 11) * FIRST_TIER * 40 + next);
                    next += 1;
                    let after = u128::from(effect | 7) & 0x3FFF;
                    let events = u128::from(*effect) & 0xC000;
                    let set = |bits| cosplay_envs::PredicateSet(bits);
                    let effect = Effect::between(set(u128::from(before & effect) & 0x3FFF), set(after), set(events));
                    live.push((None, Instance { segment, effect, holdout: *holdout }));
                    let last = live.len() - 1;
                    move_to(&mut live[last], Some(SkillId(*skill)));
                }
                Step::Relabel { which, skill } if !live.is_empty() => {
                    let index = which % live.len();
                    move_to(&mut live[index], skill.map(SkillId));
                }
                Step::Retract { which } if !live.is_empty() => {
                    let mut gone = live.swap_remove(which % live.len());
                    move_to(&mut gone, None);
                }
                _ => {}
            }
        }
        all.push(updates);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn differential_equals_sequential(rounds in steps(), workers in 1..3usize) {
        let config = Config { min_instances: 3, max_clauses: 4, ..Config::default() };
        let rounds = updates(&rounds);
        let expected = sequential(&rounds, &config);
        prop_assert_eq!(differential(workers, rounds, config), expected);
    }
}

#[test]
fn withdrawn_evidence_leaves_what_was_there_without_it() {
    let config = Config::default();
    let kept: Vec<(Labelled, isize)> = (0..40).map(|id| ((SkillId(1), instance(id, "+a -b", id % 4 == 0)), 1)).collect();
    let other: Vec<(Labelled, isize)> =
        (40..70).map(|id| ((SkillId(1 + (id % 2) as u32), instance(id, "+c event.x", id % 5 == 0)), 1)).collect();
    let back: Vec<(Labelled, isize)> = other.iter().map(|(data, _)| (*data, -1)).collect();
    let banks = differential(2, vec![kept, other, back], config);
    assert_ne!(banks[0], banks[1]);
    assert_eq!(banks[0], banks[2]);
}

#[test]
fn first_evidence_moves_up_when_an_early_segment_is_withdrawn() {
    let data = |id: u64| (SkillId(0), instance(id * FIRST_TIER / 2, "+a", false));
    let first: Vec<(Labelled, isize)> = (0..20).map(|id| (data(id), 1)).collect();
    let banks = differential(1, vec![first, vec![(data(3), -1)]], Config::default());
    let evidence = |bank: &Bank| bank[&SkillId(0)].counts[0].evidence.iter().map(|segment| segment.0 * 2 / FIRST_TIER).collect::<Vec<_>>();
    assert_eq!(evidence(&banks[0]), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(evidence(&banks[1]), [0, 1, 2, 4, 5, 6, 7, 8]);
}

fn context() -> NodeContext {
    let settings = RunSettings {
        name: "test".into(),
        seed: 1,
        steps: 10,
        env: EnvSettings { game: "2048".into(), max_steps: None },
        model: ModelSettings::default(),
    };
    NodeContext {
        node: "contracts".into(),
        ordinal: 0,
        settings: Arc::new(settings),
        worker: 0,
        workers: 1,
        threads: 1,
        progress: Arc::new(Silent),
        stop: Arc::new(AtomicBool::new(false)),
    }
}

/// Rows of one step with the names of 2048: some new, some NEW ones of the step before now under a skill.
fn rows(step: u64) -> Vec<Segment> {
    let info = environment(&context()).unwrap();
    let name = |index: u64| info.predicates[index as usize % 20].name.to_owned();
    let segment = |step: u64, index: u32| {
        let episode = EpisodeId::new(step, 0, index);
        let key = step * 7 + u64::from(index);
        Segment {
            segment: SegmentId::new(episode, 0),
            episode,
            skill: (!index.is_multiple_of(4)).then_some(SkillId(index % 3)),
            preconditions: vec![name(key + 1)],
            added: vec![name(3), name(key % 5 + 8)],
            deleted: vec![name(key + 1)],
            holdout: index.is_multiple_of(5),
            ..Segment::default()
        }
    };
    let new = (0..30).map(|index| segment(step, index));
    let relabelled = (0..30).filter(|index| index % 4 == 0 && step > 0).map(|index| Segment {
        skill: Some(SkillId(3)),
        relabelled: true,
        ..segment(step.saturating_sub(1), index)
    });
    new.chain(relabelled).collect()
}

/// Runs the prepared stream and the operator behind it: each (timestamp, step, rows) is fed at its timestamp and belongs to its step. The
/// result is the clauses emitted in each step, as the shell would have them.
fn run(workers: usize, feed: Vec<(u64, u64, Vec<Segment>)>) -> Result<BTreeMap<u64, Vec<Clause>>, String> {
    let seen = Arc::new(Mutex::new(Vec::<(u64, Batch)>::new()));
    let sink = Arc::clone(&seen);
    let input_feed = feed.clone();
    timely::execute(timely::Config::process(workers), move |worker| {
        let mut input: InputHandle<u64, NoopBuilder<Batch>> = InputHandle::new_with_builder();
        let probe = ProbeHandle::new();
        let (sink, me) = (Arc::clone(&sink), worker.index());
        worker.dataflow::<u64, _, _>(|scope| {
            let context = NodeContext { worker: me, workers, ..context() };
            let stream = prepare("segments", input.to_stream(scope), &context, &serde_json::json!({})).unwrap();
            let stream = stream.unary::<NoopBuilder<Batch>, _, _, _>(Pipeline, "See", move |_, _| {
                move |input, output| {
                    input.for_each(|capability, batch| {
                        assert_eq!(me, 0, "changes go to the first worker");
                        sink.lock().unwrap().push((*capability.least().unwrap(), batch.clone()));
                        output.session_with_builder(&capability).give_container(batch);
                    });
                }
            });
            stream.probe_with(&probe);
        });
        for (time, _, rows) in &input_feed {
            input.advance_to(*time);
            let share: Vec<Segment> =
                rows.iter().enumerate().filter(|(index, _)| index % workers == me).map(|(_, row)| row.clone()).collect();
            input.send_batch(&mut Batch::from_rows(&share).unwrap());
        }
        let last = input_feed.iter().map(|(time, _, _)| *time).max().unwrap_or(0);
        input.advance_to(last + 1);
        worker.step_or_park_while(Some(Duration::from_millis(10)), || probe.less_than(input.time()));
    })
    .unwrap();
    let seen = Arc::try_unwrap(seen).map_err(|_| "still shared")?.into_inner().unwrap();
    let step_of: BTreeMap<u64, u64> = feed.iter().map(|(time, step, _)| (*time, *step)).collect();
    let info = &crate::learn_contracts::INFO;
    let mut operator = (info.build)(&(info.resolve)(&serde_json::json!({})).unwrap(), context()).unwrap();
    let mut out = BTreeMap::new();
    for &step in step_of.values().collect::<std::collections::BTreeSet<_>>() {
        let mut tables: BTreeMap<TableName, Vec<_>> = BTreeMap::new();
        for (_, batch) in seen.iter().filter(|(time, _)| step_of[time] == step) {
            tables.entry(batch.table().unwrap()).or_default().push(batch.record_batch().unwrap().clone());
        }
        let tables = tables.into_iter().map(|(table, batches)| (table, sort_batch(table, &batches).unwrap())).collect();
        let inputs = Inputs::new([("segments".to_owned(), PortTables::new(tables))].into(), BTreeMap::new());
        let batches = operator.step(step, &inputs).map_err(|error| error.to_string())?.into_batches().unwrap();
        let of_contracts: Vec<_> = batches.into_iter().filter(|(table, _)| *table == TableName::Contracts).map(|(_, rows)| rows).collect();
        out.insert(step, Clause::from_batch(&sort_batch(TableName::Contracts, &of_contracts).unwrap()).unwrap());
    }
    Ok(out)
}

#[test]
fn every_step_has_all_clauses_of_all_skills_however_the_history_came() {
    let step_by_step = run(1, (0..6).map(|step| (step, step, rows(step))).collect()).unwrap();
    assert!(step_by_step.values().all(|clauses| !clauses.is_empty()));
    assert!(step_by_step[&5].iter().any(|clause| clause.accepted && clause.skill == SkillId(3)), "{:?}", step_by_step[&5]);
    let two_workers = run(2, (0..6).map(|step| (step, step, rows(step))).collect()).unwrap();
    assert_eq!(two_workers, step_by_step);
    // A run that is resumed at step 4 gets steps 0 to 3 in one go at timestamp 0, and the changes with those of step 4.
    let history: Vec<(u64, u64, Vec<Segment>)> = (0..4).map(|step| (0, 4, rows(step))).collect();
    let resumed = run(2, history.into_iter().chain((4..6).map(|step| (step, step, rows(step)))).collect()).unwrap();
    assert_eq!(resumed[&4], step_by_step[&4]);
    assert_eq!(resumed[&5], step_by_step[&5]);
}

#[test]
fn a_skill_that_loses_all_its_segments_loses_its_clauses() {
    let first: Vec<Segment> = rows(0).into_iter().filter(|row| row.skill == Some(SkillId(1))).collect();
    let moved = first.iter().cloned().map(|row| Segment { previous: row.skill, skill: None, relabelled: true, ..row }).collect();
    let out = run(1, vec![(0, 0, first), (1, 1, moved)]).unwrap();
    assert!(!out[&0].is_empty() && out[&1].is_empty());
}

#[test]
fn a_segment_that_cannot_be_read_stops_the_step_with_its_name() {
    let mut bad = rows(0);
    bad[7].added.push("no_such_predicate".into());
    let error = run(1, vec![(0, 0, bad.clone())]).unwrap_err();
    assert!(error.contains("no_such_predicate") && error.contains(&bad[7].segment.to_string()), "{error}");
}

#[test]
fn planted_names_fit_the_generator() {
    assert_eq!(NAMES.len(), 16);
    assert_eq!(crate::learn_contracts::INFO.output, Kind::Contracts);
}
