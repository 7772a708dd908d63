//! What must hold between the tables of every run.

use crate::program::{end, fixture, run, tiny};
use cosplay_datasets::{
    BankEvent, Clause, Decision, Episode, EpisodeId, Experience, Metric, PolicyTensor, Relabel, RunDir, Sample, Segment, SegmentId, Skill,
    SkillId,
};
use cosplay_envs::Split;
use std::collections::{BTreeMap, BTreeSet};
use tempfile::TempDir;

const STEPS: u64 = 5;
/// Configuration of `learn_contracts` in `tiny.yaml`.
const FREQUENCY: f64 = 0.5;
const PASS_RATE: f64 = 0.4;
const MIN_INSTANCES: u32 = 2;

fn dir() -> RunDir {
    RunDir::open(&tiny().path).unwrap()
}

fn bank(step: u64) -> BTreeMap<SkillId, Skill> {
    dir().read_step::<Skill>(step).unwrap().into_iter().map(|skill| (skill.skill, skill)).collect()
}

/// Episodes of a step that the agent played.
fn played(step: u64) -> BTreeMap<EpisodeId, Episode> {
    let rows = dir().read_step::<Episode>(step).unwrap();
    rows.into_iter().filter(|row| row.node == "rollouts").map(|row| (row.episode, row)).collect()
}

#[test]
fn skills_that_are_used_were_offered() {
    let mut uses = 0;
    for step in 0..STEPS {
        let offered = if step == 0 { BTreeMap::new() } else { bank(step - 1) };
        let played = played(step);
        for row in dir().read_step::<Experience>(step).unwrap().iter().filter(|row| played.contains_key(&row.episode)) {
            assert_eq!(u64::from(played[&row.episode].bank_version), step);
            if let Some(skill) = row.skill {
                let skill = offered.get(&skill).unwrap_or_else(|| panic!("skill {skill} was used in step {step} and not offered"));
                assert_eq!(skill.state, "active", "a retired skill was used in step {step}");
                uses += 1;
            }
        }
        for row in dir().read_step::<Decision>(step).unwrap().iter().filter(|row| row.task == "skill" && played.contains_key(&row.episode))
        {
            assert!(!offered.is_empty() && (row.chosen as usize) < row.choices.len());
        }
    }
    assert!(uses > 100, "skills were used in {uses} steps only");
}

#[test]
fn retired_skills_stay_retired_and_no_segment_is_labelled_with_them() {
    let mut retired = BTreeSet::new();
    for step in 0..STEPS {
        for row in dir().read_step::<Segment>(step).unwrap().iter().filter(|row| !row.relabelled) {
            assert!(row.skill.is_none_or(|skill| !retired.contains(&skill)), "segment {} of step {step}", row.segment);
        }
        for row in dir().read_step::<Experience>(step).unwrap() {
            assert!(row.skill.is_none_or(|skill| !retired.contains(&skill)), "episode {} of step {step}", row.episode);
        }
        for (id, skill) in bank(step) {
            if skill.state == "retired" {
                retired.insert(id);
            }
            assert_eq!(skill.state == "retired", retired.contains(&id), "skill {id} came back in step {step}");
        }
    }
    assert!(!retired.is_empty());
}

#[test]
fn skill_ids_only_grow_and_names_stay() {
    let mut names: BTreeMap<SkillId, String> = BTreeMap::new();
    for step in 0..STEPS {
        let skills = bank(step);
        assert!(names.keys().all(|id| skills.contains_key(id)), "a skill is gone in step {step}");
        let highest = names.keys().next_back().copied();
        for (id, skill) in skills {
            match names.get(&id) {
                Some(name) => assert_eq!(*name, skill.name, "skill {id} in step {step}"),
                None => {
                    assert!(highest.is_none_or(|highest| id > highest), "id {id} was given in step {step}, after {highest:?}");
                    assert_eq!(u64::from(skill.created), step);
                    assert!(!names.values().any(|name| *name == skill.name), "two skills are called {}", skill.name);
                    names.insert(id, skill.name);
                }
            }
        }
    }
    assert!(names.len() >= 3);
}

