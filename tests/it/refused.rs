//! Requests that cannot be met are refused with one error that says what to do, and nothing passes for what it is not.

use crate::program::{assert_same_bytes, committed, copy, copy_stopped_after, cosplay, end, fixture, run, run_tiny, tiny};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Writes a spec of the given graph into `folder`.
fn spec(folder: &Path, head: &str, graph: &str) -> PathBuf {
    let path = folder.join("spec.yaml");
    std::fs::write(&path, format!("version: 1\nname: other\nenv: {{ game: \"2048\", max_steps: 60 }}\n{head}\ngraph:\n{graph}\n")).unwrap();
    path
}

/// A committed file that has gone must not make a smaller bank without a word.
#[test]
fn a_run_with_a_missing_file_is_not_rebuilt() {
    let damaged = copy(&tiny().path);
    std::fs::remove_dir_all(damaged.path().join("experiences/step=000004")).unwrap();
    let out = damaged.path().join("rebuilt");
    let ended = end(cosplay().arg("rebuild").arg(damaged.path()).arg("--out").arg(&out));
    ended.expect(1).one_error().says(&["experiences/step=000004/", "the file is missing, though the manifest lists it"]);
    assert!(!out.exists());
}

/// The tables of the run without its manifest.
fn loose() -> TempDir {
    let folder = copy(&tiny().path);
    std::fs::remove_file(folder.path().join("manifest.json")).unwrap();
    folder
}

#[test]
fn loose_experiences_need_their_episodes_and_all_of_their_steps() {
    let rebuild = |folder: &Path| {
        let glob = format!("{}/experiences/step=*/*.parquet", folder.display());
        let mut command = cosplay();
        command.arg("rebuild").arg(fixture("tiny.yaml")).arg("--rollouts").arg(glob).arg("--out").arg(folder.join("rebuilt"));
        end(&mut command)
    };
    let alone = loose();
    std::fs::remove_dir_all(alone.path().join("episodes")).unwrap();
    rebuild(alone.path()).expect(2).one_error().says(&["rows of `episodes`", "needs its `episodes` beside it"]);
    let partial = loose();
    // Those of the agent stay away from step 1, but its episodes are there.
    std::fs::remove_dir_all(partial.path().join("experiences/step=000001")).unwrap();
    rebuild(partial.path()).expect(1).one_error().says(&["in step 1", "steps, but 0 of them are stored"]);
}

#[test]
fn patterns_say_what_they_do_not_know() {
    let folder = TempDir::new().unwrap();
    let loose = folder.path().join("some.parquet");
    let file = std::fs::read_dir(tiny().path.join("experiences/step=000001")).unwrap().next().unwrap().unwrap().path();
    std::fs::copy(file, &loose).unwrap();
    let run = tiny().path.display().to_string();
    for (pattern, part) in [
        (loose.display().to_string(), "lies in no folder `experiences/step="),
        (format!("{run}/experiences/step=00000[01]/*.parquet"), "neither `[…]` nor `{…}`"),
        (format!("{run}/segments/*/*.parquet"), "names the table `segments`"),
        (String::new(), "the pattern is empty"),
    ] {
        let out = folder.path().join("rebuilt");
        let ended = end(cosplay().arg("rebuild").arg(fixture("tiny.yaml")).arg("--rollouts").arg(&pattern).arg("--out").arg(&out));
        ended.expect(2).one_error().says(&[part]);
        assert!(!out.exists());
    }
}

#[test]
fn stored_rollouts_that_do_not_fit_are_found_by_the_plan() {
    let folder = TempDir::new().unwrap();
    let plan = |head: &str, config: &str| {
        let graph = format!(
            "  old: {{ op: stored_rollouts, path: {:?}{config} }}\n  cuts: {{ op: propose_boundaries, rollouts: old }}",
            tiny().path
        );
        end(cosplay().arg("plan").arg(spec(folder.path(), head, &graph)))
    };
    plan("steps: 5", ", node: rollouts").expect(0);
    plan("steps: 5", ", node: nobody")
        .expect(2)
        .one_error()
        .says(&["no train episodes of node `nobody`", "`rollouts` (train), `seeds` (train)"]);
    plan("steps: 5", ", split: validation").expect(2).one_error().says(&["no validation episodes"]);
    plan("steps: 9", "").expect(2).one_error().says(&["up to step 4", "9 steps"]);
}

#[test]
fn what_cannot_run_is_found_by_the_plan() {
    for (set, parts) in [
        ("model.adapters.alpha=0", ["a number", "above 0"]),
        ("graph.rollouts.starts=5000", ["episodes a step", "at most 100000"]),
        ("name=../up", ["that can be a folder's", "no `/`"]),
        ("name=.hidden", ["that can be a folder's", ".hidden"]),
        ("graph.cuts.rollouts=seeds", ["plays in step 0 only", "each of 5 steps"]),
    ] {
        let ended =
            end(cosplay().arg("plan").arg(fixture("tiny.yaml")).args(["--set", set, "--set", "graph.rollouts.episodes_per_start=21"]));
        ended.expect(2).one_error().says(&parts);
    }
}

