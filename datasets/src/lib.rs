//! Tables of `cosplay`: typed rows and their Arrow schemas, Parquet files with reproducible bytes, the run directory with its one
//! commit point, and Polars SQL over runs.
//!
//! Everything that flows along a graph's edges is a batch of one of the [`tables`], and the same batches land on disk under
//! `RUN/<table>/step=000003/part-0000.parquet`. What this crate deliberately does not do: it knows no operator, no environment and no
//! model, draws no random numbers, and never writes to the screen.

pub mod column;
pub mod error;
pub mod files;
mod guard;
pub mod ids;
pub mod manifest;
pub mod parquet_io;
mod registry;
pub mod render;
pub mod run_dir;
mod sql_names;
pub mod stored;
pub mod table;
pub mod tables;
pub mod views;

pub use error::{Error, Result};
pub use guard::is_guarded;
pub use ids::{EpisodeId, SegmentId, SkillId};
pub use manifest::RunHeader;
pub use registry::{TableName, conform, docs, schema_of, sort_batch};
pub use run_dir::RunDir;
pub use stored::{StoredStep, read_stored, select};
pub use table::{ColumnInfo, Table};
pub use tables::{BankEvent, Clause, Cut, Decision, Episode, Experience, Metric, PolicyTensor, Relabel, Sample, Segment, Skill};
pub use views::{SqlRun, to_polars};

/// Names that the [`table!`] macro expands to.
#[doc(hidden)]
pub mod reexport {
    pub use arrow::array::RecordBatch;
    pub use arrow::datatypes::{Schema, SchemaRef};
}

#[cfg(test)]
mod tests;
