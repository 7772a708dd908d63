//! The commit point: whatever fails and wherever the process dies, the run is at one step or the next, and redone it has the same bytes.

use super::{cuts, episodes, experiences, fast_folder, metrics};
use crate::error::{Error, Result};
use crate::files::{FaultPoint, Files, KILL_VARIABLE, Operation};
use crate::manifest::RunHeader;
use crate::registry::TableName;
use crate::run_dir::RunDir;
use crate::table::Table;
use crate::tables::{Cut, Episode, Experience, Metric};
use arrow::array::RecordBatch;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

const STEPS: u64 = 3;
const SPEC: &str = "version: 1\nname: test\n";

fn header() -> RunHeader {
    RunHeader { name: "test".into(), seed: 7, steps: STEPS, env: "2048".into(), ..RunHeader::default() }
}

fn tables(step: u64) -> Vec<(TableName, RecordBatch)> {
    let experiences = experiences(step);
    let (front, back) = experiences.split_at(20);
    vec![
        // Out of order and in pieces, as they may come from several workers.
        (TableName::Experiences, Experience::to_batch(back).unwrap()),
        (TableName::Episodes, Episode::to_batch(&episodes(step)).unwrap()),
        (TableName::Experiences, Experience::to_batch(front).unwrap()),
        (TableName::Metrics, Metric::to_batch(&metrics(step)).unwrap()),
        (TableName::Cuts, Cut::to_batch(&if step == 1 { cuts(step) } else { Vec::new() }).unwrap()),
    ]
}

/// Makes the run or continues it, to its end.
fn finish(path: &Path, files: Files) -> Result<()> {
    let mut run = if RunDir::exists(path) { RunDir::resume_with(path, files)? } else { RunDir::create_with(path, SPEC, header(), files)? };
    for step in run.last_step().map_or(0, |last| last + 1)..STEPS {
        run.commit_step(step, tables(step))?;
    }
    Ok(())
}

/// Every file below a folder with its bytes, but for the lock.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if !entry.ends_with(".lock") {
                found.insert(entry.strip_prefix(path).unwrap().to_owned(), fs::read(&entry).unwrap());
            }
        }
    }
    found
}

/// Fails operation `at` and, if `dead`, all after it.
struct FailAt {
    at: u64,
    dead: bool,
}

