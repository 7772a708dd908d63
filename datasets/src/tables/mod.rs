//! The tables: what flows on the edges is what lands on disk.
//!
//! The step of co-evolution is not a column of the rows: it is the timestamp on the edge and the folder `step=000003` on disk, where
//! Polars, DuckDB and pandas read it as a hive column.

mod bank_events;
mod contracts;
mod cuts;
mod decisions;
mod episodes;
mod experiences;
mod metrics;
mod policies;
mod samples;
mod segments;
mod skills;

pub use bank_events::BankEvent;
pub use contracts::Clause;
pub use cuts::Cut;
pub use decisions::Decision;
pub use episodes::Episode;
pub use experiences::Experience;
pub use metrics::Metric;
pub use policies::PolicyTensor;
pub use samples::Sample;
pub use segments::{Relabel, Segment};
pub use skills::Skill;
