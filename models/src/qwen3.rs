//! The Qwen3 architecture: pre-norm blocks of grouped-query attention with normalised queries and keys, and SwiGLU.
//!
//! [`Weights::logits`] is the only forward pass. It runs on our own operations ([`Composition::Fused`]) or on candle's stock ones that
//! have gradients ([`Composition::Stock`]), which serve devices without our kernels and as test oracle. Only the last position's
//! logits are wanted, so the last block computes keys and values everywhere but all else at that position alone.

use crate::config::ModelConfig;
use crate::error::{ModelError, Result};
use crate::ops;
use candle_core::{D, Device, Tensor};
use candle_nn::ops as stock;
use cosplay_kernels::{AttentionShape, RotaryTable};
use std::sync::Arc;

/// Which operations the forward pass is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Composition {
    /// The kernels of `cosplay-kernels`, on one thread. CPU only.
    #[default]
    Fused,
    /// candle's differentiable operations.
    Stock,
}

/// A linear layer: dense, or dense with a low-rank addition that has not been merged into it.
#[derive(Clone, Debug)]
pub(crate) enum Projection {
    /// `W` `[outputs, inputs]`.
    Dense(Tensor),
    /// `W + scale · B · A`, with `A` `[rank, inputs]` and `B` `[outputs, rank]`.
    LowRank { base: Tensor, a: Tensor, b: Tensor, scale: f64 },
}

/// The tensors of one block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) input_norm: Tensor,
    pub(crate) q: Projection,
    pub(crate) k: Projection,
    pub(crate) v: Projection,
    pub(crate) o: Projection,
    pub(crate) q_norm: Tensor,
    pub(crate) k_norm: Tensor,
    pub(crate) post_norm: Tensor,
    pub(crate) gate: Projection,
    pub(crate) up: Projection,
    pub(crate) down: Projection,
}

/// All tensors of a model, ready for a forward pass.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    config: Arc<ModelConfig>,
    composition: Composition,
    embedding: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    head: Tensor,
    rotary: Arc<RotaryTable>,
}