impl FaultPoint for FailAt {
    fn before(&self, number: u64, _: Operation, _: &Path) -> io::Result<()> {
        let fails = if self.dead { number >= self.at } else { number == self.at };
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

fn whole() -> (BTreeMap<PathBuf, Vec<u8>>, u64) {
    let folder = fast_folder();
    let files = Files::default();
    finish(&folder.path().join("run"), files.clone()).unwrap();
    (contents(&folder.path().join("run")), files.operations())
}

#[test]
fn death_before_any_operation_loses_at_most_the_step_and_no_byte() {
    let (expected, operations) = whole();
    assert!(operations > 60, "{operations}");
    for at in 1..=operations {
        let folder = fast_folder();
        let path = folder.path().join("run");
        let error = finish(&path, Files::with_fault(Arc::new(FailAt { at, dead: true }))).unwrap_err();
        assert!(matches!(&error, Error::Io { path: failed, .. } if failed.starts_with(folder.path())), "{error}");
        if RunDir::exists(&path) {
            // A reader sees whole steps, before anything is cleaned up.
            let run = RunDir::open(&path).unwrap();
            run.verify().unwrap();
            for step in run.steps(TableName::Experiences) {
                assert_eq!(run.read_step::<Experience>(step).unwrap(), experiences(step));
            }
        }
        finish(&path, Files::default()).unwrap();
        assert_eq!(contents(&path), expected, "after death before operation {at}");
    }
}

#[test]
fn an_operation_that_fails_once_can_be_repeated_in_the_same_process() {
    let (expected, operations) = whole();
    for at in 1..=operations {
        let folder = fast_folder();
        let path = folder.path().join("run");
        let files = Files::with_fault(Arc::new(FailAt { at, dead: false }));
        let Ok(mut run) = RunDir::create_with(&path, SPEC, header(), files) else {
            continue;
        };
        for step in 0..STEPS {
            if run.commit_step(step, tables(step)).is_err() {
                assert_eq!(run.last_step(), step.checked_sub(1));
                run.commit_step(step, tables(step)).unwrap();
            }
        }
        assert_eq!(contents(&path), expected, "after failure of operation {at}");
    }
}

#[test]
fn recovery_itself_can_die_anywhere() {
    let (expected, operations) = whole();
    for at in operations / 2..operations {
        for second in 1..4 {
            let folder = fast_folder();
            let path = folder.path().join("run");
            finish(&path, Files::with_fault(Arc::new(FailAt { at, dead: true }))).unwrap_err();
            let _ = finish(&path, Files::with_fault(Arc::new(FailAt { at: second, dead: true })));
            finish(&path, Files::default()).unwrap();
            assert_eq!(contents(&path), expected, "after death before operation {at}, then {second}");
        }
    }
}

/// Not a test of its own: the process that is killed by the next one.
#[test]
fn child_that_is_killed() {
    if let Some(path) = std::env::var_os("COSPLAY_TEST_RUN") {
        finish(Path::new(&path), Files::default()).unwrap();
    }
}

#[test]
fn a_killed_process_is_continued() {
    let (expected, operations) = whole();
    let program = std::env::current_exe().unwrap();
    for at in (1..=operations).step_by(3) {
        let folder = fast_folder();
        let path = folder.path().join("run");
        let mut child = std::process::Command::new(&program);
        child.args(["--exact", "tests::run_dir::child_that_is_killed"]).env("COSPLAY_TEST_RUN", &path).env(KILL_VARIABLE, at.to_string());
        let output = child.output().unwrap();
        assert!(!output.status.success(), "the child was not killed at operation {at}");
        // The dead process's lock is taken over.
        finish(&path, Files::default()).unwrap();
        assert_eq!(contents(&path), expected, "after a kill before operation {at}");
    }
}

fn finished() -> (tempfile::TempDir, PathBuf) {
    let folder = fast_folder();
    let path = folder.path().join("run");
    finish(&path, Files::default()).unwrap();
    (folder, path)
}

#[test]
fn what_was_committed_is_read() {
    let (_folder, path) = finished();
    let run = RunDir::open(&path).unwrap();
    assert_eq!((run.last_step(), run.header(), run.spec().unwrap().as_str()), (Some(2), &header(), SPEC));
    assert_eq!(run.read_step::<Experience>(1).unwrap(), experiences(1));
    let all = run.read_all::<Episode>().unwrap();
    assert_eq!(all.len(), 15);
    assert!(all.iter().all(|(step, episode)| episode.episode.step() == *step));
    assert_eq!(run.read_step::<Cut>(0).unwrap(), []);
    assert_eq!(run.steps(TableName::Cuts), [0, 1, 2]);
    assert!(run.steps(TableName::Skills).is_empty());
    assert!(path.join("experiences/step=000002/part-0000.parquet").is_file());
    let error = run.read_step::<Episode>(9).unwrap_err().to_string();
    assert!(error.contains("no step 9") && error.contains("0, 1, 2"), "{error}");
}

#[test]
fn only_one_process_writes_and_readers_are_not_disturbed() {
    let (_folder, path) = finished();
    let mut writer = RunDir::resume(&path).unwrap();
    let error = RunDir::resume(&path).unwrap_err().to_string();
    assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
    let mut reader = RunDir::open(&path).unwrap();
    assert!(matches!(reader.commit_step(3, tables(3)), Err(Error::ReadOnly { .. })));
    writer.commit_step(3, tables(3)).unwrap();
    assert_eq!(reader.last_step(), Some(2));
    reader.refresh().unwrap();
    assert_eq!(reader.read_step::<Experience>(3).unwrap(), experiences(3));
    drop(writer);
    assert_eq!(RunDir::resume(&path).unwrap().last_step(), Some(3));
}

#[test]
fn steps_rise_and_bad_rows_leave_the_run_as_it_was() {
    let (_folder, path) = finished();
    let before = contents(&path);
    let mut run = RunDir::resume(&path).unwrap();
    let error = run.commit_step(2, tables(2)).unwrap_err().to_string();
    assert!(error.contains("step 2 cannot be committed after step 2"), "{error}");
    let episodes = Episode::to_batch(&episodes(3)).unwrap();
    let twice = vec![(TableName::Episodes, episodes.clone()), (TableName::Episodes, episodes.clone())];
    assert!(matches!(run.commit_step(3, twice), Err(Error::DuplicateKey { .. })));
    assert!(matches!(run.commit_step(3, vec![(TableName::Metrics, episodes)]), Err(Error::MissingColumn { .. })));
    drop(run);
    drop(RunDir::resume(&path).unwrap());
    assert_eq!(contents(&path), before);
}

#[test]
fn a_damaged_or_missing_file_is_named() {
    let part = "episodes/step=000001/part-0000.parquet";
    for damage in 0..3 {
        let (_folder, path) = finished();
        let mut bytes = fs::read(path.join(part)).unwrap();
        let expected = match damage {
            0 => {
                fs::remove_file(path.join(part)).unwrap();
                "missing"
            }
            1 => {
                bytes[100] ^= 1;
                fs::write(path.join(part), &bytes).unwrap();
                "SHA-256"
            }
            _ => {
                fs::write(path.join(part), &bytes[1..]).unwrap();
                "bytes"
            }
        };
        let error = RunDir::resume(&path).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(expected) && error.contains("restore"), "{error}");
        let run = RunDir::open(&path).unwrap();
        assert!(matches!(run.read_step::<Episode>(1), Err(Error::Damaged { .. })));
        assert_eq!(run.read_step::<Episode>(2).unwrap(), episodes(2));
    }
}

#[test]
fn manifests_of_other_programs_versions_and_places_are_refused() {
    let (_folder, path) = finished();
    let manifest = path.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let cases = [
        (text.replace("cosplay run", "something else"), "another program"),
        (text.replacen("\"version\": 1", "\"version\": 2", 1), "version 2"),
        (text[..text.len() / 2].to_owned(), "EOF"),
        (String::new(), "EOF"),
        (text.replace("episodes/step=000001", "../step=000001"), "out of the run"),
        (text.replace("episodes/step=000001", "/etc"), "out of the run"),
        (text.replacen("\"step\": 1", "\"step\": 2", 1), "after step"),
    ];
    for (text, expected) in cases {
        fs::write(&manifest, text).unwrap();
        let error = RunDir::open(&path).unwrap_err().to_string();
        assert!(error.contains("manifest.json") && error.contains(expected), "{error}");
    }
    fs::remove_file(&manifest).unwrap();
    assert!(matches!(RunDir::open(&path), Err(Error::NotARun { .. })));
    assert!(matches!(RunDir::resume(&path), Err(Error::NotARun { .. })));
}

#[test]
fn leftovers_go_and_the_users_files_stay() {
    let (_folder, path) = finished();
    let before = contents(&path);
    let left =
        ["metrics/step=000002/part-0001.parquet", "metrics/step=000003/part-0000.parquet.tmp", "skills/step=000003/part-0000.parquet"];
    for file in left.iter().chain(&["manifest.json.tmp"]) {
        fs::create_dir_all(path.join(file).parent().unwrap()).unwrap();
        fs::write(path.join(file), "left").unwrap();
    }
    let users = ["notes.txt", "metrics/notes.txt", "metrics/step=000001/notes.txt", "plots/step=000003/part-0000.parquet"];
    for file in users {
        fs::create_dir_all(path.join(file).parent().unwrap()).unwrap();
        fs::write(path.join(file), "mine").unwrap();
    }
    drop(RunDir::resume(&path).unwrap());
    let mut after = contents(&path);
    for file in users {
        assert!(after.remove(Path::new(file)).is_some(), "{file} is gone");
    }
    assert_eq!(after, before);
    assert!(!path.join("skills").exists() && !path.join("metrics/step=000003").exists());
}

#[test]
fn a_run_is_not_made_over_something_else() {
    let (folder, path) = finished();
    assert!(matches!(RunDir::create(&path, SPEC, header()), Err(Error::RunExists { .. })));
    fs::write(folder.path().join("thesis.tex"), "years of work").unwrap();
    assert!(matches!(RunDir::create(folder.path(), SPEC, header()), Err(Error::NotEmpty { .. })));
    fs::write(folder.path().join("file"), "").unwrap();
    let error = RunDir::create(&folder.path().join("file"), SPEC, header()).unwrap_err().to_string();
    assert!(error.contains("file"), "{error}");
}

#[test]
fn a_run_without_steps_can_be_replaced_and_one_with_steps_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    drop(RunDir::create(&path, "name: a\n", RunHeader::default()).unwrap());
    RunDir::discard_unstarted(&path).unwrap();
    let mut run = RunDir::create(&path, "name: b\n", RunHeader::default()).unwrap();
    assert!(matches!(RunDir::discard_unstarted(&path), Err(Error::Locked { .. })), "somebody writes it");
    run.commit_step(0, tables(0)).unwrap();
    drop(run);
    assert!(matches!(RunDir::discard_unstarted(&path), Err(Error::RunExists { .. })));
    assert_eq!(RunDir::open(&path).unwrap().last_step(), Some(0));
}
