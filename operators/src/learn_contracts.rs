//! Contract learning (COS-PLAY, section 4.2): per skill, the effects on which its segments agree, verified on a held-out share.
//!
//! Evidence accumulates over the steps. A clause is learnt from the learning instances in which it *occurs*; the contract is verified as
//! a whole on the held-out ones, on which its clauses must *hold* (the two words are defined in [`crate::contract`]). Two implementations give the same result:
//! [`learn_contract`] on a list of instances, and the differential collections of [`crate::dataflow::evidence`], which follow additions,
//! relabellings and retractions. No held-out instance is ever learnt from, and a contract below its gate never reaches the bank.

use crate::contract::{ClauseKind, Contract, Effect, Literal};
use crate::kind::Kind;
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, Port, Routing, Schedule};
use crate::registry::{ConfigProblem, OperatorInfo, configuration, resolve};
use cosplay_datasets::tables::{Clause, Segment};
use cosplay_datasets::{SegmentId, SkillId, TableName};
use cosplay_envs::{EnvInfo, EnvOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the operator.
const NAME: &str = "learn_contracts";

/// Port of the labelled segments.
const SEGMENTS: &str = "segments";

/// Number of supporting segments that a clause names (`contracts.evidence`).
pub const EVIDENCE: usize = 8;

/// When a clause and a contract are believed.
///
/// The published code has two sets of values: its library asks for `frequency: 0.8, min_instances: 5`, its training loop for
/// `frequency: 0.5, min_instances: 1`. The defaults take the loop's frequency and the library's count; the pass-rate gate is the paper's
/// and was missing from the code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Share of the learning instances in which a clause must occur.
    #[schemars(range(min = 0.01, max = 1.0))]
    pub frequency: f64,
    /// Learning instances that a skill needs before anything is learnt.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_instances: u32,
    /// Held-out instances that a skill needs before its contract can be accepted.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_holdout: u32,
    /// Most clauses of a contract; the best supported stay (published code: 50, which nobody can read).
    #[schemars(range(min = 1, max = 128))]
    pub max_clauses: u32,
    /// Share of the clauses that must hold for an instance to pass (published code: 0.7).
    #[schemars(range(min = 0.01, max = 1.0))]
    pub instance_pass: f64,
    /// Share of the held-out instances that must pass for the contract to be accepted.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub pass_rate: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { frequency: 0.5, min_instances: 5, min_holdout: 1, max_clauses: 8, instance_pass: 0.7, pass_rate: 0.6 }
    }
}

/// What is known of the operator.
pub static INFO: OperatorInfo = OperatorInfo {
    name: NAME,
    about: "Learns what each skill does from the effects on which its segments agree, and verifies it on held-out segments.",
    paper: "COS-PLAY 4.2 (contract learning)",
    inputs: &[Port {
        name: SEGMENTS,
        kind: Kind::Segments,
        required: true,
        routing: Routing::ToOne,
        accumulates: true,
        about: "labelled segments; relabelled ones withdraw their earlier label",
    }],
    output: Kind::Contracts,
    schedule: Schedule::EveryStep,
    restores: &[TableName::Segments],
    inherits: &[],
    prepare: Some(crate::dataflow::evidence::prepare),
    plays: false,
    learns: true,
    schema: || schemars::schema_for!(Config),
    resolve: resolve::<Config>,
    check: |_, _| Vec::<ConfigProblem>::new(),
    build: |config, context| Ok(Box::new(LearnContracts::new(configuration(NAME, config)?, context)?)),
};

/// The environment that a node works for.
///
/// # Errors
/// [`OperatorError::Env`] if there is no such environment.
pub(crate) fn environment(context: &NodeContext) -> Result<EnvInfo, OperatorError> {
    let env = &context.settings.env;
    let options = EnvOptions { game: env.game.clone(), max_steps: env.max_steps };
    Ok(cosplay_envs::make(&options)?.info().clone())
}

/// One labelled segment, as far as contracts are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instance {
    /// The segment.
    pub segment: SegmentId,
    /// What it did.
    pub effect: Effect,
    /// True if contracts are verified on it and never learnt from it.
    pub holdout: bool,
}

