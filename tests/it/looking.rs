//! Looking into a run: what is printed is what the tables hold, results on stdout and all else on stderr.

use crate::program::{Ended, cosplay, end, files, fixture, run_tiny, shipped, tiny};
use cosplay_datasets::{Clause, Episode, RunDir, Segment, SegmentId, Skill, TableName};
use cosplay_models::{Adapter, Model};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use tempfile::TempDir;

fn run() -> RunDir {
    RunDir::open(&tiny().path).unwrap()
}

/// Skills after the last step.
fn skills() -> Vec<Skill> {
    run().read_step::<Skill>(4).unwrap()
}

/// `cosplay COMMAND RUN …`
fn look(command: &[&str], rest: &[&str]) -> Ended {
    end(cosplay().args(command).arg(&tiny().path).args(rest))
}

/// Fails the test unless the command succeeded and said nothing but its result.
#[track_caller]
fn result(ended: Ended) -> String {
    let ended = ended.expect(0);
    assert_eq!(ended.stderr, "", "something besides the result");
    assert!(!ended.stdout.trim().is_empty());
    ended.stdout
}

#[test]
fn bank_lists_every_skill_with_its_contract() {
    for step in [1, 4] {
        let text = result(look(&["bank"], &["--at", &step.to_string()]));
        let skills = run().read_step::<Skill>(step).unwrap();
        let active = skills.iter().filter(|skill| skill.state == "active").count();
        assert!(text.contains(&format!("{active} active skills, {} retired", skills.len() - active)), "{text}");
        for skill in &skills {
            let line = text.lines().find(|line| line.contains(&skill.name)).unwrap_or_else(|| panic!("{} is not in\n{text}", skill.name));
            assert!(line.contains(&skill.state));
            let literals = skill.adds.iter().map(|name| format!("+{name}")).chain(skill.deletes.iter().map(|name| format!("-{name}")));
            for literal in literals.chain(skill.events.iter().cloned()) {
                assert!(line.split_whitespace().any(|word| word == literal), "{literal} is not in {line}");
            }
        }
    }
}

#[test]
fn bank_shows_all_parts_of_a_skill_by_id_and_by_name() {
    for skill in skills() {
        let by_id = result(look(&["bank"], &[&skill.skill.to_string()]));
        assert_eq!(by_id, result(look(&["bank"], &[&skill.name])));
        for part in
            [&skill.summary, &skill.name, &skill.state].into_iter().chain(&skill.preconditions).chain(&skill.plan).chain(&skill.success)
        {
            assert!(by_id.contains(part.as_str()), "`{part}` is not in\n{by_id}");
        }
    }
}

#[test]
fn an_unknown_skill_gets_the_nearest_name() {
    let name = &skills()[0].name;
    let mut typo = name.clone();
    typo.remove(2);
    look(&["bank"], &[&typo]).expect(2).one_error().says(&[&format!("no skill `{typo}`"), &format!("nearest name is `{name}`")]);
    look(&["bank", "why"], &[&typo]).expect(2).one_error().says(&[name]);
    look(&["bank"], &["77"]).expect(2).one_error().says(&["no skill `77`"]);
    look(&["bank"], &["--at", "9"]).expect(2).one_error().says(&["last complete step is 4"]);
}

#[test]
fn diff_tells_what_two_steps_differ_in() {
    let by_id = |step| run().read_step::<Skill>(step).unwrap().into_iter().map(|skill| (skill.skill, skill)).collect::<BTreeMap<_, _>>();
    for (from, to) in [(0, 2), (2, 4), (1, 2)] {
        let text = result(look(&["bank", "diff"], &[&from.to_string(), &to.to_string()]));
        let (before, after) = (by_id(from), by_id(to));
        for (id, skill) in &after {
            let line = text.lines().find(|line| line.get(2..).is_some_and(|rest| rest.starts_with(&format!("{id} {}:", skill.name))));
            let contract = |skill: &Skill| (skill.adds.clone(), skill.deletes.clone(), skill.events.clone());
            match before.get(id) {
                None => assert!(line.is_some_and(|line| line.starts_with('+')), "{id} is new:\n{text}"),
                Some(old) if old.state != skill.state || old.version != skill.version || contract(old) != contract(skill) => {
                    assert!(line.is_some_and(|line| line.starts_with('~')), "{id} has changed:\n{text}");
                }
                Some(_) => assert_eq!(line, None, "{id} has not changed:\n{text}"),
            }
        }
    }
    assert!(result(look(&["bank", "diff"], &["3", "3"])).contains("no skill was added, changed or retired"));
    look(&["bank", "diff"], &["3", "8"]).expect(2).one_error();
}

