//! Specs: every kind of bad input is reported with its place, and what is accepted survives being frozen.
//!
//! The operators here are stand-ins with the ports of the real ones, so that messages stay put when a real operator gains a key.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cosplay::spec::{self, Resolved, SpecErrors};
use cosplay_operators::kind::Kind;
use cosplay_operators::operator::{OperatorError, Port, Routing, Schedule};
use cosplay_operators::registry::{ConfigProblem, OperatorInfo, resolve};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

mod bad_input;
mod composed;
mod frozen;
mod real;
mod shown;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SplitName {
    /// For learning.
    #[default]
    Train,
    /// For reports alone.
    Test,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Advantage {
    Group,
    RewardToGo,
    #[default]
    Gae,
}

/// Weights of the switch rule.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Switch {
    /// Steps after which a skill counts as exhausted.
    #[schemars(range(min = 1, max = 1000))]
    patience: u32,
    /// Shift of intention that ends a skill.
    threshold: Option<f64>,
}

impl Default for Switch {
    fn default() -> Self {
        Self { patience: 20, threshold: None }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Play {
    /// Scripted policy that plays.
    teacher: String,
    /// Share of random moves.
    #[schemars(range(min = 0.0, max = 1.0))]
    noise: f64,
    /// Number of starts.
    #[schemars(range(min = 1, max = 4096))]
    starts: u32,
    /// Episodes from each start.
    #[schemars(range(min = 1, max = 256))]
    episodes_per_start: u32,
    /// Split of the seeds.
    split: SplitName,
    /// When a skill is left.
    switch: Switch,
    /// Tags that count.
    #[schemars(length(max = 3))]
    tags: Vec<String>,
}

impl Default for Play {
    fn default() -> Self {
        Self {
            teacher: "greedy_merge".into(),
            noise: 0.3,
            starts: 8,
            episodes_per_start: 8,
            split: SplitName::Train,
            switch: Switch::default(),
            tags: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Files of stored episodes.
    #[schemars(extend("format" = "path"))]
    from: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Update {
    /// Estimator of the advantage.
    advantage: Advantage,
    /// Whether ratios are clipped.
    clip: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Nothing {}

const fn port(name: &'static str, kind: Kind, required: bool) -> Port {
    Port { name, kind, required, routing: Routing::Broadcast, accumulates: false, about: "what it needs" }
}

const PLAIN: OperatorInfo = OperatorInfo {
    name: "",
    about: "A stand-in.",
    paper: "section 4",
    inputs: &[],
    output: Kind::Rollouts,
    schedule: Schedule::EveryStep,
    restores: &[],
    inherits: &[],
    prepare: None,
    plays: false,
    learns: false,
    schema: || schemars::schema_for!(Nothing),
    resolve: resolve::<Nothing>,
    check: |_, _| Vec::new(),
    build: |_, _| Err(OperatorError::Other("a stand-in".to_owned())),
};

static TEACHER: OperatorInfo = OperatorInfo {
    name: "teacher_rollouts",
    schedule: Schedule::Once,
    plays: true,
    schema: || schemars::schema_for!(Play),
    resolve: resolve::<Play>,
    check: |config, settings| {
        let teacher = config["teacher"].as_str().unwrap_or_default();
        let valid = vec!["expectimax".to_owned(), "greedy_merge".to_owned()];
        if valid.iter().any(|name| name == teacher) {
            return Vec::new();
        }
        let message = format!("`{}` has no scripted policy `{teacher}`", settings.env.game);
        vec![ConfigProblem { key: "teacher", message, valid }]
    },
    ..PLAIN
};
static STORED: OperatorInfo =
    OperatorInfo { name: "stored_rollouts", plays: true, schema: || schemars::schema_for!(Stored), resolve: resolve::<Stored>, ..PLAIN };
static START: OperatorInfo = OperatorInfo {
    name: "cold_start",
    inputs: &[port("rollouts", Kind::Rollouts, true)],
    output: Kind::Policy,
    schedule: Schedule::Once,
    learns: true,
    ..PLAIN
};
static ROLLOUT: OperatorInfo = OperatorInfo {
    name: "rollout",
    inputs: &[port("policy", Kind::Policy, true), port("bank", Kind::Bank, false)],
    plays: true,
    schema: || schemars::schema_for!(Play),
    resolve: resolve::<Play>,
    ..PLAIN
};
static CUTS: OperatorInfo =
    OperatorInfo { name: "propose_boundaries", inputs: &[port("rollouts", Kind::Rollouts, true)], output: Kind::Cuts, ..PLAIN };
static SEGMENTS: OperatorInfo = OperatorInfo {
    name: "infer_segmentation",
    inputs: &[port("rollouts", Kind::Rollouts, true), port("cuts", Kind::Cuts, true), port("bank", Kind::Bank, false)],
    output: Kind::Segments,
    ..PLAIN
};
static BANK: OperatorInfo = OperatorInfo {
    name: "maintain_bank",
    inputs: &[port("segments", Kind::Segments, true), port("bank", Kind::Bank, false)],
    output: Kind::Bank,
    learns: true,
    ..PLAIN
};
static UPDATE: OperatorInfo = OperatorInfo {
    name: "grpo_update",
    inputs: &[port("policy", Kind::Policy, true), port("rollouts", Kind::Rollouts, true), port("bank", Kind::Bank, false)],
    output: Kind::Policy,
    learns: true,
    schema: || schemars::schema_for!(Update),
    resolve: resolve::<Update>,
    ..PLAIN
};

/// The stand-ins, sorted by name.
static REGISTRY: [&OperatorInfo; 8] = [&START, &UPDATE, &SEGMENTS, &BANK, &CUTS, &ROLLOUT, &STORED, &TEACHER];

/// A spec without faults.
const GOOD: &str = r#"version: 1
name: "2048"
seed: 7
steps: 40
env: { game: "2048", max_steps: 200 }
model:
  base: embedded
  adapters: { rank: 16, alpha: 32 }
graph:
  seeds: { op: teacher_rollouts, noise: 0.3 }
  start: { op: cold_start, rollouts: seeds }
  rollouts:
    op: rollout
    policy: { initial: start, then: update }
    bank: { initial: empty, then: bank }
    starts: 8
    switch: { patience: 10 }
  cuts: { op: propose_boundaries, rollouts: rollouts }
  segments: { op: infer_segmentation, rollouts: rollouts, cuts: cuts, bank: { initial: empty, then: bank } }
  bank: { op: maintain_bank, segments: segments, bank: { initial: empty, then: bank } }
  update: { op: grpo_update, policy: { initial: start, then: update }, rollouts: rollouts, bank: bank }
"#;

/// Loads files of a folder of their own, the first of them, with `--set` arguments; names the folder `DIR` in the report.
fn load_files(files: &[(&str, &[u8])], sets: &[&str]) -> (Result<Resolved, SpecErrors>, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let result = spec::load(&folder.path().join(files[0].0), &sets, &REGISTRY);
    let text = match &result {
        Ok(resolved) => spec::plan::text(resolved),
        Err(errors) => errors.to_string(),
    };
    (result, without_folder(&text, folder.path()))
}

fn without_folder(text: &str, folder: &Path) -> String {
    text.replace(&format!("{}/", folder.display()), "")
}

/// The report of a spec that must be refused.
fn refused(text: impl AsRef<[u8]>) -> String {
    let (result, report) = load_files(&[("spec.yaml", text.as_ref())], &[]);
    assert!(result.is_err(), "accepted:\n{report}");
    report
}

/// The report of the good spec with one text replaced by another.
fn refused_with(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "{from} occurs once in the good spec");
    refused(GOOD.replace(from, to))
}

fn accepted(text: &str) -> Resolved {
    let (result, report) = load_files(&[("spec.yaml", text.as_bytes())], &[]);
    result.unwrap_or_else(|_| panic!("{report}"))
}
