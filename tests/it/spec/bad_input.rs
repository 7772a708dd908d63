//! Each kind of bad input, alone, as the user sees it.

use super::*;
use insta::assert_snapshot;

#[test]
fn the_good_spec_is_good() {
    let resolved = accepted(GOOD);
    let order: Vec<&str> = resolved.order.iter().map(|index| resolved.nodes[*index].name.as_str()).collect();
    assert_eq!(order, ["seeds", "start", "rollouts", "cuts", "segments", "bank", "update"]);
}

#[test]
fn misspelt_key_at_the_top() {
    assert_snapshot!(refused_with("steps: 40", "step: 40"));
}

#[test]
fn misspelt_key_at_depth_3() {
    assert_snapshot!(refused_with("adapters: { rank: 16", "adapters: { ranks: 16"));
}

#[test]
fn misspelt_key_in_a_nested_configuration() {
    assert_snapshot!(refused_with("patience: 10", "patients: 10"));
}

#[test]
fn misspelt_key_in_a_node() {
    assert_snapshot!(refused_with("starts: 8", "stats: 8"));
}

#[test]
fn unknown_operator() {
    assert_snapshot!(refused_with("op: propose_boundaries", "op: propose_boundary"));
}

#[test]
fn missing_operator() {
    assert_snapshot!(refused_with("op: propose_boundaries", "operator: propose_boundaries"));
}

#[test]
fn wrong_port_name() {
    assert_snapshot!(refused_with("segments: segments", "segment: segments"));
}

#[test]
fn wrong_kind_on_a_port() {
    assert_snapshot!(refused_with("segments: segments", "segments: rollouts"));
}

#[test]
fn nothing_gives_the_kind() {
    let without_cuts = GOOD.replace("  cuts: { op: propose_boundaries, rollouts: rollouts }\n", "");
    assert_snapshot!(refused(without_cuts.replace("cuts: cuts", "cuts: rollouts")));
}

#[test]
fn missing_input() {
    assert_snapshot!(refused_with("{ op: cold_start, rollouts: seeds }", "{ op: cold_start }"));
}

#[test]
fn wire_to_a_missing_node() {
    assert_snapshot!(refused_with("rollouts: seeds", "rollouts: seed"));
}

#[test]
fn then_to_a_missing_node() {
    assert_snapshot!(refused_with("    policy: { initial: start, then: update }", "    policy: { initial: start, then: updates }"));
}

#[test]
fn then_of_an_operator_that_runs_once() {
    assert_snapshot!(refused_with("    policy: { initial: start, then: update }", "    policy: { initial: start, then: start }"));
}

#[test]
fn initial_of_an_operator_that_runs_in_every_step() {
    assert_snapshot!(refused_with("    policy: { initial: start, then: update }", "    policy: { initial: update, then: update }"));
}

#[test]
fn an_operator_that_runs_once_takes_nothing_from_later_steps() {
    assert_snapshot!(refused_with("rollouts: seeds", "rollouts: rollouts"));
}

#[test]
fn empty_is_for_banks_only() {
    let feedback = "    policy: { initial: empty, then: update }";
    assert_snapshot!(refused_with("    policy: { initial: start, then: update }", feedback));
}

#[test]
fn half_a_feedback() {
    assert_snapshot!(refused_with("    bank: { initial: empty, then: bank }", "    bank: { initial: empty, than: bank }"));
}

#[test]
fn cycle_without_then() {
    assert_snapshot!(refused_with("    bank: { initial: empty, then: bank }", "    bank: bank"));
}

#[test]
fn two_cycles() {
    let second = "  a: { op: rollout, policy: b }\n  b: { op: grpo_update, policy: b, rollouts: a }\n";
    assert_snapshot!(refused(GOOD.replace("    bank: { initial: empty, then: bank }", "    bank: bank") + second));
}

#[test]
fn a_node_that_waits_for_itself() {
    let itself = "segments: segments, bank: bank }";
    assert_snapshot!(refused_with("segments: segments, bank: { initial: empty, then: bank } }", itself));
}

#[test]
fn wrong_value_types() {
    assert_snapshot!(refused(
        GOOD.replace("starts: 8", "starts: eight\n    episodes_per_start: 1e1\n    teacher: 2048\n    tags: [a, 1]")
            .replace("name: \"2048\"", "name: 2048")
            .replace("bank: bank }", "bank: [bank], clip: yes, advantage: grup }")
    ));
}

#[test]
fn value_out_of_range() {
    assert_snapshot!(refused(
        GOOD.replace("starts: 8", "starts: 0\n    tags: [a, b, c, d]")
            .replace("noise: 0.3", "noise: 1.5")
            .replace("seed: 7", "seed: -1")
            .replace("steps: 40", "steps: 2000000")
    ));
}

#[test]
fn a_number_that_no_type_holds() {
    assert_snapshot!(refused_with("seed: 7", "seed: 99999999999999999999"));
}

