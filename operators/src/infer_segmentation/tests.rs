#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]

use super::planted::{Episode, env, quiet, skill};
use super::*;
use crate::operator::{PortTables, Silent};
use crate::propose_boundaries::{self, propose_boundaries};
use crate::settings::{EnvSettings, ModelSettings, RunSettings};
use cosplay_datasets::{SkillId, Table};
use proptest::prelude::*;
use std::sync::Arc;

fn labels(skills: &[Skill]) -> Labels {
    Labels::new(skills, &env(), &Config::default()).unwrap()
}

/// Segments with the cuts that boundary proposal finds.
fn segments(rows: &[Experience], skills: &[Skill]) -> Vec<Segment> {
    let cuts = propose_boundaries(rows, &propose_boundaries::Config::default());
    infer_segmentation(rows, &cuts, &labels(skills), &Config::default()).unwrap()
}

fn outline(segments: &[Segment]) -> Vec<(u32, u32, Option<u32>)> {
    segments.iter().map(|segment| (segment.start, segment.end, segment.skill.map(|skill| skill.0))).collect()
}

fn planted(id: u64) -> Vec<Experience> {
    Episode::new(id, &["c"])
        .behave(9, "SETUP", &["+a"])
        .behave(11, "MERGE", &["+b", "event.x"])
        .behave(8, "CLEAR", &["-a", "-b"])
        .behave(12, "SURVIVE", &["-c"])
        .rows()
}

fn bank() -> Vec<Skill> {
    vec![skill(4, "SETUP", &["+a"]), skill(2, "MERGE", &["+b", "event.x"]), skill(7, "CLEAR", &["-a", "-b"])]
}

