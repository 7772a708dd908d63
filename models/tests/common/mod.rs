//! Small models and random prompts for the tests.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

use cosplay_models::{Adapter, Model, ModelConfig, NamedTensor, Query};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// A model small enough for finite differences, with several heads a key head and norms that are not one.
pub fn tiny() -> Model {
    let config = ModelConfig {
        layers: 2,
        hidden: 12,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        intermediate: 10,
        vocab_size: 17,
        rope_theta: 1000.0,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
        max_positions: 64,
    };
    with_busy_norms(Model::init(config, 5).unwrap())
}

pub fn embedded(size: &str) -> Model {
    with_busy_norms(Model::init(ModelConfig::embedded(size, 96).unwrap(), 6).unwrap())
}

/// Embeddings of order one and norms around one, so that every part of the model matters to the result.
fn with_busy_norms(model: Model) -> Model {
    let mut rng = rng(9);
    let mut base = model.base_tensors();
    for tensor in &mut base {
        if tensor.shape.len() == 1 {
            tensor.data.iter_mut().for_each(|w| *w = rng.random_range(0.5..1.5));
        } else if tensor.name.contains("embed") {
            tensor.data.iter_mut().for_each(|w| *w *= 15.0);
        }
    }
    Model::new(model.config().clone(), base).unwrap()
}

/// An adapter whose B is not zero, as after some training.
pub fn trained_adapter(config: &ModelConfig, rank: usize, seed: u64) -> Adapter {
    let fresh = Adapter::init(config, rank, 2.0 * rank as f64, seed).unwrap();
    let mut rng = rng(seed);
    let busy = |t: &NamedTensor| {
        let mut t = t.clone();
        if t.name.ends_with("lora_B.weight") {
            t.data.iter_mut().for_each(|w| *w = rng.random_range(-0.2..0.2));
        }
        t
    };
    Adapter::new(config, rank, fresh.alpha(), fresh.tensors().map(busy).collect()).unwrap()
}

pub fn random_prompts(seed: u64, count: usize, lengths: std::ops::Range<usize>, vocab: usize) -> Vec<Vec<u32>> {
    let mut rng = rng(seed);
    (0..count)
        .map(|_| {
            let length = rng.random_range(lengths.clone());
            (0..length).map(|_| rng.random_range(0..vocab as u32)).collect()
        })
        .collect()
}

pub fn queries<'a>(prompts: &'a [Vec<u32>], answers: &'a [u32]) -> Vec<Query<'a>> {
    prompts.iter().map(|prompt| Query { prompt, answers }).collect()
}

pub fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}
