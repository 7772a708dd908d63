//! A bank is a view over stored rollouts: made again, it is the same.

use crate::program::{assert_same_bytes, committed, copy, cosplay, end, files, fixture, tiny};
use cosplay_datasets::{Episode, EpisodeId, Experience, RunDir, Skill, Table, TableName, parquet_io};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const BANK: [&str; 6] = ["cuts", "segments", "contracts", "skills", "bank_events", "relabels"];

fn rebuild(spec: &Path, out: &Path) -> Command {
    let mut command = cosplay();
    command.arg("rebuild").arg(spec).arg("--quiet").arg("--out").arg(out);
    command
}

/// Bank tables of a run: rows of every step, whatever the number of the part that they lie in.
fn bank(run: &Path) -> BTreeMap<(String, u64), arrow::array::RecordBatch> {
    let run = RunDir::open(run).unwrap();
    let mut tables = BTreeMap::new();
    for table in BANK {
        let name: TableName = table.parse().unwrap();
        for step in run.steps(name) {
            tables.insert((table.to_owned(), step), run.read_batch(name, step, None).unwrap());
        }
    }
    tables
}

/// An episode that the agent played in `step` and whose segments skills rest on.
fn episode(step: u64) -> EpisodeId {
    let run = RunDir::open(&tiny().path).unwrap();
    let rests: Vec<EpisodeId> =
        run.read_step::<Skill>(4).unwrap().iter().flat_map(|skill| &skill.evidence).map(|segment| segment.episode()).collect();
    let played = run.read_step::<Episode>(step).unwrap();
    played.iter().map(|row| row.episode).find(|episode| rests.contains(episode)).expect("an episode that a skill rests on")
}

#[test]
fn the_rebuilt_bank_is_the_live_one_in_every_step() {
    let folder = TempDir::new().unwrap();
    let outs = ["1", "2"].map(|workers| {
        let out = folder.path().join(workers);
        let ended = end(rebuild(&tiny().path, &out).args(["--workers", workers])).expect(0);
        assert!(ended.stdout.contains("equal to the live bank in every step"), "{}", ended.stdout);
        out
    });
    assert_same_bytes(&outs[0], &outs[1], "rebuilt with two workers");
    let live = bank(&tiny().path);
    assert!(live.len() >= 20);
    assert_eq!(live, bank(&outs[0]));
    let run = RunDir::open(&outs[0]).unwrap();
    assert!(run.steps(TableName::Policies).is_empty() && run.steps(TableName::Decisions).is_empty(), "no model took part");
}

#[test]
fn as_of_an_earlier_step() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("rebuilt");
    end(rebuild(&tiny().path, &out).args(["--at", "2"])).expect(0);
    let live: BTreeMap<_, _> = bank(&tiny().path).into_iter().filter(|((_, step), _)| *step <= 2).collect();
    assert_eq!(live, bank(&out));
    assert_eq!(committed(&out), 3);
    let late = folder.path().join("late");
    end(rebuild(&tiny().path, &late).args(["--at", "5"])).expect(2).one_error().says(&["no step 5", "last stored step is 4"]);
    assert!(!late.exists());
}

#[test]
fn other_settings_make_another_bank_which_is_no_failure() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("rebuilt");
    let ended = end(rebuild(&tiny().path, &out).args(["--set", "graph.bank.min_segments=4", "--set", "graph.rollouts.starts=9"])).expect(0);
    assert!(ended.stdout.contains("made with other settings"), "{}", ended.stdout);
    ended.says(&["--set graph.rollouts.starts=9 has no effect"]);
    assert_eq!(committed(&out), 5);
    assert_ne!(bank(&tiny().path), bank(&out));
}