impl Instance {
    /// The instance of a row of the table `segments`.
    ///
    /// # Errors
    /// As [`Effect::from_segment`].
    pub fn from_segment(segment: &Segment, info: &EnvInfo) -> Result<Self, OperatorError> {
        Ok(Self { segment: segment.segment, effect: Effect::from_segment(segment, info)?, holdout: segment.holdout })
    }
}

/// How often one literal was seen among the instances of a skill.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LiteralCount {
    /// The literal.
    pub literal: Literal,
    /// Learning instances in which it occurs.
    pub support: u32,
    /// Held-out instances in which it occurs.
    pub holdout_support: u32,
    /// Held-out instances on which it holds.
    pub holdout_holds: u32,
    /// First learning instances in which it occurs, at most [`EVIDENCE`], in order.
    pub evidence: Vec<SegmentId>,
}

/// What the evidence of one skill says. Whole numbers only, so that it is the same however it was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Learned {
    /// Learning instances.
    pub instances: u32,
    /// Held-out instances.
    pub holdout_instances: u32,
    /// Every literal that occurs in some instance, in order.
    pub counts: Vec<LiteralCount>,
    /// The clauses that enough learning instances share; an accepted contract only if [`Learned::verdict`] says so.
    pub contract: Contract,
    /// Held-out instances on which enough clauses of `contract` hold.
    pub passes: u32,
}

/// What becomes of a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may enter the bank.
    Accepted,
    /// Fewer learning instances than `min_instances`.
    FewInstances,
    /// No literal is shared by enough learning instances.
    NoClause,
    /// Fewer held-out instances than `min_holdout`.
    FewHoldout,
    /// Too few held-out instances pass.
    BelowGate,
}

impl Learned {
    /// Share of the held-out instances that pass; 0 if there is none.
    pub fn pass_rate(&self) -> f64 {
        share(self.passes, self.holdout_instances)
    }

    /// Whether the contract may enter the bank, or why not. An empty contract never may.
    pub fn verdict(&self, config: &Config) -> Verdict {
        if self.instances < config.min_instances {
            Verdict::FewInstances
        } else if self.contract.is_empty() {
            Verdict::NoClause
        } else if self.holdout_instances < config.min_holdout {
            Verdict::FewHoldout
        } else if self.pass_rate() < config.pass_rate {
            Verdict::BelowGate
        } else {
            Verdict::Accepted
        }
    }

    /// The verdict in words, with its figures.
    pub fn explain(&self, config: &Config) -> String {
        let Learned { instances, holdout_instances, passes, .. } = self;
        let passed = format!("{passes} of {holdout_instances} held-out instances pass ({:.2})", self.pass_rate());
        match self.verdict(config) {
            Verdict::Accepted => format!("{passed}, at or above the gate {:.2}", config.pass_rate),
            Verdict::FewInstances => format!("{instances} learning instances, fewer than {}", config.min_instances),
            Verdict::NoClause => format!("no effect is shared by enough of {instances} learning instances"),
            Verdict::FewHoldout => format!("{holdout_instances} held-out instances, fewer than {}", config.min_holdout),
            Verdict::BelowGate => format!("{passed}, below the gate {:.2}", config.pass_rate),
        }
    }
}

/// `part / whole`, 0 if there is no whole. Written as a division so that 7 of 10 equals the number 0.7 exactly.
pub(crate) fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) }
}

/// Learns and verifies the contract of one skill: the sequential twin of [`crate::dataflow::evidence::learned`]. The order of the
/// instances does not matter.
pub fn learn_contract(instances: &[Instance], config: &Config) -> Learned {
    let mut learned = Learned::default();
    let mut counts: BTreeMap<Literal, LiteralCount> = BTreeMap::new();
    for instance in instances {
        *(if instance.holdout { &mut learned.holdout_instances } else { &mut learned.instances }) += 1;
        for literal in instance.effect.occurred().literals() {
            let count = counts.entry(literal).or_insert_with(|| LiteralCount::none(literal));
            if instance.holdout {
                count.holdout_support += 1;
            } else {
                count.support += 1;
                count.evidence.push(instance.segment);
            }
        }
    }
    for count in counts.values_mut() {
        let holds = |instance: &&Instance| instance.holdout && instance.effect.holds(count.literal);
        count.holdout_holds = instances.iter().filter(holds).count() as u32;
        count.evidence.sort_unstable();
        count.evidence.truncate(EVIDENCE);
    }
    learned.counts = counts.into_values().collect();
    learned.contract = select(&learned, config);
    learned.passes = passes(instances, &learned.contract, config);
    learned
}

