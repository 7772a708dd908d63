//! The `cosplay` program: specs become plans, plans become dataflows, dataflows fill run directories; and the commands that look at them.

pub mod bank;
pub mod cli;
pub mod error;
pub mod eval;
pub mod export;
pub mod query;
pub mod rebuild;
pub mod run;
pub mod spec;
pub mod stats;
