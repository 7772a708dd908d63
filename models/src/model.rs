//! A model: one frozen base and any number of named adapters over it, as plain data.

use crate::adapter::Adapter;
use crate::config::ModelConfig;
use crate::error::{ModelError, Result};
use crate::gaussian::Gaussian;
use crate::qwen3::{Composition, Projection, Weights};
use crate::tensor::NamedTensor;
use candle_core::{Device, Tensor};
use cosplay_kernels::RotaryTable;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A prompt and the answer tokens whose logits at its last position are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Token ids, at least one.
    pub prompt: &'a [u32],
    /// Token ids of the answers, at least one, in the order in which logits are returned.
    pub answers: &'a [u32],
}

/// A Qwen3 model. Clones share the weights; they never change once made.
#[derive(Clone, Debug)]
pub struct Model {
    config: Arc<ModelConfig>,
    base: Arc<BTreeMap<String, NamedTensor>>,
    adapters: BTreeMap<String, Arc<Adapter>>,
    rotary: Arc<RotaryTable>,
}

impl Model {
    /// A model of the given tensors, which must be exactly those of [`ModelConfig::tensors`], in any order.
    ///
    /// # Errors
    /// A configuration that cannot be; a tensor that is missing, superfluous or of the wrong shape.
    pub fn new(config: ModelConfig, base: Vec<NamedTensor>) -> Result<Self> {
        config.validate()?;
        let mut given: BTreeMap<String, NamedTensor> = base.into_iter().map(|t| (t.name.clone(), t)).collect();
        let mut checked = BTreeMap::new();
        for (name, shape) in config.tensors() {
            let tensor = given.remove(&name).ok_or_else(|| ModelError::MissingTensor { name: name.clone() })?;
            tensor.expect_shape(&shape)?;
            checked.insert(name, tensor);
        }
        if let Some((name, _)) = given.pop_first() {
            return Err(ModelError::UnexpectedTensor { name });
        }
        let rotary = Arc::new(RotaryTable::new(config.head_dim, config.max_positions, config.rope_theta));
        Ok(Self { config: Arc::new(config), base: Arc::new(checked), adapters: BTreeMap::new(), rotary })
    }

    /// An untrained model. Norms are one; a linear layer is Gaussian with deviation `1 / sqrt(inputs)`, the two that write
    /// to the residual stream divided by `sqrt(2 · layers)`; embeddings have deviation 0.02, so that first answers are
    /// near uniform. All from one stream in the order of tensor names.
    pub fn init(config: ModelConfig, seed: u64) -> Result<Self> {
        config.validate()?;
        let mut gaussian = Gaussian::new(seed);
        let mut tensors = Vec::new();
        for (name, shape) in config.tensors() {
            let count = shape.iter().product();
            let data = match shape.as_slice() {
                [_, inputs] => {
                    let residual = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
                    let depth = if residual { 2.0 * config.layers as f64 } else { 1.0 };
                    let embedding = name.ends_with("embed_tokens.weight") || name == "lm_head.weight";
                    let deviation = if embedding { 0.02 } else { 1.0 / (*inputs as f64 * depth).sqrt() };
                    gaussian.fill(count, deviation)
                }
                _ => vec![1.0; count],
            };
            tensors.push(NamedTensor { name, shape, data });
        }
        Self::new(config, tensors)
    }

    /// The same base with `adapter` added or replaced under `name`.
    ///
    /// # Errors
    /// When the adapter's tensors do not fit the model, or the name is empty.
    pub fn with_adapter(&self, name: &str, adapter: Adapter) -> Result<Self> {
        if name.is_empty() {
            return Err(ModelError::Adapter("a name must not be empty".into()));
        }
        adapter.check(&self.config)?;
        let mut model = self.clone();
        model.adapters.insert(name.to_owned(), Arc::new(adapter));
        Ok(model)
    }

    /// Sizes of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The base's tensors, sorted by name.
    pub fn base_tensors(&self) -> Vec<NamedTensor> {
        self.base.values().cloned().collect()
    }

    /// Names of the adapters, sorted.
    pub fn adapters(&self) -> impl Iterator<Item = &str> {
        self.adapters.keys().map(String::as_str)
    }

    /// The same model with other base weights, and its adapters kept.
    pub(crate) fn with_base(&self, base: Vec<NamedTensor>) -> Result<Self> {
        let fresh = Self::new(self.config().clone(), base)?;
        Ok(Self { base: fresh.base, ..self.clone() })
    }

    /// The adapter called `name`.
    ///
    /// # Errors
    /// [`ModelError::UnknownAdapter`] with the names there are.
    pub fn adapter(&self, name: &str) -> Result<&Adapter> {
        self.adapters
            .get(name)
            .map(Arc::as_ref)
            .ok_or_else(|| ModelError::UnknownAdapter { name: name.to_owned(), known: self.adapters.keys().cloned().collect() })
    }

    /// Tensors of the adapter called `name`, sorted by name.
    pub fn adapter_tensors(&self, name: &str) -> Result<Vec<NamedTensor>> {
        Ok(self.adapter(name)?.tensors().cloned().collect())
    }

    /// A base tensor by name.
    pub(crate) fn base_tensor(&self, name: &str) -> Result<&NamedTensor> {
        self.base.get(name).ok_or_else(|| ModelError::MissingTensor { name: name.to_owned() })
    }

    /// Checks a query's tokens against the vocabulary and its length against the longest prompt.
    pub(crate) fn check_query(&self, query: &Query<'_>) -> Result<()> {
        let most = self.config.max_positions;
        if query.prompt.is_empty() || query.prompt.len() > most {
            return Err(ModelError::Prompt { found: query.prompt.len(), most });
        }
        if query.answers.is_empty() {
            return Err(ModelError::NoOptions);
        }
        let vocab_size = self.config.vocab_size;
        match query.prompt.iter().chain(query.answers).find(|t| **t as usize >= vocab_size) {
            Some(token) => Err(ModelError::Token { token: *token, vocab_size }),
            None => Ok(()),
        }
    }

    /// Weights for a forward pass with `adapter` merged into the base, which costs nothing per token and gives scoring and training
    /// the same bits.
    pub(crate) fn weights(&self, adapter: Option<&str>, composition: Composition) -> Result<Weights> {
        let adapter = adapter.map(|name| self.adapter(name)).transpose()?;
        let projection = |module: &str| -> Result<Projection> {
            let base = self.base_tensor(&format!("{module}.weight"))?;
            let data = match adapter {
                Some(adapter) => adapter.merged(module, base)?,
                None => base.data.clone(),
            };
            Ok(Projection::Dense(Tensor::from_vec(data, base.shape.as_slice(), &Device::Cpu)?))
        };
        self.assemble(composition, |name| self.constant(name), projection)
    }

    /// A base tensor as a candle tensor that no gradient flows to.
    pub(crate) fn constant(&self, name: &str) -> Result<Tensor> {
        let tensor = self.base_tensor(name)?;
        Ok(Tensor::from_slice(&tensor.data, tensor.shape.as_slice(), &Device::Cpu)?)
    }

    /// Puts weights together from the given tensors and linear layers.
    pub(crate) fn assemble(
        &self,
        composition: Composition,
        tensor: impl Fn(&str) -> Result<Tensor>,
        projection: impl Fn(&str) -> Result<Projection>,
    ) -> Result<Weights> {
        Weights::assemble(&self.config, &self.rotary, composition, tensor, projection)
    }
}