/// Number of held-out instances on which enough clauses hold.
pub fn passes(instances: &[Instance], contract: &Contract, config: &Config) -> u32 {
    instances.iter().filter(|instance| instance.holdout && passes_one(&instance.effect, contract, config)).count() as u32
}

/// Whether enough clauses hold on one instance.
pub(crate) fn passes_one(effect: &Effect, contract: &Contract, config: &Config) -> bool {
    effect.fulfilled(contract) >= config.instance_pass
}

impl LiteralCount {
    pub(crate) fn none(literal: Literal) -> Self {
        Self { literal, support: 0, holdout_support: 0, holdout_holds: 0, evidence: Vec::new() }
    }
}

/// What becomes of one literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is a clause of the contract.
    Clause,
    /// It occurs in too few learning instances.
    Rare,
    /// Its opposite is at least as well supported (fault B26: no contract may contradict itself).
    Contradicted,
    /// Others are better supported.
    Crowded,
}

/// The fate of each of `learned.counts`, in order.
fn fates(learned: &Learned, config: &Config) -> Vec<Fate> {
    let support: BTreeMap<Literal, u32> = learned.counts.iter().map(|count| (count.literal, count.support)).collect();
    let mut fates: Vec<Fate> = learned.counts.iter().map(|count| first_fate(count, &support, learned.instances, config)).collect();
    let mut kept: Vec<usize> = (0..fates.len()).filter(|&index| fates[index] == Fate::Clause).collect();
    // Best supported first; the sort is stable and the counts are in order, so ties go to the lower literal.
    kept.sort_by_key(|&index| std::cmp::Reverse(learned.counts[index].support));
    for (rank, &index) in kept.iter().enumerate() {
        if rank >= config.max_clauses as usize {
            fates[index] = Fate::Crowded;
        }
    }
    fates
}

fn first_fate(count: &LiteralCount, support: &BTreeMap<Literal, u32>, instances: u32, config: &Config) -> Fate {
    let opposite = count.literal.opposite().and_then(|literal| support.get(&literal)).copied().unwrap_or(0);
    if count.support == 0 || share(count.support, instances) < config.frequency {
        Fate::Rare
    } else if opposite >= count.support {
        Fate::Contradicted
    } else {
        Fate::Clause
    }
}

/// The clauses, from the learning instances alone: what is verified on the held-out ones must not be chosen by them.
pub(crate) fn select(learned: &Learned, config: &Config) -> Contract {
    if learned.instances < config.min_instances {
        return Contract::default();
    }
    let fates = fates(learned, config);
    learned.counts.iter().zip(fates).filter(|(_, fate)| *fate == Fate::Clause).map(|(count, _)| count.literal).collect()
}

/// The rows of one skill: every literal that occurs in some instance, with its evidence and what became of it.
pub fn clauses(skill: SkillId, learned: &Learned, config: &Config, info: &EnvInfo) -> Vec<Clause> {
    let accepted = learned.verdict(config) == Verdict::Accepted;
    let fates = fates(learned, config);
    let row = |(count, fate): (&LiteralCount, Fate)| Clause {
        skill,
        literal: count.literal.name(info).to_owned(),
        effect: count.literal.kind.name().to_owned(),
        support: count.support,
        instances: learned.instances,
        rate: share(count.support, learned.instances),
        holdout_support: count.holdout_support,
        holdout_instances: learned.holdout_instances,
        holdout_rate: share(count.holdout_support, learned.holdout_instances),
        pass_rate: learned.pass_rate(),
        accepted: accepted && fate == Fate::Clause,
        reason: reason(count, fate, learned, config),
        evidence: count.evidence.clone(),
    };
    learned.counts.iter().zip(fates).map(row).collect()
}

