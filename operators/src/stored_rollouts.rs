//! `stored_rollouts`: reads episodes that are already on disk where a run would play them. What a bank is made of can so be made again.

use crate::dataflow::routing::worker_of_episode;
use crate::kind::Kind;
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, Schedule, table_name};
use crate::registry::{self, ConfigProblem, OperatorInfo};
use crate::teacher_rollouts::SplitName;
use cosplay_datasets::stored::{StoredStep, read_stored, select};
use cosplay_datasets::{Episode, EpisodeId, Experience, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// Configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Run directory, or glob over Parquet files of `experiences`.
    #[schemars(extend("format" = "path"))]
    pub path: String,
    /// Node of the run whose episodes are read; needed only where several nodes have played.
    #[serde(default)]
    pub node: Option<String>,
    /// Episodes that are left out.
    #[serde(default)]
    pub without: Vec<u64>,
    /// Split that the stored episodes must belong to.
    #[serde(default)]
    pub split: SplitName,
}

struct StoredRollouts {
    config: Config,
    context: NodeContext,
    episodes: Vec<StoredStep>,
    experiences: Vec<StoredStep>,
}

/// Stored rows of a table in one step.
fn rows<T: Table>(steps: &[StoredStep], step: u64) -> Result<Vec<T>, OperatorError> {
    match steps.iter().find(|stored| stored.step == step) {
        Some(stored) => Ok(T::from_batch(&read_stored(table_name::<T>()?, stored)?)?),
        None => Ok(Vec::new()),
    }
}

impl Operator for StoredRollouts {
    fn step(&mut self, step: u64, _inputs: &Inputs) -> Result<Outputs, OperatorError> {
        let (context, config) = (&self.context, &self.config);
        let without: BTreeSet<u64> = config.without.iter().copied().collect();
        let here =
            |episode: EpisodeId| !without.contains(&episode.0) && worker_of_episode(episode.index(), context.workers) == context.worker;
        let split = cosplay_envs::Split::from(config.split);
        let episodes: Vec<Episode> = rows(&self.episodes, step)?;
        let wanted: BTreeSet<EpisodeId> = episodes
            .iter()
            .filter(|row| row.split == split.as_str() && config.node.as_ref().is_none_or(|node| *node == row.node))
            .map(|row| row.episode)
            .filter(|&episode| here(episode))
            .collect();
        let episodes: Vec<Episode> = episodes.into_iter().filter(|row| wanted.contains(&row.episode)).collect();
        let mut experiences: Vec<Experience> = rows(&self.experiences, step)?;
        experiences.retain(|row| wanted.contains(&row.episode));
        let mut outputs = Outputs::default();
        outputs.push(&episodes)?;
        outputs.push(&experiences)?;
        outputs.metric(&context.node, "episodes", episodes.len() as f64);
        outputs.metric(&context.node, "environment_steps", experiences.len() as f64);
        context.progress.advance(&context.node, episodes.len() as u64, episodes.len() as u64, 0);
        Ok(outputs)
    }
}

/// The operator.
pub static INFO: OperatorInfo = OperatorInfo {
    name: "stored_rollouts",
    about: "Reads stored episodes, step by step, where a run would play them.",
    paper: "-",
    inputs: &[],
    output: Kind::Rollouts,
    schedule: Schedule::EveryStep,
    restores: &[],
    prepare: None,
    plays: true,
    learns: false,
    schema: || schemars::schema_for!(Config),
    resolve: registry::resolve::<Config>,
    check: |config, _| {
        let path = config.get("path").and_then(Value::as_str).unwrap_or_default();
        match select(path, cosplay_datasets::TableName::Experiences) {
            Ok(_) => Vec::new(),
            Err(error) => vec![ConfigProblem { key: "path", message: error.to_string(), valid: Vec::new() }],
        }
    },
    build: |config: &Value, context: NodeContext| {
        let config: Config = registry::configuration("stored_rollouts", config)?;
        let episodes = select(&config.path, table_name::<Episode>()?)?;
        let experiences = select(&config.path, table_name::<Experience>()?)?;
        Ok(Box::new(StoredRollouts { config, context, episodes, experiences }))
    },
};
