//! Bank maintenance (COS-PLAY, section 4.2): refine, materialize, merge, split and retire skills, in this order, each as a proposal with
//! its evidence and a verdict.
//!
//! Statistics decide here. What a step starts from is the evidence (all labelled segments, [`evidence`]) and the skills as the step before
//! left them; nothing else is kept, so that a resumed or rebuilt run makes the same bank. Relabellings take effect for all within the step
//! at once (the bank's proposals see each other's) and reach the table `segments` with the next step.

pub mod cluster;
pub mod describe;
pub mod evidence;
pub mod materialize;
pub mod merge;
pub mod refine;
pub mod retire;
pub mod split;
pub mod statistics;

use crate::contract::Contract;
use crate::kind::Kind;
use crate::learn_contracts::{self, Instance, accepted_contracts, environment};
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, Port, Routing, Schedule};
use crate::registry::{ConfigProblem, OperatorInfo, configuration, resolve};
use cosplay_datasets::tables::{BankEvent, Clause, Relabel, Segment, Skill};
use cosplay_datasets::{SegmentId, SkillId, TableName};
use cosplay_envs::{EnvInfo, PredicateSet};
use describe::Base;
use evidence::{Evidence, Record};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the operator.
const NAME: &str = "maintain_bank";

/// Number of segments that a bank event names.
const EVENT_EVIDENCE: usize = 32;
/// Number of segments that a skill names.
const SKILL_EVIDENCE: usize = 8;

/// State of a skill that is offered to the agent and to segmentation.
pub const ACTIVE: &str = "active";
/// State of a skill that is never offered again.
pub const RETIRED: &str = "retired";

/// When the bank changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How the contracts of proposed skills are learnt and verified. Default: the configuration of the node at `contracts`.
    pub contract: learn_contracts::Config,
    /// Most active skills.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_skills: u32,
    /// Most skills that may be made of NEW segments in one step (published code: 10).
    #[schemars(range(min = 0, max = 1_000))]
    pub max_new: u32,
    /// NEW segments of this many last steps can make a skill.
    #[schemars(range(min = 1, max = 100_000))]
    pub window: u32,
    /// Segments that a new skill, or a child of a split, needs (published code: 5, and 10 for children).
    #[schemars(range(min = 2, max = 1_000_000))]
    pub min_segments: u32,
    /// Episodes that the segments of a new skill must come from.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_episodes: u32,
    /// Jaccard distance that a new contract must keep from every active skill's (published code: 0.25).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_distance: f64,
    /// Predicates that are dangers, not goals: a skill that makes one of them true as a rule is retired, and what does so half as often is
    /// not made one. Names that the environment does not have are ignored.
    pub avoid: Vec<String>,
    /// Clusters of NEW segments with one tag are joined if their shared effects are at least this similar (Jaccard).
    #[schemars(range(min = 0.01, max = 1.0))]
    pub cluster_similarity: f64,
    /// Skills whose contracts are at least this similar (Jaccard) are merged (published code: 0.85).
    #[schemars(range(min = 0.01, max = 1.0))]
    pub merge_similarity: f64,
    /// A clause that holds on a smaller share of the held-out instances is dropped when the contract fails (published code: 0.6).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub weaken_below: f64,
    /// A skill with a lower pass rate may be split (published code: 0.7).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub split_below: f64,
    /// Share of the instances that the two parts of a split must cover; half of it if the pass rate is low.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub split_coverage: f64,
    /// Pass rate that every child of a split must reach (published code: 0.8).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub split_pass_rate: f64,
    /// A skill that no segment has supported for this many steps is retired.
    #[schemars(range(min = 1, max = 100_000))]
    pub patience: u32,
    /// A skill with a lower pass rate is retired, once it has `floor_holdout` held-out instances (published code: skill score 0.2).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub floor: f64,
    /// Held-out instances before a low pass rate can retire a skill.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub floor_holdout: u32,
    /// Most rejected proposals of a kind and step that get a row of their own; one more row counts the rest.
    #[schemars(range(min = 0, max = 100_000))]
    pub max_rejected: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            contract: learn_contracts::Config::default(),
            max_skills: 24,
            max_new: 4,
            window: 4,
            min_segments: 12,
            min_episodes: 4,
            min_distance: 0.25,
            avoid: ["board_full", "dead", "stuck", "game_over"].map(str::to_owned).to_vec(),
            cluster_similarity: 0.6,
            merge_similarity: 0.85,
            weaken_below: 0.6,
            split_below: 0.7,
            split_coverage: 0.8,
            split_pass_rate: 0.8,
            patience: 5,
            floor: 0.3,
            floor_holdout: 10,
            max_rejected: 8,
        }
    }
}