fn reason(count: &LiteralCount, fate: Fate, learned: &Learned, config: &Config) -> String {
    let (support, instances) = (count.support, learned.instances);
    let occurs = format!("occurs in {support} of {instances} learning instances");
    match fate {
        _ if instances < config.min_instances => learned.explain(config),
        Fate::Clause => {
            let (holds, holdout) = (count.holdout_holds, learned.holdout_instances);
            format!("{occurs}, holds on {holds} of {holdout} held-out ones; {}", learned.explain(config))
        }
        Fate::Rare => format!("{occurs}, below {:.2}", config.frequency),
        Fate::Contradicted => format!("{occurs}, but the opposite occurs at least as often"),
        Fate::Crowded => format!("{occurs}, but {} others are better supported", config.max_clauses),
    }
}

/// The accepted contract of each skill, from the rows of the table `contracts`.
///
/// # Errors
/// [`OperatorError::Other`] if a row names a predicate or an effect that does not exist.
pub fn accepted_contracts(clauses: &[Clause], info: &EnvInfo) -> Result<BTreeMap<SkillId, Contract>, OperatorError> {
    let mut contracts: BTreeMap<SkillId, Contract> = BTreeMap::new();
    for clause in clauses.iter().filter(|clause| clause.accepted) {
        let kind = ClauseKind::parse(&clause.effect);
        let index = info.predicate_index(&clause.literal).and_then(|index| u8::try_from(index).ok());
        let (Some(kind), Some(predicate)) = (kind, index) else {
            let Clause { skill, effect, literal, .. } = clause;
            return Err(OperatorError::Other(format!(
                "contract of skill {skill}: environment `{}` has no clause {effect} `{literal}`",
                info.name
            )));
        };
        contracts.entry(clause.skill).or_default().insert(Literal { kind, predicate });
    }
    Ok(contracts)
}

/// The operator: keeps every skill's clauses, which [`crate::dataflow::evidence::prepare`] tells it of when they change, and emits all of
/// them in each step.
struct LearnContracts {
    context: NodeContext,
    info: EnvInfo,
    skills: BTreeMap<SkillId, Vec<Clause>>,
}

impl LearnContracts {
    fn new(_config: Config, context: NodeContext) -> Result<Self, OperatorError> {
        let info = environment(&context)?;
        Ok(Self { context, info, skills: BTreeMap::new() })
    }
}

impl Operator for LearnContracts {
    fn step(&mut self, step: u64, inputs: &Inputs) -> Result<Outputs, OperatorError> {
        // Segments come here unchanged only if they could not be read as evidence: reading them again tells why.
        for segment in inputs.rows::<Segment>(SEGMENTS)? {
            Instance::from_segment(&segment, &self.info)?;
        }
        let rows = inputs.rows::<Clause>(SEGMENTS)?;
        // The first step of a resumed session also hears of all earlier changes: those of this step bear its timestamp.
        let header = format!("{step}/");
        let count = rows.iter().filter(|row| row.effect == header).count();
        let changed = crate::dataflow::evidence::changes(rows)?;
        for (skill, clauses) in changed {
            match clauses {
                Some(clauses) => self.skills.insert(skill, clauses),
                None => self.skills.remove(&skill),
            };
        }
        let mut outputs = Outputs::default();
        for clauses in self.skills.values() {
            outputs.push(clauses)?;
        }
        let accepted = self.skills.values().filter(|clauses| clauses.iter().any(|clause| clause.accepted)).count();
        let clauses = self.skills.values().flatten().filter(|clause| clause.accepted).count();
        let node = &self.context.node;
        outputs.metric(node, "skills_with_evidence", self.skills.len() as f64);
        outputs.metric(node, "skills_with_contract", accepted as f64);
        outputs.metric(node, "clauses", clauses as f64);
        outputs.metric(node, "skills_changed", count as f64);
        Ok(outputs)
    }
}

#[cfg(test)]
mod tests;
