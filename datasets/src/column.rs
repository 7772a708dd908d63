//! How the fields of a row become Arrow columns and come back.

use crate::ids::{EpisodeId, SegmentId, SkillId};
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, BooleanBuilder, LargeListArray, PrimitiveArray, PrimitiveBuilder, StringViewArray,
    StringViewBuilder,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, UInt32Type, UInt64Type};
use arrow::error::ArrowError;
use std::cmp::Ordering;
use std::convert::identity;
use std::sync::Arc;

/// A value that a cell, or an entry of a list cell, holds.
pub trait Element: Clone + 'static {
    /// Name of the type in documentation and messages.
    const TYPE_NAME: &'static str;
    /// Name of the type of a list of such values.
    const LIST_NAME: &'static str;
    /// Name of the type of a cell that may be null.
    const OPTION_NAME: &'static str;
    /// Arrow array that holds such values.
    type Array: Array + 'static;

    /// Arrow type.
    fn data_type() -> DataType;

    /// Builds an array; `None` is null. Fails for a string over 4 GiB.
    fn build<'a>(values: impl Iterator<Item = Option<&'a Self>>) -> Result<Self::Array, ArrowError>;

    /// The value at `index`, which must be valid and within bounds.
    fn get(array: &Self::Array, index: usize) -> Self;

    /// Total order, for keys.
    fn compare(&self, other: &Self) -> Ordering;
}

macro_rules! primitive_element {
    ($type:ty, $name:literal, $arrow:ty, $id:ident => $into:expr, $from:path, $compare:path) => {
        impl Element for $type {
            const TYPE_NAME: &'static str = $name;
            const LIST_NAME: &'static str = concat!("list of ", $name);
            const OPTION_NAME: &'static str = concat!($name, " or null");
            type Array = PrimitiveArray<$arrow>;

            fn data_type() -> DataType {
                <$arrow as ArrowPrimitiveType>::DATA_TYPE
            }

            fn build<'a>(values: impl Iterator<Item = Option<&'a Self>>) -> Result<Self::Array, ArrowError> {
                let mut builder = PrimitiveBuilder::<$arrow>::with_capacity(values.size_hint().0);
                values.for_each(|value| builder.append_option(value.map(|&$id| $into)));
                Ok(builder.finish())
            }

            fn get(array: &Self::Array, index: usize) -> Self {
                $from(array.value(index))
            }

            fn compare(&self, other: &Self) -> Ordering {
                $compare(self, other)
            }
        }
    };
}

primitive_element!(u32, "u32", UInt32Type, value => value, identity, u32::cmp);
primitive_element!(u64, "u64", UInt64Type, value => value, identity, u64::cmp);
primitive_element!(f32, "f32", Float32Type, value => value, identity, f32::total_cmp);
primitive_element!(f64, "f64", Float64Type, value => value, identity, f64::total_cmp);
primitive_element!(EpisodeId, "episode id (u64)", UInt64Type, id => id.0, EpisodeId, EpisodeId::cmp);
primitive_element!(SegmentId, "segment id (u64)", UInt64Type, id => id.0, SegmentId, SegmentId::cmp);
primitive_element!(SkillId, "skill id (u32)", UInt32Type, id => id.0, SkillId, SkillId::cmp);

impl Element for bool {
    const TYPE_NAME: &'static str = "bool";
    const LIST_NAME: &'static str = "list of bool";
    const OPTION_NAME: &'static str = "bool or null";
    type Array = BooleanArray;

    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn build<'a>(values: impl Iterator<Item = Option<&'a Self>>) -> Result<Self::Array, ArrowError> {
        let mut builder = BooleanBuilder::with_capacity(values.size_hint().0);
        values.for_each(|value| builder.append_option(value.copied()));
        Ok(builder.finish())
    }

    fn get(array: &Self::Array, index: usize) -> Self {
        array.value(index)
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Element for String {
    const TYPE_NAME: &'static str = "string";
    const LIST_NAME: &'static str = "list of string";
    const OPTION_NAME: &'static str = "string or null";
    type Array = StringViewArray;

    fn data_type() -> DataType {
        DataType::Utf8View
    }

    fn build<'a>(values: impl Iterator<Item = Option<&'a Self>>) -> Result<Self::Array, ArrowError> {
        let mut builder = StringViewBuilder::with_capacity(values.size_hint().0);
        for value in values {
            match value {
                Some(value) => builder.try_append_value(value)?,
                None => builder.append_null(),
            }
        }
        Ok(builder.finish())
    }

    fn get(array: &Self::Array, index: usize) -> Self {
        array.value(index).to_owned()
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// Why a column cannot be read.
#[derive(Debug)]
pub enum ColumnFault {
    /// It has another type.
    Type,
    /// The row has no value.
    Null(usize),
}

/// Type of a field of a row.
pub trait Column: Sized + Clone + 'static {
    /// Name of the type in documentation and messages.
    const TYPE_NAME: &'static str;
    /// True if the column may hold nulls.
    const NULLABLE: bool;

    /// Arrow type.
    fn data_type() -> DataType;

    /// Builds the column.
    fn build<'a>(values: impl Iterator<Item = &'a Self> + Clone) -> Result<ArrayRef, ArrowError>;

    /// Checks that `array` can be read as this column: type and nulls.
    fn check(array: &dyn Array) -> Result<(), ColumnFault>;

    /// Reads the column.
    fn read(array: &dyn Array) -> Result<Vec<Self>, ColumnFault>;

    /// Total order, for keys.
    fn compare(&self, other: &Self) -> Ordering;
}

