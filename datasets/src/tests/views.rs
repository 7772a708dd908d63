//! Polars views: no copies, SQL over runs, and results as text.

use super::{cuts, episodes, experiences, metrics};
use crate::manifest::RunHeader;
use crate::registry::TableName;
use crate::render;
use crate::run_dir::RunDir;
use crate::table::Table;
use crate::tables::{Cut, Episode, Experience, Metric};
use crate::views::{SqlRun, to_polars};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, UInt64Type};
use polars::prelude::{AnyValue, DataType};

#[test]
fn values_are_shared_with_the_batch() {
    let batch = Experience::to_batch(&experiences(1)).unwrap();
    let frame = to_polars(&batch).unwrap();
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let episodes = frame.column("episode").unwrap().u64().unwrap().cont_slice().unwrap();
    assert_eq!(column("episode").as_primitive::<UInt64Type>().values().as_ptr(), episodes.as_ptr());
    let rewards = frame.column("reward").unwrap().f64().unwrap().cont_slice().unwrap();
    assert_eq!(column("reward").as_primitive::<Float64Type>().values().as_ptr(), rewards.as_ptr());
    let (ours, theirs) = (column("observation").as_string_view(), frame.column("observation").unwrap());
    let long = (0..ours.len()).find(|&row| ours.value(row).len() > 12).unwrap();
    assert_eq!(ours.value(long).as_ptr(), theirs.str().unwrap().get(long).unwrap().as_ptr());
    assert_eq!(theirs.dtype(), &DataType::String);
    assert_eq!(frame.column("predicates").unwrap().dtype(), &DataType::List(Box::new(DataType::String)));
}

#[test]
fn a_frame_outlives_its_batch_and_a_batch_its_frame() {
    let rows = experiences(2);
    let batch = Experience::to_batch(&rows).unwrap();
    let frame = to_polars(&batch).unwrap();
    drop(batch);
    let observations = frame.column("observation").unwrap().str().unwrap();
    assert!(observations.iter().zip(&rows).all(|(found, row)| found == Some(row.observation.as_str())));
    let batch = Experience::to_batch(&rows).unwrap();
    let (first, second) = (to_polars(&batch).unwrap(), to_polars(&batch.slice(3, 9)).unwrap());
    drop(first);
    assert_eq!(second.column("t").unwrap().u32().unwrap().get(0), Some(rows[3].t));
    drop(second);
    assert_eq!(Experience::from_batch(&batch).unwrap(), rows);
}

fn run(steps: u64) -> (tempfile::TempDir, RunDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut run = RunDir::create(&folder.path().join("run"), "", RunHeader::default()).unwrap();
    for step in 0..steps {
        commit(&mut run, step);
    }
    (folder, run)
}

fn commit(run: &mut RunDir, step: u64) {
    let tables = vec![
        (TableName::Experiences, Experience::to_batch(&experiences(step)).unwrap()),
        (TableName::Episodes, Episode::to_batch(&episodes(step)).unwrap()),
        (TableName::Metrics, Metric::to_batch(&metrics(step)).unwrap()),
        (TableName::Cuts, Cut::to_batch(&cuts(step)).unwrap()),
    ];
    run.commit_step(step, tables).unwrap();
}

fn json(sql: &SqlRun, statement: &str) -> String {
    render::json_lines(&sql.query(statement).unwrap())
}

#[test]
fn sql_sees_all_tables_with_their_step() {
    let (_folder, run) = run(3);
    let sql = SqlRun::open(run.path()).unwrap();
    assert_eq!(
        json(&sql, "SELECT step, count(*) AS n FROM experiences GROUP BY step ORDER BY step"),
        "{\"step\":0,\"n\":35}\n{\"step\":1,\"n\":35}\n{\"step\":2,\"n\":35}\n"
    );
    assert_eq!(json(&sql, "SELECT max(\"return\") AS best FROM episodes WHERE step = 1"), "{\"best\":401.0}\n");
    let joined = "SELECT e.step, count(*) AS n FROM experiences e JOIN episodes p ON e.episode = p.episode WHERE p.length = 7 AND e.done GROUP BY e.step ORDER BY e.step LIMIT 1";
    assert_eq!(json(&sql, joined), "{\"step\":0,\"n\":5}\n");
    assert_eq!(json(&sql, "SELECT signals FROM cuts WHERE step = 2"), "{\"signals\":[\"event\",\"reward\"]}\n");
    assert_eq!(json(&sql, "SELECT count(*) AS n FROM skills"), "{\"n\":0}\n");
    assert_eq!(sql.query("SELECT * FROM experiences").unwrap().width(), Experience::columns().len() + 1);
    assert!(json(&sql, "SHOW TABLES").contains("bank_events"));
    assert_eq!(sql.query("SELECT step FROM metrics").unwrap().column("step").unwrap().dtype(), &DataType::UInt32);
}

