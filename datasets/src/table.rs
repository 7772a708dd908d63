//! Typed rows and their Arrow batches: the [`Table`] trait and the [`table!`](crate::table!) macro that implements it.

use crate::column::{Column, ColumnFault};
use crate::error::{Error, Result};
use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{Field, SchemaRef};
use std::cmp::Ordering;
use std::collections::HashMap;

/// Key of a field's metadata under which the column's description is kept.
pub const DESCRIPTION: &str = "description";

/// What one column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// Name of the column.
    pub name: &'static str,
    /// Name of its type, for people.
    pub type_name: &'static str,
    /// True if it may hold nulls.
    pub nullable: bool,
    /// True if it is part of the key.
    pub key: bool,
    /// Meaning and unit.
    pub description: &'static str,
}

/// A row type whose rows form a table.
pub trait Table: Clone + Send + 'static {
    /// Name of the table: folder on disk, name in SQL.
    const NAME: &'static str;
    /// What a row is.
    const DESCRIPTION: &'static str;
    /// Names of the columns that identify a row, in the order in which rows are sorted.
    const KEYS: &'static [&'static str];

    /// Arrow schema. Every field carries its description in its metadata.
    fn schema() -> SchemaRef;

    /// Rows as a batch.
    ///
    /// # Errors
    /// [`Error::Arrow`] if a string or list is too long for Arrow.
    fn to_batch(rows: &[Self]) -> Result<RecordBatch>;

    /// A batch as rows. Columns are found by name; further columns are ignored.
    ///
    /// # Errors
    /// [`Error::MissingColumn`], [`Error::ColumnType`], [`Error::NullValue`].
    fn from_batch(batch: &RecordBatch) -> Result<Vec<Self>>;

    /// Order of the rows in every file: by the columns of the key.
    fn compare_keys(&self, other: &Self) -> Ordering;

    /// The columns, in order.
    fn columns() -> &'static [ColumnInfo];

    /// Checks that a batch can be read as this table, or has those of its columns that `only` names, without reading it.
    ///
    /// # Errors
    /// As [`Table::from_batch`].
    fn check_batch(batch: &RecordBatch, only: Option<&[&str]>) -> Result<()>;
}

/// Field of a column, with its description. For the [`table!`](crate::table!) macro.
#[doc(hidden)]
pub fn field<C: Column>(info: &ColumnInfo) -> Field {
    let metadata = HashMap::from([(DESCRIPTION.to_owned(), info.description.to_owned())]);
    Field::new(info.name, C::data_type(), C::NULLABLE).with_metadata(metadata)
}

/// Finds a column by name. For the [`table!`](crate::table!) macro.
#[doc(hidden)]
pub fn find<'a, C: Column>(table: &str, column: &str, batch: &'a RecordBatch) -> Result<&'a dyn Array> {
    let Some(array) = batch.column_by_name(column) else {
        let found: Vec<String> = batch.schema_ref().fields().iter().map(|field| format!("`{}`", field.name())).collect();
        return Err(Error::MissingColumn {
            table: table.to_owned(),
            column: column.to_owned(),
            expected: C::TYPE_NAME.to_owned(),
            found: if found.is_empty() { "(none)".to_owned() } else { found.join(", ") },
        });
    };
    Ok(array.as_ref())
}

/// Turns a fault of a column into an error that names it. For the [`table!`](crate::table!) macro.
#[doc(hidden)]
pub fn column_error<C: Column>(table: &str, column: &str, array: &dyn Array, fault: ColumnFault) -> Error {
    let (table, column, expected) = (table.to_owned(), column.to_owned(), C::TYPE_NAME.to_owned());
    match fault {
        ColumnFault::Type => {
            let expected = format!("{expected} (Arrow {})", C::data_type());
            Error::ColumnType { table, column, expected, found: array.data_type().to_string() }
        }
        ColumnFault::Null(row) => Error::NullValue { table, column, expected, row },
    }
}

/// Checks one column. For the [`table!`](crate::table!) macro.
#[doc(hidden)]
pub fn check<C: Column>(table: &str, column: &str, batch: &RecordBatch, only: Option<&[&str]>) -> Result<()> {
    if only.is_some_and(|only| !only.contains(&column)) {
        return Ok(());
    }
    let array = find::<C>(table, column, batch)?;
    C::check(array).map_err(|fault| column_error::<C>(table, column, array, fault))
}