impl Config {
    /// The predicates of [`Config::avoid`] that the environment has.
    pub fn dangers(&self, info: &EnvInfo) -> PredicateSet {
        info.set(self.avoid.iter().map(String::as_str)).0
    }
}

/// What is known of the operator.
pub static INFO: OperatorInfo = OperatorInfo {
    name: NAME,
    about: "Keeps the skill bank: refines, materializes, merges, splits and retires skills, each change with its evidence and verdict.",
    paper: "COS-PLAY 4.2 (skill bank maintenance)",
    inputs: &[
        Port {
            name: "segments",
            kind: Kind::Segments,
            required: true,
            routing: Routing::ToOne,
            accumulates: true,
            about: "labelled segments: the evidence of the bank",
        },
        Port {
            name: "contracts",
            kind: Kind::Contracts,
            required: true,
            routing: Routing::ToOne,
            accumulates: false,
            about: "learnt contracts of this step",
        },
        Port {
            name: "bank",
            kind: Kind::Bank,
            required: true,
            routing: Routing::ToOne,
            accumulates: false,
            about: "the bank as the step before left it (feedback)",
        },
    ],
    output: Kind::Bank,
    schedule: Schedule::EveryStep,
    restores: &[TableName::Segments],
    inherits: &[("contract", "contracts")],
    prepare: None,
    plays: false,
    learns: true,
    schema: || schemars::schema_for!(Config),
    resolve: resolve::<Config>,
    check: |config, _| check(config),
    build: |config, context| Ok(Box::new(MaintainBank::new(configuration(NAME, config)?, context)?)),
};

fn check(config: &serde_json::Value) -> Vec<ConfigProblem> {
    let Ok(config) = Config::deserialize(config) else { return Vec::new() };
    let mut problems = Vec::new();
    // Else children would be merged again in the next step, and new skills in the same one.
    if 1.0 - config.min_distance >= config.merge_similarity {
        let message = format!(
            "merge_similarity is {}, expected more than 1 - min_distance = {}, or skills that were told apart would be merged again",
            config.merge_similarity,
            1.0 - config.min_distance
        );
        problems.push(ConfigProblem { key: "merge_similarity", message, valid: Vec::new() });
    }
    problems
}

/// What a step makes of the bank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Maintained {
    /// All skills, retired ones too, sorted by id.
    pub skills: Vec<Skill>,
    /// All proposals with their verdicts, in order.
    pub events: Vec<BankEvent>,
    /// Segments whose label has changed, sorted by segment.
    pub relabels: Vec<Relabel>,
}

/// One step of maintenance: the pure function of the operator. `evidence` already holds the segments of `step`; it is left as it was.
///
/// # Errors
/// [`OperatorError::Other`] if a row names a predicate that the environment does not have.
pub fn maintain(
    step: u64,
    bank: Vec<Skill>,
    clauses: &[Clause],
    evidence: &mut Evidence,
    config: &Config,
    info: &EnvInfo,
) -> Result<Maintained, OperatorError> {
    let learnt = accepted_contracts(clauses, info)?;
    let mut work = Work::new(step, bank, evidence, config, info)?;
    refine::refine(&mut work, clauses, &learnt);
    materialize::materialize(&mut work);
    merge::merge(&mut work);
    split::split(&mut work);
    retire::retire(&mut work, &learnt);
    statistics::update(&mut work);
    Ok(work.finish())
}

/// A skill at work.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its row.
    pub row: Skill,
    /// Its contract.
    pub contract: Contract,
}

impl Entry {
    /// Whether it is offered.
    pub fn active(&self) -> bool {
        self.row.state == ACTIVE
    }
}

/// Verdict of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Accepted,
    /// Not done, as the figures speak against it.
    Rejected,
    /// Not done now, as a limit is reached.
    Deferred,
}

impl Verdict {
    /// Name in the table `bank_events`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Accepted => "accepted",
            Verdict::Rejected => "rejected",
            Verdict::Deferred => "deferred",
        }
    }
}

