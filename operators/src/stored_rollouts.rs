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
use std::path::PathBuf;

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

/// The stored episodes that a configuration chooses.
///
/// Ids of episodes are unique within a run only. If several runs are read, the node's place in an id (`SSSSSSNNIIIII`) is taken by the
/// ordinal of the run in the order of paths ([`Rollouts::sources`]).
#[derive(Debug)]
pub struct Rollouts {
    config: Config,
    sources: Vec<PathBuf>,
    episodes: Vec<StoredStep>,
    experiences: Vec<StoredStep>,
}

/// Most runs that can be read together: an id has two digits for them.
const MOST_SOURCES: usize = 100;

impl Rollouts {
    /// Finds the files.
    ///
    /// # Errors
    /// As [`select`]; if `episodes` are missing beside `experiences`; if there are more than 100 runs.
    pub fn open(config: Config) -> Result<Self, OperatorError> {
        let experiences = select(&config.path, TableName::Experiences)?;
        let sources = sources(&experiences);
        let beside = |error| OperatorError::Other(format!("{error}; each folder `experiences` needs its `episodes` beside it"));
        let loose = experiences.iter().flat_map(|step| &step.files).find(|file| file.path.parent() == Some(&file.source));
        if let Some(file) = loose {
            let path = file.path.display();
            return Err(OperatorError::Other(format!(
                "{path} lies in no folder `experiences/step=…` with its `episodes/step=…` beside it"
            )));
        }
        let episodes = select(&config.path, TableName::Episodes).map_err(beside)?;
        if sources.len() > MOST_SOURCES {
            return Err(OperatorError::Other(format!(
                "{} runs match {}; at most {MOST_SOURCES} can be read together",
                sources.len(),
                config.path
            )));
        }
        Ok(Self { config, sources, episodes, experiences })
    }

    /// The runs (or folders like runs) that the files belong to, by path. The place in the list is the ordinal in ids if there are several.
    pub fn sources(&self) -> &[PathBuf] {
        &self.sources
    }

    /// The last step that has episodes.
    pub fn last_step(&self) -> u64 {
        self.experiences.last().map_or(0, |stored| stored.step)
    }

    /// The chosen episodes of a step, those that the configuration leaves out included.
    ///
    /// # Errors
    /// If the rows cannot be read.
    pub fn episodes(&self, step: u64) -> Result<Vec<Episode>, OperatorError> {
        let mut chosen = Vec::new();
        for (ordinal, rows) in self.rows::<Episode>(&self.episodes, step)? {
            chosen.extend(self.chosen(ordinal, rows)?);
        }
        Ok(chosen)
    }

    /// The chosen episodes of a step without those that are left out, and their experiences.
    ///
    /// # Errors
    /// If the rows cannot be read, or an episode is not stored whole.
    pub fn read(&self, step: u64) -> Result<(Vec<Episode>, Vec<Experience>), OperatorError> {
        let (mut episodes, mut experiences) = (Vec::new(), Vec::new());
        let mut stored: BTreeMap<usize, Vec<Experience>> = self.rows(&self.experiences, step)?.into_iter().collect();
        for (ordinal, rows) in self.rows::<Episode>(&self.episodes, step)? {
            let own = stored.remove(&ordinal).unwrap_or_default();
            complete(&rows, &own)?;
            let wanted: BTreeSet<EpisodeId> = rows.iter().filter(|row| self.config.fits(row)).map(|row| row.episode).collect();
            let own = own.into_iter().filter(|row| wanted.contains(&row.episode));
            experiences.extend(own.map(|row| Experience { episode: self.key(row.episode, ordinal), ..row }));
            episodes.extend(self.chosen(ordinal, rows)?);
        }
        let left_out = |episode: EpisodeId| self.config.without.contains(&episode.0);
        episodes.retain(|row| !left_out(row.episode));
        experiences.retain(|row| !left_out(row.episode));
        Ok((episodes, experiences))
    }

    /// Those of a run's episodes that fit, with the keys that they have here.
    fn chosen(&self, ordinal: usize, rows: Vec<Episode>) -> Result<Vec<Episode>, OperatorError> {
        let chosen: Vec<Episode> = rows.into_iter().filter(|row| self.config.fits(row)).collect();
        let nodes: BTreeSet<&str> = chosen.iter().map(|row| row.node.as_str()).collect();
        if self.sources.len() > 1 && nodes.len() > 1 {
            return Err(OperatorError::Other(format!("several runs can be read together only for one `node`; they have {nodes:?}")));
        }
        Ok(chosen.into_iter().map(|row| Episode { episode: self.key(row.episode, ordinal), ..row }).collect())
    }

    fn key(&self, episode: EpisodeId, ordinal: usize) -> EpisodeId {
        if self.sources.len() == 1 { episode } else { EpisodeId::new(episode.step(), ordinal as u32, episode.index()) }
    }

    /// Rows of a table in one step, by the ordinal of their run.
    fn rows<T: Table>(&self, steps: &[StoredStep], step: u64) -> Result<Vec<(usize, Vec<T>)>, OperatorError> {
        let Some(stored) = steps.iter().find(|stored| stored.step == step) else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for (ordinal, source) in self.sources.iter().enumerate() {
            let files = stored.files.iter().filter(|file| file.source == *source).cloned().collect();
            all.push((ordinal, T::from_batch(&read_stored(table_name::<T>()?, &StoredStep { step, files })?)?));
        }
        Ok(all)
    }
}

fn sources(steps: &[StoredStep]) -> Vec<PathBuf> {
    let all: BTreeSet<&PathBuf> = steps.iter().flat_map(|step| &step.files).map(|file| &file.source).collect();
    all.into_iter().cloned().collect()
}

struct StoredRollouts {
    context: NodeContext,
    rollouts: Rollouts,
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
        let at_path = |error: OperatorError| problem("path", error.to_string());
        let rollouts = Rollouts::open(self.clone()).map_err(at_path)?;
        let last = rollouts.last_step();
        if steps > last + 1 {
            let message = format!("{} has episodes up to step {last}, but the spec asks for {steps} steps", self.path);
            return Err(problem("path", message));
        }
        let mut seen = BTreeSet::new();
        for step in 0..steps {
            let rows = rollouts.rows::<Episode>(&rollouts.episodes, step).map_err(at_path)?;
            let rows: Vec<Episode> = rows.into_iter().flat_map(|(_, rows)| rows).collect();
            if rows.iter().any(|row| self.fits(row)) {
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

impl Operator for StoredRollouts {
    fn step(&mut self, step: u64, _inputs: &Inputs) -> Result<Outputs, OperatorError> {
        let context = &self.context;
        let (mut episodes, mut experiences) = self.rollouts.read(step)?;
        let here = |episode: EpisodeId| worker_of_episode(episode.index(), context.workers) == context.worker;
        episodes.retain(|row| here(row.episode));
        experiences.retain(|row| here(row.episode));
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
    inherits: &[],
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
        Ok(Box::new(StoredRollouts { context, rollouts: Rollouts::open(config)? }))
    },
};
