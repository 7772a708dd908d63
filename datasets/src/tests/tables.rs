//! Rows → batch → rows, errors about batches that do not fit, and the canonical order.

use super::experiences;
use crate::error::Error;
use crate::ids::{EpisodeId, SegmentId, SkillId};
use crate::registry::{TableName, conform, docs, schema_of, sort_batch};
use crate::table::{DESCRIPTION, Table};
use crate::tables::{Episode, Experience, Metric, Skill};
use arrow::array::{ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, UInt32Array};
use arrow::datatypes::{DataType, UInt64Type};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

crate::table! {
    /// A row with a column of every type
    /// that tables use.
    pub struct Everything in "everything" by (text, episode, flag) {
        /// A text.
        text: String,
        /// A count,
        /// on two lines.
        count: u32,
        /// A seed.
        seed: u64,
        /// A narrow float.
        narrow: f32,
        /// A float under another name.
        wide as "wide float": f64,
        /// A flag.
        flag: bool,
        /// Texts.
        texts: Vec<String>,
        /// Counts.
        counts: Vec<u32>,
        /// Narrow floats.
        narrows: Vec<f32>,
        /// Flags.
        flags: Vec<bool>,
        /// Segments.
        segments: Vec<SegmentId>,
        /// Skills.
        skills: Vec<SkillId>,
        /// Perhaps a text.
        maybe_text: Option<String>,
        /// Perhaps a float.
        maybe_wide: Option<f64>,
        /// Perhaps a count.
        maybe_count: Option<u32>,
        /// Perhaps a skill.
        maybe_skill: Option<SkillId>,
        /// An episode.
        episode: EpisodeId,
        /// A segment.
        segment: SegmentId,
        /// A skill.
        skill: SkillId,
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), ".{0,20}", "[a-zß🎲]{40,60}"]
}

fn row() -> impl Strategy<Value = Everything> {
    let scalars = (text(), any::<u32>(), any::<u64>(), any::<f32>(), any::<f64>(), any::<bool>());
    let lists = (
        prop::collection::vec(text(), 0..4),
        prop::collection::vec(any::<u32>(), 0..4),
        prop::collection::vec(any::<f32>(), 0..4),
        prop::collection::vec(any::<bool>(), 0..4),
        prop::collection::vec(any::<u64>().prop_map(SegmentId), 0..4),
        prop::collection::vec(any::<u32>().prop_map(SkillId), 0..4),
    );
    let options = (prop::option::of(text()), prop::option::of(any::<f64>()), prop::option::of(any::<u32>()));
    let ids = (any::<u64>(), any::<u64>(), any::<u32>());
    (scalars, lists, options, ids).prop_map(|(scalars, lists, options, ids)| {
        let (text, count, seed, narrow, wide, flag) = scalars;
        let (texts, counts, narrows, flags, segments, skills) = lists;
        let (maybe_text, maybe_wide, maybe_count) = options;
        let (episode, segment, skill) = (EpisodeId(ids.0), SegmentId(ids.1), SkillId(ids.2));
        let maybe_skill = maybe_count.map(SkillId);
        Everything {
            text,
            count,
            seed,
            narrow,
            wide,
            flag,
            texts,
            counts,
            narrows,
            flags,
            segments,
            skills,
            maybe_text,
            maybe_wide,
            maybe_count,
            maybe_skill,
            episode,
            segment,
            skill,
        }
    })
}

