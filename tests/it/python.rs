//! Python's Polars reads every table by glob, with the step as a hive column.

use crate::program::tiny;
use cosplay_datasets::RunDir;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;

/// Prints a line for each table: its name, and the rows of each step.
const SCRIPT: &str = r#"
import pathlib, sys
import polars as pl
run = pathlib.Path(sys.argv[1])
for folder in sorted(run.iterdir()):
    if folder.is_dir():
        frame = pl.scan_parquet(str(folder / "step=*" / "*.parquet"), hive_partitioning=True).collect()
        counts = frame.group_by("step").len().sort("step")
        print(folder.name, *[f"{step}:{rows}" for step, rows in counts.iter_rows()])
"#;

#[test]
fn polars_reads_every_table_by_glob() {
    let python = |arguments: &[&str]| Command::new("python3").args(arguments).output();
    if !python(&["-c", "import polars"]).is_ok_and(|output| output.status.success()) {
        // Past the harness, which keeps the output of tests that pass to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: python::polars_reads_every_table_by_glob needs python3 with the package polars");
        return;
    }
    let output = python(&["-c", SCRIPT, tiny().path.to_str().unwrap()]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut expected: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    for step in &RunDir::open(&tiny().path).unwrap().manifest().steps {
        for file in &step.files {
            let rows = expected.entry(file.table().to_owned()).or_default();
            if file.rows > 0 {
                *rows.entry(step.step).or_default() += file.rows;
            }
        }
    }
    let lines: Vec<String> = expected
        .iter()
        .map(|(table, steps)| {
            [table.clone()].into_iter().chain(steps.iter().map(|(step, rows)| format!("{step}:{rows}"))).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim().lines().collect::<Vec<_>>(), lines);
}
