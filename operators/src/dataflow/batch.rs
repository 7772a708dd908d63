//! The container of every stream: one Arrow record batch with the name of its table.

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use cosplay_datasets::{Table, TableName};
use std::io::Write;
use std::sync::{Arc, OnceLock};
use timely::Accountable;
use timely::dataflow::channels::ContainerBytes;

use crate::operator::{OperatorError, table_name};

/// A record batch on its way. Cloning shares the rows. Between threads the rows travel as they are, between processes as Arrow IPC.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    content: Option<Content>,
    /// Worker that an addressed copy goes to; see `routing.rs`.
    pub(crate) target: u64,
    encoded: OnceLock<Arc<Vec<u8>>>,
}

#[derive(Clone, Debug)]
struct Content {
    table: TableName,
    rows: Arc<RecordBatch>,
}

impl Batch {
    /// A batch of `table`.
    pub fn new(table: TableName, rows: RecordBatch) -> Self {
        Self { content: Some(Content { table, rows: Arc::new(rows) }), target: 0, encoded: OnceLock::new() }
    }

    /// A tick of the clock: a batch without rows.
    pub fn tick() -> Self {
        Self::new(TableName::Metrics, TableName::Metrics.empty())
    }

    /// A batch from rows.
    pub fn from_rows<T: Table>(rows: &[T]) -> Result<Self, OperatorError> {
        Ok(Self::new(table_name::<T>()?, T::to_batch(rows)?))
    }

    /// Name of the table, unless the batch is void.
    pub fn table(&self) -> Option<TableName> {
        self.content.as_ref().map(|content| content.table)
    }

    /// The rows, unless the batch is void.
    pub fn record_batch(&self) -> Option<&RecordBatch> {
        self.content.as_ref().map(|content| content.rows.as_ref())
    }

    /// The rows as structs if the batch belongs to table `T`, else none.
    pub fn rows<T: Table>(&self) -> Result<Vec<T>, OperatorError> {
        match &self.content {
            Some(content) if content.table.as_str() == T::NAME => Ok(T::from_batch(&content.rows)?),
            _ => Ok(Vec::new()),
        }
    }

    /// A copy for worker `target`; the rows are shared.
    pub(crate) fn addressed(&self, target: usize) -> Self {
        Self { content: self.content.clone(), target: target as u64, encoded: OnceLock::new() }
    }

    fn encode(&self) -> &Arc<Vec<u8>> {
        self.encoded.get_or_init(|| {
            let mut bytes = self.target.to_le_bytes().to_vec();
            if let Some(content) = &self.content {
                let name = content.table.as_str().as_bytes();
                bytes.extend_from_slice(&(name.len() as u64).to_le_bytes());
                bytes.extend_from_slice(name);
                encode_ipc(&content.rows, &mut bytes);
            }
            Arc::new(bytes)
        })
    }
}

#[expect(clippy::expect_used, reason = "writing to memory in a supported schema cannot fail")]
fn encode_ipc(rows: &RecordBatch, bytes: &mut Vec<u8>) {
    let mut writer = StreamWriter::try_new(bytes, rows.schema_ref()).expect("Arrow IPC header");
    writer.write(rows).expect("Arrow IPC rows");
    writer.finish().expect("Arrow IPC end");
}

fn padded(length: usize) -> usize {
    (length + 7) & !7
}

impl Accountable for Batch {
    // Batches are counted, not rows: a batch without rows must arrive too, and no pact of ours splits one.
    fn record_count(&self) -> i64 {
        i64::from(self.content.is_some())
    }
}

impl ContainerBytes for Batch {
    fn from_bytes(bytes: timely::bytes::arc::Bytes) -> Self {
        decode(&bytes).unwrap_or_default()
    }

    fn length_in_bytes(&self) -> usize {
        8 + padded(self.encode().len())
    }

    #[expect(clippy::expect_used, reason = "timely hands a buffer of the length that it asked for")]
    fn into_bytes<W: Write>(&self, writer: &mut W) {
        let encoded = self.encode();
        writer.write_all(&(encoded.len() as u64).to_le_bytes()).expect("length");
        writer.write_all(encoded).expect("batch");
        writer.write_all(&[0u8; 8][..padded(encoded.len()) - encoded.len()]).expect("padding");
    }
}

/// Reads what `into_bytes` wrote. Processes of one run have the same program and spec (their hashes are compared before), so that a
/// batch that cannot be read means a broken connection, which ends the run anyhow.
fn decode(bytes: &[u8]) -> Option<Batch> {
    let length = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?) as usize;
    let target = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    let body = bytes.get(16..length.checked_add(8)?)?;
    let name_length = u64::from_le_bytes(body.get(..8)?.try_into().ok()?) as usize;
    let name = std::str::from_utf8(body.get(8..name_length.checked_add(8)?)?).ok()?;
    let table = name.parse::<TableName>().ok()?;
    let mut reader = StreamReader::try_new(std::io::Cursor::new(body.get(8 + name_length..)?), None).ok()?;
    let mut batch = Batch::new(table, reader.next()?.ok()?);
    batch.target = target;
    Some(batch)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use cosplay_datasets::Metric;
    use timely::bytes::arc::BytesMut;

    fn travel(batch: &Batch) -> Batch {
        let mut bytes = Vec::new();
        batch.into_bytes(&mut bytes);
        assert_eq!(bytes.len(), batch.length_in_bytes());
        Batch::from_bytes(BytesMut::from(bytes).freeze())
    }

    #[test]
    fn rows_survive_the_way_between_processes() {
        let rows: Vec<Metric> =
            (0..100).map(|index| Metric { node: "n·ö".into(), name: format!("m{index}"), value: f64::from(index) / 7.0 }).collect();
        let there = travel(&Batch::from_rows(&rows).unwrap().addressed(3));
        assert_eq!((there.rows::<Metric>().unwrap(), there.target), (rows, 3));
    }

    #[test]
    fn a_tick_has_no_rows_and_arrives_all_the_same() {
        let there = travel(&Batch::tick());
        assert_eq!((there.record_count(), there.record_batch().unwrap().num_rows()), (1, 0));
    }

    #[test]
    fn bytes_that_are_no_batch_are_void() {
        for length in 0..64usize {
            let there = Batch::from_bytes(BytesMut::from(vec![0xabu8; length]).freeze());
            assert_eq!(there.record_count(), 0, "{length}");
        }
    }
}
