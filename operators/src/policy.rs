//! The policy on an edge: rows of `policies` to a model with its adapters, and back.

use crate::operator::{Inputs, NodeContext, OperatorError};
use crate::prompts::PromptBook;
use crate::settings::AdapterSettings;
use cosplay_datasets::PolicyTensor;
use cosplay_models::{Adapter, Model, ModelConfig, NamedTensor, TrainedTensor};
use std::collections::BTreeMap;

/// The adapters that this program trains (paper section 4.3), the first two of five.
pub const ADAPTERS: [&str; 2] = ["action", "retrieval"];

/// Part name of the shared base.
pub const BASE: &str = "base";

/// Part name of an adapter.
pub fn adapter_part(name: &str) -> String {
    format!("adapter.{name}")
}

/// A model with its adapters, and the state of their optimisers.
pub struct Policy {
    /// Base and adapters.
    pub model: Model,
    /// Version: 0 is the cold start.
    pub version: u32,
    /// Trained tensors by adapter.
    pub adapters: BTreeMap<String, Vec<TrainedTensor>>,
}

impl Policy {
    /// Reads the policy that arrives on `port`: the base and version 0 from the port's `initial`, overlaid with the adapters of the last
    /// update.
    ///
    /// # Errors
    /// If tensors are missing or do not fit the model's configuration.
    pub fn receive(inputs: &Inputs, port: &str, context: &NodeContext, book: &PromptBook) -> Result<Self, OperatorError> {
        let mut rows = inputs.initial::<PolicyTensor>(port)?;
        rows.extend(inputs.rows::<PolicyTensor>(port)?);
        Self::from_rows(rows, context, book)
    }

    /// Builds a policy from rows; of two rows about one tensor the later version holds.
    ///
    /// # Errors
    /// As [`Policy::receive`].
    pub fn from_rows(rows: Vec<PolicyTensor>, context: &NodeContext, book: &PromptBook) -> Result<Self, OperatorError> {
        let version = rows.iter().map(|row| row.policy_version).max().unwrap_or(0);
        let mut parts: BTreeMap<String, BTreeMap<String, PolicyTensor>> = BTreeMap::new();
        for row in rows {
            let part = parts.entry(row.part.clone()).or_default();
            if part.get(&row.tensor).is_none_or(|held| held.policy_version <= row.policy_version) {
                part.insert(row.tensor.clone(), row);
            }
        }
        let config = model_config(context, book)?;
        let base = parts.remove(BASE).unwrap_or_default().into_values().map(|row| named(row).tensor).collect();
        let mut model = Model::new(config.clone(), base)?;
        let mut adapters = BTreeMap::new();
        for (part, tensors) in parts {
            let Some(name) = part.strip_prefix("adapter.") else { continue };
            let AdapterSettings { rank, alpha } = context.settings.model.adapters;
            let trained: Vec<TrainedTensor> = tensors.into_values().map(named).collect();
            let tensors = trained.iter().map(|trained| trained.tensor.clone()).collect();
            model = model.with_adapter(name, Adapter::new(&config, rank as usize, alpha, tensors)?)?;
            adapters.insert(name.to_owned(), trained);
        }
        Ok(Self { model, version, adapters })
    }
}

/// Configuration of the embedded model of a run.
///
/// # Errors
/// If the size has no configuration.
pub fn model_config(context: &NodeContext, book: &PromptBook) -> Result<ModelConfig, OperatorError> {
    Ok(ModelConfig::embedded(context.settings.model.size.name(), book.vocabulary().len())?)
}

fn named(row: PolicyTensor) -> TrainedTensor {
    TrainedTensor {
        tensor: NamedTensor { name: row.tensor, shape: row.shape.into_iter().map(|size| size as usize).collect(), data: row.weights },
        first_moment: row.first_moment,
        second_moment: row.second_moment,
        updates: row.updates,
    }
}

/// Rows of a part.
pub fn rows(version: u32, part: &str, tensors: Vec<TrainedTensor>) -> Vec<PolicyTensor> {
    tensors
        .into_iter()
        .map(|trained| PolicyTensor {
            policy_version: version,
            part: part.to_owned(),
            tensor: trained.tensor.name,
            shape: trained.tensor.shape.iter().map(|&size| size as u32).collect(),
            weights: trained.tensor.data,
            first_moment: trained.first_moment,
            second_moment: trained.second_moment,
            updates: trained.updates,
        })
        .collect()
}

/// Tensors without optimiser state.
pub fn frozen(tensors: Vec<NamedTensor>) -> Vec<TrainedTensor> {
    tensors.into_iter().map(|tensor| TrainedTensor { tensor, first_moment: Vec::new(), second_moment: Vec::new(), updates: 0 }).collect()
}
