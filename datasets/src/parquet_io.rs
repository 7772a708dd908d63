//! One batch to one Parquet file, with bytes that depend on the rows alone, and back.

use crate::error::{Error, Result};
use crate::files;
use crate::guard::guarded;
use crate::registry::{TableName, conform_columns};
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use std::fs::File;
use std::path::Path;

/// Named in every file; part of its bytes, so it changes only when the writer's settings do.
const CREATED_BY: &str = "cosplay tables, format 1";
/// Rows of a row group. Readers skip row groups by the statistics of their keys.
const ROW_GROUP_ROWS: usize = 65_536;
/// Rows of a page.
const PAGE_ROWS: usize = 8_192;
/// Bytes of a page before compression.
const PAGE_BYTES: usize = 1 << 20;
/// Values that the writer encodes at a time; page limits are checked between those.
const WRITE_BATCH: usize = 1_024;

fn writer_properties() -> Result<WriterProperties, parquet::errors::ParquetError> {
    Ok(WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_dictionary_enabled(true)
        .set_dictionary_page_size_limit(PAGE_BYTES)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_statistics_truncate_length(Some(64))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(None)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_write_batch_size(WRITE_BATCH)
        .build())
}

/// The bytes of a Parquet file with the rows of `batch`. `path` is named in errors only.
///
/// # Errors
/// [`Error::Encode`].
pub fn encode(batch: &RecordBatch, path: &Path) -> Result<Vec<u8>> {
    let write = || {
        let mut bytes = Vec::new();
        // The Arrow schema is kept in the file: without it, readers would see `Utf8` and `List`.
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(writer_properties()?))?;
        writer.write(batch)?;
        writer.close()?;
        Ok(bytes)
    };
    write().map_err(|error: parquet::errors::ParquetError| Error::Encode { path: path.to_owned(), reason: error.to_string() })
}

/// Reads a Parquet file of `table`: all columns, or those of `columns`, in the table's order.
///
/// # Errors
/// [`Error::Io`]; [`Error::Parquet`] if the file is damaged or is no Parquet; [`Error::InFile`] if it holds other columns than the table.
pub fn read(table: TableName, path: &Path, columns: Option<&[&str]>) -> Result<RecordBatch> {
    read_file(table, files::open(path)?, path, columns)
}

/// Reads an open file; see [`read`].
pub(crate) fn read_file(table: TableName, file: File, path: &Path, columns: Option<&[&str]>) -> Result<RecordBatch> {
    match guarded(|| decode(table, file, columns)) {
        Ok(Ok(Ok(batch))) => Ok(batch),
        Ok(Ok(Err(error))) => Err(error.in_file(path)),
        Ok(Err(error)) => Err(Error::Parquet { path: path.to_owned(), reason: error.to_string() }),
        Err(reason) => Err(Error::Parquet { path: path.to_owned(), reason }),
    }
}

/// Outer result: damage; inner result: other columns than the table's.
fn decode(table: TableName, file: File, columns: Option<&[&str]>) -> Result<Result<RecordBatch>, parquet::errors::ParquetError> {
    let options = ArrowReaderOptions::new();
    let mut builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)?;
    if let Some(columns) = columns {
        let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
        builder = builder.with_projection(mask);
    }
    let schema = builder.schema().clone();
    let batches = builder.with_batch_size(WRITE_BATCH).build()?.collect::<Result<Vec<_>, _>>()?;
    let rows = concat_batches(batches.first().map_or(&schema, |batch| batch.schema_ref()), &batches)?;
    Ok(conform_columns(table, &rows, columns))
}