#[test]
fn duplicate_key() {
    assert_snapshot!(refused_with("    starts: 8\n", "    starts: 8\n    bank: bank\n    starts: 9\n"));
}

#[test]
fn alias_bomb() {
    let mut text = "version: 1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert_snapshot!(refused(text));
}

#[test]
fn nesting_of_ten_thousand() {
    assert_snapshot!(refused("graph: ".to_owned() + &"[".repeat(10_000)));
    assert_snapshot!(refused("- ".repeat(10_000) + "a"));
}

#[test]
fn empty_file() {
    assert_snapshot!(refused(""));
    assert_snapshot!(refused("# only a comment\n"));
}

#[test]
fn not_a_map() {
    assert_snapshot!(refused("- version: 1\n"));
}

#[test]
fn binary_file() {
    assert_snapshot!(refused(b"\x7fELF\x02\x01\x01\x00\x00\x00"));
    assert_snapshot!(refused(b"version: 1\nname: \xff\xfe\n"));
}

#[test]
fn file_of_more_than_a_mebibyte() {
    assert_snapshot!(refused(vec![b'#'; (1 << 20) + 1]));
}

#[test]
fn invalid_yaml() {
    assert_snapshot!(refused_with("steps: 40", "steps: [40"));
}

#[test]
fn several_documents() {
    assert_snapshot!(refused(format!("{GOOD}---\nversion: 1\n")));
}

#[test]
fn merge_key_and_tag() {
    assert_snapshot!(refused(
        GOOD.replace("env: {", "env: &env {").replace("starts: 8", "<<: *env").replace("steps: 40", "steps: !!int 40")
    ));
}

#[test]
fn missing_file() {
    let error = spec::load(Path::new("no/such/spec.yaml"), &[], &REGISTRY).unwrap_err().to_string();
    assert!(error.starts_with("error: cannot read `no/such/spec.yaml`: "), "{error}");
}

#[test]
fn test_episodes_that_reach_a_bank() {
    assert_snapshot!(refused_with("    starts: 8\n", "    split: test\n"));
}

#[test]
fn test_episodes_that_reach_a_bank_through_feedback() {
    let exam = "  exam: { op: rollout, policy: start, split: test }\n";
    let wire = "infer_segmentation, rollouts: rollouts";
    let late = "infer_segmentation, rollouts: { initial: seeds, then: exam }";
    assert_snapshot!(refused(GOOD.replace(wire, late) + exam));
}

#[test]
fn test_episodes_that_reach_a_policy_through_the_cold_start() {
    assert_snapshot!(refused_with("noise: 0.3", "noise: 0.3, split: test"));
}

#[test]
fn test_episodes_that_reach_nothing_that_learns_are_fine() {
    let graph = "  exam: { op: rollout, policy: { initial: start, then: update }, split: test }\n  exam_cuts: { op: propose_boundaries, rollouts: exam }\n";
    accepted(&format!("{GOOD}{graph}"));
}

#[test]
fn unknown_game() {
    assert_snapshot!(refused_with("game: \"2048\"", "game: \"2084\""));
}

#[test]
fn what_the_environment_itself_refuses() {
    assert_snapshot!(refused_with("max_steps: 200", "max_steps: 90000"));
    assert_snapshot!(refused_with("max_steps: 200", "max_steps: 0"));
}

#[test]
fn number_for_a_name() {
    assert_snapshot!(refused_with("game: \"2048\"", "game: 2048"));
}

#[test]
fn what_an_operator_itself_refuses() {
    assert_snapshot!(refused_with("noise: 0.3", "teacher: greedy-merge"));
}

#[test]
fn names_that_nodes_cannot_have() {
    assert_snapshot!(refused(format!(
        "{GOOD}  Exam: {{ op: teacher_rollouts }}\n  empty: {{ op: teacher_rollouts }}\n  two-words: {{ op: teacher_rollouts }}\n"
    )));
}

#[test]
fn too_many_nodes() {
    let many: String = (0..100).map(|number| format!("  n{number}: {{ op: teacher_rollouts }}\n")).collect();
    assert_snapshot!(refused(format!("version: 1\nname: many\nsteps: 1\nenv: {{ game: \"2048\" }}\ngraph:\n{many}")));
}

#[test]
fn everything_is_missing() {
    assert_snapshot!(refused("{}"));
    assert_snapshot!(refused("version: 2\nname: ''\nsteps: 1\nenv: {}\nmodel: []\ngraph: {}\n"));
}

#[test]
fn all_errors_come_at_once_and_in_order() {
    let text = GOOD
        .replace("steps: 40", "steps: 0")
        .replace("max_steps: 200", "max_step: 200")
        .replace("op: propose_boundaries", "op: propose")
        .replace("segments: segments", "segments: segmnts")
        .replace("patience: 10", "patience: 0")
        .replace("seed: 7", "seed: 7\nseed: 8");
    assert_snapshot!(refused(text));
}