/// Reads one column. For the [`table!`](crate::table!) macro.
#[doc(hidden)]
pub fn read<C: Column>(table: &str, column: &str, batch: &RecordBatch) -> Result<std::vec::IntoIter<C>> {
    let array = find::<C>(table, column, batch)?;
    let values = C::read(array).map_err(|fault| column_error::<C>(table, column, array, fault))?;
    Ok(values.into_iter())
}

/// Declares a table: its row type, its columns with their documentation, and its key.
///
/// ```
/// cosplay_datasets::table! {
///     /// One measurement.
///     pub struct Measurement in "measurements" by (place, hour) {
///         /// Where it was taken.
///         place: String,
///         /// Hours since the start.
///         hour: u32,
///         /// Temperature in °C; null if the sensor failed.
///         value as "temperature": Option<f64>,
///     }
/// }
/// # use cosplay_datasets::Table;
/// assert_eq!(Measurement::schema().field(2).name(), "temperature");
/// ```
///
/// A column is called like its field, or as the text after `as` says. The columns of the key cannot be renamed.
#[macro_export]
macro_rules! table {
    (@name $field:ident $column:literal) => { $column };
    (@name $field:ident) => { stringify!($field) };
    (
        $(#[doc = $table_doc:literal])+
        pub struct $row:ident in $table:literal by ($($key:ident),+ $(,)?) {
            $( $(#[doc = $doc:literal])+ $field:ident $(as $column:literal)? : $type:ty ),+ $(,)?
        }
    ) => {
        $(#[doc = $table_doc])+
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $row {
            $( $(#[doc = $doc])+ pub $field: $type, )+
        }

        impl $crate::table::Table for $row {
            const NAME: &'static str = $table;
            const DESCRIPTION: &'static str = concat!($($table_doc),+).trim_ascii();
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),+];

            fn schema() -> $crate::reexport::SchemaRef {
                static SCHEMA: std::sync::OnceLock<$crate::reexport::SchemaRef> = std::sync::OnceLock::new();
                SCHEMA
                    .get_or_init(|| {
                        let mut infos = Self::columns().iter();
                        let mut fields = Vec::new();
                        $( fields.extend(infos.next().map($crate::table::field::<$type>)); )+
                        std::sync::Arc::new($crate::reexport::Schema::new(fields))
                    })
                    .clone()
            }

            fn to_batch(rows: &[Self]) -> $crate::error::Result<$crate::reexport::RecordBatch> {
                let build = || {
                    let columns = vec![ $( <$type as $crate::column::Column>::build(rows.iter().map(|row| &row.$field))? ),+ ];
                    $crate::reexport::RecordBatch::try_new(Self::schema(), columns)
                };
                build().map_err(|source| $crate::error::Error::Arrow { table: $table.to_owned(), source })
            }

            fn from_batch(batch: &$crate::reexport::RecordBatch) -> $crate::error::Result<Vec<Self>> {
                $( let mut $field = $crate::table::read::<$type>($table, $crate::table!(@name $field $($column)?), batch)?; )+
                // The columns of a batch are equally long, so that the first one that ends ends the rows.
                Ok(std::iter::from_fn(|| Some(Self { $( $field: $field.next()? ),+ })).collect())
            }

            fn compare_keys(&self, other: &Self) -> std::cmp::Ordering {
                std::cmp::Ordering::Equal
                    $( .then_with(|| $crate::column::Column::compare(&self.$key, &other.$key)) )+
            }

            fn columns() -> &'static [$crate::table::ColumnInfo] {
                const KEYS: &[&str] = &[$(stringify!($key)),+];
                const COLUMNS: &[$crate::table::ColumnInfo] = &[ $(
                    $crate::table::ColumnInfo {
                        name: $crate::table!(@name $field $($column)?),
                        type_name: <$type as $crate::column::Column>::TYPE_NAME,
                        nullable: <$type as $crate::column::Column>::NULLABLE,
                        key: $crate::table::is_key(stringify!($field), KEYS),
                        description: concat!($($doc),+).trim_ascii(),
                    }
                ),+ ];
                COLUMNS
            }

            fn check_batch(batch: &$crate::reexport::RecordBatch, only: Option<&[&str]>) -> $crate::error::Result<()> {
                $( $crate::table::check::<$type>($table, $crate::table!(@name $field $($column)?), batch, only)?; )+
                Ok(())
            }
        }
    };
}

/// Whether `field` is among `keys`. For the [`table!`](crate::table!) macro, in constants.
#[doc(hidden)]
pub const fn is_key(field: &str, keys: &[&str]) -> bool {
    let mut at = 0;
    while at < keys.len() {
        if same(field.as_bytes(), keys[at].as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}
