//! Choosing stored rollouts.

use super::{episodes, experiences};
use crate::error::Error;
use crate::manifest::RunHeader;
use crate::registry::TableName;
use crate::run_dir::RunDir;
use crate::stored::{read_stored, select};
use crate::table::Table;
use crate::tables::{Episode, Experience};
use std::fs;

fn run(path: &std::path::Path, steps: std::ops::Range<u64>) -> RunDir {
    let mut run = RunDir::create(path, "", RunHeader::default()).unwrap();
    for step in steps {
        let experiences = (TableName::Experiences, Experience::to_batch(&experiences(step)).unwrap());
        let episodes = (TableName::Episodes, Episode::to_batch(&episodes(step)).unwrap());
        run.commit_step(step, vec![experiences, episodes]).unwrap();
    }
    run
}

#[test]
fn runs_folders_and_patterns_choose_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    run(&folder.path().join("x"), 0..3);
    // Left over from a step that was killed.
    fs::create_dir_all(folder.path().join("x/experiences/step=000003")).unwrap();
    fs::write(folder.path().join("x/experiences/step=000003/part-0000.parquet"), "PAR1").unwrap();
    let whole = select(&format!("{root}/x"), TableName::Experiences).unwrap();
    assert_eq!(whole.iter().map(|step| step.step).collect::<Vec<_>>(), [0, 1, 2]);
    for pattern in ["x/", "x/experiences", "x/experiences/step=*", "x/experiences/step=*/part-*.parquet", "x/**/*.parquet", "?/exp*", "*"] {
        let found = select(&format!("{root}/{pattern}"), TableName::Experiences);
        assert_eq!(found.unwrap(), whole, "{pattern}");
    }
    for step in &whole {
        let batch = read_stored(TableName::Experiences, step).unwrap();
        assert_eq!(Experience::from_batch(&batch).unwrap(), experiences(step.step));
    }
    let some = select(&format!("{root}/x/experiences/step=00000[12]/part-*.parquet"), TableName::Experiences);
    assert!(some.unwrap_err().to_string().contains("neither `[…]` nor `{…}`"));
    let other = select(&format!("{root}/x/segments/step=*/*"), TableName::Experiences);
    assert!(other.unwrap_err().to_string().contains("names the table `segments`"));
    let one = select(&format!("{root}/x/experiences/step=??0001/*"), TableName::Episodes).unwrap();
    assert_eq!((one.len(), one[0].step), (1, 1));
    assert_eq!(Episode::from_batch(&read_stored(TableName::Episodes, &one[0]).unwrap()).unwrap(), episodes(1));
}

#[test]
fn files_outside_of_runs_are_found_and_checked_only_for_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    run(&folder.path().join("x"), 0..2);
    let copy = folder.path().join("copy/episodes/step=000001");
    fs::create_dir_all(&copy).unwrap();
    fs::copy(folder.path().join("x/episodes/step=000001/part-0000.parquet"), copy.join("part-0000.parquet")).unwrap();
    let found = select(folder.path().join("copy/episodes").to_str().unwrap(), TableName::Episodes).unwrap();
    assert_eq!((found.len(), found[0].step, &found[0].files[0].committed), (1, 1, &None));
    assert_eq!(read_stored(TableName::Episodes, &found[0]).unwrap().num_rows(), 5);
    fs::copy(copy.join("part-0000.parquet"), folder.path().join("loose.parquet")).unwrap();
    let loose = select(folder.path().join("loose.parquet").to_str().unwrap(), TableName::Episodes).unwrap();
    assert_eq!(loose[0].step, 0);
}

#[test]
fn two_runs_are_read_together_unless_their_keys_clash() {
    let folder = tempfile::tempdir().unwrap();
    run(&folder.path().join("a"), 0..2);
    run(&folder.path().join("b"), 1..3);
    let found = select(folder.path().join("*").to_str().unwrap(), TableName::Episodes).unwrap();
    assert_eq!(found.iter().map(|step| step.files.len()).collect::<Vec<_>>(), [1, 2, 1]);
    assert!(read_stored(TableName::Episodes, &found[2]).is_ok());
    let error = read_stored(TableName::Episodes, &found[1]).unwrap_err();
    assert!(matches!(error, Error::DuplicateKey { .. }), "{error}");
}

#[test]
fn nothing_found_says_what_can_be_given() {
    let folder = tempfile::tempdir().unwrap();
    run(&folder.path().join("x"), 0..1);
    for pattern in ["y", "x/decisions", "x/*/nothing-*", ""] {
        let error = select(folder.path().join(pattern).to_str().unwrap(), TableName::Decisions).unwrap_err();
        assert!(error.to_string().contains("RUN/experiences/step=*"), "{error}");
    }
}

/// A run's folders hold what the manifest says: a committed file that has gone must not pass for one that never was.
#[test]
fn a_committed_file_that_has_gone_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    run(&folder.path().join("x"), 0..3);
    fs::remove_dir_all(folder.path().join("x/experiences/step=000002")).unwrap();
    for pattern in ["x", "x/experiences", "*"] {
        let error = select(&format!("{root}/{pattern}"), TableName::Experiences).unwrap_err();
        assert!(matches!(&error, Error::Damaged { path, .. } if path.ends_with("step=000002/part-0000.parquet")), "{pattern}: {error}");
    }
    fs::remove_dir_all(folder.path().join("x/episodes")).unwrap();
    assert!(matches!(select(&format!("{root}/x"), TableName::Episodes), Err(Error::Damaged { .. })));
}
