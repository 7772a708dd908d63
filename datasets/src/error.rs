//! What can go wrong with tables, files, runs and queries.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with tables, files, runs and queries. Every message names the table or the path, and what to do where the user
/// can do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A batch lacks a column of its table.
    #[error("table `{table}`: column `{column}` ({expected}) is missing; found the columns {found}")]
    MissingColumn {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
        /// Type that was expected.
        expected: String,
        /// Names of the columns that are there.
        found: String,
    },
    /// A column has another type than its table says.
    #[error("table `{table}`: column `{column}` has type {found}, expected {expected}")]
    ColumnType {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
        /// Type that was expected.
        expected: String,
        /// Type that was found.
        found: String,
    },
    /// A column that must have a value has none.
    #[error("table `{table}`: column `{column}` ({expected}) must not be null, but row {row} is")]
    NullValue {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
        /// Type that was expected.
        expected: String,
        /// First row without a value.
        row: usize,
    },
    /// Two rows share a key.
    #[error("table `{table}`: two rows have the key {key}")]
    DuplicateKey {
        /// Name of the table.
        table: String,
        /// The key, as `column=value, …`.
        key: String,
    },
    /// No table has this name.
    #[error("no table is called `{name}`; the tables are {known}")]
    UnknownTable {
        /// Name that was asked for.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// Arrow refused an operation on a table.
    #[error("table `{table}`: {source}")]
    Arrow {
        /// Name of the table.
        table: String,
        /// Arrow's reason.
        source: arrow::error::ArrowError,
    },
    /// The operating system refused an operation on a file.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, for example `write`.
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A Parquet file cannot be read.
    #[error("cannot read {} as Parquet: {reason}; the file is damaged or comes from another program: restore it from a copy, or delete its run and make it again", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// Parquet's reason.
        reason: String,
    },
    /// A Parquet file holds other columns than its table.
    #[error("{}: {source}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with its contents.
        source: Box<Error>,
    },
    /// Rows cannot be encoded as Parquet.
    #[error("cannot write {} as Parquet: {reason}", path.display())]
    Encode {
        /// The file that was to be written.
        path: PathBuf,
        /// Parquet's reason.
        reason: String,
    },
    /// A folder does not hold a run.
    #[error("{} is not a run directory: it has no manifest.json; give the folder that `cosplay run --out` wrote", path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// A run is already there.
    #[error("{} already holds a run; continue it with --resume or choose another --out", path.display())]
    RunExists {
        /// The folder.
        path: PathBuf,
    },
    /// A folder that should become a run holds something else.
    #[error("{} is not empty and holds no run; choose another --out", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// Another process writes the run.
    #[error("{} is being written by another process ({owner}); wait for it or stop it", path.display())]
    Locked {
        /// The run directory.
        path: PathBuf,
        /// Who holds the lock, for example `pid 4711`.
        owner: String,
    },
    /// The manifest cannot be read.
    #[error("cannot read {}: {reason}; restore the file from a copy, or delete the run and make it again", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file that the manifest lists is missing or has other contents.
    #[error("{}: {reason}; restore the file from a copy, or delete the run and make it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A step was committed out of order.
    #[error("{}: step {step} cannot be committed after step {last}", path.display())]
    StepOrder {
        /// The run directory.
        path: PathBuf,
        /// Step that was to be committed.
        step: u64,
        /// Last committed step.
        last: u64,
    },
    /// A run that was opened for reading was asked to write.
    #[error("{} is open for reading only", path.display())]
    ReadOnly {
        /// The run directory.
        path: PathBuf,
    },
    /// A step or a table is not in the run.
    #[error("{}: table `{table}` has no step {step}; it has: {known}", path.display())]
    NoSuchStep {
        /// The run directory.
        path: PathBuf,
        /// The table.
        table: String,
        /// The step that was asked for.
        step: u64,
        /// Steps that are there.
        known: String,
    },
    /// No stored rollouts match.
    #[error("{pattern}: {reason}; give a run directory, a table's folder, or a pattern such as RUN/experiences/step=*/part-*.parquet")]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// Why nothing matches.
        reason: String,
    },
    /// A query is wrong.
    #[error("{reason}{hint}")]
    Sql {
        /// What the query engine said.
        reason: String,
        /// Names that exist, or empty.
        hint: String,
    },
}

impl Error {
    /// Makes an [`Error::Io`] of a failed operation on `path`.
    pub(crate) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Puts the file before an error about its contents.
    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        Self::InFile { path: path.to_owned(), source: Box::new(self) }
    }
}
