//! What must hold of tables, files, runs and queries.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod parquet_io;
mod run_dir;
mod stored;
mod tables;
mod views;

use crate::ids::{EpisodeId, SkillId};
use crate::tables::{Cut, Episode, Experience, Metric};

/// A folder for tests that sync a thousand times: in memory where the system has such a place.
fn fast_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A few episodes' experiences, with texts of all kinds.
fn experiences(step: u64) -> Vec<Experience> {
    let texts = ["", "left", "größer ≥ 2048 🎲", "a longer text that does not fit into the twelve bytes of a view"];
    let row = |index: u32, t: u32| Experience {
        episode: EpisodeId::new(step, 0, index),
        t,
        observation: format!("{}|{}", texts[(index + t) as usize % 4], texts[t as usize % 4].repeat(t as usize)),
        summary: texts[t as usize % 4].to_owned(),
        predicates: texts.iter().take(t as usize % 4).map(|text| (*text).to_owned()).collect(),
        valid_actions: vec!["left".to_owned(), "up".to_owned()],
        action: "left".to_owned(),
        reward: f64::from(t) * 0.1,
        done: t == 6,
        next_observation: (t == 6).then(|| "end".to_owned()),
        skill: (t % 2 == 1).then_some(SkillId(t)),
        surprisal: (t % 3 == 1).then_some(0.25),
        ..Experience::default()
    };
    (0..5).flat_map(|index| (0..7).map(move |t| row(index, t))).collect()
}

fn episodes(step: u64) -> Vec<Episode> {
    let row = |index| Episode {
        episode: EpisodeId::new(step, 0, index),
        node: "rollouts".to_owned(),
        env: "2048".to_owned(),
        ret: 100.0 * f64::from(index) + step as f64,
        length: 7,
        ..Episode::default()
    };
    (0..5).map(row).collect()
}

fn metrics(step: u64) -> Vec<Metric> {
    let row = |name: &str, value| Metric { node: "update".to_owned(), name: name.to_owned(), value };
    vec![row("action.kl", 0.01 * step as f64), row("grad_norm", 1.5), row("nan", f64::NAN)]
}

fn cuts(step: u64) -> Vec<Cut> {
    vec![Cut { episode: EpisodeId::new(step, 0, 1), t: 3, score: 0.5, signals: vec!["event".to_owned(), "reward".to_owned()] }]
}
