//! `grpo_update`: trains the adapters of the decision agent on what it played (paper section 4.3, appendix F.1).

mod advantage;
mod baseline;
mod loss;
mod update;

pub use advantage::{Advantage, Discounts, Estimates, estimate};

use crate::contract::Contract;
use crate::kind::Kind;
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, Port, Routing, Schedule};
use crate::play::{self, AgentBank};
use crate::policy::Policy;
use crate::prompts::PromptBook;
use crate::registry::{self, OperatorInfo};
use crate::rewards::{ActionReward, ActionTerms, RETRIEVAL_CONFIDENCE, RetrievalReward, action_rewards, retrieval_reward, skill_uses};
use advantage::moments;
use cosplay_datasets::{Decision, Episode, Experience, Sample, Skill, SkillId};
use cosplay_envs::EnvInfo;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use update::{Lesson, update_adapter};

/// Configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Advantage estimator of the action adapter.
    pub advantage: Advantage,
    /// Discount of rewards.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// λ of `gae`.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lambda: f64,
    /// Ridge penalty of the baseline of `gae`.
    #[schemars(range(min = 0.0, max = 1.0e9))]
    pub ridge: f64,
    /// Action choices that are drawn from a step's episodes; 0 trains on all.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub samples: u32,
    /// Skill choices that are drawn; 0 trains on all.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub skill_samples: u32,
    /// Choices in a minibatch: the denominator of the mean.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub minibatch: u32,
    /// Passes over the drawn choices.
    #[schemars(range(min = 1, max = 100))]
    pub epochs: u32,
    /// Clip range of the probability ratio.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub clip: f64,
    /// Weight of the divergence from the cold start.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub kl: f64,
    /// Highest learning rate.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// Steps of linear warm-up of the learning rate; it then falls in a line until the last step of the run.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub warmup: u32,
    /// Share of the highest learning rate that is left in the last step.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub final_rate: f64,
    /// Weight decay of AdamW.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub weight_decay: f64,
    /// Decay of AdamW's second moment.
    #[schemars(range(min = 0.0, max = 0.9999))]
    pub beta2: f64,
    /// Gradients longer than this are scaled down to it.
    #[schemars(range(min = 0.0, max = 1.0e6))]
    pub max_grad_norm: f64,
    /// Adapters that are trained.
    pub train: Vec<AdapterName>,
    /// Reward of actions.
    pub action_reward: ActionReward,
    /// Reward of skill choices.
    pub retrieval_reward: RetrievalReward,
}

/// An adapter of the decision agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdapterName {
    /// Chooses actions.
    Action,
    /// Chooses skills.
    Retrieval,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            advantage: Advantage::Gae,
            gamma: 0.99,
            lambda: 0.9,
            ridge: 1.0,
            samples: 4096,
            skill_samples: 512,
            minibatch: 256,
            epochs: 1,
            clip: 0.2,
            kl: 0.01,
            learning_rate: 1e-3,
            warmup: 3,
            final_rate: 0.1,
            weight_decay: 0.0,
            beta2: 0.98,
            max_grad_norm: 1.0,
            train: vec![AdapterName::Action, AdapterName::Retrieval],
            action_reward: ActionReward::default(),
            retrieval_reward: RetrievalReward::default(),
        }
    }
}

/// The rows of a step, by episode.
struct Batch {
    episodes: Vec<Episode>,
    experiences: Vec<Vec<Experience>>,
    decisions: Vec<Vec<Decision>>,
}