impl Weights {
    /// Puts a model together from `tensor`, which gives a tensor by its Hugging Face name, and `projection`, which gives a linear
    /// layer by its module path.
    pub(crate) fn assemble(
        config: &Arc<ModelConfig>,
        rotary: &Arc<RotaryTable>,
        composition: Composition,
        tensor: impl Fn(&str) -> Result<Tensor>,
        projection: impl Fn(&str) -> Result<Projection>,
    ) -> Result<Self> {
        let mut blocks = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let norm = |name: &str| tensor(&format!("model.layers.{layer}.{name}.weight"));
            let linear = |name: &str| projection(&format!("model.layers.{layer}.{name}"));
            blocks.push(Block {
                input_norm: norm("input_layernorm")?,
                q: linear("self_attn.q_proj")?,
                k: linear("self_attn.k_proj")?,
                v: linear("self_attn.v_proj")?,
                o: linear("self_attn.o_proj")?,
                q_norm: norm("self_attn.q_norm")?,
                k_norm: norm("self_attn.k_norm")?,
                post_norm: norm("post_attention_layernorm")?,
                gate: linear("mlp.gate_proj")?,
                up: linear("mlp.up_proj")?,
                down: linear("mlp.down_proj")?,
            });
        }
        let embedding = tensor("model.embed_tokens.weight")?;
        let head = if config.tie_word_embeddings { embedding.clone() } else { tensor("lm_head.weight")? };
        Ok(Self {
            config: Arc::clone(config),
            composition,
            embedding,
            blocks,
            norm: tensor("model.norm.weight")?,
            head,
            rotary: Arc::clone(rotary),
        })
    }

    /// Logits `[prompts, vocab_size]` at the last position of prompts of one common length.
    pub(crate) fn logits(&self, prompts: &[&[u32]]) -> Result<Tensor> {
        let length = prompts.first().map_or(0, |p| p.len());
        let tokens: Vec<u32> = prompts.iter().flat_map(|p| p.iter().copied()).collect();
        if length == 0 || tokens.len() != prompts.len() * length {
            return Err(ModelError::Internal("prompts of unequal length in one batch".into()));
        }
        let ids = Tensor::from_vec(tokens, prompts.len() * length, &Device::Cpu)?;
        let mut x = self.embedding.index_select(&ids, 0)?.reshape((prompts.len(), length, self.config.hidden))?;
        for (index, block) in self.blocks.iter().enumerate() {
            x = self.block(block, &x, index + 1 == self.blocks.len())?;
        }
        let x = self.norm(&x.squeeze(1)?, &self.norm)?;
        self.linear(&x, &self.head)
    }

    /// One block on `x` `[batch, positions, hidden]`; `last_only` returns the last position alone.
    fn block(&self, block: &Block, x: &Tensor, last_only: bool) -> Result<Tensor> {
        let positions = x.dim(1)?;
        let normed = self.norm(x, &block.input_norm)?;
        let (k, v) = (self.project(&normed, &block.k)?, self.project(&normed, &block.v)?);
        let (x, normed) = if last_only { (last(x)?, last(&normed)?) } else { (x.clone(), normed) };
        let q = self.project(&normed, &block.q)?;
        let shape = AttentionShape {
            queries: q.dim(1)?,
            keys: positions,
            heads: self.config.heads,
            kv_heads: self.config.kv_heads,
            head_dim: self.config.head_dim,
        };
        let q = self.norm_rope(&q, &block.q_norm, shape.heads, positions - shape.queries)?;
        let k = self.norm_rope(&k, &block.k_norm, shape.kv_heads, 0)?;
        let attended = self.attention(&q, &k, &v, shape)?;
        let x = (x + self.project(&attended, &block.o)?)?;
        let normed = self.norm(&x, &block.post_norm)?;
        let gated = self.swiglu(&self.project(&normed, &block.gate)?, &self.project(&normed, &block.up)?)?;
        Ok((x + self.project(&gated, &block.down)?)?)
    }

    fn project(&self, x: &Tensor, projection: &Projection) -> Result<Tensor> {
        match projection {
            Projection::Dense(w) => self.linear(x, w),
            Projection::LowRank { base, a, b, scale } => {
                let low = self.linear(&self.linear(x, a)?, b)?;
                Ok((self.linear(x, base)? + (low * *scale)?)?)
            }
        }
    }

    fn linear(&self, x: &Tensor, w: &Tensor) -> Result<Tensor> {
        Ok(match self.composition {
            Composition::Fused => x.apply_op2(w, ops::Linear)?,
            Composition::Stock => {
                let mut dims = x.dims().to_vec();
                let inputs = dims.pop().unwrap_or(0);
                dims.push(w.dim(0)?);
                x.reshape(((), inputs))?.matmul(&w.t()?)?.reshape(dims)?
            }
        })
    }

    fn norm(&self, x: &Tensor, w: &Tensor) -> Result<Tensor> {
        let epsilon = self.config.rms_norm_eps as f32;
        Ok(match self.composition {
            Composition::Fused => x.apply_op2(w, ops::RmsNorm { epsilon })?,
            Composition::Stock => stock::rms_norm_slow(x, w, epsilon)?,
        })
    }

    /// `x` `[batch, positions, heads · D]`, whose first row stands at position `first`.
    fn norm_rope(&self, x: &Tensor, w: &Tensor, heads: usize, first: usize) -> Result<Tensor> {
        let epsilon = self.config.rms_norm_eps as f32;
        let (batch, positions, width) = x.dims3()?;
        match self.composition {
            Composition::Fused => {
                let table = Arc::clone(&self.rotary);
                Ok(x.apply_op2(w, ops::NormRope { table, heads, positions, first, epsilon })?)
            }
            Composition::Stock => {
                let half = self.config.head_dim / 2;
                let (cos, sin) = self.rotary.from(first);
                let angles =
                    |table: &[f32]| Tensor::from_slice(&table[..positions * half], (positions, half), &Device::Cpu)?.to_device(x.device());
                let (cos, sin) = (angles(cos)?, angles(sin)?);
                let x = x.reshape((batch, positions, heads, width / heads))?;
                let x = stock::rms_norm_slow(&x, w, epsilon)?.transpose(1, 2)?.contiguous()?;
                let x = candle_nn::rotary_emb::rope_slow(&x, &cos, &sin)?;
                Ok(x.transpose(1, 2)?.reshape((batch, positions, width))?)
            }
        }
    }

    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, shape: AttentionShape) -> Result<Tensor> {
        if self.composition == Composition::Fused {
            return Ok(q.apply_op3(k, v, ops::Attention(shape))?);
        }
        let AttentionShape { queries, keys, heads, kv_heads, head_dim } = shape;
        let batch = q.dim(0)?;
        let q = q.reshape((batch, queries, heads, head_dim))?.transpose(1, 2)?.contiguous()?;
        let repeat = |x: &Tensor| -> Result<Tensor> {
            let x = x.reshape((batch, keys, kv_heads, 1, head_dim))?;
            let x = x.broadcast_as((batch, keys, kv_heads, heads / kv_heads, head_dim))?;
            Ok(x.reshape((batch, keys, heads, head_dim))?.transpose(1, 2)?.contiguous()?)
        };
        let (k, v) = (repeat(k)?, repeat(v)?);
        let scores = (q.matmul(&k.transpose(2, 3)?.contiguous()?)? * (1.0 / (head_dim as f64).sqrt()))?;
        let hidden = |i: usize, j: usize| {
            if j > keys - queries + i { f32::NEG_INFINITY } else { 0.0 }
        };
        let mask: Vec<f32> = (0..queries).flat_map(|i| (0..keys).map(move |j| hidden(i, j))).collect();
        let mask = Tensor::from_vec(mask, (1, 1, queries, keys), &Device::Cpu)?.to_device(q.device())?;
        let p = stock::softmax(&scores.broadcast_add(&mask)?, D::Minus1)?;
        Ok(p.matmul(&v)?.transpose(1, 2)?.reshape((batch, queries, heads * head_dim))?)
    }

    fn swiglu(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        Ok(match self.composition {
            Composition::Fused => gate.apply_op2(up, ops::SwiGlu)?,
            Composition::Stock => (gate.silu()? * up)?,
        })
    }
}

/// The last position of `x` `[batch, positions, width]`, as `[batch, 1, width]`.
fn last(x: &Tensor) -> Result<Tensor> {
    Ok(x.narrow(1, x.dim(1)? - 1, 1)?.contiguous()?)
}
