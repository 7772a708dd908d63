//! The operators by name, with all that a plan, the reference and the JSON schema need to know of them.

use crate::dataflow::batch::Batch;
use crate::kind::Kind;
use crate::operator::{NodeContext, Operator, OperatorError, Port, Schedule};
use crate::settings::RunSettings;
use cosplay_datasets::TableName;
use serde_json::Value;
use timely::dataflow::Stream;

/// Turns the stream of one port (its name comes first) into the stream that the operator sees on that port.
pub type Prepare = for<'s> fn(&str, Stream<'s, u64, Batch>, &NodeContext, &Value) -> Result<Stream<'s, u64, Batch>, OperatorError>;

/// Something wrong with a configuration value that its schema cannot express, for example an unknown teacher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Key of the configuration struct.
    pub key: &'static str,
    /// What is wrong and what was expected.
    pub message: String,
    /// Valid names, if the value is a name: the nearest is offered.
    pub valid: Vec<String>,
}

/// Makes an operator from its resolved configuration.
pub type Build = fn(&Value, NodeContext) -> Result<Box<dyn Operator>, OperatorError>;

/// What there is to know of an operator.
pub struct OperatorInfo {
    /// Name, as written after `op:`.
    pub name: &'static str,
    /// What it does, in a sentence or two.
    pub about: &'static str,
    /// Section or equation of the paper.
    pub paper: &'static str,
    /// Input ports.
    pub inputs: &'static [Port],
    /// What consumers get.
    pub output: Kind,
    /// When it runs.
    pub schedule: Schedule,
    /// Tables of earlier steps (of any node) that a resumed run hands to `Operator::restore`, each under a port of the table's name. If the
    /// operator has a [`prepare`](Self::prepare), they are fed to that stream instead.
    pub restores: &'static [TableName],
    /// Configuration keys that, where they are not written, take the configuration of the node at a port: (key, port).
    pub inherits: &'static [(&'static str, &'static str)],
    /// What happens to the streams of its ports before the operator sees them (differential collections live here); `None` for most.
    pub prepare: Option<Prepare>,
    /// True if it plays or reads episodes and so has a configuration key `split`.
    pub plays: bool,
    /// True if it changes the bank or the policy: test episodes must not reach it.
    pub learns: bool,
    /// JSON schema of its configuration struct.
    pub schema: fn() -> schemars::Schema,
    /// Its configuration with all defaults filled in.
    pub resolve: fn(&Value) -> Result<Value, serde_json::Error>,
    /// Checks that need more than the schema.
    pub check: fn(&Value, &RunSettings) -> Vec<ConfigProblem>,
    /// Makes an instance for one worker.
    pub build: Build,
}

/// All operators, sorted by name.
pub fn operators() -> &'static [&'static OperatorInfo] {
    static ALL: [&OperatorInfo; 9] = [
        &crate::cold_start::INFO,
        &crate::grpo_update::INFO,
        &crate::infer_segmentation::INFO,
        &crate::learn_contracts::INFO,
        &crate::maintain_bank::INFO,
        &crate::propose_boundaries::INFO,
        &crate::rollout::INFO,
        &crate::stored_rollouts::INFO,
        &crate::teacher_rollouts::INFO,
    ];
    &ALL
}

/// The operator of that name.
pub fn operator(name: &str) -> Option<&'static OperatorInfo> {
    operators().iter().copied().find(|info| info.name == name)
}

/// Implements [`OperatorInfo::resolve`] for a configuration struct.
pub fn resolve<C: serde::de::DeserializeOwned + serde::Serialize>(config: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(C::deserialize(config)?)
}

/// Reads a resolved configuration.
pub fn configuration<C: serde::de::DeserializeOwned>(operator: &'static str, config: &Value) -> Result<C, OperatorError> {
    C::deserialize(config).map_err(|error| OperatorError::Config { operator, message: error.to_string() })
}