proptest! {
    #[test]
    fn rows_survive_the_batch(rows in prop::collection::vec(row(), 0..12)) {
        let batch = Everything::to_batch(&rows).unwrap();
        prop_assert_eq!(batch.schema(), Everything::schema());
        prop_assert_eq!(batch.num_rows(), rows.len());
        // Debug, because NaN is not equal to itself.
        prop_assert_eq!(format!("{:?}", Everything::from_batch(&batch).unwrap()), format!("{rows:?}"));
    }

    #[test]
    fn rows_survive_a_slice(rows in prop::collection::vec(row(), 2..12)) {
        let batch = Everything::to_batch(&rows).unwrap().slice(1, rows.len() - 1);
        prop_assert_eq!(format!("{:?}", Everything::from_batch(&batch).unwrap()), format!("{:?}", &rows[1..]));
    }

    #[test]
    fn sorting_forgets_order_and_split(keys in prop::collection::btree_set((text(), text()), 0..30), seed in any::<u64>(), pieces in 1..6usize) {
        let row = |(at, (node, name)): (usize, &(String, String))| Metric { node: node.clone(), name: name.clone(), value: at as f64 };
        let mut rows: Vec<Metric> = keys.iter().enumerate().map(row).collect();
        let sorted = Metric::to_batch(&rows).unwrap();
        // The set is sorted already, so that the sorted batch must be this one.
        let mut state = seed;
        for at in (1..rows.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            rows.swap(at, (state >> 33) as usize % (at + 1));
        }
        let size = rows.len().div_ceil(pieces).max(1);
        let batches: Vec<RecordBatch> = rows.chunks(size).map(|rows| Metric::to_batch(rows).unwrap()).collect();
        let found = sort_batch(TableName::Metrics, &batches).unwrap();
        prop_assert_eq!(Metric::from_batch(&found).unwrap(), Metric::from_batch(&sorted).unwrap());
        let bytes = |batch| crate::parquet_io::encode(batch, "x".as_ref()).unwrap();
        prop_assert_eq!(bytes(&found), bytes(&sorted));
        prop_assert!(rows.windows(2).all(|pair| pair[0].compare_keys(&pair[1]).is_ne()));
    }
}

#[test]
fn compare_keys_and_sort_batch_agree() {
    let mut rows = experiences(3);
    rows.reverse();
    let batch = sort_batch(TableName::Experiences, &[Experience::to_batch(&rows).unwrap()]).unwrap();
    rows.sort_by(Experience::compare_keys);
    assert_eq!(Experience::from_batch(&batch).unwrap(), rows);
}

#[test]
fn a_huge_text_survives() {
    let text = "é".repeat(3 << 20);
    let rows = vec![Metric { node: text.clone(), ..Metric::default() }, Metric { name: text, ..Metric::default() }];
    assert_eq!(Metric::from_batch(&Metric::to_batch(&rows).unwrap()).unwrap(), rows);
}

#[test]
fn names_types_and_descriptions_are_in_the_schema() {
    let schema = Everything::schema();
    assert_eq!(schema.field(4).name(), "wide float");
    assert_eq!(schema.field(1).metadata().get(DESCRIPTION).map(String::as_str), Some("A count, on two lines."));
    assert_eq!(Everything::DESCRIPTION, "A row with a column of every type that tables use.");
    assert_eq!(schema.field(0).data_type(), &DataType::Utf8View);
    assert!(matches!(schema.field(6).data_type(), DataType::LargeList(item) if item.data_type() == &DataType::Utf8View));
    assert_eq!(schema.field(16).data_type(), &DataType::UInt64);
    assert_eq!(schema.field(18).data_type(), &DataType::UInt32);
    assert!(schema.field(12).is_nullable() && !schema.field(0).is_nullable());
    assert_eq!(Episode::schema().field(8).name(), "return");
    let keys: Vec<&str> = Everything::columns().iter().filter(|column| column.key).map(|column| column.name).collect();
    assert_eq!(keys, ["text", "flag", "episode"]);
}

#[test]
fn the_registry_knows_every_table() {
    let names: Vec<&str> = TableName::ALL.iter().map(|table| table.as_str()).collect();
    assert!(names.is_sorted());
    assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len());
    for (table, columns) in docs() {
        assert_eq!(schema_of(table.as_str()).unwrap(), table.schema());
        assert_eq!(table.as_str().parse::<TableName>().unwrap(), table);
        assert!(!table.keys().is_empty() && !table.description().is_empty());
        for key in table.keys() {
            assert!(columns.iter().any(|column| column.name == *key && column.key && !column.nullable), "{table}: {key}");
        }
        assert!(columns.iter().all(|column| !column.description.is_empty() && column.name != crate::views::STEP));
        assert_eq!(sort_batch(table, &[]).unwrap(), table.empty());
        assert_eq!(sort_batch(table, &[table.empty(), table.empty()]).unwrap(), table.empty());
    }
    let error = schema_of("segmnts").unwrap_err().to_string();
    assert!(error.contains("segmnts") && error.contains("segments"), "{error}");
}

