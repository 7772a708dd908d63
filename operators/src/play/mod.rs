//! Playing episodes in lock-step: all live episodes of a thread advance together, so that the model always sees a batch.
//!
//! What an episode does depends on its seed, its random stream, the policy and the bank alone: not on the other episodes of the batch, nor
//! on how episodes are spread over threads and workers.

mod agent;
mod record;
mod tracker;

pub use agent::{Agent, AgentBank, AgentOptions};
pub use record::{EpisodeRecord, Recorder, StepFacts};
pub use tracker::{AgentSkill, SwitchReason, Tracker};

use crate::operator::{NodeContext, OperatorError, random_stream};
use cosplay_datasets::{Decision, Episode, EpisodeId, Experience};
use cosplay_envs::{EnvOptions, Environment, Split};
use rand_chacha::ChaCha8Rng;
use std::thread;

/// An episode to be played.
#[derive(Clone, Debug)]
pub struct EpisodePlan {
    /// Key.
    pub episode: EpisodeId,
    /// Seed of the environment.
    pub seed: u64,
    /// Ordinal of the start state.
    pub group: u32,
    /// Split that the seed was drawn for.
    pub split: Split,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// Rows of `episodes`.
    pub episodes: Vec<Episode>,
    /// Rows of `experiences`.
    pub experiences: Vec<Experience>,
    /// Rows of `decisions`.
    pub decisions: Vec<Decision>,
}

impl Played {
    /// Adds another part's rows.
    pub fn append(&mut self, mut other: Played) {
        self.episodes.append(&mut other.episodes);
        self.experiences.append(&mut other.experiences);
        self.decisions.append(&mut other.decisions);
    }
}

/// Plans `starts` × `per_start` episodes of `split`. Episodes of one start share the environment's seed and form a group.
pub fn plan_episodes(context: &NodeContext, step: u64, split: Split, starts: u32, per_start: u32) -> Vec<EpisodePlan> {
    (0..starts)
        .flat_map(|start| {
            // Every step has starts of its own, so that the agent cannot learn single games by heart.
            let seed = split.seed(context.settings.seed, step * 100_000 + u64::from(start) + (u64::from(context.ordinal) << 40));
            (0..per_start).map(move |repeat| (start, start * per_start + repeat, seed))
        })
        .map(|(group, index, seed)| EpisodePlan { episode: EpisodeId::new(step, context.ordinal, index), seed, group, split })
        .collect()
}

/// Makes the environment of a run.
///
/// # Errors
/// If there is no such game.
pub fn environment(context: &NodeContext) -> Result<Box<dyn Environment>, OperatorError> {
    let settings = &context.settings.env;
    Ok(cosplay_envs::make(&EnvOptions { game: settings.game.clone(), max_steps: settings.max_steps })?)
}

/// Random stream of an episode.
pub fn episode_stream(context: &NodeContext, step: u64, episode: EpisodeId) -> ChaCha8Rng {
    random_stream(context.settings.seed, &context.node, step, episode.0)
}

/// Splits `plans` over `threads` OS threads, plays each part with `play`, and puts the rows together in the order of the plans.
///
/// # Errors
/// The first error of any part.
pub fn on_threads<F>(plans: &[EpisodePlan], threads: usize, play: F) -> Result<Played, OperatorError>
where
    F: Fn(&[EpisodePlan]) -> Result<Played, OperatorError> + Sync,
{
    if plans.is_empty() {
        return Ok(Played::default());
    }
    let parts = plans.chunks(plans.len().div_ceil(threads.max(1)));
    let results: Vec<Result<Played, OperatorError>> = thread::scope(|scope| {
        let handles: Vec<_> = parts.map(|part| scope.spawn(|| play(part))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))).collect()
    });
    let mut all = Played::default();
    for result in results {
        all.append(result?);
    }
    Ok(all)
}
