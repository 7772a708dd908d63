#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::infer_segmentation::planted::{Episode, quiet};
use proptest::prelude::*;

fn cuts(rows: &[Experience]) -> Vec<Cut> {
    propose_boundaries(rows, &Config::default())
}

fn times(rows: &[Experience]) -> Vec<u32> {
    cuts(rows).iter().map(|cut| cut.t).collect()
}

/// Times of the cuts that rest on a signal.
fn times_of(rows: &[Experience], signal: Signal) -> Vec<u32> {
    cuts(rows).iter().filter(|cut| cut.signals.iter().any(|name| name == signal.name())).map(|cut| cut.t).collect()
}

/// An episode in which nothing but the intention changes.
fn tagged(tags: &[&str]) -> Vec<Experience> {
    tags.iter().fold(Episode::new(1, &[]), |episode, tag| episode.behave(1, tag, &[])).rows()
}

fn strengths(rows: &[Experience], signal: Signal) -> Vec<(usize, f64)> {
    let rows: Vec<&Experience> = rows.iter().collect();
    let found = signals::triggers(&rows, &Config::default());
    found.into_iter().filter(|trigger| trigger.signal == signal).map(|trigger| (trigger.at, trigger.strength)).collect()
}

#[test]
fn without_evidence_cuts_are_evenly_spaced() {
    // Vectors 1 to 3 of the reference.
    assert_eq!(times(&quiet(1, 20)), [5, 10, 15]);
    assert_eq!(times(&quiet(1, 10)), [5]);
    assert_eq!(times(&quiet(1, 100)), [8, 17, 25, 33, 42, 50, 58, 67, 75, 83, 92]);
    assert!(cuts(&quiet(1, 20)).iter().all(|cut| cut.signals == ["uniform"]));
}

#[test]
fn evidence_absorbs_fall_back_cuts_close_by() {
    // Vector 5: a predicate flips at 7; the adaptive radius of 20 steps is 2 (vector 13).
    let rows = Episode::new(1, &[]).behave(7, "", &["+a"]).behave(13, "", &[]).rows();
    let found = cuts(&rows);
    assert_eq!(found.iter().map(|cut| cut.t).collect::<Vec<_>>(), [7, 10, 15]);
    assert!(found[0].signals.contains(&"predicate".to_owned()) && found[0].signals.contains(&"uniform".to_owned()));
}

#[test]
fn predicates_that_flip_all_the_time_are_ignored() {
    // Vector 6: as before, with a predicate that flips in every step.
    let mut rows = Episode::new(1, &[]).behave(7, "", &["+a"]).behave(13, "", &[]).rows();
    for row in rows.iter_mut().filter(|row| row.t % 2 == 1) {
        row.predicates.push("f".into());
    }
    assert_eq!(times_of(&rows, Signal::Predicate), [7]);
    // If there is nothing else, the least volatile is kept.
    let mut rows = quiet(1, 20);
    for row in &mut rows {
        row.predicates.extend((row.t % 2 == 1).then(|| "f".to_owned()));
        row.predicates.extend((row.t % 4 >= 2).then(|| "e".to_owned()));
    }
    let at: Vec<usize> = strengths(&rows, Signal::Predicate).into_iter().map(|(at, _)| at).collect();
    assert_eq!(at, [2, 4, 6, 8, 10, 12, 14, 16, 18]);
}

#[test]
fn shifts_of_intention_that_come_too_soon_are_ignored() {
    // Vector 8.
    let mut tags = vec!["SETUP"; 4];
    tags.extend(["CLEAR"; 2]);
    tags.extend(["MERGE"; 6]);
    assert_eq!(strengths(&tagged(&tags), Signal::Intention).iter().map(|shift| shift.0).collect::<Vec<_>>(), [4]);
    // Vector 9: PLACE and PLAN both mean SETUP.
    let mut tags = vec!["PLACE"; 4];
    tags.extend(["PLAN"; 4]);
    tags.extend(["MATCH"; 4]);
    assert_eq!(strengths(&tagged(&tags), Signal::Intention).iter().map(|shift| shift.0).collect::<Vec<_>>(), [8]);
}

