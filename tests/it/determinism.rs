//! The same spec gives the same bytes, whoever computes them.

use crate::program::{as_process, assert_same_bytes, end, fixture, hosts, run, run_tiny, tiny};
use cosplay_datasets::{BankEvent, Relabel, RunDir, Skill};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

#[test]
fn the_run_that_the_tests_compare_has_a_bank_at_work() {
    let run = RunDir::open(&tiny().path).unwrap();
    let kinds: BTreeSet<String> = run
        .read_all::<BankEvent>()
        .unwrap()
        .into_iter()
        .filter(|(_, event)| event.verdict == "accepted")
        .map(|(_, event)| event.kind)
        .collect();
    assert!(kinds.contains("materialize") && kinds.contains("refine"), "{kinds:?}");
    assert!(["merge", "split", "retire"].iter().any(|kind| kinds.contains(*kind)), "{kinds:?}");
    let skills = run.read_step::<Skill>(4).unwrap();
    assert!(skills.iter().any(|skill| skill.state == "active") && skills.iter().any(|skill| skill.state == "retired"));
    assert!(run.read_all::<Relabel>().unwrap().len() > 5);
}

#[test]
fn the_same_spec_twice() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("again");
    end(&mut run_tiny(&out)).expect(0);
    assert_same_bytes(&tiny().path, &out, "a second run");
}

#[test]
fn any_number_of_workers() {
    let folder = TempDir::new().unwrap();
    for workers in ["2", "3"] {
        let out = folder.path().join(workers);
        end(run_tiny(&out).args(["--workers", workers])).expect(0);
        assert_same_bytes(&tiny().path, &out, &format!("{workers} workers"));
    }
}

/// Runs both processes of a run and waits for their ends.
fn two_processes(command: impl Fn() -> Command, folder: &Path) {
    let hosts = hosts(folder, 2);
    let mut other = as_process(command(), &hosts, 1).spawn().unwrap();
    end(&mut as_process(command(), &hosts, 0)).expect(0);
    assert_eq!(other.wait().unwrap().code(), Some(0));
}

#[test]
fn two_processes_of_one_or_two_workers() {
    for workers in ["1", "2"] {
        let folder = TempDir::new().unwrap();
        let out = folder.path().join("run");
        let command = || {
            let mut command = run_tiny(&out);
            command.args(["--workers", workers]);
            command
        };
        two_processes(command, folder.path());
        assert_same_bytes(&tiny().path, &out, &format!("two processes of {workers} workers"));
    }
}

#[test]
fn another_seed_gives_another_run_and_it_too_does_not_depend_on_workers() {
    let folder = TempDir::new().unwrap();
    let outs: Vec<_> = ["1", "2"]
        .iter()
        .map(|workers| {
            let out = folder.path().join(workers);
            end(run_tiny(&out).args(["--set", "seed=18", "--workers", workers])).expect(0);
            out
        })
        .collect();
    assert_same_bytes(&outs[0], &outs[1], "seed 18");
    let episodes = "episodes/step=000001/part-0003.parquet";
    let read = |run: &Path| std::fs::read(run.join(episodes)).unwrap();
    assert_ne!(read(&outs[0]), read(&tiny().path), "two seeds played the same episodes");
}

#[test]
fn choices_in_joint_form() {
    let folder = TempDir::new().unwrap();
    let outs: Vec<_> = ["1", "2"]
        .iter()
        .map(|workers| {
            let out = folder.path().join(workers);
            end(run(&fixture("swift.yaml"), &out).args(["--set", "model.choices=joint", "--workers", workers])).expect(0);
            out
        })
        .collect();
    assert_same_bytes(&outs[0], &outs[1], "joint choices");
    let decisions = RunDir::open(&outs[0]).unwrap().read_all::<cosplay_datasets::Decision>().unwrap();
    assert!(!decisions.is_empty() && decisions.iter().all(|(_, row)| row.form == "joint"));
}
