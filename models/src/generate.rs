//! Short text, token by token. Every token recomputes its whole prompt: at these lengths that is cheaper than keeping a cache.

use crate::batch;
use crate::choice;
use crate::error::{ModelError, Result};
use crate::model::{Model, Query};
use crate::qwen3::Composition;
use crate::vocabulary::Vocabulary;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// Settings of generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// Most tokens of a text, the stop token included.
    pub max_tokens: usize,
    /// Temperature of sampling; 0 takes the most likely token.
    pub temperature: f64,
    /// Token that ends a text; it is part of the text.
    pub stop: u32,
    /// Tokens that are never produced.
    pub banned: Vec<u32>,
}

impl Default for Generation {
    fn default() -> Self {
        Self { max_tokens: 16, temperature: 1.0, stop: Vocabulary::EOS, banned: vec![Vocabulary::PAD] }
    }
}

/// A generated text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// Token ids, the stop token included where it came.
    pub tokens: Vec<u32>,
    /// Log-probability of each token under the distribution it was drawn from (for temperature 0: under temperature 1).
    pub log_probs: Vec<f64>,
}

/// Continues one prompt.
///
/// # Errors
/// As for [`generate_batch`].
pub fn generate(model: &Model, adapter: Option<&str>, prompt: &[u32], settings: &Generation, rng: &mut ChaCha8Rng) -> Result<Generated> {
    let texts = generate_batch(model, adapter, &[prompt], settings, std::slice::from_mut(rng))?;
    texts.into_iter().next().ok_or_else(|| ModelError::Internal("no text was generated".into()))
}

/// Continues several prompts in lock-step, each with its own generator, so that a text is the same alone and in any batch. A text
/// also ends where its prompt has reached the model's longest.
///
/// # Errors
/// A prompt that is empty or too long, a token outside the vocabulary, as many generators as prompts not given, every token
/// banned, a temperature below 0, a logit that is not finite.
pub fn generate_batch(
    model: &Model,
    adapter: Option<&str>,
    prompts: &[&[u32]],
    settings: &Generation,
    rngs: &mut [ChaCha8Rng],
) -> Result<Vec<Generated>> {
    if prompts.len() != rngs.len() {
        let (expected, found) = (prompts.len(), rngs.len());
        return Err(ModelError::Length { what: "random generators", expected, found });
    }
    for prompt in prompts {
        model.check_query(&Query { prompt, answers: &[settings.stop] })?;
    }
    let vocab_size = model.config().vocab_size as u32;
    let allowed: Vec<u32> = (0..vocab_size).filter(|token| !settings.banned.contains(token)).collect();
    let weights = model.weights(adapter, Composition::Fused)?;
    let mut sequences: Vec<Vec<u32>> = prompts.iter().map(|p| p.to_vec()).collect();
    let mut texts = vec![Generated::default(); prompts.len()];
    let mut live: Vec<usize> = (0..prompts.len()).collect();
    for _ in 0..settings.max_tokens {
        live.retain(|i| sequences[*i].len() <= model.config().max_positions && texts[*i].tokens.last() != Some(&settings.stop));
        let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for index in &live {
            by_length.entry(sequences[*index].len()).or_default().push(*index);
        }
        for indices in by_length.values().flat_map(|group| group.chunks(batch::CHUNK)) {
            let prompts: Vec<&[u32]> = indices.iter().map(|i| sequences[*i].as_slice()).collect();
            let rows = batch::rows(&weights.logits(&prompts)?)?;
            for (index, row) in indices.iter().zip(rows) {
                let (token, log_prob) = draw(&row, &allowed, settings.temperature, &mut rngs[*index])?;
                sequences[*index].push(token);
                texts[*index].tokens.push(token);
                texts[*index].log_probs.push(log_prob);
            }
        }
    }
    Ok(texts)
}

/// Draws one of the allowed tokens.
fn draw(row: &[f32], allowed: &[u32], temperature: f64, rng: &mut ChaCha8Rng) -> Result<(u32, f64)> {
    let logits: Vec<f32> = allowed.iter().map(|token| row[*token as usize]).collect();
    let greedy = temperature == 0.0;
    let log_probs = choice::log_softmax(&logits, if greedy { 1.0 } else { temperature })?;
    let index = if greedy { choice::greedy(&logits) } else { choice::sample(&log_probs, rng) };
    Ok((allowed[index], log_probs[index]))
}