impl Batch {
    fn receive(inputs: &Inputs) -> Result<Self, OperatorError> {
        let episodes = inputs.rows::<Episode>("rollouts")?;
        let index: BTreeMap<_, usize> = episodes.iter().enumerate().map(|(index, row)| (row.episode, index)).collect();
        let mut experiences = vec![Vec::new(); episodes.len()];
        for row in inputs.rows::<Experience>("rollouts")? {
            match index.get(&row.episode) {
                Some(&at) => experiences[at].push(row),
                None => return Err(OperatorError::Other(format!("experience of an unknown episode {}", row.episode))),
            }
        }
        let mut decisions = vec![Vec::new(); episodes.len()];
        for row in inputs.rows::<Decision>("rollouts")? {
            match index.get(&row.episode) {
                Some(&at) => decisions[at].push(row),
                None => return Err(OperatorError::Other(format!("decision of an unknown episode {}", row.episode))),
            }
        }
        Ok(Self { episodes, experiences, decisions })
    }
}

/// Samples of all action choices, not yet drawn from.
fn action_samples(config: &Config, batch: &Batch, contracts: &BTreeMap<SkillId, Contract>, info: &EnvInfo) -> (Vec<Sample>, Estimates) {
    let terms: Vec<Vec<ActionTerms>> =
        batch.experiences.iter().map(|steps| action_rewards(steps, contracts, info, &config.action_reward)).collect();
    let rewards: Vec<Vec<f64>> = terms.iter().map(|terms| terms.iter().map(|terms| terms.total).collect()).collect();
    let groups: Vec<u32> = batch.episodes.iter().map(|row| row.group).collect();
    let episodes: Vec<&[Experience]> = batch.experiences.iter().map(Vec::as_slice).collect();
    let discounts = Discounts { gamma: config.gamma, lambda: config.lambda, ridge: config.ridge, max_steps: info.max_steps };
    let estimates = estimate(config.advantage, &episodes, &rewards, &groups, &discounts);
    let mut samples = Vec::new();
    for (index, decisions) in batch.decisions.iter().enumerate() {
        for row in decisions.iter().filter(|row| row.task == "action") {
            let t = row.t as usize;
            let Some(terms) = terms[index].get(t) else { continue };
            samples.push(Sample {
                adapter: "action".into(),
                group: groups[index],
                episode: row.episode,
                t: row.t,
                call: row.call,
                r_env: terms.env,
                r_follow: terms.follow,
                r_cost: terms.cost,
                reward: terms.total,
                ret: estimates.returns[index][t],
                baseline: estimates.baselines[index][t],
                advantage: estimates.advantages[index][t],
                logprob: row.logprob,
                trained: false,
                reason: if row.choices.len() < 2 { "only_choice" } else { "not_drawn" }.into(),
            });
        }
    }
    (samples, estimates)
}

/// Samples of all skill choices: the reward of a choice is known when the next one is made, and it is credited to the choice that began the
/// behaviour. Advantages are z-scores over the step.
fn retrieval_samples(
    config: &Config,
    batch: &Batch,
    contracts: &BTreeMap<SkillId, Contract>,
    longest: &BTreeMap<SkillId, u32>,
    info: &EnvInfo,
) -> Vec<Sample> {
    let weights = &config.retrieval_reward;
    let steps: usize = batch.experiences.iter().map(Vec::len).sum();
    let total: f64 = batch.experiences.iter().flatten().map(|step| step.reward).sum();
    let unit = if weights.reward_unit > 0.0 { weights.reward_unit } else { 2.0 * total / steps.max(1) as f64 };
    let mut samples = Vec::new();
    for (index, decisions) in batch.decisions.iter().enumerate() {
        let uses: BTreeMap<u32, _> =
            skill_uses(&batch.experiences[index], contracts, info).into_iter().map(|used| (used.t, used)).collect();
        for row in decisions.iter().filter(|row| row.task == "skill") {
            let Some(used) = uses.get(&row.t) else { continue };
            let longest = longest.get(&used.skill).copied().unwrap_or(10);
            let reward = retrieval_reward(used, longest, RETRIEVAL_CONFIDENCE, unit, weights);
            samples.push(Sample {
                adapter: "retrieval".into(),
                group: batch.episodes[index].group,
                episode: row.episode,
                t: row.t,
                call: row.call,
                r_env: used.reward,
                reward,
                ret: reward,
                logprob: row.logprob,
                reason: if row.choices.len() < 2 { "only_choice" } else { "not_drawn" }.into(),
                ..Sample::default()
            });
        }
    }
    let (mean, spread) = moments(samples.iter().map(|sample| sample.reward));
    for sample in &mut samples {
        sample.baseline = mean;
        sample.advantage = if spread > 1e-9 { (sample.reward - mean) / spread } else { 0.0 };
    }
    samples
}

