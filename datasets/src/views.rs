//! Polars views of tables and runs: batches as data frames without a copy, and SQL over a run.

use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::registry::TableName;
use crate::run_dir::RunDir;
use crate::sql_names::Mentioned;
use arrow::array::RecordBatch;
use polars::prelude::{Column, DataFrame, IntoLazy, PlSmallStr, PolarsError, PolarsResult, Scalar, Series};
use polars::sql::SQLContext;
use std::collections::HashMap;
use std::path::Path;

/// Name of the column that holds the step of a row.
pub const STEP: &str = "step";

/// A batch as a data frame, through the Arrow C data interface. Values are shared with the batch, not copied, and live until both are
/// dropped.
///
/// # Errors
/// [`Error::Sql`] for types that Polars was built without; none of the tables has any.
pub fn to_polars(batch: &RecordBatch) -> Result<DataFrame> {
    let column = |(field, array): (&arrow::datatypes::FieldRef, &arrow::array::ArrayRef)| {
        let failed = |error: arrow::error::ArrowError| PolarsError::ComputeError(error.to_string().into());
        let (ffi_array, _) = arrow::ffi::to_ffi(&array.to_data()).map_err(failed)?;
        let plain = field.as_ref().clone().with_metadata(HashMap::<String, String>::new());
        let ffi_schema = arrow::ffi::FFI_ArrowSchema::try_from(&plain).map_err(failed)?;
        let (field, array) = import(ffi_array, ffi_schema)?;
        Ok(Column::from(Series::try_from((&field, array))?))
    };
    let columns: PolarsResult<Vec<Column>> = batch.schema_ref().fields().iter().zip(batch.columns()).map(column).collect();
    columns.and_then(|columns| DataFrame::new(batch.num_rows(), columns)).map_err(|error| sql_error(&error))
}

fn import(
    array: arrow::ffi::FFI_ArrowArray,
    schema: arrow::ffi::FFI_ArrowSchema,
) -> PolarsResult<(polars_arrow::datatypes::Field, Box<dyn polars_arrow::array::Array>)> {
    // SAFETY: both crates' structs are `repr(C)` images of the two structs of the Arrow C data interface, of equal size (`transmute` checks
    // that). The transmute moves the release callbacks with the bits, so that each struct is released once, by polars-arrow. arrow-rs has
    // exported array and schema from one valid array, which is what the import functions require.
    unsafe {
        let array = std::mem::transmute::<arrow::ffi::FFI_ArrowArray, polars_arrow::ffi::ArrowArray>(array);
        let schema = std::mem::transmute::<arrow::ffi::FFI_ArrowSchema, polars_arrow::ffi::ArrowSchema>(schema);
        let field = polars_arrow::ffi::import_field_from_c(&schema)?;
        let array = polars_arrow::ffi::import_array_from_c(array, field.dtype.clone())?;
        Ok((field, array))
    }
}

/// SQL over the committed steps of a run. Every table has its name and a further column `step` (u32).
#[derive(Debug)]
pub struct SqlRun {
    run: RunDir,
}

impl SqlRun {
    /// SQL over the run at `path`, which may be in progress.
    ///
    /// # Errors
    /// As [`RunDir::open`].
    pub fn open(path: &Path) -> Result<Self> {
        RunDir::open(path).map(Self::new)
    }

    /// SQL over an open run.
    pub fn new(run: RunDir) -> Self {
        Self { run }
    }

    /// The run.
    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// All rows of a table, with `step` first, then all columns or those of `columns`.
    ///
    /// # Errors
    /// As [`RunDir::read_batch`].
    pub fn frame(&self, table: TableName, columns: Option<&[&str]>) -> Result<DataFrame> {
        let mut frame = with_step(0, &empty(table, columns)?)?;
        for step in self.run.steps(table) {
            let rows = with_step(step, &self.run.read_batch(table, step, columns)?)?;
            frame.vstack_mut_owned(rows).map_err(|error| sql_error(&error))?;
        }
        Ok(frame)
    }

    /// Runs one SQL statement of Polars' dialect. Reads only the tables and columns that the statement mentions.
    ///
    /// # Errors
    /// [`Error::Sql`] if the statement is wrong, with the names that exist; as [`RunDir::read_batch`] if the files are.
    pub fn query(&self, sql: &str) -> Result<DataFrame> {
        only_reads(sql)?;
        let mentioned = Mentioned::in_sql(sql);
        let mut context = SQLContext::new();
        for &table in TableName::ALL {
            let columns = mentioned.columns(table);
            // A table that is not mentioned is there without rows, for SHOW TABLES.
            let frame = if mentioned.table(table) { self.frame(table, columns.as_deref())? } else { with_step(0, &table.empty())? };
            context.register(table.as_str(), frame.lazy());
        }
        let run = guarded(|| context.execute(sql).and_then(|frame| frame.collect()));
        match run {
            Ok(Ok(frame)) => Ok(frame),
            Ok(Err(error)) => Err(mentioned.explain(&error)),
            Err(panic) => Err(Error::Sql { reason: format!("the query engine cannot run this statement: {panic}"), hint: String::new() }),
        }
    }
}

/// Refuses statements that change something: the tables are what a run has committed.
fn only_reads(sql: &str) -> Result<()> {
    let refuse = |reason: &str| Err(Error::Sql { reason: reason.to_owned(), hint: "; expected SELECT … FROM table …".to_owned() });
    let word: String =
        sql.trim_start_matches(|c: char| c == '(' || c.is_whitespace()).chars().take_while(char::is_ascii_alphabetic).collect();
    match word.to_ascii_uppercase().as_str() {
        "" if sql.trim().is_empty() => refuse("the query is empty"),
        "CREATE" | "DROP" | "TRUNCATE" | "DELETE" | "INSERT" | "UPDATE" | "ALTER" => refuse("the tables of a run can only be read"),
        _ => Ok(()),
    }
}

fn empty(table: TableName, columns: Option<&[&str]>) -> Result<RecordBatch> {
    crate::registry::conform_columns(table, &table.empty(), columns)
}

fn with_step(step: u64, rows: &RecordBatch) -> Result<DataFrame> {
    let mut frame = to_polars(rows)?;
    let value = Scalar::from(u32::try_from(step).unwrap_or(u32::MAX));
    let steps = Column::new_scalar(PlSmallStr::from_static(STEP), value, rows.num_rows());
    frame.insert_column(0, steps).map_err(|error| sql_error(&error))?;
    Ok(frame)
}

fn sql_error(error: &PolarsError) -> Error {
    Error::Sql { reason: error.to_string(), hint: String::new() }
}
