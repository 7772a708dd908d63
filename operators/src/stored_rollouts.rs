//! `stored_rollouts`: reads episodes that are already on disk where a run would play them. What a bank is made of can so be made again.

use crate::dataflow::routing::worker_of_episode;
use crate::kind::Kind;
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, Schedule, table_name};
use crate::registry::{self, ConfigProblem, OperatorInfo};
use crate::teacher_rollouts::SplitName;
use cosplay_datasets::stored::{StoredStep, read_stored, select};
use cosplay_datasets::{Episode, EpisodeId, Experience, Table, TableName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Run directory, or glob over Parquet files of `experiences`; those of `episodes` must lie beside them, in a folder of that name.
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

impl Config {
    /// Whether an episode is of the node and the split that are read.
    fn fits(&self, row: &Episode) -> bool {
        let split = cosplay_envs::Split::from(self.split);
        row.split == split.as_str() && self.node.as_ref().is_none_or(|node| *node == row.node)
    }

    /// Checks that there is something to read in all of `steps` steps, without reading the experiences themselves.
    ///
    /// # Errors
    /// What is wrong, with the configuration key that says so.
    pub fn look(&self, steps: u64) -> Result<(), ConfigProblem> {
        let problem = |key, message| ConfigProblem { key, message, valid: Vec::new() };
        let at_path = |error: cosplay_datasets::Error| problem("path", error.to_string());
        let experiences = select(&self.path, TableName::Experiences).map_err(at_path)?;
        let episodes = select(&self.path, TableName::Episodes)
            .map_err(|error| problem("path", format!("{error}; each folder `experiences` needs its `episodes` beside it")))?;
        let last = experiences.last().map_or(0, |stored| stored.step);
        if steps > last + 1 {
            let message = format!("{} has episodes up to step {last}, but the spec asks for {steps} steps", self.path);
            return Err(problem("path", message));
        }
        let mut seen = BTreeSet::new();
        for stored in &episodes {
            let rows = read_stored(TableName::Episodes, stored).and_then(|rows| Episode::from_batch(&rows)).map_err(at_path)?;
            if stored.step < steps && rows.iter().any(|row| self.fits(row)) {
                return Ok(());
            }
            seen.extend(rows.into_iter().map(|row| (row.node, row.split)));
        }
        let seen: Vec<String> = seen.into_iter().map(|(node, split)| format!("`{node}` ({split})")).collect();
        let wanted = self.node.as_ref().map_or_else(String::new, |node| format!(" of node `{node}`"));
        let split = cosplay_envs::Split::from(self.split);
        let message = format!("{} has no {} episodes{wanted}; it has those of {}", self.path, split.as_str(), seen.join(", "));
        Err(problem(if self.node.is_some() { "node" } else { "split" }, message))
    }
}

/// Checks that every episode has the experiences that it says, and that there are no others.
fn complete(episodes: &[Episode], experiences: &[Experience]) -> Result<(), OperatorError> {
    let mut lengths: BTreeMap<EpisodeId, (u32, u32)> = episodes.iter().map(|row| (row.episode, (row.length, 0))).collect();
    for row in experiences {
        let Some((_, found)) = lengths.get_mut(&row.episode) else {
            let message = format!("episode {} has experiences but no row in `episodes`", row.episode);
            return Err(OperatorError::Other(format!("{message}; both must come from the same run")));
        };
        *found += 1;
    }
    match lengths.into_iter().find(|(_, (length, found))| length != found) {
        None => Ok(()),
        Some((episode, (length, found))) => Err(OperatorError::Other(format!(
            "episode {episode} has {length} steps, but {found} of them are stored; read all files of `experiences` of that step"
        ))),
    }
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
        let context = &self.context;
        let mut episodes: Vec<Episode> = rows(&self.episodes, step)?;
        let mut experiences: Vec<Experience> = rows(&self.experiences, step)?;
        complete(&episodes, &experiences)?;
        let here = |episode: EpisodeId| worker_of_episode(episode.index(), context.workers) == context.worker;
        episodes.retain(|row| here(row.episode) && self.config.fits(row) && !self.config.without.contains(&row.episode.0));
        let wanted: BTreeSet<EpisodeId> = episodes.iter().map(|row| row.episode).collect();
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
    check: |config, settings| match Config::deserialize(config).map(|config| config.look(settings.steps)) {
        Ok(Err(problem)) => vec![problem],
        _ => Vec::new(),
    },
    build: |config: &Value, context: NodeContext| {
        let config: Config = registry::configuration("stored_rollouts", config)?;
        let episodes = select(&config.path, table_name::<Episode>()?)?;
        let experiences = select(&config.path, table_name::<Experience>()?)?;
        Ok(Box::new(StoredRollouts { config, context, episodes, experiences }))
    },
};
