//! Faults of the published code (reference, section 14.2), each under its number.

use super::*;

#[test]
fn b1_b2_refining_sees_the_effects_of_the_segments() {
    // There, refining verified on segments without effects and threw the whole contract away.
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+a -b event.x");
    let made = bank.step(of_skill(0, segments(0, 20, 0, "+a -b event.x")));
    assert!(made.events.is_empty(), "{:?}", made.events);
    assert_eq!((bank.promise(0), bank.skill(0).pass_rate), (contract("+a -b event.x"), 1.0));
}

#[test]
fn b2_merging_keeps_a_contract() {
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+a -b");
    bank.plant(1, "+a -b");
    bank.step([of_skill(0, segments(0, 20, 0, "+a -b")), of_skill(1, segments(0, 20, 1, "+a -b"))].concat());
    assert_eq!(bank.promise(0), contract("+a -b"));
}

#[test]
fn b3_a_rejected_proposal_changes_nothing() {
    let mut bank = Bank::new(Config { min_episodes: 1000, ..Config::default() });
    bank.plant(0, "+a +b");
    let before = bank.promise(0);
    let rows = [4, 9, 14].map(|episode| segment(episode, 1, "+k")).to_vec();
    let made = bank.step([segments(0, 20, 0, "+m"), of_skill(0, rows)].concat());
    assert!(!made.events.is_empty() && made.events.iter().all(|event| event.verdict == "rejected"), "{:?}", made.events);
    assert_eq!((bank.skills.len(), bank.promise(0), bank.skill(0).version), (1, before, 1));
    assert!(made.relabels.is_empty());
}

#[test]
fn b6_b7_segments_without_effects_never_become_a_skill() {
    let mut bank = Bank::new(Config { contract: learn_contracts::Config { pass_rate: 0.0, ..Default::default() }, ..Config::default() });
    let made = bank.step(segments(0, 100, 0, "a b | "));
    assert!(bank.skills.is_empty() && made.events.is_empty());
}

#[test]
fn b6_members_of_a_new_skill_are_consumed() {
    let mut bank = Bank::new(Config::default());
    bank.step(segments(0, 20, 0, "+m"));
    for _ in 0..3 {
        let made = bank.step(vec![]);
        assert!(events(&made, "materialize", "accepted").is_empty(), "{:?}", made.events);
    }
    assert_eq!(bank.skills.len(), 1);
}

#[test]
fn b7_new_segments_do_become_skills() {
    let mut bank = Bank::new(Config::default());
    bank.step(segments(0, 20, 0, "+m"));
    assert_eq!(bank.promise(0), contract("+m"));
}

#[test]
fn b9_the_figures_of_a_skill_come_from_its_own_segments_alone() {
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+a");
    bank.plant(1, "+b");
    let rich = segments(0, 20, 0, "+a").into_iter().map(|row| Segment { ret: 30.0, end: row.start + 4, ..row });
    let poor = segments(0, 20, 1, "+b").into_iter().map(|row| Segment { ret: 10.0, end: row.start + 5, ..row });
    bank.step([of_skill(0, rich.collect()), of_skill(1, poor.collect())].concat());
    // Both lengths are of one class, whose mean return is 20.
    assert_eq!((bank.skill(0).fitness, bank.skill(1).fitness), (10.0, -10.0));
    assert_eq!((bank.skill(0).duration, bank.skill(1).duration), (4.0, 5.0));
    for _ in 0..2 {
        bank.step(vec![]);
        assert_eq!((bank.skill(0).instances, bank.skill(0).fitness), (20, 10.0), "nothing is counted twice");
    }
}

#[test]
fn b20_a_resumed_run_has_the_bank_at_once() {
    let feed = |step: u64| [segments(step * 30, 25, 0, "+m event.x"), segments(step * 30, 25, 1, "-a +b")].concat();
    let mut live = Bank::new(Config::default());
    let steps: Vec<Maintained> = (0..5).map(|step| live.step(feed(step))).collect();
    // Evidence is read back from the stored segments, skills and relabellings from the feedback edge.
    let mut resumed = Bank::new(Config::default());
    for (step, rows) in &live.stored[..3] {
        resumed.next = *step;
        resumed.take(rows);
    }
    (resumed.next, resumed.skills, resumed.relabels) = (3, steps[2].skills.clone(), steps[2].relabels.clone());
    assert!(!resumed.skills.is_empty());
    for step in 3..5 {
        assert_eq!(resumed.step(feed(step)), steps[step as usize]);
    }
}

#[test]
fn b28_retired_skills_take_part_in_nothing() {
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+m");
    bank.skills[0].state = RETIRED.into();
    let before = bank.skills[0].clone();
    let made = bank.step([of_skill(0, segments(0, 20, 0, "+m +a")), segments(0, 20, 1, "+m")].concat());
    assert_eq!(bank.skills[0], before, "neither refined nor counted");
    assert_eq!(events(&made, "materialize", "accepted").len(), 1, "and no active skill is near: {:?}", made.events);
    assert!(events(&bank.step(vec![]), "merge", "accepted").is_empty());
}

#[test]
fn no_contract_becomes_empty_whatever_happens() {
    let mut bank = Bank::new(Config { min_segments: 4, min_episodes: 1, max_rejected: 1000, ..Config::default() });
    let texts = ["+a", "-a +b", "event.x", "+m -c", "a | ", "+k event.y", "-k", "b | +a"];
    for step in 0..8u64 {
        let rows = (0..40).map(|index| {
            let episode = step * 100 + index / 4;
            let row = segment(episode, (index % 4) as u32, texts[(index * 3 + step) as usize % texts.len()]);
            let known = bank.skills.len() as u64;
            let label = (index % 3 == 0 && known > 0).then(|| SkillId(((index + step) % known) as u32));
            Segment { skill: label, ..row }
        });
        let rows = rows.collect();
        bank.step(rows);
        for skill in &bank.skills {
            assert!(!Contract::from_skill(skill, &info()).unwrap().is_empty(), "{skill:?}");
            assert!((0.0..=1.0).contains(&skill.quality));
        }
        let active: Vec<&str> = bank.skills.iter().map(|skill| skill.name.as_str()).collect();
        let distinct: std::collections::BTreeSet<&str> = active.iter().copied().collect();
        assert_eq!(active.len(), distinct.len(), "names are distinct");
    }
}
