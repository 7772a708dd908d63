//! What an operator is: a function from the tables of one step to tables of the same step, with whatever state it carries on.

use crate::kind::Kind;
use crate::settings::RunSettings;
use cosplay_datasets::{Metric, Table, TableName};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;

/// An error of an operator. The shell adds node and step.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// A table on an edge does not have the columns or rows that it must have.
    #[error(transparent)]
    Table(#[from] cosplay_datasets::Error),
    /// The environment refused something.
    #[error(transparent)]
    Env(#[from] cosplay_envs::EnvError),
    /// The model failed.
    #[error(transparent)]
    Model(#[from] cosplay_models::ModelError),
    /// A configuration value is wrong; the plan should have found it.
    #[error("configuration of `{operator}`: {message}")]
    Config {
        /// Operator.
        operator: &'static str,
        /// What is wrong.
        message: String,
    },
    /// Numbers that are not finite; names the samples.
    #[error("{what} is not finite (NaN or infinite) in {samples}")]
    NotFinite {
        /// Which quantity.
        what: String,
        /// Where: adapter, episodes and times.
        samples: String,
    },
    /// Anything else, with what was being done.
    #[error("{0}")]
    Other(String),
    /// The run was asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// How an input's rows are spread over the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Every worker gets all rows.
    Broadcast,
    /// Rows of one episode go to one worker.
    ByEpisode,
    /// All rows go to the first worker.
    ToOne,
}

/// When an operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// In step 0 only; its output stays valid for the whole run.
    Once,
    /// In every step.
    EveryStep,
}

/// An input port.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Name, as written in specs.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// True if a spec must wire it.
    pub required: bool,
    /// How rows reach the workers.
    pub routing: Routing,
    /// True if the operator keeps what it gets over the steps (for the reference; see `OperatorInfo::restores`).
    pub accumulates: bool,
    /// What it is for.
    pub about: &'static str,
}

/// Tables of one port in one step, sorted by key.
#[derive(Clone, Debug, Default)]
pub struct PortTables {
    tables: BTreeMap<TableName, RecordBatch>,
}

impl PortTables {
    /// Tables by name.
    pub fn new(tables: BTreeMap<TableName, RecordBatch>) -> Self {
        Self { tables }
    }

    /// Rows of a table, sorted by key; none if the table did not come.
    pub fn rows<T: Table>(&self) -> Result<Vec<T>, OperatorError> {
        match self.tables.iter().find(|(name, _)| name.as_str() == T::NAME) {
            Some((_, batch)) => Ok(T::from_batch(batch)?),
            None => Ok(Vec::new()),
        }
    }
}

/// Inputs of one step.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    ports: BTreeMap<String, PortTables>,
    constants: BTreeMap<String, PortTables>,
    replaced: BTreeSet<String>,
}

impl Inputs {
    /// Inputs from the tables of each port: those of this step, and those that stay valid (outputs of operators that run once).
    pub fn new(ports: BTreeMap<String, PortTables>, constants: BTreeMap<String, PortTables>) -> Self {
        Self { ports, constants, replaced: BTreeSet::new() }
    }

    /// Names the feedback ports whose first step is over: what came from `then` holds there, also if it was nothing.
    #[must_use]
    pub fn with_replaced(mut self, replaced: BTreeSet<String>) -> Self {
        self.replaced = replaced;
        self
    }

    /// Rows of table `T` on `port` in this step, sorted by key. A port that is fed by an operator that runs once gives that one's rows in
    /// every step; a feedback port gives `initial` in step 0 and what `then` produced one step earlier afterwards.
    pub fn rows<T: Table>(&self, port: &str) -> Result<Vec<T>, OperatorError> {
        let constant = self.constants.get(port).filter(|_| !self.replaced.contains(port));
        self.ports.get(port).or(constant).map_or(Ok(Vec::new()), PortTables::rows)
    }

    /// Rows of table `T` that the `initial` of a feedback port holds, in any step (empty for `initial: empty`).
    pub fn initial<T: Table>(&self, port: &str) -> Result<Vec<T>, OperatorError> {
        self.constants.get(port).map_or(Ok(Vec::new()), PortTables::rows)
    }

    /// True if `port` got tables in this very step.
    pub fn has(&self, port: &str) -> bool {
        self.ports.contains_key(port)
    }
}

