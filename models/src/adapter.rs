//! LoRA adapters (Hu et al. 2021): `W + (alpha / rank) · B · A` on the seven linear layers of every block.

use crate::config::{LINEAR_MODULES, ModelConfig};
use crate::error::{ModelError, Result};
use crate::gaussian::Gaussian;
use crate::tensor::NamedTensor;
use std::collections::BTreeMap;

/// The rank that all published adapters of COS-PLAY use.
pub const DEFAULT_RANK: usize = 16;
/// The scale that all published adapters of COS-PLAY use.
pub const DEFAULT_ALPHA: f64 = 32.0;
/// Largest rank that is accepted from a file or a spec.
pub const MAX_RANK: usize = 1024;

/// One adapter: for every linear layer an `A` `[rank, inputs]` and a `B` `[outputs, rank]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    rank: usize,
    alpha: f64,
    tensors: BTreeMap<String, NamedTensor>,
}

impl Adapter {
    /// A fresh adapter: `A` Gaussian with deviation `1 / sqrt(inputs)` from one stream in the order of tensor names, `B` zero, so
    /// that it changes nothing yet.
    pub fn init(config: &ModelConfig, rank: usize, alpha: f64, seed: u64) -> Result<Self> {
        check_scale(rank, alpha)?;
        let mut gaussian = Gaussian::new(seed);
        let tensors = shapes(config, rank).into_iter().map(|(name, shape)| {
            let count = shape.iter().product();
            let data = match (is_a(&name), shape.as_slice()) {
                (true, [_, inputs]) => gaussian.fill(count, 1.0 / (*inputs as f64).sqrt()),
                _ => vec![0.0; count],
            };
            (name.clone(), NamedTensor { name, shape, data })
        });
        Ok(Self { rank, alpha, tensors: tensors.collect() })
    }

    /// An adapter of the given tensors, which must be exactly those that `config` and `rank` ask for, in any order. Names are the
    /// base's with `lora_A` or `lora_B` before `weight`: `model.layers.0.self_attn.q_proj.lora_A.weight`.
    pub fn new(config: &ModelConfig, rank: usize, alpha: f64, tensors: Vec<NamedTensor>) -> Result<Self> {
        let tensors = tensors.into_iter().map(|t| (t.name.clone(), t)).collect();
        let adapter = Self { rank, alpha, tensors };
        adapter.check(config)?;
        Ok(adapter)
    }

    /// Rank of the low-rank addition.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Scale; the addition is multiplied by `alpha / rank`.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// The tensors, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = &NamedTensor> {
        self.tensors.values()
    }

    /// `alpha / rank`.
    pub(crate) fn scale(&self) -> f32 {
        (self.alpha / self.rank as f64) as f32
    }

    /// Checks that the adapter fits a model.
    pub(crate) fn check(&self, config: &ModelConfig) -> Result<()> {
        check_scale(self.rank, self.alpha)?;
        let expected = shapes(config, self.rank);
        for (name, shape) in &expected {
            let tensor = self.tensors.get(name).ok_or_else(|| ModelError::MissingTensor { name: name.clone() })?;
            tensor.expect_shape(shape)?;
        }
        match self.tensors.keys().find(|name| !expected.contains_key(*name)) {
            Some(name) => Err(ModelError::UnexpectedTensor { name: name.clone() }),
            None => Ok(()),
        }
    }

    /// `A` and `B` of the linear layer `module`.
    pub(crate) fn pair(&self, module: &str) -> Result<(&NamedTensor, &NamedTensor)> {
        let find = |letter| {
            let name = format!("{module}.lora_{letter}.weight");
            self.tensors.get(&name).ok_or(ModelError::MissingTensor { name })
        };
        Ok((find('A')?, find('B')?))
    }

    /// The layer's weights with the addition merged in: row by row, one rank after the other.
    pub(crate) fn merged(&self, module: &str, base: &NamedTensor) -> Result<Vec<f32>> {
        let (a, b) = self.pair(module)?;
        let inputs = a.shape.get(1).copied().unwrap_or(1);
        let mut merged = base.data.clone();
        for (row, b) in merged.chunks_exact_mut(inputs).zip(b.data.chunks_exact(self.rank)) {
            for (a, b) in a.data.chunks_exact(inputs).zip(b) {
                let factor = self.scale() * b;
                for (row, a) in row.iter_mut().zip(a) {
                    *row += factor * a;
                }
            }
        }
        Ok(merged)
    }

    /// Gradients of `A` and `B` from the gradient `dw` of the merged weights: `dA = s · Bᵀ · dW`, `dB = s · dW · Aᵀ`.
    pub(crate) fn project(&self, module: &str, dw: &[f32]) -> Result<(Vec<f32>, Vec<f32>)> {
        let (a, b) = self.pair(module)?;
        let inputs = a.shape.get(1).copied().unwrap_or(1);
        let (mut da, mut db) = (vec![0f32; a.data.len()], vec![0f32; b.data.len()]);
        let rows = dw.chunks_exact(inputs).zip(b.data.chunks_exact(self.rank)).zip(db.chunks_exact_mut(self.rank));
        for ((dw, b), db) in rows {
            let ranks = a.data.chunks_exact(inputs).zip(da.chunks_exact_mut(inputs)).zip(b.iter().zip(db));
            for ((a, da), (b, db)) in ranks {
                let factor = self.scale() * b;
                let mut sum = 0f32;
                for ((dw, a), da) in dw.iter().zip(a).zip(da) {
                    *da += factor * dw;
                    sum += dw * a;
                }
                *db = self.scale() * sum;
            }
        }
        Ok((da, db))
    }
}

fn is_a(name: &str) -> bool {
    name.ends_with(".lora_A.weight")
}

fn check_scale(rank: usize, alpha: f64) -> Result<()> {
    if rank == 0 || rank > MAX_RANK {
        return Err(ModelError::Adapter(format!("rank is {rank}, must be 1 to {MAX_RANK}")));
    }
    if !(alpha.is_finite() && alpha > 0.0) {
        return Err(ModelError::Adapter(format!("alpha is {alpha}, must be above 0")));
    }
    Ok(())
}

/// Module paths of all adapted layers, sorted.
pub(crate) fn modules(config: &ModelConfig) -> Vec<String> {
    let mut modules: Vec<String> =
        (0..config.layers).flat_map(|layer| LINEAR_MODULES.iter().map(move |module| format!("model.layers.{layer}.{module}"))).collect();
    modules.sort();
    modules
}

/// Names and shapes of an adapter's tensors.
pub(crate) fn shapes(config: &ModelConfig, rank: usize) -> BTreeMap<String, Vec<usize>> {
    let mut shapes = BTreeMap::new();
    for layer in 0..config.layers {
        for module in LINEAR_MODULES {
            if let Some([outputs, inputs]) = config.linear_shape(module) {
                let path = format!("model.layers.{layer}.{module}");
                shapes.insert(format!("{path}.lora_A.weight"), vec![rank, inputs]);
                shapes.insert(format!("{path}.lora_B.weight"), vec![outputs, rank]);
            }
        }
    }
    shapes
}
