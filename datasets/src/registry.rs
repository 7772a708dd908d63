//! All tables by name, for code that handles batches without knowing their row types.

use crate::error::{Error, Result};
use crate::table::{ColumnInfo, Table};
use crate::tables::{BankEvent, Clause, Cut, Decision, Episode, Experience, Metric, PolicyTensor, Relabel, Sample, Segment, Skill};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{SortColumn, cast, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::util::display::array_value_to_string;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

macro_rules! registry {
    ($( $(#[$doc:meta])* $variant:ident = $row:ty ),+ $(,)?) => {
        /// Name of a table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum TableName {
            $( $(#[$doc])* $variant, )+
        }

        impl TableName {
            /// All tables, sorted by name.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name: folder on disk, name in SQL.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => <$row as Table>::NAME, )+ }
            }

            /// What a row is.
            pub const fn description(self) -> &'static str {
                match self { $( Self::$variant => <$row as Table>::DESCRIPTION, )+ }
            }

            /// Names of the columns that identify a row, in the order in which rows are sorted.
            pub const fn keys(self) -> &'static [&'static str] {
                match self { $( Self::$variant => <$row as Table>::KEYS, )+ }
            }

            /// The columns, in order.
            pub fn columns(self) -> &'static [ColumnInfo] {
                match self { $( Self::$variant => <$row>::columns(), )+ }
            }

            /// Arrow schema.
            pub fn schema(self) -> SchemaRef {
                match self { $( Self::$variant => <$row>::schema(), )+ }
            }

            /// Checks that a batch can be read as this table, or has those of its columns that `only` names, without reading it.
            ///
            /// # Errors
            /// As [`Table::from_batch`].
            pub fn check_batch(self, batch: &RecordBatch, only: Option<&[&str]>) -> Result<()> {
                match self { $( Self::$variant => <$row>::check_batch(batch, only), )+ }
            }
        }
    };
}

registry! {
    /// Proposed changes of the bank.
    BankEvents = BankEvent,
    /// Clauses of skills' contracts.
    Contracts = Clause,
    /// Candidate boundaries.
    Cuts = Cut,
    /// Decisions of models.
    Decisions = Decision,
    /// Episodes.
    Episodes = Episode,
    /// Environment steps.
    Experiences = Experience,
    /// Numbers about nodes.
    Metrics = Metric,
    /// Tensors of policies.
    Policies = PolicyTensor,
    /// Labels that bank maintenance has changed.
    Relabels = Relabel,
    /// Training samples.
    Samples = Sample,
    /// Labelled segments.
    Segments = Segment,
    /// Skills.
    Skills = Skill,
}

impl TableName {
    /// An empty batch of the table.
    pub fn empty(self) -> RecordBatch {
        RecordBatch::new_empty(self.schema())
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TableName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|table| table.as_str() == name).ok_or_else(|| Error::UnknownTable {
            name: name.to_owned(),
            known: Self::ALL.iter().map(|table| table.as_str()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// Arrow schema of the table called `name`.
///
/// # Errors
/// [`Error::UnknownTable`].
pub fn schema_of(name: &str) -> Result<SchemaRef> {
    Ok(name.parse::<TableName>()?.schema())
}

/// All columns of all tables, with their meaning.
pub fn docs() -> impl Iterator<Item = (TableName, &'static [ColumnInfo])> {
    TableName::ALL.iter().map(|&table| (table, table.columns()))
}

/// A batch with exactly the table's columns, in the table's order; further columns are dropped.
///
/// # Errors
/// As [`Table::from_batch`].
pub fn conform(table: TableName, batch: &RecordBatch) -> Result<RecordBatch> {
    if batch.schema_ref() == &table.schema() {
        return Ok(batch.clone());
    }
    conform_columns(table, batch, None)
}

/// A batch with exactly those columns of the table that `only` names (all of them with `None`), in the table's order.
pub(crate) fn conform_columns(table: TableName, batch: &RecordBatch, only: Option<&[&str]>) -> Result<RecordBatch> {
    table.check_batch(batch, only)?;
    let failed = |source| Error::Arrow { table: table.to_string(), source };
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for field in table.schema().fields() {
        let wanted = only.is_none_or(|only| only.contains(&field.name().as_str()));
        let Some(array) = batch.column_by_name(field.name()).filter(|_| wanted) else {
            continue;
        };
        // Lists may differ in the name of their entry's field; a cast between those copies nothing.
        let same = array.data_type() == field.data_type();
        columns.push(if same { array.clone() } else { cast(array, field.data_type()).map_err(failed)? });
        fields.push(field.clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).map_err(failed)
}

/// One batch of all rows, sorted by the table's key. The result depends on the rows alone, never on their order or on how they were split.
///
/// # Errors
/// [`Error::DuplicateKey`] if two rows share a key; as [`Table::from_batch`] if a batch is not of this table.
pub fn sort_batch(table: TableName, batches: &[RecordBatch]) -> Result<RecordBatch> {
    let failed = |source| Error::Arrow { table: table.to_string(), source };
    let batches = batches.iter().map(|batch| conform(table, batch)).collect::<Result<Vec<_>>>()?;
    let rows = concat_batches(&table.schema(), &batches).map_err(failed)?;
    let keys: Vec<SortColumn> = key_columns(table, &rows).map(|values| SortColumn { values, options: None }).collect();
    let order = lexsort_to_indices(&keys, None).map_err(failed)?;
    check_unique(table, &rows, &order)?;
    take_record_batch(&rows, &order).map_err(failed)
}

fn key_columns(table: TableName, rows: &RecordBatch) -> impl Iterator<Item = ArrayRef> {
    table.keys().iter().filter_map(|key| rows.column_by_name(key).cloned())
}

fn check_unique(table: TableName, rows: &RecordBatch, order: &UInt32Array) -> Result<()> {
    let failed = |source| Error::Arrow { table: table.to_string(), source };
    let mut compare = Vec::new();
    for key in key_columns(table, rows) {
        compare.push(arrow::array::make_comparator(&key, &key, Default::default()).map_err(failed)?);
    }
    for pair in order.values().windows(2) {
        let (a, b) = (pair[0] as usize, pair[1] as usize);
        if compare.iter().all(|compare| compare(a, b).is_eq()) {
            let cell = |name: &&str| {
                let value = rows.column_by_name(name).and_then(|column| array_value_to_string(column, a).ok());
                format!("{name}={}", value.unwrap_or_default())
            };
            let key = table.keys().iter().map(cell).collect::<Vec<_>>().join(", ");
            return Err(Error::DuplicateKey { table: table.to_string(), key });
        }
    }
    Ok(())
}
