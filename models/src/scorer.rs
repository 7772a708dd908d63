//! Scoring of queries: the logits of answer tokens at the end of prompts.

use crate::batch::{self, Request};
use crate::error::Result;
use crate::model::{Model, Query};
use crate::qwen3::{Composition, Weights};
use rustc_hash::FxHashMap;

/// Counts of a scorer's work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScorerStats {
    /// Queries answered from memory, or by another query of the same call.
    pub hits: u64,
    /// Prompts that took a forward pass.
    pub misses: u64,
    /// Tokens that went through the model.
    pub tokens: u64,
}

/// Answers and their logits, by prompt. Only looked up, never walked through: its order reaches nothing.
type Memo = FxHashMap<Box<[u32]>, Box<[(u32, f32)]>>;

/// Scores queries with one model and one adapter, whose weights stand still while the scorer lives, so that equal prompts
/// are computed once. Results are the same bits for every batch and every number of threads.
pub struct Scorer {
    model: Model,
    weights: Weights,
    memo: Option<Memo>,
    threads: usize,
    stats: ScorerStats,
}

impl Scorer {
    /// A scorer on one thread.
    ///
    /// # Errors
    /// When the model has no adapter of that name.
    pub fn new(model: &Model, adapter: Option<&str>) -> Result<Self> {
        Self::with_composition(model, adapter, Composition::Fused)
    }

    /// A scorer on the given operations.
    pub fn with_composition(model: &Model, adapter: Option<&str>, composition: Composition) -> Result<Self> {
        let weights = model.weights(adapter, composition)?;
        let memo = Some(FxHashMap::default());
        Ok(Self { model: model.clone(), weights, memo, threads: 1, stats: ScorerStats::default() })
    }

    /// Uses `threads` OS threads for large calls.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Remembers nothing from one call to the next.
    #[must_use]
    pub fn without_memory(mut self) -> Self {
        self.memo = None;
        self
    }

    /// The logits of all answers of all queries, one after the other.
    ///
    /// # Errors
    /// A prompt that is empty or too long, a query without answers, a token outside the vocabulary.
    pub fn logits(&mut self, queries: &[Query<'_>]) -> Result<Vec<f32>> {
        let mut requests = Vec::new();
        for query in queries {
            self.model.check_query(query)?;
            if !self.known(query) {
                requests.push(Request { prompt: query.prompt, answers: query.answers.to_vec() });
            }
        }
        let requests = batch::merge_requests(requests);
        self.stats.misses += requests.len() as u64;
        self.stats.hits += queries.len().saturating_sub(requests.len()) as u64;
        self.stats.tokens += requests.iter().map(|r| r.prompt.len() as u64).sum::<u64>();
        let fresh = self.forward(&requests)?;
        match &mut self.memo {
            Some(memo) => {
                for (request, logits) in requests.iter().zip(fresh) {
                    remember(memo, request, &logits);
                }
                collect(queries, |prompt| memo.get(prompt).map(|known| &**known))
            }
            None => {
                let mut found: FxHashMap<&[u32], Vec<(u32, f32)>> = FxHashMap::default();
                for (request, logits) in requests.iter().zip(fresh) {
                    let pairs = request.answers.iter().copied().zip(logits);
                    found.insert(request.prompt, pairs.collect());
                }
                collect(queries, |prompt| found.get(prompt).map(Vec::as_slice))
            }
        }
    }

    /// Hits, misses and tokens so far.
    pub fn stats(&self) -> ScorerStats {
        self.stats
    }

    /// Logits of each request's answers.
    fn forward(&self, requests: &[Request<'_>]) -> Result<Vec<Vec<f32>>> {
        // Rows do not depend on their batch, so small calls may be cut finer to occupy every thread.
        let size = requests.len().div_ceil(self.threads).clamp(batch::CHUNK / 2, batch::CHUNK);
        let chunks = batch::chunks(requests, size);
        let weights = &self.weights;
        let results = batch::in_parallel(&chunks, self.threads, |chunk| {
            let prompts: Vec<&[u32]> = chunk.iter().map(|r| r.prompt).collect();
            let rows = batch::rows(&weights.logits(&prompts)?)?;
            let pick =
                |(request, row): (&Request<'_>, &Vec<f32>)| -> Vec<f32> { request.answers.iter().map(|a| row[*a as usize]).collect() };
            Ok(chunk.iter().zip(&rows).map(pick).collect::<Vec<_>>())
        })?;
        Ok(results.into_iter().flatten().collect())
    }

    fn known(&self, query: &Query<'_>) -> bool {
        let known = self.memo.as_ref().and_then(|memo| memo.get(query.prompt));
        known.is_some_and(|known| query.answers.iter().all(|a| known.iter().any(|(token, _)| token == a)))
    }
}

/// Adds a request's logits to what is known of its prompt.
fn remember(memo: &mut Memo, request: &Request<'_>, logits: &[f32]) {
    let fresh = request.answers.iter().copied().zip(logits.iter().copied());
    let known = match memo.get(request.prompt) {
        Some(known) => known.iter().copied().filter(|(t, _)| !request.answers.contains(t)).chain(fresh).collect(),
        None => fresh.collect(),
    };
    memo.insert(request.prompt.into(), known);
}

/// Reads every query's logits from what is known of its prompt.
fn collect<'a>(queries: &[Query<'_>], known: impl Fn(&[u32]) -> Option<&'a [(u32, f32)]>) -> Result<Vec<f32>> {
    let mut logits = Vec::with_capacity(queries.iter().map(|q| q.answers.len()).sum());
    for query in queries {
        let known = known(query.prompt).unwrap_or(&[]);
        for answer in query.answers {
            let found = known.iter().find(|(token, _)| token == answer);
            let (_, logit) = found.ok_or_else(|| crate::ModelError::Internal("a logit was not computed".into()))?;
            logits.push(*logit);
        }
    }
    Ok(logits)
}

/// Logits of `queries` on `threads` OS threads, without memory: the same bits as from a [`Scorer`].
pub fn logits_parallel(model: &Model, adapter: Option<&str>, queries: &[Query<'_>], threads: usize) -> Result<Vec<f32>> {
    Scorer::new(model, adapter)?.threads(threads).without_memory().logits(queries)
}