/// Latest row of every segment up to a step.
fn segments(step: u64) -> BTreeMap<SegmentId, Segment> {
    let rows = run().read_all::<Segment>().unwrap();
    rows.into_iter().filter(|(at, _)| *at <= step).map(|(_, row)| (row.segment, row)).collect()
}

/// Segments that `bank why` lists under each clause, and how many more it says there are.
fn listed(text: &str) -> BTreeMap<String, (Vec<SegmentId>, usize)> {
    let mut clauses: BTreeMap<String, (Vec<SegmentId>, usize)> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if line.contains("accepted:") && !line.starts_with(' ') {
            current = line.split_whitespace().next().unwrap().to_owned();
            clauses.entry(current.clone()).or_default();
        } else if let Some(rest) = line.strip_prefix("  segment ") {
            clauses.get_mut(&current).unwrap().0.push(SegmentId(rest.split_whitespace().next().unwrap().parse().unwrap()));
        } else if let Some(rest) = line.strip_prefix("  … and ") {
            clauses.get_mut(&current).unwrap().1 = rest.split_whitespace().next().unwrap().parse().unwrap();
        }
    }
    clauses
}

fn spell(clause: &Clause) -> String {
    match clause.effect.as_str() {
        "add" => format!("+{}", clause.literal),
        "delete" => format!("-{}", clause.literal),
        _ => clause.literal.clone(),
    }
}

