//! Each kind of change.

use super::*;

#[test]
fn new_segments_that_do_the_same_become_a_skill_with_five_parts() {
    let mut bank = Bank::new(Config::default());
    let made = bank.step([segments(0, 20, 0, "c | +m event.x"), segments(0, 20, 1, "d | -a +b"), segments(0, 3, 2, "+k")].concat());
    assert_eq!(bank.skills.len(), 2, "{:#?}", made.events);
    assert_eq!((bank.promise(0), bank.promise(1)), (contract("-a +b"), contract("+m event.x")));
    let skill = bank.skill(1);
    assert_eq!(skill.name, "merge-reach-m");
    assert_eq!(skill.preconditions, ["c"], "d holds in the other half only");
    assert!((2..=5).contains(&skill.plan.len()), "{:?}", skill.plan);
    assert_eq!(skill.success, ["+m", "event.x"]);
    assert!(!skill.abort.is_empty() && !skill.summary.is_empty());
    assert_eq!((skill.version, skill.generation, skill.created, skill.instances), (1, 0, 0, 20));
    assert_eq!((skill.uses, skill.successes, skill.pass_rate, skill.duration), (0, 0, 1.0, 10.0), "nobody has played it yet");
    assert_eq!(skill.evidence, (0..8).map(|episode| segment(episode, 0, "").segment).collect::<Vec<_>>());
    assert_eq!(made.relabels.len(), 40);
    assert!(made.relabels.iter().all(|relabel| relabel.previous.is_none() && relabel.kind == "materialize"));
    let accepted = events(&made, "materialize", "accepted");
    assert_eq!((accepted.len(), accepted[0].support, accepted[0].evidence.len()), (2, 20, 20));
    assert!(accepted[0].reason.contains("20 NEW segments"), "{}", accepted[0].reason);
}

/// Uses are what the agent played with the skill in mind, instances what segmentation took for it.
#[test]
fn uses_are_counted_by_what_was_played() {
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+a");
    bank.plant(1, "+b");
    let played = |rows: Vec<Segment>, skill| rows.into_iter().map(move |row| Segment { played: Some(SkillId(skill)), ..row });
    let good = played(of_skill(0, segments(0, 20, 0, "+a")), 0);
    let other = played(of_skill(0, segments(0, 10, 1, "+a")), 1);
    let failed = played(segments(0, 5, 2, "+k"), 1);
    bank.step(good.chain(other).chain(failed).collect());
    let figures = |skill| (bank.skill(skill).instances, bank.skill(skill).uses, bank.skill(skill).successes);
    assert_eq!((figures(0), figures(1)), ((30, 20, 20), (0, 15, 0)));
}

#[test]
fn clusters_that_are_too_small_or_of_too_few_episodes_become_none() {
    let mut bank = Bank::new(Config::default());
    assert!(bank.step(segments(0, 11, 0, "+m")).events.is_empty(), "fewer than min_segments are no cluster");
    let mut bank = Bank::new(Config { min_episodes: 4, ..Config::default() });
    let three = (2..5).flat_map(|episode| (0..8).map(move |ordinal| segment(episode, ordinal, "+m"))).collect();
    let made = bank.step(three);
    assert!(bank.skills.is_empty());
    assert!(events(&made, "materialize", "rejected")[0].reason.contains("at least 4 episodes"), "{:?}", made.events);
}

#[test]
fn only_segments_of_the_last_steps_become_skills() {
    let mut bank = Bank::new(Config { window: 2, ..Config::default() });
    for step in 0..4 {
        // Six a step: never twelve within two steps plus one.
        bank.step(segments(step * 10, 5, 0, "+m"));
    }
    assert!(bank.skills.is_empty());
    let mut bank = Bank::new(Config { window: 3, ..Config::default() });
    for step in 0..4 {
        bank.step(segments(step * 10, 5, 0, "+m"));
    }
    assert_eq!(bank.skills.len(), 1);
}

#[test]
fn a_new_contract_keeps_its_distance_to_those_in_the_bank() {
    // Vector 78: {a, b, c, d} against {a, b, c} has exactly the distance 0.25 that is asked for.
    let cases = [("+a +b +c", "+a +b +c +d", true), ("+a +b +c +d", "+a +b +c +d +e", false), ("+a", "+b", true)];
    for (there, new, accepted) in cases {
        let mut bank = Bank::new(Config::default());
        bank.plant(0, there);
        let made = bank.step(segments(0, 20, 0, new));
        let verdict = if accepted { "accepted" } else { "rejected" };
        let events = events(&made, "materialize", verdict);
        assert_eq!(events.len(), 1, "{there} and {new}: {:?}", made.events);
        assert!(accepted || events[0].reason.contains("distance 0.20 to skill 0"), "{}", events[0].reason);
    }
}