fn with_column(name: &str, column: ArrayRef) -> RecordBatch {
    let batch = Metric::to_batch(&[Metric { node: "n".to_owned(), name: "m".to_owned(), value: 1.0 }]).unwrap();
    let columns = batch.schema_ref().fields().iter().zip(batch.columns());
    let replaced = columns.map(|(field, old)| (field.name().clone(), if field.name() == name { column.clone() } else { old.clone() }));
    let mut all: Vec<(String, ArrayRef)> = replaced.collect();
    if !all.iter().any(|(column, _)| column == name) {
        all.insert(0, (name.to_owned(), column));
    }
    RecordBatch::try_from_iter(all).unwrap()
}

#[test]
fn errors_name_table_column_and_types() {
    let wrong = with_column("value", Arc::new(Int64Array::from(vec![1])));
    let error = Metric::from_batch(&wrong).unwrap_err().to_string();
    assert_eq!(error, "table `metrics`: column `value` has type Int64, expected f64 (Arrow Float64)");
    let null = with_column("value", Arc::new(Float64Array::from(vec![None])));
    let error = Metric::from_batch(&null).unwrap_err().to_string();
    assert_eq!(error, "table `metrics`: column `value` (f64) must not be null, but row 0 is");
    let text = with_column("node", Arc::new(StringArray::from(vec!["n"])));
    assert!(matches!(conform(TableName::Metrics, &text), Err(Error::ColumnType { column, .. }) if column == "node"));
    let missing = wrong.project(&[0, 2]).unwrap();
    let error = Metric::from_batch(&missing).unwrap_err().to_string();
    assert_eq!(error, "table `metrics`: column `name` (string) is missing; found the columns `node`, `value`");
}

#[test]
fn further_columns_are_ignored() {
    let batch = with_column("step", Arc::new(UInt32Array::from(vec![3])));
    assert_eq!(Metric::from_batch(&batch).unwrap().len(), 1);
    assert_eq!(conform(TableName::Metrics, &batch).unwrap().schema(), Metric::schema());
    assert!(sort_batch(TableName::Metrics, &[batch]).is_ok());
}

#[test]
fn lists_of_another_width_or_with_nulls_are_refused() {
    let skill = Skill::to_batch(&[Skill::default()]).unwrap();
    let at = skill.schema().index_of("evidence").unwrap();
    let with = |array: ArrayRef| {
        let names = skill.schema();
        let columns = skill.columns().iter().enumerate().map(|(column, old)| if column == at { array.clone() } else { old.clone() });
        RecordBatch::try_from_iter(names.fields().iter().map(|field| field.name().clone()).zip(columns)).unwrap()
    };
    let narrow = with(Arc::new(ListArray::from_iter_primitive::<UInt64Type, _, _>([Some([Some(1)])])));
    assert!(matches!(Skill::from_batch(&narrow), Err(Error::ColumnType { .. })));
    let null = with(Arc::new(arrow::array::LargeListArray::from_iter_primitive::<UInt64Type, _, _>([Some([Some(1), None])])));
    assert!(matches!(Skill::from_batch(&null), Err(Error::NullValue { row: 0, .. })));
    // The same type but for the name of the entry's field, as other programs write it.
    let good = with(Arc::new(arrow::array::LargeListArray::from_iter_primitive::<UInt64Type, _, _>([Some([Some(7)])])));
    assert_eq!(Skill::from_batch(&good).unwrap()[0].evidence, [SegmentId(7)]);
    assert_eq!(conform(TableName::Skills, &good).unwrap().schema(), Skill::schema());
}

#[test]
fn a_duplicate_key_is_an_error_that_names_it() {
    let rows = [("a", "x"), ("b", "y"), ("a", "x")].map(|(node, name)| Metric { node: node.into(), name: name.into(), value: 0.0 });
    let batches: Vec<RecordBatch> = rows.chunks(2).map(|rows| Metric::to_batch(rows).unwrap()).collect();
    let error = sort_batch(TableName::Metrics, &batches).unwrap_err().to_string();
    assert_eq!(error, "table `metrics`: two rows have the key node=a, name=x");
}