#[test]
fn sql_works_while_the_run_goes_on() {
    let (_folder, mut run) = run(0);
    let count = "SELECT count(*) AS n FROM metrics";
    assert_eq!(json(&SqlRun::open(run.path()).unwrap(), count), "{\"n\":0}\n");
    commit(&mut run, 0);
    assert_eq!(json(&SqlRun::open(run.path()).unwrap(), count), "{\"n\":3}\n");
}

#[test]
fn the_same_query_gives_the_same_text() {
    let (_folder, run) = run(3);
    let sql = SqlRun::open(run.path()).unwrap();
    let query = "SELECT action, avg(reward) AS mean FROM experiences GROUP BY action ORDER BY action";
    let first = json(&sql, query);
    assert!((0..5).all(|_| json(&sql, query) == first));
}

fn error(sql: &str) -> String {
    let (_folder, run) = run(1);
    SqlRun::new(run).query(sql).unwrap_err().to_string()
}

#[test]
fn unknown_names_are_answered_with_the_known_ones() {
    let message = error("SELECT * FROM experience");
    assert!(message.contains("did you mean `experiences`?") && message.contains("bank_events"), "{message}");
    let message = error("SELECT rewrd FROM experiences");
    assert!(message.contains("did you mean `reward`?") && message.contains("surprisal"), "{message}");
    let message = error("SELECT episode FROM experiences WHERE rewrd > 1");
    assert!(message.contains("did you mean `reward`?"), "{message}");
    let message = error("SELECT nothing_like_it FROM episodes");
    assert!(message.starts_with("no column is called `nothing_like_it`; the columns are bank_version"), "{message}");
    let message = error("SELECT step, group FROM episodes");
    assert!(message.contains("needs quotes: \"group\""), "{message}");
}

#[test]
fn nonsense_is_an_error() {
    for sql in [
        "",
        ";",
        "SELECT",
        "SELEC 1",
        "SELECT 1; SELECT 2",
        "'",
        "\"",
        "SELECT '\u{1F3B2}",
        "/*",
        "SELECT \"ü",
        "SELECT * FROM read_csv('/etc/passwd')",
        "UPDATE metrics SET value = 0",
    ] {
        assert!(!error(sql).is_empty(), "{sql}");
    }
}

#[test]
fn tables_fit_the_width_and_show_control_characters() {
    let (_folder, run) = run(2);
    let sql = SqlRun::new(run);
    let frame = sql.query("SELECT step, name, value FROM metrics ORDER BY step, name").unwrap();
    let expected = "\
step  name       value
────  ─────────  ─────
   0  action.kl    0.0
   0  grad_norm    1.5
   0  nan          NaN
   1  action.kl   0.01
(4 of 6 rows)
";
    assert_eq!(render::table(&frame, 80, 4), expected);
    let wide = sql.query("SELECT episode, observation, predicates, valid_actions FROM experiences").unwrap();
    let text = render::table(&wide, 60, 100);
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    assert!(text.contains('…') && text.ends_with("(70 rows)\n"), "{text}");
    let rows = [Metric { node: "\u{1b}[31mred\nline".into(), name: "a,\"b\"\n".into(), value: 0.5 }];
    let frame = to_polars(&Metric::to_batch(&rows).unwrap()).unwrap();
    let text = render::table(&frame, 80, 10);
    assert!(!text.contains('\u{1b}') && text.contains("\\nline") && text.ends_with("(1 row)\n"), "{text}");
}

#[test]
fn json_and_csv_hold_every_value() {
    let rows = [
        Metric { node: "\u{1b}é".into(), name: "a,\"b\"\n".into(), value: 0.1 },
        Metric { node: String::new(), name: " x".into(), value: f64::INFINITY },
    ];
    let frame = to_polars(&Metric::to_batch(&rows).unwrap()).unwrap();
    assert_eq!(
        render::json_lines(&frame),
        "{\"node\":\"\\u001bé\",\"name\":\"a,\\\"b\\\"\\n\",\"value\":0.1}\n{\"node\":\"\",\"name\":\" x\",\"value\":null}\n"
    );
    assert_eq!(render::csv(&frame), "node,name,value\n\u{1b}é,\"a,\"\"b\"\"\n\",0.1\n\"\",\" x\",inf\n");
    let (_folder, run) = run(1);
    let frame = SqlRun::new(run).query("SELECT episode, t, done, predicates, skill FROM experiences ORDER BY episode, t LIMIT 2").unwrap();
    assert_eq!(render::csv(&frame), "episode,t,done,predicates,skill\n0,0,false,[],\n0,1,false,\"[\"\"\"\"]\",1\n");
    assert_eq!(
        render::json_lines(&frame),
        "{\"episode\":0,\"t\":0,\"done\":false,\"predicates\":[],\"skill\":null}\n{\"episode\":0,\"t\":1,\"done\":false,\"predicates\":[\"\"],\"skill\":1}\n"
    );
    let large = to_polars(&Episode::to_batch(&[Episode { seed: u64::MAX, ..Episode::default() }]).unwrap()).unwrap();
    assert!(matches!(large.column("seed").unwrap().get(0), Ok(AnyValue::UInt64(u64::MAX))));
    assert!(render::json_lines(&large).contains("\"seed\":18446744073709551615,"));
}