/// Draws `count` of the trainable samples in random order and marks them.
fn draw(samples: &mut [Sample], count: u32, random: &mut ChaCha8Rng) -> Vec<usize> {
    let mut pool: Vec<usize> = (0..samples.len()).filter(|&index| samples[index].reason == "not_drawn").collect();
    let count = if count == 0 { pool.len() } else { pool.len().min(count as usize) };
    for place in 0..count {
        let other = place + (random.next_u64() % (pool.len() - place) as u64) as usize;
        pool.swap(place, other);
    }
    pool.truncate(count);
    for &index in &pool {
        samples[index].trained = true;
        samples[index].reason = if samples[index].advantage == 0.0 { "zero_advantage" } else { "trained" }.into();
    }
    pool
}

struct GrpoUpdate {
    config: Config,
    context: NodeContext,
    book: PromptBook,
}

impl GrpoUpdate {
    fn lessons(&self, batch: &Batch, samples: &[Sample], drawn: &[usize]) -> Result<Vec<Lesson>, OperatorError> {
        let rows: BTreeMap<_, &Decision> = batch.decisions.iter().flatten().map(|row| ((row.episode, row.t, row.call), row)).collect();
        drawn
            .iter()
            .map(|&index| {
                let sample = &samples[index];
                let row = rows.get(&(sample.episode, sample.t, sample.call)).copied();
                row.and_then(|row| {
                    Some(Lesson {
                        episode: row.episode,
                        t: row.t,
                        prompt: self.book.recorded(row)?,
                        chosen: row.chosen as usize,
                        behaviour: f64::from(row.logprob),
                        temperature: if row.temperature > 0.0 { f64::from(row.temperature) } else { 1.0 },
                        advantage: sample.advantage,
                    })
                })
                .ok_or_else(|| {
                    OperatorError::Other(format!(
                        "decision {} of episode {} at t={} was recorded with another vocabulary or form",
                        sample.call, sample.episode, sample.t
                    ))
                })
            })
            .collect()
    }

    fn report(&self, batch: &Batch, actions: &[Sample], retrievals: &[Sample], estimates: &Estimates, outputs: &mut Outputs) {
        let node = &self.context.node;
        let returns = || batch.episodes.iter().map(|row| row.ret);
        let (mean, spread) = moments(returns());
        let (length, _) = moments(batch.episodes.iter().map(|row| f64::from(row.length)));
        let steps: f64 = batch.experiences.iter().map(|steps| steps.len() as f64).sum();
        let with_skill = batch.experiences.iter().flatten().filter(|step| step.skill.is_some()).count() as f64;
        let switches = retrievals.len() as f64;
        let mean_of = |samples: &[Sample], value: fn(&Sample) -> f64| moments(samples.iter().map(value)).0;
        for (name, value) in [
            ("return.mean", mean),
            ("return.std", spread),
            ("return.min", returns().fold(f64::INFINITY, f64::min)),
            ("return.max", returns().fold(f64::NEG_INFINITY, f64::max)),
            ("return.episodes", batch.episodes.len() as f64),
            ("episode_length", length),
            ("reward.mean", mean_of(actions, |sample| sample.reward)),
            ("reward.env", mean_of(actions, |sample| sample.r_env)),
            ("reward.follow", mean_of(actions, |sample| sample.r_follow)),
            ("reward.cost", mean_of(actions, |sample| sample.r_cost)),
            ("retrieval.reward.mean", mean_of(retrievals, |sample| sample.reward)),
            ("advantage.spread", estimates.spread),
            ("groups", estimates.groups as f64),
            ("groups.zero_variance_share", estimates.zero_variance_groups as f64 / estimates.groups.max(1) as f64),
            ("baseline.explained_variance", estimates.explained_variance),
            ("skill.use_rate", with_skill / steps.max(1.0)),
            ("skill.choices_an_episode", switches / batch.episodes.len().max(1) as f64),
            ("tokens.prompt", batch.decisions.iter().flatten().map(|row| row.prompt_ids.len() as f64).sum()),
        ] {
            outputs.metric(node, name, if value.is_finite() { value } else { 0.0 });
        }
    }
}

