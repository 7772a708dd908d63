//! `rollout`: the decision agent plays episodes (paper section 4.1).

use crate::dataflow::routing::worker_of_episode;
use crate::kind::Kind;
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, Port, Routing, Schedule};
use crate::play::{self, Agent, AgentBank, AgentOptions, EpisodePlan};
use crate::policy::Policy;
use crate::prompts::PromptBook;
use crate::registry::{self, ConfigProblem, OperatorInfo};
use crate::retrieve::RetrievalConfig;
use crate::teacher_rollouts::SplitName;
use cosplay_datasets::{EpisodeId, Skill};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Number of start states a step.
    #[schemars(range(min = 1, max = 10_000))]
    pub starts: u32,
    /// Episodes from each start; together they form a group (paper section 4.3; 8 as in its experiments).
    #[schemars(range(min = 1, max = 1_000))]
    pub episodes_per_start: u32,
    /// Sampling temperature. Training needs 1: the recorded log-probabilities are those of the policy itself.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub temperature: f64,
    /// Every n-th episode plays without a bank, so that the policy stays good without skills; 0 is never.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub without_bank_every: u32,
    /// Split that the seeds are drawn from.
    pub split: SplitName,
    /// Retrieval of candidate skills.
    pub retrieval: RetrievalConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            starts: 8,
            episodes_per_start: 8,
            temperature: 1.0,
            without_bank_every: 8,
            split: SplitName::Train,
            retrieval: RetrievalConfig::default(),
        }
    }
}

struct Rollout {
    config: Config,
    context: NodeContext,
    book: PromptBook,
}

impl Operator for Rollout {
    fn step(&mut self, step: u64, inputs: &Inputs) -> Result<Outputs, OperatorError> {
        let context = &self.context;
        let policy = Policy::receive(inputs, "policy", context, &self.book)?;
        let info = play::environment(context)?.info().clone();
        let bank = AgentBank::new(&inputs.rows::<Skill>("bank")?, &info, step as u32)?;
        let plans: Vec<EpisodePlan> =
            play::plan_episodes(context, step, self.config.split.into(), self.config.starts, self.config.episodes_per_start)
                .into_iter()
                .filter(|plan| worker_of_episode(plan.episode.index(), context.workers) == context.worker)
                .collect();
        let options = AgentOptions {
            temperature: self.config.temperature,
            retrieval: self.config.retrieval.clone(),
            without_bank_every: self.config.without_bank_every,
            full: true,
        };
        let agent = Agent {
            model: &policy.model,
            action_adapter: Some("action"),
            retrieval_adapter: Some("retrieval"),
            policy_version: policy.version,
            bank: &bank,
            book: &self.book,
            options: &options,
            total: plans.len() as u64,
        };
        let played = play::on_threads(&plans, context.threads, |part| agent.play(context, step, part))?;
        let mut outputs = Outputs::default();
        outputs.push(&played.episodes)?;
        outputs.push(&played.experiences)?;
        outputs.push(&played.decisions)?;
        let node = &context.node;
        outputs.metric(node, "episodes", played.episodes.len() as f64);
        outputs.metric(node, "environment_steps", played.experiences.len() as f64);
        outputs.metric(node, "decisions", played.decisions.len() as f64);
        outputs.metric(node, "prompt_tokens", played.decisions.iter().map(|row| row.prompt_ids.len() as f64).sum());
        outputs.metric(node, "steps_with_skill", played.experiences.iter().filter(|row| row.skill.is_some()).count() as f64);
        for reason in ["unavailable", "succeeded", "aborted", "exhausted", "ineffective", "intention_shift"] {
            let count = played.experiences.iter().filter(|row| row.switch_reason == reason).count();
            outputs.metric(node, format!("switches.{reason}"), count as f64);
        }
        Ok(outputs)
    }
}

/// Problem if a step has more episodes than their ids can count.
fn check_count(config: &Config) -> Vec<ConfigProblem> {
    let episodes = u64::from(config.starts) * u64::from(config.episodes_per_start);
    if episodes <= u64::from(EpisodeId::PER_NODE) {
        return Vec::new();
    }
    let message = format!(
        "{} starts × {} episodes a start are {episodes} episodes a step; at most {} are possible",
        config.starts,
        config.episodes_per_start,
        EpisodeId::PER_NODE
    );
    vec![ConfigProblem { key: "episodes_per_start", message, valid: Vec::new() }]
}

/// The operator.
pub static INFO: OperatorInfo = OperatorInfo {
    name: "rollout",
    about: "The decision agent plays episodes: it keeps or retrieves a skill, states an intention and chooses an action.",
    paper: "section 4.1, eq. 1-3",
    inputs: &[
        Port {
            name: "policy",
            kind: Kind::Policy,
            required: true,
            routing: Routing::Broadcast,
            accumulates: false,
            about: "Weights to play with.",
        },
        Port {
            name: "bank",
            kind: Kind::Bank,
            required: false,
            routing: Routing::Broadcast,
            accumulates: false,
            about: "Skills to choose from; without it the agent plays without skills.",
        },
    ],
    output: Kind::Rollouts,
    schedule: Schedule::EveryStep,
    restores: &[],
    inherits: &[],
    prepare: None,
    plays: true,
    learns: false,
    schema: || schemars::schema_for!(Config),
    resolve: registry::resolve::<Config>,
    check: |config, _| match Config::deserialize(config) {
        Ok(config) => check_count(&config),
        Err(_) => Vec::new(),
    },
    build: |config: &Value, context: NodeContext| {
        let book = PromptBook::new(play::environment(&context)?.info(), context.settings.model.choices)?;
        Ok(Box::new(Rollout { config: registry::configuration("rollout", config)?, context, book }))
    },
};
