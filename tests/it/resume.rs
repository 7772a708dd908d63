//! Whatever stops a run, and whenever: `--resume` finishes it with the bytes of a run that was never stopped.

use crate::program::{
    Running, as_process, assert_same_bytes, assert_same_files, committed, copy, copy_stopped_after, end, files, fixture, hosts, run,
    run_tiny, shipped, swift, tiny, wait_for_run,
};
use cosplay_datasets::files::KILL_VARIABLE;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

/// Step whose changes of the disk are all tried.
const MIDDLE: usize = 1;
/// Of the changes of the other steps every so many-th is tried.
const STRIDE: u64 = 9;

/// Runs `swift.yaml`, killed before its `point`-th change of the disk, and resumes it. Returns the number of steps that were committed when
/// it was killed, or none if the run has fewer changes.
fn kill_at(point: u64) -> Option<usize> {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let command = || run(&fixture("swift.yaml"), &out);
    let killed = end(command().env(KILL_VARIABLE, point.to_string()));
    if killed.code == Some(0) {
        return None;
    }
    assert_eq!(killed.code, None, "a signal ends it: {}", killed.stderr);
    let steps = committed(&out);
    let workers = (1 + point % 3).to_string();
    if point.is_multiple_of(5) {
        // The resumed session is killed too: where it tidies up, or in its first step.
        end(command().args(["--resume", "--workers", "2"]).env(KILL_VARIABLE, (1 + point % 40).to_string()));
        assert!(committed(&out) >= steps, "a committed step is gone");
    }
    end(command().args(["--resume", "--workers", &workers])).expect(0);
    assert_same_bytes(&swift().path, &out, &format!("killed at change {point} of the disk, resumed with {workers} workers"));
    Some(steps)
}

/// Tries points on four threads: they mostly wait for the disk.
fn try_points(points: &[u64]) -> BTreeMap<u64, Option<usize>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(&point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let steps = kill_at(point);
                    found.lock().unwrap().insert(point, steps);
                }
            });
        }
    });
    found.into_inner().unwrap()
}

#[test]
fn killed_at_every_commit_point() {
    swift();
    let mut tried = BTreeMap::new();
    while tried.values().all(Option::is_some) {
        let first = tried.len() as u64;
        let points: Vec<u64> = (first..first + 16).map(|index| 1 + STRIDE * index).collect();
        tried.extend(try_points(&points));
    }
    let last_before = tried.iter().filter(|(_, steps)| steps.is_some_and(|steps| steps < MIDDLE)).map(|(point, _)| *point).max().unwrap();
    let first_after = tried.iter().filter(|(_, steps)| steps.is_some_and(|steps| steps > MIDDLE)).map(|(point, _)| *point).min().unwrap();
    let rest: Vec<u64> = (last_before..first_after).filter(|point| !tried.contains_key(point)).collect();
    tried.extend(try_points(&rest));
    let count = |steps: usize| tried.values().filter(|found| **found == Some(steps)).count();
    assert!(count(0) >= 8 && count(MIDDLE) >= 60 && count(2) >= 8, "too few points: {:?}", [count(0), count(1), count(2), count(3)]);
}

#[test]
fn killed_at_twenty_random_moments() {
    let mut random = ChaCha8Rng::seed_from_u64(20);
    let took = tiny().took.as_secs_f64();
    let mut killed = 0;
    for moment in 0..20 {
        let folder = TempDir::new().unwrap();
        let out = folder.path().join("run");
        let mut sessions = 1 + moment % 3;
        let mut first = true;
        while sessions > 0 {
            let workers = random.random_range(1..=3).to_string();
            let mut command = run_tiny(&out);
            command.args(["--workers", &workers]);
            if !first {
                command.arg("--resume");
            }
            let mut running = Running::start(&mut command);
            sleep(Duration::from_secs_f64(took * random.random_range(0.02..0.95)));
            killed += u32::from(running.runs());
            running.kill();
            drop(running);
            (first, sessions) = (false, sessions - 1);
        }
        let workers = random.random_range(1..=3).to_string();
        end(run_tiny(&out).args(["--resume", "--workers", &workers])).expect(0);
        assert_same_bytes(&tiny().path, &out, &format!("moment {moment}, resumed with {workers} workers"));
    }
    assert!(killed >= 20, "only {killed} sessions were killed before they ended by themselves");
}

#[test]
fn stopped_after_every_step() {
    for (steps, workers) in [(0, "2"), (1, "1"), (2, "3"), (3, "2"), (4, "1")] {
        let out = copy_stopped_after(&tiny().path, steps);
        end(run_tiny(out.path()).args(["--resume", "--workers", workers])).expect(0);
        assert_same_bytes(&tiny().path, out.path(), &format!("stopped after {steps} steps, resumed with {workers} workers"));
    }
}

#[test]
fn two_processes_resume_a_run_of_one() {
    let out = copy_stopped_after(&tiny().path, 3);
    let folder = TempDir::new().unwrap();
    let hosts = hosts(folder.path(), 2);
    let command = |process| {
        let mut command = as_process(run_tiny(out.path()), &hosts, process);
        command.arg("--resume");
        command
    };
    let other = Running::start(&mut command(1));
    end(&mut command(0)).expect(0);
    other.end_within(Duration::from_secs(10)).expect(0);
    assert_same_bytes(&tiny().path, out.path(), "resumed by two processes");
}

#[test]
fn resuming_a_finished_run_changes_nothing() {
    let out = copy(&tiny().path);
    let ended = end(crate::program::cosplay().arg("run").arg(fixture("tiny.yaml")).arg("--out").arg(out.path()).arg("--resume")).expect(0);
    ended.says(&["all 5 steps are complete"]);
    assert_same_bytes(&tiny().path, out.path(), "resumed when finished");
}

