#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]

use super::*;
use crate::infer_segmentation::planted::{env, skill};
use proptest::prelude::*;

fn set(names: &[&str]) -> PredicateSet {
    let (set, unknown) = env().set(names.iter().copied());
    assert!(unknown.is_empty(), "{unknown:?}");
    set
}

fn query(state: &[&str], tag: Tag) -> Query {
    Query::new(set(state), tag)
}

fn prepared(skills: &[Skill]) -> Vec<RetrievalSkill> {
    RetrievalSkill::prepare(skills, &env()).unwrap()
}

fn ids(skills: &[Skill], query: &Query) -> Vec<u32> {
    candidates(&prepared(skills), query, &RetrievalConfig::default()).iter().map(|candidate| candidate.skill.0).collect()
}

#[test]
fn relevance_is_lexical_overlap_plus_equal_tag() {
    // Vector 86 of the reference: query "tetris clear rows" against "Clear bottom rows" shares two of four words.
    let mut row = skill(1, "CLEAR", &["+a"]);
    row.name = "Clear bottom rows".into();
    let skill = &prepared(&[row])[0];
    let words = |text: &str, tag| Query::new(PredicateSet::EMPTY, tag).with_text(text);
    assert!((skill.relevance(&words("tetris rows", Tag::Clear)) - (0.35 * 0.5 + 0.35)).abs() < 1e-12);
    // Another tag: no tag match, and its word dilutes the overlap: one of five.
    assert!((skill.relevance(&words("tetris rows", Tag::Merge)) - 0.35 * 0.2).abs() < 1e-12);
    assert_eq!(skill.relevance(&words("", Tag::Survive)), 0.0);
}

#[test]
fn words_are_runs_of_at_least_two_letters_in_lower_case_each_once() {
    assert_eq!(Words::of(["max_ge_128", "Max of A"]), Words::of(["of max ge 128"]));
    assert_eq!(Words::of(["a b c"]), Words::default());
    assert_eq!(Words::default().jaccard(&Words::default()), 0.0);
    // The words of a contract count at their own weight: here one of three is shared.
    let mut row = skill(1, "", &["event.x"]);
    row.name = String::new();
    let query = Query::new(PredicateSet::EMPTY, Tag::Merge).with_text("some event");
    assert!((prepared(&[row])[0].relevance(&query) - 0.30 / 3.0).abs() < 1e-12);
}

#[test]
fn b25_learnt_contracts_are_judged_in_their_own_vocabulary() {
    let mut row = skill(1, "CLEAR", &["+a", "-b"]);
    row.preconditions = vec!["c".into()];
    let learnt = &prepared(&[row])[0];
    assert_eq!(learnt.applicability(set(&["b", "c"])), 1.0);
    assert_eq!(learnt.applicability(set(&["a"])), -1.0);
    assert!((learnt.applicability(set(&["b"])) - 1.0 / 3.0).abs() < 1e-12);
    // A fitting contract is no penalty against an empty one.
    let empty = &prepared(&[skill(2, "CLEAR", &[])])[0];
    assert_eq!(empty.applicability(set(&["b", "c"])), 0.0);
    assert_eq!(ids(&[skill(1, "CLEAR", &["+a", "-b"]), skill(2, "CLEAR", &[])], &query(&["b"], Tag::Clear)), [1, 2]);
}

#[test]
fn b28_retired_skills_are_never_offered() {
    let mut row = skill(1, "CLEAR", &["+a"]);
    row.state = "retired".into();
    assert_eq!(ids(&[row, skill(2, "CLEAR", &["+a"])], &query(&[], Tag::Clear)), [2]);
}

#[test]
fn what_is_fulfilled_or_to_be_given_up_is_left_out() {
    let reach = skill(1, "CLEAR", &["+a", "-b"]);
    assert_eq!(ids(std::slice::from_ref(&reach), &query(&["a"], Tag::Clear)), [0; 0]);
    assert_eq!(ids(std::slice::from_ref(&reach), &query(&["a", "b"], Tag::Clear)), [1]);
    // Events lie ahead, so a contract with one is never fulfilled by a state.
    assert_eq!(ids(&[skill(1, "CLEAR", &["+a", "event.x"])], &query(&["a"], Tag::Clear)), [1]);
    let mut careful = reach;
    careful.abort = vec!["+d".into(), "-c".into(), "event.y".into()];
    let offered = |state: &[&str]| !ids(std::slice::from_ref(&careful), &query(state, Tag::Clear)).is_empty();
    assert!(offered(&["c"]));
    assert!(!offered(&["c", "d"]) && !offered(&[]) && !offered(&["c", "event.y"]));
}

#[test]
fn confidence_adds_up_as_documented() {
    let mut row = skill(1, "CLEAR", &["+a"]);
    (row.name, row.pass_rate, row.uses) = ("clear".into(), 0.8, 3);
    let mut other = skill(2, "MERGE", &["+b"]);
    other.uses = 4;
    let found = candidates(&prepared(&[row, other]), &query(&[], Tag::Clear), &RetrievalConfig::default());
    // Name and query share their only word; ln(N + 1) with N = 7.
    let expected = 0.40 * 0.70 + 0.30 * 1.0 + 0.30 * 0.8 + 0.15 * (8.0f64.ln() / 4.0).sqrt();
    assert_eq!(found[0].skill, SkillId(1));
    assert!((found[0].score - expected).abs() < 1e-12, "{} {expected}", found[0].score);
    assert_eq!((found[0].relevance, found[0].applicability), (0.70, 1.0));
}