/// The spec that a run keeps says what its tables are; a changed one must not be believed.
#[test]
fn an_edited_spec_of_a_run_is_noticed_by_all_that_read_it() {
    let edited = copy(&tiny().path);
    let path = edited.path().join("spec.yaml");
    let text = std::fs::read_to_string(&path).unwrap().replace("steps: 5", "steps: 6");
    std::fs::write(&path, text).unwrap();
    let run = edited.path().to_str().unwrap();
    let tiny = fixture("tiny.yaml");
    let out = edited.path().join("out");
    let out = out.to_str().unwrap();
    for command in [
        &["eval", run, "--episodes", "2", "--validation", "2"][..],
        &["export", "adapters", run, "--out", out],
        &["rebuild", run, "--out", out],
        &["run", tiny.to_str().unwrap(), "--out", run, "--resume"],
    ] {
        end(cosplay().args(command)).expect(1).one_error().says(&["spec.yaml", "the manifest", "restore"]);
    }
}

#[test]
fn a_run_is_resumed_with_its_own_spec_only() {
    let ended = end(run_tiny(&tiny().path).args(["--resume", "--set", "graph.update.kl=0.5"]));
    ended.expect(2).one_error().says(&["begun with another spec", "there `graph.update.kl` is", "here it is 0.5"]);
}

#[test]
fn an_interrupted_rebuild_goes_on() {
    let folder = TempDir::new().unwrap();
    let whole = folder.path().join("whole");
    let rebuild = |out: &Path| {
        let mut command = cosplay();
        command.arg("rebuild").arg(&tiny().path).arg("--quiet").arg("--out").arg(out);
        command
    };
    end(&mut rebuild(&whole)).expect(0);
    let stopped = copy_stopped_after(&whole, 2);
    end(&mut rebuild(stopped.path())).expect(2).one_error().says(&["holds a run already", "--resume"]);
    end(rebuild(stopped.path()).arg("--resume")).expect(0);
    assert_same_bytes(&whole, stopped.path(), "a resumed rebuild");
}

#[test]
fn resuming_what_is_not_there_says_that_it_begins() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("typo");
    let mut command = cosplay();
    command.arg("run").arg(fixture("swift.yaml")).arg("--resume").arg("--out").arg(&out);
    end(&mut command).expect(0).says(&["no run is there yet"]);
    assert!(committed(&out) > 0);
}

#[test]
fn a_file_in_the_place_of_a_run_directory() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    end(&mut run_tiny(&file)).expect(2).one_error().says(&["is a file", "--out"]);
    end(cosplay().arg("rebuild").arg(&tiny().path).arg("--out").arg(&file)).expect(2).one_error().says(&["is a file"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    end(cosplay().args(["rebuild", "no/such/thing"])).expect(2).one_error().says(&["neither a run directory nor a spec file"]);
}

#[test]
fn queries_only_read() {
    let query = |run: &Path, sql: &str| end(cosplay().arg("query").arg(run).arg(sql));
    query(&tiny().path, "  ").expect(2).one_error().says(&["the query is empty", "SELECT"]);
    for sql in ["DROP TABLE episodes", "(create table x AS SELECT 1)", "delete from metrics"] {
        query(&tiny().path, sql).expect(2).one_error().says(&["can only be read"]);
    }
    let damaged = copy(&tiny().path);
    let file = std::fs::read_dir(damaged.path().join("metrics/step=000003")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, "PAR1").unwrap();
    query(damaged.path(), "SELECT * FROM metrics").expect(1).one_error().says(&["metrics/step=000003", "restore the file"]);
    std::fs::write(damaged.path().join("manifest.json"), "{").unwrap();
    for command in [&["query", "SELECT 1"][..], &["bank"], &["eval"]] {
        let ended = end(cosplay().arg(command[0]).arg(damaged.path()).args(&command[1..]));
        ended.expect(1).one_error().says(&["manifest.json", "restore the file"]);
    }
}

#[test]
fn a_run_without_a_bank_says_so() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let spec = spec(folder.path(), "steps: 1", "  seeds: { op: teacher_rollouts, teacher: random, episodes: 4 }");
    end(&mut run(&spec, &out)).expect(0);
    end(cosplay().arg("bank").arg(&out)).expect(2).one_error().says(&["has no bank", "maintain_bank"]);
    let ended = end(cosplay().arg("eval").arg(&out).args(["--episodes", "2", "--validation", "2", "--bank", "final"])).expect(0);
    assert!(ended.stdout.contains("note: the run trained no policy"), "{}", ended.stdout);
}

/// Only what this program wrote is cleared away.
#[test]
fn files_of_the_user_in_a_run_directory_stay() {
    let stopped = copy_stopped_after(&tiny().path, 3);
    let mine = stopped.path().join("experiences/step=000001/part-mine.parquet");
    std::fs::write(&mine, "mine").unwrap();
    end(run_tiny(stopped.path()).arg("--resume")).expect(0);
    assert_eq!(std::fs::read_to_string(&mine).unwrap(), "mine");
    std::fs::remove_file(&mine).unwrap();
    assert_same_bytes(&tiny().path, stopped.path(), "resumed beside a file of the user");
}
