//! Language models of `cosplay`: the Qwen3 architecture in candle, LoRA adapters over one frozen base, constrained choices, and
//! training.
//!
//! The way through the crate: a [`Vocabulary`] turns words into token ids; a [`Model`] is a base and named [`Adapter`]s; a
//! [`Scorer`] gives the logits of [`Query`]s, which [`choice`] turns into a policy over options; a [`Trainable`] gives the
//! gradient of those logits and takes AdamW steps. [`prompt`] builds the two forms of a choice.
//!
//! Invariants: results do not depend on what else is in a batch, on the number of threads, or on what was computed before; all
//! randomness comes from seeds and generators that the caller gives; candle's own generator is never read.
//!
//! Deliberately absent: text tokenised twice (token ids in, token ids out), clocks, and files other than model folders.

pub mod choice;
pub mod prompt;

mod adapter;
mod batch;
mod config;
mod error;
mod folder;
mod gaussian;
mod generate;
mod gradient;
mod model;
mod ops;
mod qwen3;
mod schedule;
mod scorer;
mod tensor;
mod threads;
mod train;
mod vocabulary;

pub use adapter::{Adapter, DEFAULT_ALPHA, DEFAULT_RANK, MAX_RANK};
pub use config::{LINEAR_MODULES, ModelConfig};
pub use error::{ModelError, Result};
pub use folder::{tensors_from_bytes, tensors_to_bytes};
pub use generate::{Generated, Generation, generate, generate_batch};
pub use gradient::Gradient;
pub use model::{Model, Query};
pub use qwen3::Composition;
pub use schedule::{Decay, Schedule};
pub use scorer::{Scorer, ScorerStats, logits_parallel};
pub use tensor::{NamedTensor, TrainedTensor};
pub use threads::single_threaded_math;
pub use train::{AdamW, Target, Trainable};
pub use vocabulary::Vocabulary;