#[test]
fn seldom_used_skills_get_their_chance_and_ties_go_by_id() {
    let bank = |uses: [u32; 3]| -> Vec<Skill> {
        let number = |(index, uses)| Skill { uses, ..skill(index as u32 + 1, "CLEAR", &["+a"]) };
        uses.into_iter().enumerate().map(number).collect()
    };
    let named_alike = |uses| bank(uses).into_iter().map(|row| Skill { name: String::new(), ..row }).collect::<Vec<_>>();
    assert_eq!(ids(&named_alike([0, 0, 0]), &query(&[], Tag::Clear)), [1, 2, 3]);
    assert_eq!(ids(&named_alike([9, 5, 0]), &query(&[], Tag::Clear)), [3, 2, 1]);
}

#[test]
fn only_the_best_are_returned() {
    let bank: Vec<Skill> = (1..=9).map(|id| skill(id, "CLEAR", &["+a"])).collect();
    assert_eq!(ids(&bank, &query(&[], Tag::Clear)).len(), 3);
    assert!(ids(&[], &query(&[], Tag::Clear)).is_empty());
}

#[test]
fn unknown_predicates_are_errors_that_name_the_skill() {
    for row in [
        Skill { preconditions: vec!["zzz".into()], ..skill(5, "", &["+a"]) },
        Skill { abort: vec!["+zzz".into()], ..skill(5, "", &["+a"]) },
        skill(5, "", &["+zzz"]),
    ] {
        let message = RetrievalSkill::prepare(&[row], &env()).unwrap_err().to_string();
        assert!(message.contains("zzz") && message.contains("skill 5"), "{message}");
    }
}

#[test]
fn the_words_of_a_skill_are_its_tag_and_its_most_telling_clause() {
    let words = |tag: &str, literals: &[&str]| skill_words(&skill(1, tag, literals));
    assert_eq!(words("MERGE", &["+legal_up", "+max_ge_64", "+max_ge_128", "event.max_up"]), ["MERGE", "max_ge_128"]);
    assert_eq!(words("merge", &["+empty_ge_4", "event.merged_ge_64"]), ["MERGE", "event.merged_ge_64"]);
    assert_eq!(words("MERGE", &["+legal_up", "event.max_up"]), ["MERGE", "event.max_up"]);
    assert_eq!(words("MERGE", &["+merge_up", "+legal_up", "-board_full"]), ["MERGE", "legal_up"]);
    assert_eq!(words("MERGE", &["-empty_ge_8", "-board_full"]), ["MERGE", "board_full"]);
    assert_eq!(words("", &[]), ["<none>", "<none>"]);
}

fn bank() -> impl Strategy<Value = Vec<Skill>> {
    let literals = prop::sample::subsequence(vec!["+a", "+b", "-c", "-d", "event.x"], 0..5);
    let row = (literals, prop::sample::select(vec!["CLEAR", "MERGE", ""]), 0u32..6, 0u32..=4, prop::bool::weighted(0.8));
    prop::collection::vec(row, 0..12).prop_map(|rows| {
        let number = |(index, (literals, tag, uses, quarters, active)): (usize, (Vec<&'static str>, &'static str, u32, u32, bool))| Skill {
            uses,
            pass_rate: f64::from(quarters) / 4.0,
            state: if active { "active" } else { "retired" }.into(),
            ..skill(index as u32 + 1, tag, &literals)
        };
        rows.into_iter().enumerate().map(number).collect()
    })
}

proptest! {
    #[test]
    fn the_order_of_the_bank_does_not_matter(bank in bank(), state in 0u128..64, shift in 0usize..12) {
        let query = Query::new(PredicateSet(state), Tag::Clear);
        let mut turned = bank.clone();
        turned.reverse();
        turned.rotate_left(shift % bank.len().max(1));
        prop_assert_eq!(ids(&bank, &query), ids(&turned, &query));
    }

    #[test]
    fn candidates_are_active_available_and_ranked(bank in bank(), state in 0u128..64) {
        let query = Query::new(PredicateSet(state), Tag::Merge);
        let prepared = prepared(&bank);
        let found = candidates(&prepared, &query, &RetrievalConfig { candidates: 64, ..RetrievalConfig::default() });
        for pair in found.windows(2) {
            prop_assert!(pair[0].score > pair[1].score || (pair[0].score == pair[1].score && pair[0].skill < pair[1].skill));
        }
        for (index, skill) in prepared.iter().enumerate() {
            let offered = found.iter().find(|candidate| candidate.index == index);
            prop_assert_eq!(offered.is_some(), skill.is_available(query.state));
            if let Some(offered) = offered {
                prop_assert_eq!(offered.skill, skill.skill);
                prop_assert!((0.0..=1.0).contains(&offered.relevance) && (-1.0..=1.0).contains(&offered.applicability));
            }
        }
    }
}