/// The bank in the course of one step.
pub struct Work<'a> {
    /// The step.
    pub step: u64,
    /// The configuration.
    pub config: &'a Config,
    /// The environment.
    pub info: &'a EnvInfo,
    /// All skills.
    pub skills: BTreeMap<SkillId, Entry>,
    /// All segments, with the labels as changed so far.
    pub evidence: &'a mut Evidence,
    /// How common everything is among all segments.
    pub base: Base,
    events: Vec<BankEvent>,
    relabels: BTreeMap<SegmentId, Relabel>,
    next: u32,
}

impl<'a> Work<'a> {
    fn new(step: u64, bank: Vec<Skill>, evidence: &'a mut Evidence, config: &'a Config, info: &'a EnvInfo) -> Result<Self, OperatorError> {
        let mut skills = BTreeMap::new();
        for row in bank {
            let contract = Contract::from_skill(&row, info)?;
            skills.insert(row.skill, Entry { row, contract });
        }
        // Retired skills stay in the table, so that no id is ever used again.
        let next = skills.keys().next_back().map_or(0, |last| last.0 + 1);
        let base = Base::of(evidence.records());
        Ok(Self { step, config, info, skills, evidence, base, events: Vec::new(), relabels: BTreeMap::new(), next })
    }

    /// Ids of the active skills, in order.
    pub fn active(&self) -> Vec<SkillId> {
        self.skills.iter().filter(|(_, entry)| entry.active()).map(|(skill, _)| *skill).collect()
    }

    /// Whether another skill may become active.
    pub fn has_room(&self) -> bool {
        self.active().len() < self.config.max_skills as usize
    }

    /// An id that no skill has had before.
    pub fn next_id(&mut self) -> SkillId {
        let id = SkillId(self.next);
        self.next += 1;
        id
    }

    /// The active skill whose contract is most similar to this one, other than `except`, with the Jaccard similarity.
    pub fn nearest(&self, contract: &Contract, except: &[SkillId]) -> Option<(SkillId, f64)> {
        let mut nearest: Option<(SkillId, f64)> = None;
        for (skill, entry) in self.skills.iter().filter(|(skill, entry)| entry.active() && !except.contains(skill)) {
            let similarity = entry.contract.jaccard(contract);
            if nearest.is_none_or(|(_, best)| similarity > best) {
                nearest = Some((*skill, similarity));
            }
        }
        nearest
    }

    /// Notes a proposal and its verdict.
    pub fn note(&mut self, kind: &str, skills: Vec<SkillId>, reason: String, evidence: &[SegmentId], verdict: Verdict) {
        let mut first = evidence.to_vec();
        first.sort_unstable();
        first.truncate(EVENT_EVIDENCE);
        self.events.push(BankEvent {
            event: 0,
            kind: kind.to_owned(),
            skills,
            reason,
            evidence: first,
            support: evidence.len() as u32,
            proposed_by: "statistics".to_owned(),
            verdict: verdict.name().to_owned(),
        });
    }

    /// Gives segments another label, here and, with the next step, in the table `segments`.
    pub fn relabel(&mut self, segments: &[SegmentId], skill: Option<SkillId>, kind: &str) {
        for &segment in segments {
            let Some(before) = self.evidence.label(segment, skill) else { continue };
            let relabel = Relabel { segment, skill, previous: before, kind: kind.to_owned() };
            // A segment that is relabelled twice in a step goes from its first label to its last one.
            self.relabels
                .entry(segment)
                .and_modify(|earlier| {
                    earlier.skill = skill;
                    earlier.kind = kind.to_owned();
                })
                .or_insert(relabel);
        }
    }

    /// The segments of one skill, in order.
    pub fn records(&self, skill: SkillId) -> Vec<&Record> {
        self.evidence.records().filter(|record| record.label == Some(skill)).collect()
    }

    fn finish(self) -> Maintained {
        let relabels: Vec<Relabel> = self.relabels.into_values().collect();
        for relabel in &relabels {
            self.evidence.label(relabel.segment, relabel.previous);
        }
        Maintained {
            skills: self.skills.into_values().map(|entry| entry.row).collect(),
            events: number(limit_rejected(self.events, self.config.max_rejected as usize)),
            relabels: relabels.into_iter().filter(|relabel| relabel.skill != relabel.previous).collect(),
        }
    }
}