#[test]
fn a_part_of_what_a_skill_promises_is_no_new_skill_where_the_rest_was_so_already() {
    // The skill makes a to d false. Where two of them were false before, only two effects occur, and the contract holds all the same.
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "-a -b -c -d");
    let made = bank.step(segments(0, 20, 0, "-a -b"));
    assert!(bank.skills.len() == 1 && events(&made, "materialize", "rejected")[0].reason.contains("skill 0 promises all of it"));
    // Where they stay true, it is another skill.
    bank.step(segments(20, 20, 0, "c d | -a -b"));
    assert_eq!(bank.skills.len(), 2);
}

#[test]
fn a_danger_is_never_promised() {
    let config = || Config { avoid: vec!["k".into(), "no_such_predicate".into()], ..Config::default() };
    let mut bank = Bank::new(config());
    let made = bank.step(segments(0, 20, 0, "+k +a"));
    assert!(bank.skills.is_empty());
    assert!(events(&made, "materialize", "rejected")[0].reason.contains("bring about k, which is to be avoided"), "{:?}", made.events);
    // Half as often as what becomes a clause is often enough.
    let mut bank = Bank::new(config());
    bank.step([segments(0, 10, 0, "+k +a"), segments(10, 20, 0, "+a")].concat());
    assert!(bank.skills.is_empty());
    let mut bank = Bank::new(config());
    bank.plant(0, "+a");
    let made = bank.step(of_skill(0, segments(0, 20, 0, "+k +a")));
    assert!(events(&made, "retire", "accepted")[0].reason.contains("bring about k"), "{:?}", made.events);
    assert_eq!((bank.promise(0), bank.skill(0).state.as_str()), (contract("+a"), RETIRED));
    // It is what tells when to give up.
    bank.step(segments(20, 20, 1, "+b"));
    assert_eq!(bank.skill(1).abort, ["+k"]);
}

#[test]
fn limits_defer_and_the_next_step_takes_it_up() {
    let all = || [segments(0, 20, 0, "+a"), segments(0, 20, 1, "+b"), segments(0, 20, 2, "+c")].concat();
    let mut bank = Bank::new(Config { max_new: 2, ..Config::default() });
    let made = bank.step(all());
    assert_eq!((bank.skills.len(), events(&made, "materialize", "deferred").len()), (2, 1));
    bank.step(vec![]);
    assert_eq!(bank.skills.len(), 3);
    let mut bank = Bank::new(Config { max_skills: 1, ..Config::default() });
    let made = bank.step(all());
    assert_eq!((bank.skills.len(), events(&made, "materialize", "deferred").len()), (1, 2));
}

#[test]
fn a_contract_follows_its_evidence() {
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+a +c");
    let made = bank.step(of_skill(0, segments(0, 20, 0, "+a +b")));
    assert_eq!(bank.promise(0), contract("+a +b"));
    assert_eq!((bank.skill(0).version, bank.skill(0).updated), (2, 0));
    assert_eq!(bank.skill(0).success, ["+a", "+b"]);
    let reason = &events(&made, "refine", "accepted")[0].reason;
    assert!(reason.contains("gains +b (16 of 16 instances)") && reason.contains("loses +c"), "{reason}");
    let again = bank.step(of_skill(0, segments(20, 20, 0, "+a +b")));
    assert!(again.events.is_empty() && bank.skill(0).version == 2, "an equal contract is no change: {:?}", again.events);
}

#[test]
fn weak_clauses_are_dropped_and_one_always_stays() {
    // Vectors 72 and 73.
    let literals: Vec<_> = contract("+a +b -c").literals().collect();
    let rates = |rates: [f64; 3]| literals.iter().copied().zip(rates).collect::<Vec<_>>();
    assert_eq!(refine::weaken(&rates([0.6, 0.59, 0.1]), 0.6), contract("+a"));
    assert_eq!(refine::weaken(&rates([0.5, 0.4, 0.1]), 0.6), contract("+a"));
    assert_eq!(refine::weaken(&rates([1.0, 1.0, 1.0]), 0.6), contract("+a +b -c"));
    assert_eq!(refine::weaken(&[], 0.6), Contract::default());
}