#[test]
fn decisions_are_distributions_and_the_recorded_one_is_in_it() {
    let rows = dir().read_all::<Decision>().unwrap();
    let mut sampled = 0;
    for (step, row) in rows.iter().filter(|(_, row)| row.source == "model") {
        let what = || format!("episode {} t {} call {} in step {step}", row.episode, row.t, row.call);
        assert_eq!(row.logprobs.len(), row.choices.len(), "{}", what());
        let sum: f64 = row.logprobs.iter().map(|&value| f64::from(value).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{}: {sum}", what());
        assert_eq!(row.logprobs[row.chosen as usize].to_bits(), row.logprob.to_bits(), "{}", what());
        assert_eq!(row.prompt_lengths.iter().sum::<u32>() as usize, row.prompt_ids.len(), "{}", what());
        sampled += 1;
    }
    assert!(sampled > 1_000);
    for (_, row) in rows.iter().filter(|(_, row)| row.source == "only_choice") {
        assert!(row.choices.len() == 1 && row.logprob == 0.0);
    }
}

#[test]
fn what_was_decided_is_what_was_played() {
    for step in 0..STEPS {
        let played = played(step);
        let actions: BTreeMap<_, _> = dir()
            .read_step::<Decision>(step)
            .unwrap()
            .into_iter()
            .filter(|row| row.task == "action" && played.contains_key(&row.episode))
            .map(|row| ((row.episode, row.t), row))
            .collect();
        let mut returns: BTreeMap<EpisodeId, (f64, u32)> = BTreeMap::new();
        for row in dir().read_step::<Experience>(step).unwrap().iter().filter(|row| played.contains_key(&row.episode)) {
            let decision = &actions[&(row.episode, row.t)];
            assert_eq!(decision.choices[decision.chosen as usize], row.action);
            assert_eq!(decision.choices, row.valid_actions);
            let total = returns.entry(row.episode).or_default();
            assert_eq!(total.1, row.t, "episode {} skips a step", row.episode);
            *total = (total.0 + row.reward, total.1 + 1);
        }
        for (episode, row) in &played {
            assert_eq!(returns[episode], (row.ret, row.length), "episode {episode}");
        }
    }
}

#[test]
fn rewards_of_actions_add_up_and_every_sample_has_its_reason() {
    let mut followed = 0;
    for step in 0..STEPS {
        let samples = dir().read_step::<Sample>(step).unwrap();
        let decisions: BTreeMap<_, f32> =
            dir().read_step::<Decision>(step).unwrap().into_iter().map(|row| ((row.episode, row.t, row.call), row.logprob)).collect();
        for row in &samples {
            if row.adapter == "action" {
                let sum = row.r_env + 0.1 * row.r_follow + row.r_cost;
                assert!((row.reward - sum).abs() < 1e-9, "episode {} t {}: {} is not {sum}", row.episode, row.t, row.reward);
                assert!(row.r_cost <= 0.0);
                followed += usize::from(row.r_follow != 0.0);
            }
            assert_eq!(row.logprob.to_bits(), decisions[&(row.episode, row.t, row.call)].to_bits());
            assert_eq!(row.trained, matches!(row.reason.as_str(), "trained" | "zero_advantage"), "{}", row.reason);
            assert!(matches!(row.reason.as_str(), "trained" | "zero_advantage" | "only_choice" | "not_drawn"), "{}", row.reason);
        }
        let drawn = samples.iter().filter(|row| row.adapter == "action" && row.trained).count();
        assert_eq!(drawn, 64, "as many samples as the spec says");
        let steps: usize = played(step).values().map(|row| row.length as usize).sum();
        assert_eq!(samples.iter().filter(|row| row.adapter == "action").count(), steps, "a sample for every action");
    }
    assert!(followed > 50);
}

#[test]
fn segments_tile_their_episodes() {
    for step in 0..STEPS {
        let mut ends: BTreeMap<EpisodeId, u32> = played(step).keys().map(|episode| (*episode, 0)).collect();
        for row in dir().read_step::<Segment>(step).unwrap().iter().filter(|row| !row.relabelled) {
            assert_eq!(row.segment.episode(), row.episode);
            let end = ends.get_mut(&row.episode).expect("a segment of an episode of this step");
            assert!(row.start == *end && row.end > row.start, "segment {} is {}–{} after {end}", row.segment, row.start, row.end);
            *end = row.end;
        }
        for (episode, row) in played(step) {
            assert_eq!(ends[&episode], row.length, "episode {episode} is covered to its end");
        }
    }
}

#[test]
fn relabelled_segments_follow_from_relabels_and_keep_all_else() {
    let mut latest: BTreeMap<SegmentId, Segment> = BTreeMap::new();
    let mut relabelled = 0;
    for step in 0..STEPS {
        let noted: BTreeMap<SegmentId, Relabel> = match step {
            0 => BTreeMap::new(),
            _ => dir().read_step::<Relabel>(step - 1).unwrap().into_iter().map(|row| (row.segment, row)).collect(),
        };
        let rows = dir().read_step::<Segment>(step).unwrap();
        let again: BTreeSet<SegmentId> = rows.iter().filter(|row| row.relabelled).map(|row| row.segment).collect();
        assert_eq!(again, noted.keys().copied().collect(), "step {step}");
        for row in rows {
            if row.relabelled {
                let (before, relabel) = (&latest[&row.segment], &noted[&row.segment]);
                assert_eq!(
                    (row.skill, row.previous, row.previous),
                    (relabel.skill, relabel.previous, before.skill),
                    "segment {}",
                    row.segment
                );
                assert_eq!((row.start, row.end, row.holdout), (before.start, before.end, before.holdout));
                assert_eq!((&row.added, &row.deleted, &row.events), (&before.added, &before.deleted, &before.events));
                relabelled += 1;
            } else {
                assert!(!latest.contains_key(&row.segment));
            }
            latest.insert(row.segment, row);
        }
    }
    assert!(relabelled > 5);
}

#[test]
fn accepted_clauses_are_above_the_gate_and_count_what_is_there() {
    let mut latest: BTreeMap<SegmentId, Segment> = BTreeMap::new();
    let mut accepted = 0;
    for step in 0..STEPS {
        latest.extend(dir().read_step::<Segment>(step).unwrap().into_iter().map(|row| (row.segment, row)));
        for clause in dir().read_step::<Clause>(step).unwrap() {
            let what = format!("{} {} of skill {} in step {step}", clause.effect, clause.literal, clause.skill);
            let effects = |segment: &Segment| match clause.effect.as_str() {
                "add" => segment.added.contains(&clause.literal),
                "delete" => segment.deleted.contains(&clause.literal),
                _ => segment.events.contains(&clause.literal),
            };
            let of_skill = || latest.values().filter(|segment| segment.skill == Some(clause.skill));
            let count = |holdout: bool| of_skill().filter(|segment| segment.holdout == holdout).count() as u32;
            let support = |holdout: bool| of_skill().filter(|segment| segment.holdout == holdout && effects(segment)).count() as u32;
            assert_eq!((clause.instances, clause.holdout_instances), (count(false), count(true)), "{what}");
            assert_eq!((clause.support, clause.holdout_support), (support(false), support(true)), "{what}");
            let first: Vec<SegmentId> =
                of_skill().filter(|segment| !segment.holdout && effects(segment)).map(|segment| segment.segment).take(8).collect();
            assert_eq!(clause.evidence, first, "{what}");
            if clause.accepted {
                assert!(clause.rate >= FREQUENCY && clause.instances >= MIN_INSTANCES && clause.holdout_instances >= 1, "{what}");
                assert!(clause.pass_rate >= PASS_RATE, "{what}: pass rate {}", clause.pass_rate);
                accepted += 1;
            }
        }
    }
    assert!(accepted > 10);
}

#[test]
fn whatever_a_bank_says_rests_on_segments_that_exist() {
    let mut known: BTreeSet<SegmentId> = BTreeSet::new();
    for step in 0..STEPS {
        known.extend(dir().read_step::<Segment>(step).unwrap().iter().map(|row| row.segment));
        let skills = bank(step);
        for skill in skills.values() {
            assert!(!skill.evidence.is_empty() && skill.evidence.iter().all(|segment| known.contains(segment)), "skill {}", skill.skill);
            assert!(skill.parents.iter().chain(&skill.merged_into).all(|other| skills.contains_key(other)));
        }
        for event in dir().read_step::<BankEvent>(step).unwrap() {
            assert!(event.evidence.iter().all(|segment| known.contains(segment)), "event {} of step {step}", event.event);
            assert!(event.evidence.len() <= 32 && event.support as usize >= event.evidence.len() && !event.reason.is_empty());
            assert!(event.skills.iter().all(|skill| skills.contains_key(skill)));
            assert!(matches!(event.verdict.as_str(), "accepted" | "rejected" | "deferred"));
        }
    }
}

#[test]
fn everything_is_of_the_training_split() {
    let episodes = dir().read_all::<Episode>().unwrap();
    let reported: BTreeSet<u64> = (0..100_000).map(|index| Split::Test.seed(30, index)).collect();
    for (_, row) in &episodes {
        assert_eq!(row.split, "train");
        assert_eq!(Split::of_seed(row.seed), Some(Split::Train));
        assert!(!reported.contains(&row.seed));
    }
    let known: BTreeSet<EpisodeId> = episodes.iter().map(|(_, row)| row.episode).collect();
    assert_eq!(known.len(), episodes.len());
    assert!(dir().read_all::<Experience>().unwrap().iter().all(|(_, row)| known.contains(&row.episode)));
    assert!(dir().read_all::<Segment>().unwrap().iter().all(|(_, row)| known.contains(&row.episode)));
    // Groups share their start, and starts are never used again.
    let mut starts: BTreeMap<u64, (u64, String, u32)> = BTreeMap::new();
    for (step, row) in episodes {
        let group = (step, row.node, row.group);
        assert_eq!(*starts.entry(row.seed).or_insert_with(|| group.clone()), group);
    }
}

#[test]
fn figures_of_a_skill_are_those_of_the_tables() {
    let metrics = dir().read_all::<Metric>().unwrap();
    for step in 0..STEPS {
        let active = bank(step).values().filter(|skill| skill.state == "active").count();
        let told = metrics.iter().find(|(at, row)| *at == step && row.node == "bank" && row.name == "skills_active").unwrap();
        assert_eq!(told.1.value, active as f64);
        assert!(metrics.iter().all(|(_, row)| row.value.is_finite()));
    }
    let mut uses: BTreeMap<SkillId, u32> = BTreeMap::new();
    for (_, row) in dir().read_all::<Experience>().unwrap() {
        if let Some(skill) = row.skill.filter(|_| row.switch_reason != "keep") {
            *uses.entry(skill).or_default() += 1;
        }
    }
    for skill in bank(STEPS - 1).values() {
        assert!(skill.successes <= skill.uses && (0.0..=1.0).contains(&skill.pass_rate) && (0.0..=1.0).contains(&skill.quality));
    }
    assert!(!uses.is_empty());
}

/// Weights of an adapter by version and tensor.
fn adapter(run: &RunDir, name: &str) -> BTreeMap<u32, BTreeMap<String, Vec<u32>>> {
    let mut versions: BTreeMap<u32, BTreeMap<String, Vec<u32>>> = BTreeMap::new();
    for (_, row) in run.read_all::<PolicyTensor>().unwrap() {
        if row.part == format!("adapter.{name}") {
            let bits = row.weights.iter().map(|value| value.to_bits()).collect();
            versions.entry(row.policy_version).or_default().insert(row.tensor, bits);
        }
    }
    versions
}

#[test]
fn training_changes_the_adapters_and_never_the_base() {
    let run = dir();
    for name in ["action", "retrieval"] {
        let versions = adapter(&run, name);
        assert_eq!(versions.keys().copied().collect::<Vec<_>>(), (0..=STEPS as u32).collect::<Vec<_>>());
        assert_ne!(versions[&0], versions[&(STEPS as u32)], "adapter {name} has learnt nothing");
    }
    assert!(run.read_all::<PolicyTensor>().unwrap().iter().all(|(step, row)| row.part != "base" || *step == 0));
}

#[test]
fn without_advantages_the_weights_stay_bit_for_bit() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    // Every group has one episode: nothing to compare it with.
    let sets = ["graph.update.advantage=group", "graph.rollouts.episodes_per_start=1", "graph.rollouts.starts=4"];
    let mut command = run(&fixture("swift.yaml"), &out);
    sets.iter().for_each(|set| {
        command.args(["--set", set]);
    });
    end(&mut command).expect(0);
    let run = RunDir::open(&out).unwrap();
    let samples = run.read_all::<Sample>().unwrap();
    assert!(samples.iter().filter(|(_, row)| row.adapter == "action").all(|(_, row)| row.advantage == 0.0));
    assert!(samples.iter().any(|(_, row)| row.reason == "zero_advantage"));
    let versions = adapter(&run, "action");
    assert_eq!(versions.len(), 4);
    for (version, weights) in &versions {
        assert_eq!(*weights, versions[&0], "version {version} has moved");
    }
}
