//! `cosplay query`: Polars SQL over the tables of a run.

use crate::error::Ending;
use cosplay_datasets::render;
use cosplay_datasets::views::SqlRun;
use std::path::Path;

/// Rows of a table for people; programs get all.
const MAX_ROWS: usize = 200;

/// How a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON object a row.
    Json,
    /// Comma-separated values with a header.
    Csv,
}

/// Runs `sql` over the committed steps of the run at `path`.
///
/// # Errors
/// Exit code 2 if there is no run, or the query is wrong.
pub fn query(path: &Path, sql: &str, format: Format) -> Result<String, Ending> {
    let frame = SqlRun::open(path).and_then(|run| run.query(sql))?;
    Ok(match format {
        Format::Table => render::table(&frame, width(), MAX_ROWS),
        Format::Json => render::json_lines(&frame),
        Format::Csv => render::csv(&frame),
    })
}

/// Width in characters: COLUMNS, or what most terminals of today have.
fn width() -> usize {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|&columns| columns >= 40).unwrap_or(160)
}
