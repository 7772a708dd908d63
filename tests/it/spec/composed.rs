//! `extends` and `--set`.

use super::*;
use insta::assert_snapshot;

fn refused_files(files: &[(&str, &str)], sets: &[&str]) -> String {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    let (result, report) = load_files(&files, sets);
    assert!(result.is_err(), "accepted:\n{report}");
    report
}

fn accepted_files(files: &[(&str, &str)], sets: &[&str]) -> Resolved {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    let (result, report) = load_files(&files, sets);
    result.unwrap_or_else(|_| panic!("{report}"))
}

#[test]
fn extends_changes_adds_and_removes() {
    let over = "extends: base.yaml\nsteps: 3\nenv: { max_steps: null }\ngraph:\n  rollouts: { starts: 2, tags: [x], switch: { threshold: 0.5 } }\n  update: null\n  exam: { op: rollout, policy: start }\n";
    let over = over.to_owned() + "  segments: { bank: null }\n";
    let base = GOOD.replace("starts: 8", "tags: [a, b]").replace("then: update", "then: learner");
    let base = base.replace("  update: { op", "  learner: { op: grpo_update, policy: start, rollouts: rollouts }\n  update: { op");
    let resolved = accepted_files(&[("over.yaml", &over), ("base.yaml", &base)], &[]);
    assert_eq!(resolved.settings.steps, 3);
    assert_eq!(resolved.settings.seed, 7);
    assert_eq!(resolved.settings.env.max_steps, None);
    let rollouts = resolved.node("rollouts").unwrap();
    assert_eq!(rollouts.config["starts"], 2);
    assert_eq!(rollouts.config["tags"], serde_json::json!(["x"]));
    assert_eq!(rollouts.config["switch"], serde_json::json!({"patience": 10, "threshold": 0.5}));
    assert!(resolved.node("update").is_none());
    assert!(resolved.node("exam").is_some());
    assert!(!resolved.node("segments").unwrap().wires.contains_key("bank"));
    assert!(resolved.origins["graph.rollouts.starts"].ends_with("over.yaml:5"));
    assert!(resolved.origins["graph.rollouts.switch.patience"].ends_with("base.yaml:17"));
}

#[test]
fn errors_keep_the_file_that_they_come_from() {
    let base = GOOD.replace("noise: 0.3", "noise: 3");
    assert_snapshot!(refused_files(&[("over.yaml", "extends: base.yaml\nsteps: none\n"), ("base.yaml", &base)], &["seed=x"]));
}

#[test]
fn missing_base() {
    assert_snapshot!(refused_files(&[("over.yaml", "version: 1\nextends: bass.yaml\n")], &[]));
}

#[test]
fn extends_that_is_no_name() {
    assert_snapshot!(refused_files(&[("over.yaml", "extends: [a.yaml, b.yaml]\n")], &[]));
}

#[test]
fn extends_loop() {
    let files = [("a.yaml", "extends: b.yaml\n"), ("b.yaml", "name: b\nextends: ./c.yaml\n"), ("c.yaml", "extends: b.yaml\n")];
    assert_snapshot!(refused_files(&files, &[]));
    assert_snapshot!(refused_files(&[("a.yaml", "extends: a.yaml\n")], &[]));
}

#[test]
fn chain_of_files_is_limited() {
    let texts: Vec<(String, String)> = (0..9).map(|at| (format!("f{at}.yaml"), format!("extends: f{}.yaml\n", at + 1))).collect();
    let mut files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    files.push(("f9.yaml", GOOD));
    assert_snapshot!(refused_files(&files, &[]));
    assert!(spec_of_chain(7).is_ok());
}

fn spec_of_chain(length: usize) -> Result<Resolved, SpecErrors> {
    let texts: Vec<(String, String)> = (0..length).map(|at| (format!("f{at}.yaml"), format!("extends: f{}.yaml\n", at + 1))).collect();
    let mut files: Vec<(&str, &[u8])> = texts.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    let last = format!("f{length}.yaml");
    files.push((&last, GOOD.as_bytes()));
    load_files(&files, &[]).0
}

#[test]
fn set_changes_values_in_order() {
    let sets = [
        "steps=2",
        "graph.rollouts.starts=3",
        "graph.rollouts.switch={ threshold: 0.25 }",
        "model.adapters.rank=8",
        "steps=5",
        "env.max_steps=",
        "name=\"a=b\"",
    ];
    let resolved = accepted_files(&[("spec.yaml", GOOD)], &sets);
    assert_eq!(resolved.settings.steps, 5);
    assert_eq!(resolved.settings.name, "a=b");
    assert_eq!(resolved.settings.env.max_steps, None);
    assert_eq!(resolved.settings.model.adapters.rank, 8);
    let rollouts = resolved.node("rollouts").unwrap();
    assert_eq!(rollouts.config["starts"], 3);
    assert_eq!(rollouts.config["switch"], serde_json::json!({"patience": 20, "threshold": 0.25}));
    assert_eq!(resolved.origins["graph.rollouts.starts"], "--set");
}

#[test]
fn set_reaches_into_what_was_not_written() {
    let resolved = accepted_files(&[("spec.yaml", GOOD)], &["graph.seeds.switch.patience=3", "graph.segments.bank.then=bank"]);
    assert_eq!(resolved.node("seeds").unwrap().config["switch"]["patience"], 3);
}

#[test]
fn set_of_unknown_paths() {
    let sets = [
        "graph.rollout.starts=2",
        "graph.rollouts.stats=2",
        "modle.base=x",
        "zzz=1",
        "starts=1",
        "graph.rollouts.zzz=1",
        "graph.rollouts.switch.zzz=1",
        "extends=a.yaml",
    ];
    assert_snapshot!(refused_files(&[("spec.yaml", GOOD)], &sets));
}

#[test]
fn set_of_wrong_values() {
    let sets = ["graph.rollouts.starts=many", "steps=-1", "env.game=[", "nonsense", "graph.cuts.rollouts.then=rollouts", "model.size=0.2M"];
    assert_snapshot!(refused_files(&[("spec.yaml", GOOD)], &sets));
}
