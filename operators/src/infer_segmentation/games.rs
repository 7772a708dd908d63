//! Boundary proposal and segmentation on real episodes of 2048.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::type_complexity)]

use super::{Config, Labels, infer_segmentation};
use crate::propose_boundaries::{self, propose_boundaries};
use cosplay_datasets::tables::{Experience, Segment, Skill};
use cosplay_datasets::{EpisodeId, SkillId};
use cosplay_envs::{EnvInfo, EnvOptions, Player};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

fn env() -> EnvInfo {
    cosplay_envs::make(&EnvOptions { game: "2048".into(), max_steps: None }).unwrap().info().clone()
}

/// Episodes of at most 200 steps, played by greedy merging with 30 % random moves.
fn play(episodes: u32) -> Vec<Experience> {
    let mut env = cosplay_envs::make(&EnvOptions { game: "2048".into(), max_steps: Some(200) }).unwrap();
    let info = env.info().clone();
    let names = |set| info.names(set).into_iter().map(str::to_owned).collect::<Vec<String>>();
    let player = Player(0);
    let mut rows = Vec::new();
    for index in 0..episodes {
        let mut policy = cosplay_envs::policy("2048", "greedy_merge", 0.3).unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(u64::from(index));
        env.reset(u64::from(index)).unwrap();
        for t in 0.. {
            let view = env.view(player).unwrap();
            let choice = policy.choose(env.as_ref(), player, &view, &mut random);
            let step = env.step(&[(player, choice)]).unwrap();
            rows.push(Experience {
                episode: EpisodeId::new(0, 0, index),
                t,
                predicates: names(view.predicates),
                next_predicates: names(env.state_predicates(player)),
                events: names(step.events),
                reward: step.rewards[0],
                done: step.done,
                intention_tag: view.intention.tag.to_string(),
                surprisal: Some(1.0),
                ..Experience::default()
            });
            if step.done {
                break;
            }
        }
    }
    rows
}

/// Skills whose contracts are the most frequent pairs of effects of these segments.
fn bank(segments: &[Segment], count: usize) -> Vec<Skill> {
    let mut counted: std::collections::BTreeMap<(Vec<String>, Vec<String>, Vec<String>), Vec<&Segment>> = Default::default();
    for segment in segments {
        let first = |names: &[String]| names.iter().take(2).cloned().collect::<Vec<_>>();
        counted.entry((first(&segment.added), first(&segment.deleted), segment.events.clone())).or_default().push(segment);
    }
    let mut ranked: Vec<_> = counted.into_iter().filter(|((adds, deletes, _), _)| !adds.is_empty() || !deletes.is_empty()).collect();
    ranked.sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
    let skill = |(index, ((adds, deletes, events), members)): (usize, ((Vec<String>, Vec<String>, Vec<String>), Vec<&Segment>))| Skill {
        skill: SkillId(index as u32 + 1),
        state: "active".into(),
        tag: members[0].tag.clone(),
        adds,
        deletes,
        events,
        instances: members.len() as u32,
        duration: 12.0,
        duration_spread: 5.0,
        ..Skill::default()
    };
    ranked.into_iter().take(count).enumerate().map(skill).collect()
}

fn mean_length(segments: &[Segment]) -> f64 {
    segments.iter().map(|segment| f64::from(segment.end - segment.start)).sum::<f64>() / segments.len() as f64
}

#[test]
fn episodes_of_2048_fall_into_segments_of_eight_to_twenty_steps() {
    let rows = play(64);
    let cuts = propose_boundaries(&rows, &propose_boundaries::Config::default());
    let config = Config::default();
    let fresh = infer_segmentation(&rows, &cuts, &Labels::new(&[], &env(), &config).unwrap(), &config).unwrap();
    let with_bank = infer_segmentation(&rows, &cuts, &Labels::new(&bank(&fresh, 12), &env(), &config).unwrap(), &config).unwrap();
    let explained = with_bank.iter().filter(|segment| segment.skill.is_some()).count() as f64 / with_bank.len() as f64;
    let mut lengths: Vec<u32> = fresh.iter().map(|segment| segment.end - segment.start).collect();
    lengths.sort_unstable();
    let decile = |tenth: usize| lengths[lengths.len() * tenth / 10];
    let figures = format!(
        "{} steps, {} cuts, {} segments of {:.1} steps (deciles {} {} {}), with a bank of 12: {:.1} steps, {:.0} % explained",
        rows.len(),
        cuts.len(),
        fresh.len(),
        mean_length(&fresh),
        decile(1),
        decile(5),
        decile(9),
        mean_length(&with_bank),
        100.0 * explained
    );
    println!("{figures}");
    assert!((8.0..=20.0).contains(&mean_length(&fresh)), "{figures}");
    assert!((8.0..=20.0).contains(&mean_length(&with_bank)), "{figures}");
    assert!((0.1..0.9).contains(&explained), "{figures}");
}