#[test]
fn a_shift_that_is_taken_back_at_once_counts_less() {
    let ping_pong: Vec<&str> = (0..60).map(|t| if t == 20 { "CLEAR" } else { "SETUP" }).collect();
    let stays: Vec<&str> = (0..60).map(|t| if (20..50).contains(&t) { "CLEAR" } else { "SETUP" }).collect();
    // Both episodes have two changes; the way back of the first comes too soon to count.
    let blip = strengths(&tagged(&ping_pong), Signal::Intention);
    let shift = strengths(&tagged(&stays), Signal::Intention);
    assert_eq!(blip.iter().map(|shift| shift.0).collect::<Vec<_>>(), [20]);
    assert_eq!(shift.iter().map(|shift| shift.0).collect::<Vec<_>>(), [20, 50]);
    assert!((blip[0].1 - 0.7 * shift[0].1).abs() < 1e-12);
}

#[test]
fn reward_spikes_lie_before_the_boundary() {
    // Vector 19: nine rewards of 0 and one of 10; here the spike is not in the last step.
    let mut rows = quiet(1, 10);
    rows[4].reward = 10.0;
    assert_eq!(strengths(&rows, Signal::Reward), [(5, 1.0)]);
    // Vector 20: rewards 1 to 4 have no spike, nor have equal rewards.
    for (row, reward) in rows.iter_mut().zip((1..=4).cycle()) {
        row.reward = f64::from(reward);
    }
    assert!(strengths(&rows, Signal::Reward).is_empty());
    rows.iter_mut().for_each(|row| row.reward = 4.0);
    assert!(strengths(&rows, Signal::Reward).is_empty());
}

#[test]
fn events_lie_before_the_boundary_and_seldom_ones_count_more() {
    let mut rows = quiet(1, 40);
    rows[9].events.push("event.x".into());
    for at in [19, 24, 29, 34] {
        rows[at].events.push("event.y".into());
    }
    let found = strengths(&rows, Signal::Event);
    assert_eq!(found.iter().map(|event| event.0).collect::<Vec<_>>(), [10, 20, 25, 30, 35]);
    assert!(found[0].1 > found[1].1);
    // An event in the very last step bounds nothing.
    let mut rows = quiet(1, 40);
    rows[39].events.push("event.x".into());
    assert!(strengths(&rows, Signal::Event).is_empty());
}

#[test]
fn surprisal_fires_where_it_stands_out_and_not_where_it_is_missing() {
    assert!(strengths(&quiet(1, 30), Signal::Surprisal).is_empty());
    let mut rows = quiet(1, 30);
    for row in &mut rows {
        row.surprisal = Some(if row.t == 12 { 3.0 } else { 0.1 });
    }
    assert_eq!(strengths(&rows, Signal::Surprisal), [(12, 1.0)]);
    rows[20].surprisal = Some(f64::NAN);
    assert_eq!(strengths(&rows, Signal::Surprisal), [(12, 1.0)]);
}

#[test]
fn a_change_point_is_where_many_predicates_change_at_once() {
    let rows = Episode::new(1, &["a", "b", "c"]).behave(15, "", &["-a", "-b", "+d", "+e"]).behave(15, "", &[]).rows();
    assert_eq!(strengths(&rows, Signal::ChangePoint), [(15, 1.0)]);
}

#[test]
fn switches_of_skill_are_cuts() {
    let mut rows = quiet(1, 40);
    for row in &mut rows {
        row.skill = (row.t >= 13).then_some(cosplay_datasets::SkillId(3));
    }
    assert_eq!(times_of(&rows, Signal::Switch), [13]);
}

#[test]
fn the_largest_number_of_cuts_keeps_the_strongest_whenever_they_come() {
    // A predicate with few flips late in the episode outranks one with many flips early on.
    let mut episode = Episode::new(1, &[]);
    for round in 0..15 {
        episode = episode.behave(4, "", &[if round % 2 == 0 { "+a" } else { "-a" }]);
    }
    let rows = episode.behave(4, "", &["+b"]).behave(4, "", &["+c"]).behave(12, "", &[]).rows();
    let weights = SignalWeights { change_point: 0.0, ..SignalWeights::default() };
    let config = Config { weights, shortest_mean_segment: 40, fallback_segment: 100_000, ..Config::default() };
    assert_eq!(propose_boundaries(&rows, &config).iter().map(|cut| cut.t).collect::<Vec<_>>(), [64, 68]);
}

