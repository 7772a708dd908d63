//! A step that fails ends the run with one error that names node, step and cause, and leaves the last complete step.

use crate::program::{
    Running, as_process, assert_same_bytes, committed, copy, copy_stopped_after, cosplay, end, fixture, hosts, run_tiny, tiny,
};
use cosplay_datasets::{Experience, RunDir, Table, TableName, parquet_io};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// What a failure may take to end the run.
const PROMPT: Duration = Duration::from_secs(10);

/// The tables of the run without its manifest: stored rollouts whose contents nothing vouches for.
fn loose_rollouts() -> TempDir {
    let folder = copy(&tiny().path);
    std::fs::remove_file(folder.path().join("manifest.json")).unwrap();
    folder
}

/// The file with the experiences that the agent had in `step`.
fn experiences_of(folder: &Path, step: u64) -> PathBuf {
    let files = std::fs::read_dir(folder.join(format!("experiences/step={step:06}"))).unwrap();
    files.map(|file| file.unwrap().path()).min().unwrap()
}

/// `cosplay rebuild tiny.yaml` from loose files.
fn rebuild(rollouts: &Path, out: &Path) -> Command {
    let mut command = cosplay();
    command.arg("rebuild").arg(fixture("tiny.yaml")).arg("--quiet").arg("--rollouts");
    command.arg(format!("{}/experiences/step=*/*.parquet", rollouts.display())).arg("--out").arg(out);
    command
}

/// Changes the experiences of step 2, rebuilds with one and two workers, and checks how that ends.
fn fails_in_step_2(change: impl Fn(&Path), parts: &[&str]) {
    for workers in ["1", "2"] {
        let rollouts = loose_rollouts();
        let file = experiences_of(rollouts.path(), 2);
        change(&file);
        let out = rollouts.path().join("rebuilt");
        let ended = Running::start(rebuild(rollouts.path(), &out).args(["--workers", workers])).end_within(PROMPT);
        ended.expect(1).one_error().says(&["step 2"]).says(parts);
        assert_eq!(committed(&out), 2, "steps 0 and 1 are complete");
        RunDir::open(&out).unwrap().verify().unwrap();
    }
}

/// Rewrites rows of a Parquet file.
fn rewrite(file: &Path, change: impl Fn(&mut Vec<Experience>)) {
    let mut rows = Experience::from_batch(&parquet_io::read(TableName::Experiences, file, None).unwrap()).unwrap();
    change(&mut rows);
    std::fs::write(file, parquet_io::encode(&Experience::to_batch(&rows).unwrap(), file).unwrap()).unwrap();
}

#[test]
fn a_damaged_file_of_stored_rollouts() {
    let cut = |file: &Path| {
        let bytes = std::fs::read(file).unwrap();
        std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    };
    fails_in_step_2(cut, &["node `rollouts`", "experiences/step=000002/", "as Parquet"]);
}

#[test]
fn stored_rows_twice() {
    let twice = |file: &Path| {
        std::fs::copy(file, file.with_file_name("part-0099.parquet")).unwrap();
    };
    fails_in_step_2(twice, &["node `rollouts`", "two rows have the key"]);
}

#[test]
fn a_stored_predicate_that_the_environment_does_not_know() {
    // It comes true in the middle of every episode, so that it gets into the effects of segments.
    let grow_wings = |file: &Path| {
        rewrite(file, |rows| {
            for row in rows {
                row.predicates.extend((row.t >= 30).then(|| "has_wings".to_owned()));
                row.next_predicates.extend((row.t >= 29).then(|| "has_wings".to_owned()));
            }
        });
    };
    fails_in_step_2(grow_wings, &["node `contracts`", "no predicate `has_wings`"]);
}

#[test]
fn a_folder_that_cannot_be_written_to() {
    for workers in ["1", "2"] {
        let out = copy_stopped_after(&tiny().path, 3);
        // A file where the folder of the next step must go.
        let folder = out.path().join("skills/step=000003");
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::write(&folder, "in the way").unwrap();
        let ended = Running::start(run_tiny(out.path()).args(["--resume", "--workers", workers])).end_within(PROMPT);
        ended.expect(1).one_error().says(&["step 3", "skills/step=000003"]);
        assert_eq!(committed(out.path()), 3);
        RunDir::open(out.path()).unwrap().verify().unwrap();
        std::fs::remove_file(&folder).unwrap();
        end(run_tiny(out.path()).args(["--resume"])).expect(0);
        assert_same_bytes(&tiny().path, out.path(), "resumed after a failure");
    }
}

#[test]
fn a_failure_in_one_of_two_processes_ends_both() {
    let rollouts = loose_rollouts();
    let file = experiences_of(rollouts.path(), 2);
    std::fs::write(&file, "not Parquet").unwrap();
    let hosts = hosts(rollouts.path(), 2);
    let out = rollouts.path().join("rebuilt");
    let processes = [0, 1].map(|process| Running::start(&mut as_process(rebuild(rollouts.path(), &out), &hosts, process)));
    let ended = processes.map(|process| process.end_within(PROMPT).expect(1).one_error());
    let named = ended.iter().any(|ended| ended.stderr.contains("node `rollouts` failed in step 2"));
    assert!(named, "neither names the cause:\n{}\n{}", ended[0].stderr, ended[1].stderr);
    assert_eq!(committed(&out), 2);
}

#[test]
fn a_run_goes_on_when_nobody_reads_what_it_says() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let mut command = cosplay();
    command.arg("run").arg(fixture("tiny.yaml")).arg("--out").arg(&out).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_same_bytes(&tiny().path, &out, "with closed stdout and stderr");
}
