//! What contract learning must do, on planted instances.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::maintain_bank::planted::{contract, info, instance};

/// `n` copies of an instance, with ids from `first` on.
fn copies(first: u64, n: u64, text: &str, holdout: bool) -> Vec<Instance> {
    (first..first + n).map(|id| instance(id, text, holdout)).collect()
}

fn learn(parts: &[Vec<Instance>], config: &Config) -> Learned {
    learn_contract(&parts.concat(), config)
}

#[test]
fn clauses_are_what_enough_learning_instances_share() {
    // Vectors 54 and 55: p five times, q four times, -d three times among five.
    let five = [
        instance(1, "+a +b -d", false),
        instance(2, "+a +b -d", false),
        instance(3, "+a +b -d", false),
        instance(4, "+a +b", false),
        instance(5, "+a", false),
    ];
    for (frequency, expected) in [(0.8, "+a +b"), (0.5, "+a +b -d"), (0.9, "+a")] {
        let learned = learn_contract(&five, &Config { frequency, ..Config::default() });
        assert_eq!(learned.contract, contract(expected), "{frequency}");
        let support = |text: &str| {
            let literal = contract(text).literals().next().unwrap();
            learned.counts.iter().find(|count| count.literal == literal).unwrap().support
        };
        assert_eq!((support("+a"), support("+b"), support("-d")), (5, 4, 3));
    }
}

#[test]
fn held_out_instances_judge_a_contract_and_choose_no_clause() {
    // As vector 57, with verification on held-out instances instead of on those learnt from. Dropping +c because of them, and then verifying
    // on them, would find every contract good.
    let parts =
        [copies(1, 6, "+a +b +c", false), vec![instance(7, "+a +b", true), instance(8, "+a +b +c", true), instance(9, "b | +a", true)]];
    let learned = learn(&parts, &Config::default());
    assert_eq!(learned.contract, contract("+a +b +c"));
    let holds: Vec<u32> = learned.counts.iter().map(|count| count.holdout_holds).collect();
    assert_eq!(holds, [3, 3, 1], "of +a, +b (once as it was true before) and +c");
    assert_eq!((learned.passes, learned.holdout_instances), (1, 3));
    assert_eq!(learned.verdict(&Config::default()), Verdict::BelowGate);
}

#[test]
fn contracts_are_gated() {
    let config = Config::default();
    let good = || copies(1, 5, "+a +b +c", false);
    let cases: [(&str, Vec<Instance>, Verdict); 6] = [
        ("few", copies(1, 4, "+a", false), Verdict::FewInstances),
        ("nothing shared", (1..7).map(|id| instance(id, ["+a", "+b", "+c"][id as usize % 3], false)).collect(), Verdict::NoClause),
        ("no effect at all", copies(1, 9, "a | ", false), Verdict::NoClause),
        ("not verified", good(), Verdict::FewHoldout),
        ("verified", [good(), copies(10, 3, "+a +b +c", true), copies(20, 2, "+d", true)].concat(), Verdict::Accepted),
        (
            "below the gate",
            // Each clause holds on two of four, but no instance fulfils 70 % of the three.
            [good(), vec![instance(10, "+a +b", true), instance(11, "+a +c", true), instance(12, "+b +c", true), instance(13, "+a", true)]]
                .concat(),
            Verdict::BelowGate,
        ),
    ];
    for (name, instances, expected) in cases {
        let learned = learn_contract(&instances, &config);
        assert_eq!(learned.verdict(&config), expected, "{name}: {learned:?}");
        let accepted = clauses(SkillId(1), &learned, &config, &info()).iter().any(|clause| clause.accepted);
        assert_eq!(accepted, expected == Verdict::Accepted, "{name}");
    }
}

#[test]
fn b6_an_empty_contract_is_never_accepted() {
    // Vector 58 of the published code: an empty contract passes always.
    let learned = learn(&[copies(1, 20, "", false), copies(30, 5, "", true)], &Config { pass_rate: 0.0, ..Config::default() });
    assert!(learned.contract.is_empty());
    assert_eq!(learned.verdict(&Config { pass_rate: 0.0, ..Config::default() }), Verdict::NoClause);
    assert_eq!(learned.pass_rate(), 0.0);
}

#[test]
fn b26_a_contract_never_contradicts_itself() {
    let config = Config { frequency: 0.3, ..Config::default() };
    // `a` is made true by half of the instances and made false by the other half.
    let even = learn(&[copies(1, 5, "+a +b", false), copies(6, 5, "-a +b", false)], &config);
    assert_eq!(even.contract, contract("+b"));
    let uneven = learn(&[copies(1, 6, "+a +b", false), copies(7, 4, "-a +b", false)], &config);
    assert_eq!(uneven.contract, contract("+a +b"));
    let rows = clauses(SkillId(1), &even, &config, &info());
    assert!(rows.iter().filter(|row| row.literal == "a").all(|row| row.reason.contains("opposite")), "{rows:?}");
}