/// Outputs of one step.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Batches in the order in which they were pushed.
    pub batches: Vec<(TableName, RecordBatch)>,
    metrics: Vec<Metric>,
}

impl Outputs {
    /// Adds rows of a table.
    pub fn push<T: Table>(&mut self, rows: &[T]) -> Result<(), OperatorError> {
        if !rows.is_empty() {
            self.batches.push((table_name::<T>()?, T::to_batch(rows)?));
        }
        Ok(())
    }

    /// Adds a metric. Operators that run on several workers may only report whole numbers: those of all workers are added up.
    pub fn metric(&mut self, node: &str, name: impl Into<String>, value: f64) {
        self.metrics.push(Metric { node: node.to_owned(), name: name.into(), value });
    }

    /// Turns the metrics into a batch too and returns all batches.
    pub fn into_batches(mut self) -> Result<Vec<(TableName, RecordBatch)>, OperatorError> {
        let metrics = std::mem::take(&mut self.metrics);
        self.push(&metrics)?;
        Ok(self.batches)
    }
}

/// Name of the table of row type `T`.
///
/// # Errors
/// If the table is not registered, which a test of the datasets rules out.
pub fn table_name<T: Table>() -> Result<TableName, OperatorError> {
    Ok(T::NAME.parse::<TableName>()?)
}

/// Receives what long work has to tell while it goes on.
pub trait Progress: Send + Sync {
    /// `node` has done `more` units (episodes, batches) of the `total` of this step, and its model has seen `tokens` tokens, since it last told.
    fn advance(&self, node: &str, more: u64, total: u64, tokens: u64);
}

/// Progress that nobody looks at.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn advance(&self, _node: &str, _more: u64, _total: u64, _tokens: u64) {}
}

/// Where an instance of an operator runs.
#[derive(Clone)]
pub struct NodeContext {
    /// Name of the node.
    pub node: String,
    /// Ordinal of the node among the graph's nodes sorted by name.
    pub ordinal: u32,
    /// Settings of the run.
    pub settings: Arc<RunSettings>,
    /// Index of the worker.
    pub worker: usize,
    /// Number of workers over all processes.
    pub workers: usize,
    /// OS threads that the operator may use. Must never reach an output.
    pub threads: usize,
    /// Progress display.
    pub progress: Arc<dyn Progress>,
    /// Set when the run is to stop at once.
    pub stop: Arc<AtomicBool>,
}

impl NodeContext {
    /// Context of work outside of a dataflow: one worker, `threads` threads, no display. `ordinal` tells its episodes from those of nodes.
    pub fn outside(settings: &RunSettings, node: &str, ordinal: u32, threads: usize) -> Self {
        Self {
            node: node.to_owned(),
            ordinal,
            settings: Arc::new(settings.clone()),
            worker: 0,
            workers: 1,
            threads,
            progress: Arc::new(Silent),
            stop: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Random stream of this node for `step` and `key` (an episode, a skill, …); depends on the run's seed and on nothing else.
    pub fn random(&self, step: u64, key: u64) -> ChaCha8Rng {
        random_stream(self.settings.seed, &self.node, step, key)
    }

    /// An error if the run was asked to stop at once. Long work asks now and then.
    pub fn check_stop(&self) -> Result<(), OperatorError> {
        if self.stop.load(Ordering::Relaxed) { Err(OperatorError::Interrupted) } else { Ok(()) }
    }
}

/// Random stream keyed by (run seed, node, step, key): invariant 2 of the design.
pub fn random_stream(seed: u64, node: &str, step: u64, key: u64) -> ChaCha8Rng {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update((node.len() as u64).to_le_bytes());
    hash.update(node.as_bytes());
    hash.update(step.to_le_bytes());
    hash.update(key.to_le_bytes());
    ChaCha8Rng::from_seed(hash.finalize().into())
}

/// One instance of an operator on one worker.
pub trait Operator: Send {
    /// Computes the outputs of `step`. Steps come in order.
    fn step(&mut self, step: u64, inputs: &Inputs) -> Result<Outputs, OperatorError>;

    /// Takes the rows of an earlier step on accumulating ports when a run is resumed. Steps come in order, before the first `step`.
    fn restore(&mut self, _step: u64, _inputs: &Inputs) -> Result<(), OperatorError> {
        Ok(())
    }
}
