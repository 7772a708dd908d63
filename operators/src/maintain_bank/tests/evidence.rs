//! Evidence: incremental equals from scratch, in any order.

use super::*;
use cosplay_datasets::EpisodeId;
use proptest::prelude::*;

const TEXTS: [&str; 6] = ["+m", "c | +m event.x", "-a +b", "-a", "event.x", "a b | "];

fn planted() -> impl Strategy<Value = Vec<Segment>> {
    let one = (0..12u64, 0..8u32, 0..TEXTS.len(), prop::option::of(0..3u32), 0..40i32);
    prop::collection::vec(one, 0..120).prop_map(|rows| {
        let mut segments: BTreeMap<SegmentId, Segment> = BTreeMap::new();
        for (episode, ordinal, text, skill, ret) in rows {
            let row = segment(episode, ordinal, TEXTS[text]);
            segments.insert(row.segment, Segment { skill: skill.map(SkillId), ret: f64::from(ret), ..row });
        }
        segments.into_values().collect()
    })
}

fn bank_of(evidence: Evidence) -> (Bank, Maintained) {
    let mut bank = Bank::new(Config { min_segments: 6, min_episodes: 2, ..Config::default() });
    for (id, promise) in [(0, "+m"), (1, "-a +b"), (2, "event.x")] {
        bank.plant(id, promise);
    }
    bank.evidence = evidence;
    let made = bank.maintain();
    (bank, made)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn retracting_an_episode_equals_a_rebuild_without_it(rows in planted(), gone in 0..12u64) {
        let mut evidence = Evidence::default();
        evidence.ingest(0, &rows, &info()).unwrap();
        let of_episode = rows.iter().filter(|row| row.episode == EpisodeId(gone)).count();
        prop_assert_eq!(evidence.retract(EpisodeId(gone)), of_episode);
        let kept: Vec<Segment> = rows.into_iter().filter(|row| row.episode != EpisodeId(gone)).collect();
        let mut scratch = Evidence::default();
        scratch.ingest(0, &kept, &info()).unwrap();
        prop_assert!(evidence == scratch);
        prop_assert_eq!(bank_of(evidence).1, bank_of(scratch).1);
    }

    #[test]
    fn the_order_of_arrival_does_not_matter(rows in planted().prop_shuffle()) {
        let mut sorted = rows.clone();
        sorted.sort_by_key(|row| row.segment);
        let (mut a, mut b) = (Evidence::default(), Evidence::default());
        a.ingest(0, &rows, &info()).unwrap();
        b.ingest(0, &sorted, &info()).unwrap();
        prop_assert_eq!(bank_of(a).1, bank_of(b).1);
    }
}

#[test]
fn the_latest_label_holds_and_the_first_step_stays() {
    let mut evidence = Evidence::default();
    let row = segment(1, 0, "+a");
    evidence.ingest(3, std::slice::from_ref(&row), &info()).unwrap();
    evidence.ingest(4, &[Segment { relabelled: true, ..labelled(row.clone(), 7) }], &info()).unwrap();
    let record = evidence.get(row.segment).unwrap();
    assert_eq!((record.label, record.step, evidence.len()), (Some(SkillId(7)), 3, 1));
}

#[test]
fn a_segment_that_is_relabelled_twice_in_a_step_goes_from_its_first_label_to_its_last() {
    let mut evidence = Evidence::default();
    let rows = vec![labelled(segment(1, 0, "+a"), 1), labelled(segment(2, 0, "+a"), 1)];
    evidence.ingest(0, &rows, &info()).unwrap();
    let (config, info) = (Config::default(), info());
    let mut work = Work::new(0, vec![], &mut evidence, &config, &info).unwrap();
    work.relabel(&[rows[0].segment, rows[1].segment], Some(SkillId(2)), "merge");
    work.relabel(&[rows[0].segment], None, "split");
    work.relabel(&[rows[1].segment], Some(SkillId(1)), "split");
    let made = work.finish();
    assert_eq!(made.relabels.len(), 1, "the second one is back where it was");
    assert_eq!((made.relabels[0].skill, made.relabels[0].previous), (None, Some(SkillId(1))));
}

#[test]
fn the_configuration_is_checked() {
    let problems = check(&serde_json::json!({ "min_distance": 0.1, "merge_similarity": 0.85 }));
    assert_eq!(problems.len(), 1);
    assert!(check(&serde_json::to_value(Config::default()).unwrap()).is_empty());
    assert!(serde_json::from_str::<Config>(r#"{"max_skill": 3}"#).is_err());
}