#[test]
fn why_lists_exactly_the_segments_that_a_clause_rests_on() {
    let mut seen = 0;
    for step in [2, 4] {
        let segments = segments(step);
        let clauses = run().read_step::<Clause>(step).unwrap();
        for skill in run().read_step::<Skill>(step).unwrap() {
            if clauses.iter().all(|row| row.skill != skill.skill) {
                continue; // explained by what made it
            }
            let text = result(look(&["bank", "why"], &[&skill.skill.to_string(), "--at", &step.to_string()]));
            let listed = listed(&text);
            let accepted: Vec<&Clause> = clauses.iter().filter(|row| row.skill == skill.skill && row.accepted).collect();
            assert_eq!(listed.keys().cloned().collect::<BTreeSet<_>>(), accepted.iter().map(|row| spell(row)).collect::<BTreeSet<_>>());
            for clause in accepted {
                let (rests, more) = &listed[&spell(clause)];
                assert_eq!(rests.len() + more, (clause.support + clause.holdout_support) as usize, "{} of {}", spell(clause), skill.name);
                for id in rests {
                    let segment = segments.get(id).expect("a listed segment exists");
                    let effects = match clause.effect.as_str() {
                        "add" => &segment.added,
                        "delete" => &segment.deleted,
                        _ => &segment.events,
                    };
                    assert!(effects.contains(&clause.literal), "segment {id} has no {}", spell(clause));
                    assert_eq!(segment.skill, Some(skill.skill), "segment {id}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} segments were listed");
}

#[test]
fn why_of_one_clause_and_of_one_that_is_not_there() {
    let clauses = run().read_step::<Clause>(4).unwrap();
    let clause = clauses.iter().find(|row| row.accepted && row.effect == "add").unwrap();
    let text = result(look(&["bank", "why"], &[&clause.skill.to_string(), &spell(clause)]));
    assert_eq!(listed(&text).into_keys().collect::<Vec<_>>(), [spell(clause)]);
    look(&["bank", "why"], &[&clause.skill.to_string(), "+wings"]).expect(2).one_error().says(&["no clause `+wings`", &spell(clause)]);
}

#[test]
fn queries_see_all_rows() {
    for table in TableName::ALL {
        let rows: u64 = run().manifest().files().filter(|file| file.table() == table.as_str()).map(|file| file.rows).sum();
        let text = result(look(&["query"], &[&format!("SELECT COUNT(*) AS n FROM {table}"), "--format", "csv"]));
        assert_eq!(text, format!("n\n{rows}\n"), "{table}");
    }
    let json = result(look(&["query"], &["SELECT step, episode, return FROM episodes ORDER BY episode", "--format", "json"]));
    let rows: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let episodes = run().read_all::<Episode>().unwrap();
    assert_eq!(rows.len(), episodes.len());
    for (row, (step, episode)) in rows.iter().zip(&episodes) {
        assert_eq!((row["step"].as_u64(), row["episode"].as_u64()), (Some(*step), Some(episode.episode.0)));
        assert_eq!(row["return"].as_f64(), Some(episode.ret));
    }
    let csv = result(look(&["query"], &["SELECT name, summary FROM skills WHERE step = 4 ORDER BY skill", "--format", "csv"]));
    assert_eq!(csv.lines().count(), 1 + skills().len());
    assert!(result(look(&["query"], &["SELECT step, AVG(return) AS mean FROM episodes GROUP BY step ORDER BY step"])).contains("(5 rows)"));
}

#[test]
fn wrong_queries_say_what_there_is() {
    look(&["query"], &["SELECT * FROM episode"]).expect(2).one_error().says(&["episode", "episodes"]);
    look(&["query"], &["SELECT retrun FROM episodes"]).expect(2).one_error().says(&["retrun"]);
    look(&["query"], &["SELEKT 1"]).expect(2).one_error();
    let nowhere = end(cosplay().args(["query", "no/such/run", "SELECT 1"]));
    nowhere.expect(2).one_error().says(&["no/such/run", "not a run directory"]);
}

#[test]
fn eval_compares_with_everything_that_it_should() {
    let ended = look(&["eval"], &["--episodes", "4", "--validation", "2", "--json"]).expect(0);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let key = |row: &serde_json::Value| {
        let text = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
        format!("{}|{}|{}", text("policy"), text("bank"), text("decoding").split('=').next().unwrap())
    };
    let found: BTreeSet<String> = rows.iter().map(key).collect();
    assert_eq!(found.len(), rows.len(), "a row twice");
    for policy in ["random", "fixed_priority", "greedy_merge", "monotone", "linear", "expectimax", "teacher (greedy_merge, 30 % random)"] {
        assert!(found.contains(&format!("{policy}|-|-")), "{policy} is not in {found:?}");
    }
    for decoding in ["T", "best T", "greedy"] {
        assert!(found.contains(&format!("untrained|-|{decoding}")), "{found:?}");
        for (policy, bank) in
            ["cold start", "co-evolved"].into_iter().flat_map(|policy| ["none", "first", "final"].map(|bank| (policy, bank)))
        {
            assert!(found.contains(&format!("{policy}|{bank}|{decoding}")), "{policy} with bank {bank}, {decoding}: {found:?}");
        }
    }
    for row in rows {
        assert!(
            row["mean"].as_f64().unwrap() > 0.0 && row["half_width"].as_f64().is_some() && row["against_cold_start"].is_array(),
            "{row}"
        );
    }
    let again = look(&["eval"], &["--episodes", "4", "--validation", "2", "--json"]).expect(0);
    assert_eq!(ended.stdout, again.stdout, "the same seeds give the same report");
    look(&["eval"], &["--episodes", "1"]).expect(2).one_error();
}

#[test]
fn exported_adapters_load_back_as_they_were_trained() {
    let folder = TempDir::new().unwrap();
    let ended = end(cosplay().args(["export", "adapters"]).arg(&tiny().path).arg("--out").arg(folder.path())).expect(0);
    assert_eq!(ended.stdout.lines().count(), 3, "{}", ended.stdout);
    let base = Model::load_base(&folder.path().join("base")).unwrap();
    let rows = run().read_step::<cosplay_datasets::PolicyTensor>(4).unwrap();
    for name in ["action", "retrieval"] {
        let path = folder.path().join(name);
        let config: serde_json::Value = serde_json::from_slice(&std::fs::read(path.join("adapter_config.json")).unwrap()).unwrap();
        assert_eq!(
            (config["peft_type"].as_str(), config["r"].as_u64(), config["lora_alpha"].as_f64()),
            (Some("LORA"), Some(16), Some(32.0))
        );
        let adapter = Adapter::load(&path, base.config()).unwrap();
        let part = format!("adapter.{name}");
        let trained: BTreeMap<&str, &Vec<f32>> =
            rows.iter().filter(|row| row.part == part).map(|row| (row.tensor.as_str(), &row.weights)).collect();
        let loaded: BTreeMap<&str, &Vec<f32>> = adapter.tensors().map(|tensor| (tensor.name.as_str(), &tensor.data)).collect();
        assert_eq!(loaded, trained);
        base.with_adapter(name, adapter).unwrap();
    }
    let first = folder.path().join("first");
    end(cosplay().args(["export", "adapters"]).arg(&tiny().path).args(["--at", "0", "--out"]).arg(&first)).expect(0);
    assert!(files(&first)["action/adapter_model.safetensors"] != files(folder.path())["action/adapter_model.safetensors"]);
    let late = end(cosplay().args(["export", "adapters"]).arg(&tiny().path).args(["--at", "7", "--out"]).arg(&first));
    late.expect(2).one_error().says(&["last complete step is 4"]);
}

#[test]
fn references_print_to_stdout() {
    let plan = result(end(cosplay().arg("plan").arg(shipped("2048.yaml"))));
    assert!(["rollouts", "maintain_bank", "grpo_update"].iter().all(|word| plan.contains(word)));
    assert!(result(end(cosplay().args(["plan", "--mermaid"]).arg(fixture("tiny.yaml")))).contains("flowchart"));
    serde_json::from_str::<serde_json::Value>(&result(end(cosplay().arg("schema")))).unwrap();
    let operators: serde_json::Value = serde_json::from_str(&result(end(cosplay().args(["ops", "--json"])))).unwrap();
    assert!(operators.to_string().contains("infer_segmentation"));
    assert!(result(end(cosplay().args(["ops", "rollout"]))).contains("episodes_per_start"));
    assert!(result(end(cosplay().args(["envs"]))).contains("2048"));
    assert!(result(end(cosplay().args(["envs", "2048"]))).contains("max_in_corner"));
    for (command, wrong) in [("ops", "rolout"), ("envs", "2049")] {
        end(cosplay().args([command, wrong])).expect(2).one_error().says(&[wrong]);
    }
    assert!(end(cosplay().arg("--help")).expect(0).stdout.contains("cosplay run"));
    end(cosplay().arg("frobnicate")).expect(2).one_error();
}

#[test]
fn the_plan_as_yaml_is_the_spec_that_a_run_keeps() {
    let yaml = result(end(cosplay().args(["plan", "--yaml"]).arg(fixture("tiny.yaml"))));
    assert_eq!(yaml, std::fs::read_to_string(tiny().path.join("spec.yaml")).unwrap());
}

#[test]
fn a_wrong_spec_is_one_kind_of_error_and_makes_nothing() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let ended = end(run_tiny(&out).args(["--set", "graph.rollouts.startz=2"])).expect(2);
    assert!(ended.stderr.starts_with("error: ") && !ended.stderr.contains("error: error"), "{}", ended.stderr);
    assert!(ended.stderr.contains("startz") && ended.stderr.contains("starts"));
    assert!(ended.stdout.is_empty() && !out.exists());
}

#[test]
fn a_run_says_where_it_stands_on_stderr_alone() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let ended = end(cosplay().arg("run").arg(fixture("swift.yaml")).arg("--out").arg(&out)).expect(0);
    assert_eq!(ended.stdout, "");
    let last = ended.stderr.lines().find(|line| line.starts_with("step 3/3")).expect("a line a step");
    for figure in ["return ", "KL ", "entropy ", " skills · ", "skills used ", " tokens/s", " left"] {
        assert!(last.contains(figure), "`{figure}` is not in {last}");
    }
    ended.says(&["step 1/3", "baselines", "accepted proposals", "cosplay eval", "cosplay bank"]);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let path = tiny().path.to_str().unwrap();
    let commands: [&[&str]; 8] = [
        &["bank", path],
        &["bank", "why", path, "2"],
        &["query", path, "SELECT * FROM experiences", "--format", "json"],
        &["query", path, "SELECT * FROM episodes"],
        &["schema"],
        &["ops"],
        &["envs", "2048"],
        &["--help"],
    ];
    for command in commands {
        let mut child = cosplay().args(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""), "{command:?}");
    }
}

/// A skill of the step that made it has no clauses yet, and a retired one has none any more: both rest on evidence all the same.
#[test]
fn why_explains_new_and_retired_skills_too() {
    let run = run();
    let (mut new, mut retired) = (0, 0);
    for step in 0..5 {
        let clauses = run.read_step::<Clause>(step).unwrap();
        for skill in run.read_step::<Skill>(step).unwrap() {
            let has_rows = clauses.iter().any(|row| row.skill == skill.skill);
            let text = result(look(&["bank", "why"], &[&skill.skill.to_string(), "--at", &step.to_string()]));
            assert!(text.contains("such as "), "no evidence is named\n{text}");
            if !has_rows && skill.created == step as u32 {
                new += 1;
                assert!(text.contains(&format!("made in step {step}")) && text.contains("  segment "), "{text}");
            } else if skill.state == "retired" {
                retired += usize::from(text.contains("clauses as of step"));
            }
        }
    }
    assert!(new > 3 && retired > 0, "{new} new and {retired} retired skills were explained");
}

/// An unquoted word of SQL cuts a statement short, after which other names are not found.
#[test]
fn reserved_words_get_the_hint_to_quote_them() {
    let ended = look(&["query"], &["select step, end from segments"]).expect(2).one_error().says(&["needs quotes", "\"end\""]);
    assert!(!ended.stderr.contains("did you mean `step`"), "{}", ended.stderr);
    result(look(&["query"], &["select step, \"end\" from segments limit 2"]));
}
