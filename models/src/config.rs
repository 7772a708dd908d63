//! Sizes of a model and the names and shapes of its tensors.

use crate::error::{ModelError, Result};
use serde::{Deserialize, Serialize};

/// Configuration of a Qwen3 model, with the keys of Hugging Face's `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Number of blocks.
    #[serde(rename = "num_hidden_layers")]
    pub layers: usize,
    /// Width of the residual stream.
    #[serde(rename = "hidden_size")]
    pub hidden: usize,
    /// Query heads.
    #[serde(rename = "num_attention_heads")]
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    #[serde(rename = "num_key_value_heads")]
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Width of the feed-forward part.
    #[serde(rename = "intermediate_size")]
    pub intermediate: usize,
    /// Number of tokens.
    pub vocab_size: usize,
    /// Base of the rotary angles.
    pub rope_theta: f64,
    /// ε of every RMSNorm.
    pub rms_norm_eps: f64,
    /// Whether the output layer is the embedding.
    #[serde(default = "tied")]
    pub tie_word_embeddings: bool,
    /// Longest prompt, in tokens.
    #[serde(rename = "max_position_embeddings", default = "default_positions")]
    pub max_positions: usize,
}

fn tied() -> bool {
    true
}

fn default_positions() -> usize {
    512
}

/// The seven linear layers of a block, which are also the targets of an adapter: module path within the block.
pub const LINEAR_MODULES: [&str; 7] =
    ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"];

impl ModelConfig {
    /// The embedded model of `size` (`"0.1M"` or `"0.3M"` parameters) over `vocab_size` tokens.
    ///
    /// # Errors
    /// [`ModelError::UnknownSize`], or a vocabulary of no tokens.
    pub fn embedded(size: &str, vocab_size: usize) -> Result<Self> {
        let (layers, hidden, heads, kv_heads, head_dim, intermediate) = match size {
            "0.1M" => (2, 64, 2, 1, 32, 192),
            "0.3M" => (3, 96, 4, 2, 24, 256),
            other => return Err(ModelError::UnknownSize(other.chars().take(40).collect())),
        };
        let config = Self {
            layers,
            hidden,
            heads,
            kv_heads,
            head_dim,
            intermediate,
            vocab_size,
            rope_theta: 1000.0,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
            max_positions: default_positions(),
        };
        config.validate()?;
        Ok(config)
    }

    /// Checks every size against what the architecture can be and against limits that keep a hostile file from asking for
    /// absurd amounts of memory.
    pub fn validate(&self) -> Result<()> {
        let sizes = [
            ("num_hidden_layers", self.layers, 512),
            ("hidden_size", self.hidden, 1 << 16),
            ("num_attention_heads", self.heads, 1 << 10),
            ("num_key_value_heads", self.kv_heads, 1 << 10),
            ("head_dim", self.head_dim, 1 << 10),
            ("intermediate_size", self.intermediate, 1 << 18),
            ("vocab_size", self.vocab_size, 1 << 20),
            ("max_position_embeddings", self.max_positions, 1 << 20),
        ];
        for (name, value, most) in sizes {
            if value == 0 || value > most {
                return Err(ModelError::Config(format!("{name} is {value}, must be 1 to {most}")));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let (heads, kv) = (self.heads, self.kv_heads);
            return Err(ModelError::Config(format!("{heads} heads cannot share {kv} key and value heads evenly")));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(ModelError::Config(format!("head_dim is {}, must be even", self.head_dim)));
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 1.0) {
            return Err(ModelError::Config(format!("rope_theta is {}, must be above 1", self.rope_theta)));
        }
        if !(self.rms_norm_eps > 0.0 && self.rms_norm_eps < 1.0) {
            return Err(ModelError::Config(format!("rms_norm_eps is {}, must lie in (0, 1)", self.rms_norm_eps)));
        }
        Ok(())
    }

    /// `[outputs, inputs]` of a linear layer named by its path within a block (one of [`LINEAR_MODULES`]).
    pub fn linear_shape(&self, module: &str) -> Option<[usize; 2]> {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        Some(match module {
            "self_attn.q_proj" => [queries, self.hidden],
            "self_attn.k_proj" | "self_attn.v_proj" => [keys, self.hidden],
            "self_attn.o_proj" => [self.hidden, queries],
            "mlp.gate_proj" | "mlp.up_proj" => [self.intermediate, self.hidden],
            "mlp.down_proj" => [self.hidden, self.intermediate],
            _ => return None,
        })
    }

    /// Hugging Face names and shapes of all tensors, sorted by name.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut tensors = vec![
            ("model.embed_tokens.weight".to_owned(), vec![self.vocab_size, self.hidden]),
            ("model.norm.weight".to_owned(), vec![self.hidden]),
        ];
        if !self.tie_word_embeddings {
            tensors.push(("lm_head.weight".to_owned(), vec![self.vocab_size, self.hidden]));
        }
        for layer in 0..self.layers {
            let prefix = format!("model.layers.{layer}");
            for (norm, width) in [
                ("input_layernorm", self.hidden),
                ("post_attention_layernorm", self.hidden),
                ("self_attn.q_norm", self.head_dim),
                ("self_attn.k_norm", self.head_dim),
            ] {
                tensors.push((format!("{prefix}.{norm}.weight"), vec![width]));
            }
            for module in LINEAR_MODULES {
                if let Some(shape) = self.linear_shape(module) {
                    tensors.push((format!("{prefix}.{module}.weight"), shape.to_vec()));
                }
            }
        }
        tensors.sort();
        tensors
    }

    /// Number of parameters.
    pub fn parameters(&self) -> u64 {
        let count = |shape: &[usize]| shape.iter().map(|n| *n as u64).product::<u64>();
        self.tensors().iter().map(|(_, shape)| count(shape)).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn embedded_sizes_are_what_they_say() {
        let small = ModelConfig::embedded("0.1M", 128).unwrap();
        assert!((95_000..115_000).contains(&small.parameters()), "{}", small.parameters());
        let large = ModelConfig::embedded("0.3M", 128).unwrap();
        assert!((270_000..330_000).contains(&large.parameters()), "{}", large.parameters());
        assert!(matches!(ModelConfig::embedded("7B", 128), Err(ModelError::UnknownSize(_))));
    }

    #[test]
    fn impossible_configurations_are_refused() {
        let good = ModelConfig::embedded("0.1M", 128).unwrap();
        for change in [
            (|c| c.vocab_size = 0) as fn(&mut ModelConfig),
            |c| c.hidden = usize::MAX,
            |c| c.kv_heads = 3,
            |c| c.head_dim = 31,
            |c| c.rope_theta = f64::NAN,
            |c| c.rms_norm_eps = 0.0,
        ] {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(matches!(bad.validate(), Err(ModelError::Config(_))), "{bad:?}");
        }
    }
}