impl Operator for GrpoUpdate {
    fn step(&mut self, step: u64, inputs: &Inputs) -> Result<Outputs, OperatorError> {
        let (context, config) = (&self.context, &self.config);
        let mut outputs = Outputs::default();
        if context.worker != 0 {
            return Ok(outputs);
        }
        let info = play::environment(context)?.info().clone();
        let mut policy = Policy::receive(inputs, "policy", context, &self.book)?;
        let skills = inputs.rows::<Skill>("bank")?;
        let mut contracts = BTreeMap::new();
        for skill in &skills {
            contracts.insert(skill.skill, Contract::from_skill(skill, &info)?);
        }
        let bank = AgentBank::new(&skills, &info, 0)?;
        let longest: BTreeMap<SkillId, u32> = bank.skills().iter().map(|skill| (skill.skill, skill.max_duration)).collect();
        let batch = Batch::receive(inputs)?;
        let (mut actions, estimates) = action_samples(config, &batch, &contracts, &info);
        let mut retrievals = retrieval_samples(config, &batch, &contracts, &longest, &info);
        let mut random = context.random(step, 0);
        let drawn = draw(&mut actions, config.samples, &mut random);
        let drawn_skills = draw(&mut retrievals, config.skill_samples, &mut random);
        for (name, samples, drawn) in [(AdapterName::Action, &actions, &drawn), (AdapterName::Retrieval, &retrievals, &drawn_skills)] {
            let lessons = if config.train.contains(&name) { self.lessons(&batch, samples, drawn)? } else { Vec::new() };
            let adapter = match name {
                AdapterName::Action => "action",
                AdapterName::Retrieval => "retrieval",
            };
            update_adapter(context, config, step, &mut policy, adapter, &lessons, &mut outputs)?;
        }
        self.report(&batch, &actions, &retrievals, &estimates, &mut outputs);
        outputs.push(&actions)?;
        outputs.push(&retrievals)?;
        Ok(outputs)
    }
}

/// The operator.
pub static INFO: OperatorInfo = OperatorInfo {
    name: "grpo_update",
    about: "Trains the action and retrieval adapters on the step's episodes with a clipped policy-gradient objective.",
    paper: "section 4.3, appendix F.1",
    inputs: &[
        Port {
            name: "policy",
            kind: Kind::Policy,
            required: true,
            routing: Routing::ToOne,
            accumulates: false,
            about: "Weights that played the episodes; `initial` is also the reference of the divergence.",
        },
        Port {
            name: "rollouts",
            kind: Kind::Rollouts,
            required: true,
            routing: Routing::ToOne,
            accumulates: false,
            about: "Episodes to learn from.",
        },
        Port {
            name: "bank",
            kind: Kind::Bank,
            required: false,
            routing: Routing::ToOne,
            accumulates: false,
            about: "Contracts for r_follow and for the reward of skill choices.",
        },
    ],
    output: Kind::Policy,
    schedule: Schedule::EveryStep,
    restores: &[],
    inherits: &[],
    prepare: None,
    plays: false,
    learns: true,
    schema: || schemars::schema_for!(Config),
    resolve: registry::resolve::<Config>,
    check: |_, _| Vec::new(),
    build: |config: &Value, context: NodeContext| {
        let book = PromptBook::new(play::environment(&context)?.info(), context.settings.model.choices)?;
        Ok(Box::new(GrpoUpdate { config: registry::configuration("grpo_update", config)?, context, book }))
    },
};