#[test]
fn a_failing_contract_loses_its_weak_clauses_if_the_rest_passes() {
    // Two learning instances are too few to learn from, so that the skill's own contract is judged.
    let held_out = |text: &str, count: u64| (0..count).map(|index| segment(4 + 5 * index, 0, text)).collect::<Vec<_>>();
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+a +b");
    let made = bank.step(of_skill(0, [held_out("+a", 6), segments(100, 2, 0, "+a")].concat()));
    assert_eq!(bank.promise(0), contract("+a"));
    assert!(events(&made, "refine", "accepted")[0].reason.contains("drops +b"), "{:?}", made.events);
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+a +b");
    let made = bank.step(of_skill(0, [held_out("+k", 6), segments(100, 2, 0, "+k")].concat()));
    assert_eq!(bank.promise(0), contract("+a +b"), "no part of it would pass: nothing changes");
    assert_eq!(events(&made, "refine", "rejected").len(), 1);
}

#[test]
fn merging_asks_for_a_jaccard_similarity_of_085() {
    // Vector 65.
    for (a, b, merges) in [("+a +b +c +d +e +f", "+a +b +c +d +e +f +g", true), ("+a +b +c +d +e", "+a +b +c +d +e +f", false)] {
        let mut bank = Bank::new(Config { patience: 9, ..Config::default() });
        bank.plant(0, a);
        bank.plant(1, b);
        let made = bank.step([of_skill(0, segments(0, 20, 0, a)), of_skill(1, segments(0, 20, 1, b))].concat());
        assert_eq!(events(&made, "merge", "accepted").len(), usize::from(merges), "{:?}", made.events);
    }
}

#[test]
fn the_skill_with_more_instances_survives_and_inherits() {
    // Equal numbers: the lower id stays.
    for (of_first, of_second, stays, goes) in [(20, 20, 3, 5), (30, 20, 3, 5), (20, 30, 5, 3)] {
        let mut bank = Bank::new(Config::default());
        bank.plant(3, "+a -b");
        bank.plant(5, "+a -b");
        bank.skills[0].parents = vec![SkillId(1)];
        bank.skills[1].generation = 2;
        let made = bank.step([of_skill(3, segments(0, of_first, 0, "+a -b")), of_skill(5, segments(0, of_second, 1, "+a -b"))].concat());
        let (survivor, absorbed) = (bank.skill(stays), bank.skill(goes));
        assert_eq!((absorbed.state.as_str(), absorbed.merged_into), (RETIRED, Some(SkillId(stays))));
        assert_eq!((survivor.state.as_str(), survivor.generation, survivor.instances), (ACTIVE, 3, (of_first + of_second) as u32));
        assert_eq!(survivor.parents, if stays == 3 { vec![SkillId(1), SkillId(5)] } else { vec![SkillId(1), SkillId(3)] });
        assert_eq!(made.relabels.len() as u64, if stays == 3 { of_second } else { of_first });
        assert!(made.relabels.iter().all(|relabel| relabel.skill == Some(SkillId(stays)) && relabel.previous == Some(SkillId(goes))));
        assert_eq!(events(&made, "merge", "accepted")[0].skills, [SkillId(stays), SkillId(goes)]);
    }
}

#[test]
fn skills_whose_joint_evidence_fails_are_not_merged() {
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+a +b");
    bank.plant(1, "+a +b");
    let made = bank.step([of_skill(0, segments(0, 20, 0, "+k")), of_skill(1, segments(0, 20, 1, "+l"))].concat());
    // Refining makes them what they are, two skills; what is left to merge has no evidence in common.
    assert!(events(&made, "merge", "accepted").is_empty());
    let few = |skill, ordinal, text| of_skill(skill, [4, 9, 14].map(|episode| segment(episode, ordinal, text)).to_vec());
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+a +b");
    bank.plant(1, "+a +b");
    let made = bank.step([few(0, 0, "+k"), few(1, 1, "+l")].concat());
    assert_eq!(events(&made, "merge", "rejected").len(), 1, "{:?}", made.events);
    assert!(made.relabels.is_empty() && bank.skills.iter().all(|skill| skill.state == ACTIVE));
}

#[test]
fn a_skill_of_two_kinds_of_effect_is_split() {
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "event.x");
    bank.next = 1;
    let parts = [segments(0, 20, 0, "event.x +a +b"), segments(0, 20, 1, "event.x +c -d"), segments(0, 5, 2, "event.x")];
    let made = bank.step(of_skill(0, parts.concat()));
    let accepted = events(&made, "split", "accepted");
    assert_eq!(accepted.len(), 1, "{:?}", made.events);
    assert_eq!(accepted[0].skills, [SkillId(0), SkillId(1), SkillId(2)]);
    assert_eq!(bank.skill(0).state, RETIRED);
    let promises = [bank.promise(1), bank.promise(2)];
    assert!(promises.contains(&contract("event.x +a +b")) && promises.contains(&contract("event.x +c -d")), "{promises:?}");
    for child in [1, 2] {
        assert_eq!((bank.skill(child).parents.as_slice(), bank.skill(child).generation), (&[SkillId(0)][..], 1));
    }
    let back = made.relabels.iter().filter(|relabel| relabel.skill.is_none()).count();
    assert_eq!((made.relabels.len(), back), (45, 5), "what belongs to no child goes back to NEW and is not lost");
    assert!(bank.step(vec![]).events.is_empty(), "the children stay apart");
}

