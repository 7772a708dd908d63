//! The operators of co-evolution: each file holds one operator as a pure function over plain rows and, below it, the few lines that put
//! it on a timely stream.

pub mod graph;
pub mod kind;
pub mod operator;
pub mod registry;
pub mod settings;

pub mod cold_start;
pub mod contract;
pub mod dataflow;
pub mod grpo_update;
pub mod infer_segmentation;
pub mod learn_contracts;
pub mod maintain_bank;
pub mod play;
pub mod policy;
pub mod prompts;
pub mod propose_boundaries;
pub mod retrieve;
pub mod rewards;
pub mod rollout;
pub mod stored_rollouts;
pub mod teacher_rollouts;
pub mod viterbi;