/// A pile of runs gives one bank. Their episodes share ids, so that the run takes the node's place in them.
#[test]
fn several_runs_give_one_bank() {
    let folder = TempDir::new().unwrap();
    let pile = folder.path().join("pile");
    for (name, from) in [("a", tiny()), ("b", crate::program::swift())] {
        for (path, bytes) in files(&from.path) {
            let path = pile.join(name).join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
    let episodes = |run: &Path, step| -> Vec<Episode> { RunDir::open(run).unwrap().read_step::<Episode>(step).unwrap() };
    let played = |run: &Path, step| episodes(run, step).into_iter().filter(|row| row.node == "rollouts").count();
    let pattern = pile.join("*").display().to_string();
    let mut outs = Vec::new();
    for workers in ["1", "2"] {
        let out = folder.path().join(workers);
        let mut command = rebuild(&fixture("tiny.yaml"), &out);
        let ended = end(command.args(["--rollouts", &pattern, "--at", "1", "--workers", workers])).expect(0);
        assert!(ended.stdout.contains("…00….. come from") && ended.stdout.contains("pile/b"), "{}", ended.stdout);
        outs.push(out);
    }
    assert_same_bytes(&outs[0], &outs[1], "several runs with two workers");
    let rebuilt = episodes(&outs[0], 1);
    assert_eq!(rebuilt.len(), played(&tiny().path, 1) + played(&crate::program::swift().path, 1));
    let one = rebuilt.last().unwrap().episode.to_string();
    let left_out = folder.path().join("left-out");
    end(rebuild(&fixture("tiny.yaml"), &left_out).args(["--rollouts", &pattern, "--at", "1", "--without", &one])).expect(0);
    assert_eq!(episodes(&left_out, 1).len(), rebuilt.len() - 1);
}

#[test]
fn nothing_is_written_into_the_run_that_is_read() {
    let copy = copy(&tiny().path);
    let before = files(copy.path());
    end(&mut rebuild(copy.path(), &copy.path().join("sub"))).expect(2).one_error().says(&["which is read", "--out"]);
    assert!(before == files(copy.path()));
}

/// Writes the run's rollouts without one episode, as loose Parquet files below `folder`.
fn write_without(folder: &Path, without: EpisodeId) {
    let run = RunDir::open(&tiny().path).unwrap();
    fn write<T: Table>(run: &RunDir, folder: &Path, keep: impl Fn(&T) -> bool) -> usize {
        let table: TableName = T::NAME.parse().unwrap();
        let mut removed = 0;
        for step in run.steps(table) {
            let all = run.read_step::<T>(step).unwrap();
            let before = all.len();
            let rows: Vec<T> = all.into_iter().filter(|row| keep(row)).collect();
            removed += before - rows.len();
            let path = folder.join(format!("{table}/step={step:06}/part-0000.parquet"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, parquet_io::encode(&T::to_batch(&rows).unwrap(), &path).unwrap()).unwrap();
        }
        removed
    }
    assert_eq!(write::<Episode>(&run, folder, |row| row.episode != without), 1);
    assert!(write::<Experience>(&run, folder, |row| row.episode != without) > 10);
}

#[test]
fn leaving_an_episode_out_is_as_if_it_had_never_been() {
    for step in [0, 2] {
        let episode = episode(step);
        let folder = TempDir::new().unwrap();
        let (left_out, removed) = (folder.path().join("left-out"), folder.path().join("removed"));
        end(rebuild(&tiny().path, &left_out).args(["--without", &episode.to_string()])).expect(0);
        write_without(folder.path(), episode);
        let glob = format!("{}/experiences/step=*/*.parquet", folder.path().display());
        end(rebuild(&fixture("tiny.yaml"), &removed).args(["--rollouts", &glob])).expect(0);
        assert_eq!(bank(&left_out), bank(&removed));
        assert_ne!(bank(&left_out), bank(&tiny().path), "the episode makes no difference, so nothing was tested");
    }
}

#[test]
fn an_episode_that_is_not_there_cannot_be_left_out() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("rebuilt");
    let teacher = RunDir::open(&tiny().path).unwrap().read_step::<Episode>(0).unwrap();
    let teacher = teacher.iter().find(|row| row.node == "seeds").unwrap().episode.to_string();
    // One that nobody played, and one that no bank was made of.
    for unknown in ["99999999", &teacher] {
        let ended = end(rebuild(&tiny().path, &out).args(["--without", unknown]));
        ended.expect(2).one_error().says(&[&format!("--without {unknown}"), "no such episode", "help:"]);
        assert!(!out.exists(), "a wrong request has made a run directory");
    }
    let late = episode(2).to_string();
    end(rebuild(&tiny().path, &out).args(["--without", &late, "--at", "1"])).expect(2).one_error().says(&["up to step 1"]);
}

#[test]
fn from_loose_files() {
    let loose = copy(&tiny().path);
    std::fs::remove_file(loose.path().join("manifest.json")).unwrap();
    let out = loose.path().join("rebuilt");
    let glob = format!("{}/experiences/step=*/*.parquet", loose.path().display());
    let ended = end(rebuild(&fixture("tiny.yaml"), &out).args(["--rollouts", &glob])).expect(0);
    assert!(ended.stdout.contains("rebuilt") && !ended.stdout.contains("equal"), "{}", ended.stdout);
    assert_eq!(bank(&tiny().path), bank(&out));
}

#[test]
fn rollouts_that_are_not_there_or_damaged_are_named() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("rebuilt");
    let nothing = format!("{}/none/*.parquet", folder.path().display());
    end(rebuild(&fixture("tiny.yaml"), &out).args(["--rollouts", &nothing])).expect(2).one_error().says(&["none/*.parquet"]);
    end(&mut rebuild(&fixture("tiny.yaml"), &out)).expect(2).one_error().says(&["--rollouts"]);
    let damaged = copy(&tiny().path);
    let file = std::fs::read_dir(damaged.path().join("experiences/step=000001")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, "not Parquet").unwrap();
    let ended = end(&mut rebuild(damaged.path(), &out));
    ended.expect(1).one_error().says(&["step 1", "experiences/step=000001/", "restore the file"]);
    assert_eq!(committed(&out), 1);
}

#[test]
fn an_existing_folder_is_not_overwritten() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("rebuilt");
    end(rebuild(&tiny().path, &out).args(["--at", "1"])).expect(0);
    let before = files(&out);
    end(&mut rebuild(&tiny().path, &out)).expect(2).one_error().says(&["holds a run already"]);
    assert!(before == files(&out));
}