#[test]
fn b27_progress_to_different_levels_agrees_on_the_ladder() {
    // Vector 64: stack heights 5 -> 3 and 5 -> 4 gave the contradictory clauses "stack is 3" and "stack is 4", which nothing fulfils. On a
    // ladder of thresholds (a: at least 5, b: at least 4) both go below 5, and only one goes below 4.
    let parts = [copies(1, 4, "-a -b", false), copies(5, 6, "b | -a", false), copies(11, 1, "-a -b", true), copies(12, 2, "b | -a", true)];
    let learned = learn(&parts, &Config::default());
    assert_eq!(learned.contract, contract("-a"));
    assert_eq!(learned.pass_rate(), 1.0);
}

#[test]
fn b29_held_out_instances_are_verified_on_and_never_learnt_from() {
    let learned = learn(&[copies(1, 6, "+a", false), copies(10, 6, "+a +b", true)], &Config::default());
    assert_eq!(learned.contract, contract("+a"), "+b occurs in held-out instances only");
    assert!(learned.counts.iter().flat_map(|count| &count.evidence).all(|segment| segment.0 < 10));
    let doubled = learn(&[copies(1, 6, "+a", false), copies(10, 6, "+c", true)], &Config::default());
    assert_eq!(doubled.verdict(&Config::default()), Verdict::BelowGate, "what was learnt is refuted by every held-out instance");
    assert_eq!(doubled.contract, contract("+a"), "held-out instances choose nothing");
}

#[test]
fn a_predicate_that_is_always_true_is_no_clause() {
    let learned = learn(&[copies(1, 10, "a b | +c", false), copies(20, 3, "a b | +c", true)], &Config::default());
    assert_eq!(learned.contract, contract("+c"));
}

#[test]
fn the_best_supported_clauses_stay() {
    let parts = [copies(1, 6, "+a +b +c +d", false), copies(7, 2, "+b +d", false)];
    let config = Config { max_clauses: 3, ..Config::default() };
    // b and d are best supported; a comes before c.
    assert_eq!(learn(&parts, &config).contract, contract("+a +b +d"));
    let rows = clauses(SkillId(1), &learn(&parts, &config), &config, &info());
    assert!(rows.iter().find(|row| row.literal == "c").unwrap().reason.contains("3 others"));
}

#[test]
fn evidence_is_the_first_supporting_learning_instances_in_any_order_of_arrival() {
    let mut instances = [copies(100, 20, "+a", false), copies(200, 3, "+a", true), copies(50, 2, "+b", false)].concat();
    let forward = learn_contract(&instances, &Config::default());
    assert_eq!(forward.counts[0].evidence, (100..108).map(SegmentId).collect::<Vec<_>>());
    instances.reverse();
    assert_eq!(learn_contract(&instances, &Config::default()), forward);
}

#[test]
fn rows_hold_every_effect_with_its_figures_and_a_reason() {
    let parts = [copies(1, 7, "+a", false), copies(8, 3, "+b", false), copies(20, 4, "+a", true), copies(30, 1, "+c", true)];
    let config = Config::default();
    let rows = clauses(SkillId(3), &learn(&parts, &config), &config, &info());
    assert_eq!(rows.iter().map(|row| row.literal.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let first = &rows[0];
    assert_eq!((first.skill, first.support, first.instances, first.rate), (SkillId(3), 7, 10, 0.7));
    assert_eq!((first.holdout_support, first.holdout_instances, first.holdout_rate, first.pass_rate), (4, 5, 0.8, 0.8));
    assert!(first.accepted && !rows[1].accepted && !rows[2].accepted);
    assert!(rows.iter().all(|row| !row.reason.is_empty()));
    assert_eq!(accepted_contracts(&rows, &info()).unwrap(), [(SkillId(3), contract("+a"))].into());
}

#[test]
fn a_share_of_seven_in_ten_reaches_a_threshold_of_seven_tenths() {
    for whole in 1..200u32 {
        for part in 0..=whole {
            let text = format!("{}", f64::from(part) / f64::from(whole));
            assert!(share(part, whole) >= text.parse::<f64>().unwrap());
        }
    }
    assert!(share(7, 10) >= 0.7 && share(3, 5) >= 0.6 && share(29, 100) >= 0.29);
}

#[test]
fn rows_of_another_environment_are_refused() {
    let row = Clause { skill: SkillId(9), literal: "nowhere".into(), effect: "add".into(), accepted: true, ..Clause::default() };
    let message = accepted_contracts(&[row], &info()).unwrap_err().to_string();
    assert!(message.contains("skill 9") && message.contains("nowhere"), "{message}");
}

#[test]
fn the_configuration_knows_its_keys() {
    assert!(serde_json::from_str::<Config>(r#"{"frequency": 0.8}"#).is_ok());
    assert!(serde_json::from_str::<Config>(r#"{"frequencey": 0.8}"#).is_err());
}