/// The array as its own type, without nulls.
fn without_nulls<A: Array + 'static>(array: &dyn Array) -> Result<&A, ColumnFault> {
    let array = array.as_any().downcast_ref::<A>().ok_or(ColumnFault::Type)?;
    match first_null(array) {
        Some(row) => Err(ColumnFault::Null(row)),
        None => Ok(array),
    }
}

fn first_null(array: &dyn Array) -> Option<usize> {
    if array.null_count() == 0 { None } else { (0..array.len()).find(|&row| array.is_null(row)) }
}

impl<T: Element> Column for T {
    const TYPE_NAME: &'static str = T::TYPE_NAME;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        <T as Element>::data_type()
    }

    fn build<'a>(values: impl Iterator<Item = &'a Self> + Clone) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(<T as Element>::build(values.map(Some))?))
    }

    fn check(array: &dyn Array) -> Result<(), ColumnFault> {
        without_nulls::<T::Array>(array).map(|_| ())
    }

    fn read(array: &dyn Array) -> Result<Vec<Self>, ColumnFault> {
        let array = without_nulls::<T::Array>(array)?;
        Ok((0..array.len()).map(|row| T::get(array, row)).collect())
    }

    fn compare(&self, other: &Self) -> Ordering {
        <T as Element>::compare(self, other)
    }
}

impl<T: Element> Column for Option<T> {
    const TYPE_NAME: &'static str = T::OPTION_NAME;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        T::data_type()
    }

    fn build<'a>(values: impl Iterator<Item = &'a Self> + Clone) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(T::build(values.map(Option::as_ref))?))
    }

    fn check(array: &dyn Array) -> Result<(), ColumnFault> {
        array.as_any().downcast_ref::<T::Array>().map(|_| ()).ok_or(ColumnFault::Type)
    }

    fn read(array: &dyn Array) -> Result<Vec<Self>, ColumnFault> {
        let array = array.as_any().downcast_ref::<T::Array>().ok_or(ColumnFault::Type)?;
        Ok((0..array.len()).map(|row| array.is_valid(row).then(|| T::get(array, row))).collect())
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => a.compare(b),
        }
    }
}

/// Entry of every list column.
fn item_field<T: Element>() -> Field {
    Field::new_list_field(T::data_type(), false)
}

impl<T: Element> Column for Vec<T> {
    const TYPE_NAME: &'static str = T::LIST_NAME;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::LargeList(Arc::new(item_field::<T>()))
    }

    fn build<'a>(values: impl Iterator<Item = &'a Self> + Clone) -> Result<ArrayRef, ArrowError> {
        let offsets = OffsetBuffer::<i64>::from_lengths(values.clone().map(Vec::len));
        let items = T::build(values.flatten().map(Some))?;
        Ok(Arc::new(LargeListArray::try_new(Arc::new(item_field::<T>()), offsets, Arc::new(items), None)?))
    }

    fn check(array: &dyn Array) -> Result<(), ColumnFault> {
        let list = without_nulls::<LargeListArray>(array)?;
        let items = list.values().as_any().downcast_ref::<T::Array>().ok_or(ColumnFault::Type)?;
        match first_null(items) {
            // A null entry counts against the row of its list; entries outside of every list do not count.
            Some(_) => (0..list.len()).find(|&row| list.value(row).null_count() > 0).map_or(Ok(()), |row| Err(ColumnFault::Null(row))),
            None => Ok(()),
        }
    }

    fn read(array: &dyn Array) -> Result<Vec<Self>, ColumnFault> {
        Self::check(array)?;
        let list = without_nulls::<LargeListArray>(array)?;
        let items = list.values().as_any().downcast_ref::<T::Array>().ok_or(ColumnFault::Type)?;
        let row = |bounds: &[i64]| (bounds[0] as usize..bounds[1] as usize).map(|item| T::get(items, item)).collect();
        Ok(list.value_offsets().windows(2).map(row).collect())
    }

    fn compare(&self, other: &Self) -> Ordering {
        let differing = self.iter().zip(other).map(|(a, b)| <T as Element>::compare(a, b)).find(|order| order.is_ne());
        differing.unwrap_or_else(|| self.len().cmp(&other.len()))
    }
}