/// Replaces the rejected proposals of a kind above `limit` by one row that counts them.
fn limit_rejected(events: Vec<BankEvent>, limit: usize) -> Vec<BankEvent> {
    let mut rejected: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept = Vec::new();
    for event in events {
        if event.verdict == Verdict::Rejected.name() {
            let count = rejected.entry(event.kind.clone()).or_insert(0);
            *count += 1;
            if *count > limit {
                continue;
            }
        }
        kept.push(event);
    }
    for (kind, count) in rejected.into_iter().filter(|(_, count)| *count > limit) {
        kept.push(BankEvent {
            kind,
            reason: format!("{} further proposals were rejected", count - limit),
            proposed_by: "statistics".to_owned(),
            verdict: Verdict::Rejected.name().to_owned(),
            ..BankEvent::default()
        });
    }
    kept
}

fn number(events: Vec<BankEvent>) -> Vec<BankEvent> {
    events.into_iter().zip(0..).map(|(event, ordinal)| BankEvent { event: ordinal, ..event }).collect()
}

/// Ids of records, in order.
pub(crate) fn segment_ids(records: &[&Record]) -> Vec<SegmentId> {
    records.iter().map(|record| record.segment).collect()
}

/// Records as instances to learn from.
pub(crate) fn instances(records: &[&Record]) -> Vec<Instance> {
    records.iter().map(|record| record.instance()).collect()
}

/// The operator.
struct MaintainBank {
    config: Config,
    context: NodeContext,
    info: EnvInfo,
    evidence: Evidence,
}

impl MaintainBank {
    fn new(config: Config, context: NodeContext) -> Result<Self, OperatorError> {
        let info = environment(&context)?;
        Ok(Self { config, context, info, evidence: Evidence::default() })
    }
}

impl Operator for MaintainBank {
    fn step(&mut self, step: u64, inputs: &Inputs) -> Result<Outputs, OperatorError> {
        let mut outputs = Outputs::default();
        // Everything is routed to the first worker.
        if self.context.worker != 0 {
            return Ok(outputs);
        }
        self.evidence.ingest(step, &inputs.rows::<Segment>("segments")?, &self.info)?;
        let (clauses, bank) = (inputs.rows::<Clause>("contracts")?, inputs.rows::<Skill>("bank")?);
        let maintained = maintain(step, bank, &clauses, &mut self.evidence, &self.config, &self.info)?;
        self.metrics(&maintained, &mut outputs);
        outputs.push(&maintained.skills)?;
        outputs.push(&maintained.events)?;
        outputs.push(&maintained.relabels)?;
        Ok(outputs)
    }

    fn restore(&mut self, step: u64, inputs: &Inputs) -> Result<(), OperatorError> {
        if self.context.worker == 0 {
            self.evidence.ingest(step, &inputs.rows::<Segment>("segments")?, &self.info)?;
        }
        Ok(())
    }
}

impl MaintainBank {
    fn metrics(&self, maintained: &Maintained, outputs: &mut Outputs) {
        let node = &self.context.node;
        let active: Vec<&Skill> = maintained.skills.iter().filter(|skill| skill.state == ACTIVE).collect();
        outputs.metric(node, "skills_active", active.len() as f64);
        outputs.metric(node, "skills_retired", (maintained.skills.len() - active.len()) as f64);
        for kind in ["refine", "materialize", "merge", "split", "retire"] {
            let accepted = |event: &&BankEvent| event.kind == kind && event.verdict == Verdict::Accepted.name();
            outputs.metric(node, format!("{kind}_accepted"), maintained.events.iter().filter(accepted).count() as f64);
        }
        outputs.metric(node, "relabelled", maintained.relabels.len() as f64);
        outputs.metric(node, "segments", self.evidence.len() as f64);
        outputs.metric(node, "segments_new", self.evidence.records().filter(|record| record.label.is_none()).count() as f64);
        if !active.is_empty() {
            let mean = |value: fn(&Skill) -> f64| active.iter().map(|skill| value(skill)).sum::<f64>() / active.len() as f64;
            outputs.metric(node, "pass_rate_mean", mean(|skill| skill.pass_rate));
            outputs.metric(node, "quality_mean", mean(|skill| skill.quality));
        }
    }
}

#[cfg(test)]
pub(crate) mod planted;
#[cfg(test)]
mod tests;
