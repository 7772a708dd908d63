//! Bytes of Parquet files, and what becomes of damaged ones.

use super::{experiences, metrics};
use crate::error::Error;
use crate::parquet_io::{encode, read};
use crate::registry::TableName;
use crate::table::Table;
use crate::tables::{Experience, Metric, PolicyTensor};
use arrow::datatypes::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs;
use std::io::Write;

#[test]
fn rows_survive_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let rows = experiences(4);
    fs::write(&path, encode(&Experience::to_batch(&rows).unwrap(), &path).unwrap()).unwrap();
    let batch = read(TableName::Experiences, &path, None).unwrap();
    assert_eq!(batch.schema(), Experience::schema());
    assert_eq!(Experience::from_batch(&batch).unwrap(), rows);
}

#[test]
fn empty_tables_survive_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for &table in TableName::ALL {
        let path = folder.path().join(table.as_str());
        fs::write(&path, encode(&table.empty(), &path).unwrap()).unwrap();
        assert_eq!(read(table, &path, None).unwrap(), table.empty());
    }
}

#[test]
fn many_rows_and_wide_lists_survive_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let rows: Vec<Metric> = (0..150_000).map(|at| Metric { node: "n".into(), name: format!("{at:09}"), value: f64::from(at) }).collect();
    fs::write(&path, encode(&Metric::to_batch(&rows).unwrap(), &path).unwrap()).unwrap();
    assert_eq!(Metric::from_batch(&read(TableName::Metrics, &path, None).unwrap()).unwrap(), rows);
    let weights: Vec<f32> = (0..300_000).map(|at| at as f32 * 0.1).collect();
    let rows = vec![PolicyTensor { part: "base".into(), shape: vec![300, 1000], weights, ..PolicyTensor::default() }];
    fs::write(&path, encode(&PolicyTensor::to_batch(&rows).unwrap(), &path).unwrap()).unwrap();
    assert_eq!(PolicyTensor::from_batch(&read(TableName::Policies, &path, None).unwrap()).unwrap(), rows);
}

#[test]
fn a_projection_reads_its_columns_in_the_tables_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    fs::write(&path, encode(&Experience::to_batch(&experiences(1)).unwrap(), &path).unwrap()).unwrap();
    let batch = read(TableName::Experiences, &path, Some(&["predicates", "t"])).unwrap();
    let names: Vec<&str> = batch.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!((names, batch.num_rows()), (vec!["t", "predicates"], 35));
    assert_eq!(read(TableName::Experiences, &path, Some(&[])).unwrap().num_rows(), 35);
}

#[test]
fn files_are_plain_parquet_with_views_large_lists_and_no_trace_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    fs::write(&path, encode(&Experience::to_batch(&experiences(1)).unwrap(), &path).unwrap()).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&path).unwrap()).unwrap();
    let schema = builder.schema();
    assert_eq!(schema.field_with_name("observation").unwrap().data_type(), &DataType::Utf8View);
    assert!(matches!(schema.field_with_name("predicates").unwrap().data_type(), DataType::LargeList(_)));
    let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata();
    assert_eq!(metadata.created_by(), Some("cosplay tables, format 1"));
    let keys: Vec<&str> = metadata.key_value_metadata().unwrap().iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["ARROW:schema"]);
}

#[test]
fn the_bytes_of_a_file_are_pinned() {
    // If this changes, runs of an older program can no longer be continued byte for byte: raise the format's number with it.
    let bytes = encode(&Metric::to_batch(&metrics(1)).unwrap(), "x".as_ref()).unwrap();
    assert_eq!(bytes, encode(&Metric::to_batch(&metrics(1)).unwrap(), "y".as_ref()).unwrap());
    assert_eq!(crate::files::sha256(&bytes), "8fc00d1043adf3d04b7a2bfd137c72ddde7f0ac53495c8a1c3dbf984c308d303");
}

/// Reads damaged bytes: they may happen to be readable, but nothing else than an error that names the file may come of it.
fn read_damaged(bytes: &[u8]) -> Option<String> {
    let mut file = tempfile::Builder::new().suffix("damaged.parquet").tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let error = read(TableName::Experiences, file.path(), None).err()?;
    assert!(matches!(error, Error::Parquet { .. } | Error::InFile { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("damaged.parquet"), "{message}");
    Some(message)
}

#[test]
fn truncated_and_foreign_files_are_errors() {
    let bytes = encode(&Experience::to_batch(&experiences(1)).unwrap(), "x".as_ref()).unwrap();
    for part in 0..64 {
        let message = read_damaged(&bytes[..bytes.len() * part / 64]).expect("a truncated file must not be readable");
        assert!(message.contains("restore"), "{message}");
    }
    assert!(read_damaged(b"PAR1").is_some());
    assert!(read_damaged(&[0; 4096]).is_some());
    assert!(read_damaged(b"episode,t\n1,2\n").is_some());
    let other = encode(&Metric::to_batch(&metrics(1)).unwrap(), "x".as_ref()).unwrap();
    assert!(read_damaged(&other).unwrap().contains("table `experiences`: column `episode`"));
}

#[test]
fn flipped_bytes_never_panic() {
    let bytes = encode(&Experience::to_batch(&experiences(1)[..9]).unwrap(), "x".as_ref()).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= [0x01, 0x80, 0xff][at % 3];
        read_damaged(&damaged);
    }
}

#[test]
fn a_missing_file_or_a_folder_is_an_error_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let error = read(TableName::Metrics, &folder.path().join("nothing.parquet"), None).unwrap_err().to_string();
    assert!(error.contains("nothing.parquet"), "{error}");
    assert!(matches!(read(TableName::Metrics, folder.path(), None), Err(Error::Io { .. })));
}