#[test]
fn planted_behaviours_are_found_with_their_cuts_and_labels() {
    let found = segments(&planted(1), &bank());
    assert_eq!(outline(&found), [(0, 9, Some(4)), (9, 20, Some(2)), (20, 28, Some(7)), (28, 40, None)]);
    assert_eq!((found[1].added.clone(), found[1].deleted.clone()), (vec!["b".to_owned()], vec![]));
    assert_eq!((found[2].added.clone(), found[2].deleted.clone()), (vec![], vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(found[1].events, ["event.x"]);
    assert_eq!(found[1].preconditions, ["a", "c"]);
    assert_eq!(found.iter().map(|segment| segment.tag.as_str()).collect::<Vec<_>>(), ["SETUP", "MERGE", "CLEAR", "SURVIVE"]);
    assert!(found[..3].iter().all(|segment| segment.runner_up.is_none() && segment.margin > 0.3), "{found:#?}");
}

/// `played` is what the agent had in mind, whatever the segment turned out to be.
#[test]
fn the_skill_that_was_played_most_is_noted() {
    let mut rows = planted(1);
    let length = rows.len();
    for (at, row) in rows.iter_mut().enumerate() {
        row.skill = (at * 3 >= length).then_some(SkillId(if at % 4 == 0 { 2 } else { 7 }));
    }
    let found = segments(&rows, &bank());
    for segment in &found {
        let inside = rows.iter().filter(|row| (segment.start..segment.end).contains(&row.t));
        let count = |skill: Option<u32>| inside.clone().filter(|row| row.skill == skill.map(SkillId)).count();
        let most = [None, Some(2), Some(7)].into_iter().max_by_key(|&skill| (count(skill), std::cmp::Reverse(skill))).flatten();
        assert_eq!(segment.played, most.map(SkillId));
    }
    assert!(found.iter().any(|segment| segment.played.is_none()) && found.iter().any(|segment| segment.played == Some(SkillId(7))));
}

#[test]
fn labels_need_no_intentions() {
    let mut rows = planted(1);
    rows.iter_mut().for_each(|row| row.intention_tag.clear());
    let found = segments(&rows, &bank());
    assert_eq!(outline(&found), [(0, 9, Some(4)), (9, 20, Some(2)), (20, 28, Some(7)), (28, 40, None)]);
    assert!(found.iter().all(|segment| segment.tag.is_empty()));
}

#[test]
fn an_empty_bank_leaves_everything_new_and_cuts_at_the_evidence() {
    let found = segments(&planted(1), &[]);
    assert_eq!(outline(&found), [(0, 9, None), (9, 20, None), (20, 28, None), (28, 40, None)]);
    assert!(found.iter().all(|segment| segment.margin == 0.0 && segment.runner_up.is_none()));
}

#[test]
fn b28_retired_skills_are_never_labels() {
    let mut bank = bank();
    bank[0].state = "retired".into();
    let found = segments(&planted(1), &bank);
    assert_eq!(outline(&found)[0], (0, 9, None));
    assert!(found.iter().all(|segment| segment.skill != Some(SkillId(4)) && segment.runner_up != Some(SkillId(4))));
}

#[test]
fn the_contract_decides_between_skills_with_the_same_tag() {
    let bank = [skill(1, "SETUP", &["+b"]), skill(2, "SETUP", &["+a"]), skill(3, "SETUP", &["+a", "event.y"])];
    let found = segments(&planted(1), &bank);
    assert_eq!(outline(&found)[0], (0, 9, Some(2)));
}

#[test]
fn an_empty_contract_explains_nothing() {
    let found = segments(&planted(1), &[skill(1, "", &[])]);
    assert!(found.iter().all(|segment| segment.skill.is_none()));
}

#[test]
fn lengths_are_judged_by_the_skill_s_own_instances() {
    let rows = Episode::new(1, &[]).behave(12, "", &["+a"]).behave(12, "", &["-a"]).rows();
    let (mut short, mut fitting) = (skill(1, "", &["+a"]), skill(2, "", &["+a"]));
    (short.duration, short.duration_spread) = (9.0, 3.0);
    (fitting.duration, fitting.duration_spread) = (12.0, 4.0);
    let found = segments(&rows, &[short, fitting]);
    assert_eq!(outline(&found)[0], (0, 12, Some(2)));
    assert_eq!(found[0].runner_up, Some(SkillId(1)));
}

#[test]
fn support_breaks_ties_and_then_the_smaller_id() {
    let (mut few, mut many) = (skill(1, "", &["+a"]), skill(2, "", &["+a"]));
    (few.instances, many.instances) = (5, 50);
    assert_eq!(segments(&planted(1), &[few.clone(), many.clone()])[0].skill, Some(SkillId(2)));
    many.instances = 5;
    let found = segments(&planted(1), &[many, few]);
    assert_eq!((found[0].skill, found[0].runner_up, found[0].margin), (Some(SkillId(1)), Some(SkillId(2)), 0.0));
}

#[test]
fn an_unknown_predicate_in_a_contract_is_an_error_that_names_it() {
    let error = Labels::new(&[skill(3, "", &["+zzz"])], &env(), &Config::default()).unwrap_err();
    assert!(error.to_string().contains("zzz"), "{error}");
}

#[test]
fn foreign_predicates_of_rollouts_are_kept_in_segments() {
    let mut rows = planted(1);
    rows.iter_mut().for_each(|row| row.predicates.push("foreign".into()));
    let found = segments(&rows, &bank());
    assert_eq!(found[0].preconditions, ["c", "foreign"]);
    assert_eq!(found[0].deleted, ["foreign"]);
}

#[test]
fn a_tag_that_covers_the_whole_episode_tells_nothing() {
    let rows = Episode::new(1, &[]).behave(20, "CLEAR", &[]).behave(20, "CLEAR", &[]).rows();
    let weighted = Config { intention_weight: 50.0, ..Config::default() };
    let labels = Labels::new(&[skill(1, "CLEAR", &["+a"])], &env(), &weighted).unwrap();
    let found = infer_segmentation(&rows, &[], &labels, &weighted).unwrap();
    assert_eq!(outline(&found), [(0, 40, None)]);
    // With the rule off the same weight decides.
    let weighted = Config { uniform_tag: 1.0, ..weighted };
    let found = infer_segmentation(&rows, &[], &labels, &weighted).unwrap();
    assert_eq!(outline(&found), [(0, 40, Some(1))]);
}

#[test]
fn limits_on_lengths_hold_or_give_way() {
    // One step only, shorter than the shortest segment.
    assert_eq!(outline(&segments(&quiet(1, 1), &bank())), [(0, 1, None)]);
    let rows = quiet(1, 200);
    let found = infer_segmentation(&rows, &[], &labels(&bank()), &Config::default()).unwrap();
    assert_eq!(outline(&found), [(0, 200, None)]);
}

#[test]
fn too_many_segments_for_their_ids_are_an_error() {
    let rows = quiet(3, 2500);
    let cuts: Vec<Cut> = (1..1250).map(|t| Cut { episode: EpisodeId(3), t: 2 * t, score: 1.0, signals: vec![] }).collect();
    let config = Config { longest_segment: 2, ..Config::default() };
    let error = infer_segmentation(&rows, &cuts, &labels(&[]), &config).unwrap_err();
    assert!(error.to_string().contains("episode 3") && error.to_string().contains("1250"), "{error}");
}

#[test]
fn a_fifth_of_the_segments_is_held_out_whatever_the_episode() {
    let held = |share| (0..20_000).filter(|&id| is_held_out(SegmentId(id * 37), share)).count();
    assert!((3_800..4_200).contains(&held(0.2)), "{}", held(0.2));
    assert_eq!((held(0.0), held(1.0)), (0, 20_000));
    // Fixed for good: contracts of old runs rest on it.
    let first: Vec<u64> = (0..40).filter(|&id| is_held_out(SegmentId(id), 0.2)).collect();
    assert_eq!(first, [1, 2, 5, 16, 18, 20, 21, 30, 34, 35]);
}

fn arbitrary() -> impl Strategy<Value = Vec<Vec<Experience>>> {
    let literals = prop::sample::subsequence(vec!["+a", "+b", "-a", "-b", "+c", "-c", "event.x", "event.y"], 0..4);
    let tag = prop::sample::select(vec!["SETUP", "MERGE", "CLEAR", ""]);
    prop::collection::vec(prop::collection::vec((1usize..14, tag, literals), 1..9), 1..5).prop_map(|episodes| {
        let numbered = episodes.into_iter().enumerate();
        let build = |(index, behaviours): (usize, Vec<(usize, &'static str, Vec<&'static str>)>)| {
            let start = Episode::new(index as u64 + 1, &["c"]);
            behaviours.into_iter().fold(start, |episode, (steps, tag, literals)| episode.behave(steps, tag, &literals)).rows()
        };
        numbered.map(build).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn b31_segments_tile_each_episode_and_add_up(episodes in arbitrary()) {
        for (index, rows) in episodes.iter().enumerate() {
            let found = segments(rows, &bank());
            let mut at = 0;
            for (ordinal, segment) in found.iter().enumerate() {
                prop_assert_eq!(segment.segment, SegmentId::new(EpisodeId(index as u64 + 1), ordinal as u32));
                prop_assert_eq!(segment.start, at);
                prop_assert!(segment.end > segment.start);
                prop_assert!(segment.margin >= 0.0);
                prop_assert_eq!(segment.holdout, is_held_out(segment.segment, 0.2));
                // Effects are the difference of the states at both ends, by the rows themselves.
                let (first, last) = (&rows[at as usize], &rows[segment.end as usize - 1]);
                prop_assert!(segment.added.iter().all(|name| last.next_predicates.contains(name) && !first.predicates.contains(name)));
                prop_assert!(segment.deleted.iter().all(|name| first.predicates.contains(name) && !last.next_predicates.contains(name)));
                at = segment.end;
            }
            prop_assert_eq!(at as usize, rows.len());
        }
    }

    #[test]
    fn neither_the_order_of_rows_nor_sharding_matters(episodes in arbitrary(), shards in 1usize..4) {
        let rows: Vec<Experience> = episodes.iter().flatten().cloned().collect();
        let whole = segments(&rows, &bank());
        let mut turned: Vec<Experience> = rows.clone();
        turned.reverse();
        let mut bank_turned = bank();
        bank_turned.reverse();
        prop_assert_eq!(&segments(&turned, &bank_turned), &whole);
        let mut sharded = Vec::new();
        for shard in 0..shards {
            let own: Vec<Experience> = episodes.iter().skip(shard).step_by(shards).flatten().cloned().collect();
            sharded.extend(segments(&own, &bank()));
        }
        sharded.sort_by_key(|segment| segment.segment);
        prop_assert_eq!(sharded, whole);
    }
}

fn context(worker: usize, workers: usize) -> NodeContext {
    let settings = RunSettings {
        name: "test".into(),
        seed: 1,
        steps: 1,
        env: EnvSettings { game: "2048".into(), max_steps: None },
        model: ModelSettings::default(),
    };
    NodeContext {
        node: "segments".into(),
        ordinal: 0,
        settings: Arc::new(settings),
        worker,
        workers,
        threads: 1,
        progress: Arc::new(Silent),
        stop: Arc::default(),
    }
}

fn operator(worker: usize, workers: usize) -> Box<dyn Operator> {
    let config = (INFO.resolve)(&serde_json::json!({})).unwrap();
    (INFO.build)(&config, context(worker, workers)).unwrap()
}

/// Two episodes of 2048 by name only: `legal_up` becomes true at the end of the first half.
fn episode_2048(index: u32) -> Vec<Experience> {
    let id = EpisodeId::new(0, 0, index).0;
    Episode::new(id, &[]).behave(10, "MERGE", &["+legal_up"]).behave(10, "CLEAR", &["-legal_up"]).rows()
}

fn tables<T: Table>(rows: &[T]) -> (TableName, arrow::array::RecordBatch) {
    (T::NAME.parse().unwrap(), T::to_batch(rows).unwrap())
}

fn inputs(ports: Vec<(&str, Vec<(TableName, arrow::array::RecordBatch)>)>) -> Inputs {
    let ports = ports.into_iter().map(|(port, tables)| (port.to_owned(), PortTables::new(tables.into_iter().collect()))).collect();
    Inputs::new(ports, BTreeMap::new())
}

fn rows_of(outputs: Outputs) -> Vec<Segment> {
    let batches = outputs.into_batches().unwrap();
    batches.iter().filter(|(name, _)| *name == TableName::Segments).flat_map(|(_, batch)| Segment::from_batch(batch).unwrap()).collect()
}

/// First step: the episodes of this worker, an empty bank.
fn first_step(operator: &mut dyn Operator, episodes: &[u32]) -> Vec<Segment> {
    let rows: Vec<Experience> = episodes.iter().flat_map(|&index| episode_2048(index)).collect();
    let cuts = propose_boundaries(&rows, &propose_boundaries::Config::default());
    rows_of(operator.step(0, &inputs(vec![("rollouts", vec![tables(&rows)]), ("cuts", vec![tables(&cuts)])])).unwrap())
}

fn relabels(segments: &[SegmentId]) -> Vec<Relabel> {
    let to = |&segment| Relabel { segment, skill: Some(SkillId(9)), previous: None, kind: "materialize".into() };
    segments.iter().map(to).collect()
}

#[test]
fn relabelled_segments_appear_again_with_all_else_as_it_was() {
    let mut operator = operator(0, 1);
    let first = first_step(operator.as_mut(), &[0, 1]);
    assert!(first.len() >= 4 && first.iter().all(|segment| segment.skill.is_none() && !segment.relabelled));
    let changed = relabels(&[first[0].segment, first[2].segment]);
    let second = rows_of(operator.step(1, &inputs(vec![("bank", vec![tables(&changed)])])).unwrap());
    let expected: Vec<Segment> = [&first[0], &first[2]]
        .into_iter()
        .map(|row| Segment { skill: Some(SkillId(9)), relabelled: true, previous: None, ..row.clone() })
        .collect();
    assert_eq!(second, expected);
    // Back to NEW: the latest label is the one that is withdrawn.
    let back = [Relabel { segment: first[0].segment, skill: None, previous: Some(SkillId(9)), kind: "retire".into() }];
    let third = rows_of(operator.step(2, &inputs(vec![("bank", vec![tables(&back)])])).unwrap());
    assert_eq!(third, [Segment { relabelled: true, previous: Some(SkillId(9)), ..first[0].clone() }]);
}

#[test]
fn a_resumed_operator_relabels_like_one_that_went_on() {
    let mut whole = operator(0, 1);
    let first = first_step(whole.as_mut(), &[0, 1]);
    let changed = relabels(&[first[1].segment]);
    let second = rows_of(whole.step(1, &inputs(vec![("bank", vec![tables(&changed)])])).unwrap());
    let back = inputs(vec![(
        "bank",
        vec![tables(&[Relabel { segment: first[1].segment, skill: Some(SkillId(11)), previous: Some(SkillId(9)), kind: "merge".into() }])],
    )]);
    let third = rows_of(whole.step(2, &back).unwrap());

    let mut resumed = operator(0, 1);
    resumed.restore(0, &inputs(vec![("segments", vec![tables(&first)])])).unwrap();
    resumed.restore(1, &inputs(vec![("segments", vec![tables(&second)])])).unwrap();
    assert_eq!(rows_of(resumed.step(2, &back).unwrap()), third);
    assert_eq!(third.len(), 1);
}

#[test]
fn each_relabel_is_passed_on_by_the_worker_that_holds_the_episode() {
    let mut alone = operator(0, 1);
    let first = first_step(alone.as_mut(), &[0, 1, 2, 3]);
    let changed = relabels(&first.iter().map(|row| row.segment).collect::<Vec<_>>());
    let message = || inputs(vec![("bank", vec![tables(&changed)])]);
    let expected = rows_of(alone.step(1, &message()).unwrap());
    for resumed in [false, true] {
        let mut merged = Vec::new();
        for worker in 0..2 {
            let mut shard = operator(worker, 2);
            if resumed {
                // A resumed run may hand all rows to every worker.
                shard.restore(0, &inputs(vec![("segments", vec![tables(&first)])])).unwrap();
            } else {
                first_step(shard.as_mut(), &[worker as u32, worker as u32 + 2]);
            }
            merged.extend(rows_of(shard.step(1, &message()).unwrap()));
        }
        merged.sort_by_key(|row| row.segment);
        assert_eq!(merged, expected, "resumed: {resumed}");
    }
}

#[test]
fn a_relabel_without_its_segment_is_counted() {
    let mut operator = operator(0, 1);
    let changed = relabels(&[SegmentId(123)]);
    let batches = operator.step(0, &inputs(vec![("bank", vec![tables(&changed)])])).unwrap().into_batches().unwrap();
    let metrics: Vec<cosplay_datasets::tables::Metric> =
        batches.iter().filter(|(name, _)| *name == TableName::Metrics).flat_map(|(_, batch)| Table::from_batch(batch).unwrap()).collect();
    let lost = metrics.iter().find(|metric| metric.name == "relabels_without_segment").unwrap();
    assert_eq!(lost.value, 1.0);
}

#[test]
fn a_longest_segment_below_the_shortest_is_reported() {
    let problems = check(&(INFO.resolve)(&serde_json::json!({ "shortest_segment": 5, "longest_segment": 4 })).unwrap());
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].key, "longest_segment");
    assert!(check(&(INFO.resolve)(&serde_json::json!({})).unwrap()).is_empty());
    assert!((INFO.resolve)(&serde_json::json!({ "shortest": 5 })).is_err());
}