#[test]
fn an_existing_run_is_not_overwritten() {
    let out = copy_stopped_after(&tiny().path, 2);
    let before = files(out.path());
    end(&mut run_tiny(out.path())).expect(2).one_error().says(&["holds a run already", "--resume", "--out"]);
    assert_same_files(&before, &files(out.path()), "refused");
}

#[test]
fn a_folder_with_other_files_is_not_taken() {
    let out = TempDir::new().unwrap();
    std::fs::write(out.path().join("thesis.txt"), "years of work").unwrap();
    for resume in [&[][..], &["--resume"]] {
        end(run_tiny(out.path()).args(resume)).expect(2).one_error().says(&["is not empty"]);
        assert_eq!(files(out.path()).len(), 1);
    }
}

#[test]
fn a_changed_spec_does_not_go_on_with_the_run() {
    let out = copy_stopped_after(&tiny().path, 2);
    let before = files(out.path());
    for change in ["seed=31", "graph.rollouts.starts=3", "steps=6"] {
        end(run_tiny(out.path()).args(["--resume", "--set", change])).expect(2).one_error().says(&["another spec", "--out"]);
        assert_same_files(&before, &files(out.path()), "refused");
    }
}

/// Damages `file` of a stopped run, and checks that resuming says so and leaves all as it is.
fn damage(file: &str, change: impl FnOnce(&Path), parts: &[&str]) {
    let out = copy_stopped_after(&tiny().path, 3);
    change(&out.path().join(file));
    let before = files(out.path());
    let ended = end(run_tiny(out.path()).arg("--resume"));
    assert!(matches!(ended.code, Some(1 | 2)), "{file}: {ended:?}");
    ended.says(&[file]).says(parts);
    assert_same_files(&before, &files(out.path()), "refused");
}

#[test]
fn missing_and_damaged_files_are_named() {
    let flip = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let cut = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    let part = |table: &str| {
        let folder = tiny().path.join(format!("{table}/step=000001"));
        let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        file.strip_prefix(&tiny().path).unwrap().to_string_lossy().into_owned()
    };
    let remedy = &["restore the file from a copy"];
    damage(&part("experiences"), |path| std::fs::remove_file(path).unwrap(), &["missing", remedy[0]]);
    damage(&part("skills"), flip, remedy);
    damage(&part("policies"), cut, remedy);
    damage("manifest.json", cut, remedy);
    damage("spec.yaml", |path| std::fs::write(path, "\u{0}").unwrap(), &[]);
    damage("spec.yaml", |path| std::fs::remove_file(path).unwrap(), &[]);
    damage("spec.yaml", |path| std::fs::write(path, std::fs::read_to_string(path).unwrap() + "# note\n").unwrap(), remedy);
}

#[test]
fn two_programs_do_not_write_one_run() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let running = Running::start(&mut run(&shipped("2048.yaml"), &out));
    wait_for_run(&out);
    end(run(&shipped("2048.yaml"), &out).arg("--resume")).expect(1).one_error().says(&["being written by another process"]);
    drop(running);
}

#[test]
fn ctrl_c_ends_the_step_and_resume_goes_on() {
    // A machine under load may let a run of a second end before the signal comes.
    for _ in 0..5 {
        let folder = TempDir::new().unwrap();
        let out = folder.path().join("run");
        let mut command = crate::program::cosplay();
        command.arg("run").arg(fixture("tiny.yaml")).arg("--out").arg(&out).args(["--workers", "2"]);
        let mut running = Running::start(&mut command);
        assert!(running.wait_for_line("step 1/5"));
        running.interrupt();
        let ended = running.end_within(Duration::from_secs(10));
        if ended.code != Some(0) {
            ended.expect(130).says(&["interrupted", "of 5 steps are complete", "--resume"]);
            assert!((1..5).contains(&committed(&out)), "{} steps", committed(&out));
            end(run_tiny(&out).arg("--resume")).expect(0);
            return assert_same_bytes(&tiny().path, &out, "interrupted");
        }
    }
    panic!("no run could be interrupted");
}

#[test]
fn ctrl_c_twice_ends_at_once() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    // Its first step alone takes many seconds.
    let mut command = crate::program::cosplay();
    command.arg("run").arg(shipped("2048.yaml")).arg("--out").arg(&out).args(["--set", "graph.start.steps=100000"]);
    let mut running = Running::start(&mut command);
    wait_for_run(&out);
    running.interrupt();
    assert!(running.wait_for_line("interrupted"), "the first Ctrl-C is not answered");
    sleep(Duration::from_millis(200));
    assert!(running.runs(), "the first Ctrl-C lets the step end");
    running.interrupt();
    let ended = running.end_within(Duration::from_secs(2));
    ended.expect(130);
    assert_eq!(committed(&out), 0);
}

#[test]
fn ctrl_c_at_any_moment_ends_all_workers() {
    let mut random = ChaCha8Rng::seed_from_u64(12);
    for moment in 0..12 {
        let folder = TempDir::new().unwrap();
        let out = folder.path().join("run");
        // Steps of a few milliseconds: the interruption comes between the workers' looks at it as often as can be.
        let mut command = run(&fixture("swift.yaml"), &out);
        command.args(["--workers", "3", "--set", "steps=60", "--set", "graph.rollouts.episodes_per_start=1", "--set", "env.max_steps=4"]);
        let running = Running::start(&mut command);
        wait_for_run(&out);
        sleep(Duration::from_secs_f64(random.random_range(0.0..0.6)));
        running.interrupt();
        let ended = running.end_within(Duration::from_secs(10));
        assert!(matches!(ended.code, Some(0 | 130)), "moment {moment}: {ended:?}");
    }
}