#[test]
fn planted_behaviours_are_cut_where_they_end() {
    let rows = Episode::new(1, &["c"])
        .behave(9, "SETUP", &["+a"])
        .behave(11, "MERGE", &["+b", "event.x"])
        .behave(8, "CLEAR", &["-a", "-b"])
        .behave(12, "SURVIVE", &["-c"])
        .rows();
    let mut ranked = cuts(&rows);
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut best: Vec<u32> = ranked.iter().take(3).map(|cut| cut.t).collect();
    best.sort_unstable();
    assert_eq!(best, [9, 20, 28]);
}

#[test]
fn tiny_episodes_have_no_room() {
    assert!(cuts(&[]).is_empty());
    assert!(cuts(&quiet(1, 1)).is_empty());
    assert!(cuts(&quiet(1, 2)).is_empty());
    assert_eq!(times(&quiet(1, 3)), [1]);
}

/// Arbitrary episodes of one to three hundred steps.
fn episodes() -> impl Strategy<Value = Vec<Experience>> {
    let step = (0u8..64, 0u8..5, prop::option::of(0.0f64..4.0), -2i32..20, 0u8..13, prop::option::of(1u32..4));
    prop::collection::vec(prop::collection::vec(step, 1..120), 1..4).prop_map(|episodes| {
        let mut rows = Vec::new();
        for (index, steps) in episodes.into_iter().enumerate() {
            for (t, (bits, event, surprisal, reward, tag, skill)) in steps.into_iter().enumerate() {
                let names = ["a", "b", "c", "d", "e", "f"];
                rows.push(Experience {
                    episode: EpisodeId(index as u64 + 1),
                    t: t as u32,
                    predicates: names.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| (*name).into()).collect(),
                    events: (event == 0).then(|| "event.x".to_owned()).into_iter().collect(),
                    surprisal,
                    reward: f64::from(reward),
                    intention_tag: cosplay_envs::Tag::all()[tag as usize].to_string(),
                    skill: skill.map(cosplay_datasets::SkillId),
                    ..Experience::default()
                });
            }
        }
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn cuts_are_within_bounds(rows in episodes(), radius in 0u32..6, shortest in 1u32..20) {
        let config = Config { merge_radius: radius, shortest_mean_segment: shortest, ..Config::default() };
        let found = propose_boundaries(&rows, &config);
        for episode in 1..=3 {
            let length = rows.iter().filter(|row| row.episode.0 == episode).count();
            let cuts: Vec<&Cut> = found.iter().filter(|cut| cut.episode.0 == episode).collect();
            let radius = (radius as usize).min((length / 8).max(1));
            prop_assert!(cuts.iter().all(|cut| (1..length as u32).contains(&cut.t) && cut.score > 0.0 && !cut.signals.is_empty()));
            prop_assert!(cuts.iter().all(|cut| cut.signals.is_sorted()));
            prop_assert!(cuts.windows(2).all(|pair| (pair[1].t - pair[0].t) as usize > radius), "merged");
            let least = (length / 5.max(length / 12)).saturating_sub(1).max(1);
            prop_assert!(cuts.len() <= (length / shortest as usize).max(least));
        }
    }

    #[test]
    fn the_order_of_rows_does_not_matter(rows in episodes(), shift in 0usize..1000) {
        let mut turned = rows.clone();
        turned.reverse();
        turned.rotate_left(shift % rows.len());
        prop_assert_eq!(cuts(&rows), cuts(&turned));
    }

    #[test]
    fn episodes_do_not_see_each_other(rows in episodes()) {
        let mut apart = Vec::new();
        for episode in 1..=3 {
            let own: Vec<Experience> = rows.iter().filter(|row| row.episode.0 == episode).cloned().collect();
            apart.extend(cuts(&own));
        }
        prop_assert_eq!(cuts(&rows), apart);
    }
}