#[test]
fn a_split_is_accepted_only_if_every_child_passes() {
    let mut bank = Bank::new(Config { split_pass_rate: 0.9, ..Config::default() });
    bank.plant(0, "event.x +c +d");
    bank.next = 1;
    // Two of the six held-out segments of the second kind do not do what the others do.
    let second = (0..30).map(|episode| {
        let odd = episode == 4 || episode == 14;
        segment(episode, 1, if odd { "event.x +e +k +l" } else { "event.x +e +c +d" })
    });
    let parts = [segments(0, 30, 0, "event.x +a +b +c +d"), second.collect(), segments(0, 5, 2, "event.x +c +d")];
    let before = bank.skills.clone();
    let made = bank.step(of_skill(0, parts.concat()));
    let rejected = events(&made, "split", "rejected");
    assert_eq!(rejected.len(), 1, "{:?}", made.events);
    assert!(rejected[0].reason.contains("a child must pass on 0.90"), "{}", rejected[0].reason);
    assert_eq!((bank.skills.len(), &bank.skills[0].state), (before.len(), &before[0].state));
    assert!(made.relabels.is_empty());
}

#[test]
fn parts_that_promise_less_than_the_whole_are_not_split_off() {
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "event.x -a -b -c");
    bank.next = 1;
    let made = bank.step(of_skill(0, [segments(0, 30, 0, "event.x -a -b -c"), segments(0, 20, 1, "event.x -a")].concat()));
    let rejected = events(&made, "split", "rejected");
    assert!(rejected.len() == 1 && rejected[0].reason.contains("nothing that the whole does not"), "{:?}", made.events);
}

#[test]
fn noise_does_not_split_a_skill() {
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "event.x +m");
    bank.next = 1;
    let texts = ["+a", "-a", "+b", "-b", "+c", "-c", "+d", "-d"];
    let noisy = (0..200).map(|episode| segment(episode, 0, &format!("event.x +m {}", texts[(episode * 5 % 8) as usize])));
    let made = bank.step(of_skill(0, noisy.collect()));
    assert!(made.events.is_empty(), "{:?}", made.events);
}

#[test]
fn a_skill_that_nothing_supports_any_more_is_retired() {
    let mut bank = Bank::new(Config { patience: 3, ..Config::default() });
    bank.step(segments(0, 20, 0, "+m"));
    for _ in 0..2 {
        assert!(bank.step(vec![]).events.is_empty());
    }
    let made = bank.step(vec![]);
    assert!(events(&made, "retire", "accepted")[0].reason.contains("since step 0"), "{:?}", made.events);
    assert_eq!(bank.skill(0).state, RETIRED);
    // Its name and id are not used again.
    bank.step(segments(100, 20, 0, "+m"));
    assert_eq!((bank.skill(1).name.as_str(), bank.skill(1).skill), ("merge-reach-m-2", SkillId(1)));
}

#[test]
fn a_skill_that_does_not_do_what_it_promises_is_retired() {
    let mut bank = Bank::new(Config::default());
    bank.plant(0, "+a");
    let texts = ["+b", "+c", "+d", "+e"];
    let made = bank.step(of_skill(0, (0..60).map(|episode| segment(episode, 0, texts[(episode % 4) as usize])).collect()));
    assert!(events(&made, "retire", "accepted")[0].reason.contains("below the floor"), "{:?}", made.events);
    assert_eq!(made.relabels.len(), 60, "its recent segments go back to NEW");
}

#[test]
fn rejected_proposals_above_the_limit_are_counted() {
    let mut bank = Bank::new(Config { max_rejected: 2, min_episodes: 100, ..Config::default() });
    let made = bank.step((0..6).flat_map(|kind| segments(0, 20, kind, ["+a", "+b", "+c", "+d", "+e", "+f"][kind as usize])).collect());
    let rejected = events(&made, "materialize", "rejected");
    assert_eq!(rejected.len(), 3);
    assert!(rejected[2].reason.contains("4 further proposals"), "{}", rejected[2].reason);
    assert_eq!(made.events.iter().map(|event| event.event).collect::<Vec<_>>(), [0, 1, 2]);
}
