//! Segmentation: which of the candidate boundaries are real, and which skill explains each segment (paper section 4.2).
//!
//! Labels are the active skills of the bank and NEW. A stretch is scored under a skill by how far its effects are those that the skill's
//! contract promises, by the skill's support, by the intentions stated on the way, and by its length; NEW gets a constant score, so that
//! a skill has to explain a stretch to win it. Exact segmental Viterbi ([`crate::viterbi`]) finds the best cuts and labels together.
//! Each episode is segmented on its own.
//!
//! The operator also passes on what bank maintenance has relabelled: a relabelled segment appears again as a row of `segments`.

use crate::dataflow::routing::worker_of_episode;
use crate::kind::Kind;
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, Port, Routing, Schedule};
use crate::registry::{ConfigProblem, OperatorInfo, configuration, resolve};
use cosplay_datasets::tables::{Cut, Experience, Relabel, Segment, Skill};
use cosplay_datasets::{EpisodeId, SegmentId, TableName};
use cosplay_envs::{EnvInfo, EnvOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod episode;
mod labels;

pub use labels::Labels;

/// Name of the operator.
const NAME: &str = "infer_segmentation";

/// Configuration of `infer_segmentation`. Constants marked "published" are those of the published code of COS-PLAY.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Weight of the contract overlap, which lies in −1 to 1: clauses that the stretch brought about minus clauses that it missed, over the
    /// number of clauses plus one. The one makes a long contract that fits worth more than a short one.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub contract_weight: f64,
    /// Weight of the support bonus ln(1 + instances of the skill).
    #[schemars(range(min = 0.0, max = 10.0))]
    pub support_weight: f64,
    /// Weight of the intention fit: the share of the stretch's steps whose tag is the skill's (0 to 1).
    #[schemars(range(min = 0.0, max = 100.0))]
    pub intention_weight: f64,
    /// Episodes in which one tag covers more than this share of the steps are segmented without intention fit: it tells nothing there
    /// (published: 0.9).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub uniform_tag: f64,
    /// Weight of the duration term, −z²/2 with z the distance of ln(length) from ln(median length) in spreads, at least −4. Median and spread
    /// are those of the skill's own instances. (Published: 0.3, with constants for each game.)
    #[schemars(range(min = 0.0, max = 100.0))]
    pub duration_weight: f64,
    /// Weight of the boundary plausibility: mean of s / (s + 1) over the scores s of the cuts at both ends (1 at the ends of the episode).
    #[schemars(range(min = 0.0, max = 100.0))]
    pub boundary_weight: f64,
    /// Score of NEW for any stretch: what a skill has to beat.
    #[schemars(range(min = -100.0, max = 100.0))]
    pub new_score: f64,
    /// Median length of a NEW segment, in steps.
    #[schemars(range(min = 1.0, max = 100_000.0))]
    pub new_duration: f64,
    /// Spread of the logarithm of a NEW segment's length.
    #[schemars(range(min = 0.05, max = 10.0))]
    pub new_spread: f64,
    /// Cost of every boundary within an episode. Between two NEW segments a boundary pays off, lengths aside, if its plausibility is above
    /// (this − `new_score`) / `boundary_weight`.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub transition_cost: f64,
    /// Fewest steps of a segment (published: 2). Shorter episodes are one segment.
    #[schemars(range(min = 1, max = 100_000))]
    pub shortest_segment: u32,
    /// Most steps of a segment; stretches without a candidate boundary may be longer.
    #[schemars(range(min = 1, max = 100_000))]
    pub longest_segment: u32,
    /// Share of the segments that is held out: contracts are verified on them and never learnt from them.
    #[schemars(range(min = 0.0, max = 0.9))]
    pub holdout: f64,
}

impl Default for Config {
    fn default() -> Self {
        // Where no published constant is named the values are ours. Their scale: a one-clause contract that fits is worth 1, five clauses
        // 1.7; NEW is worth 0.5, so that a contract has to be fulfilled for the most part.
        Self {
            contract_weight: 2.0,
            support_weight: 0.05,
            intention_weight: 0.5,
            uniform_tag: 0.9,
            duration_weight: 0.5,
            boundary_weight: 1.0,
            new_score: 0.5,
            new_duration: 12.0,
            new_spread: 0.6,
            transition_cost: 0.8,
            shortest_segment: 2,
            longest_segment: 60,
            holdout: 0.2,
        }
    }
}

/// Input ports.
const INPUTS: &[Port] = &[
    Port {
        name: "rollouts",
        kind: Kind::Rollouts,
        required: true,
        routing: Routing::ByEpisode,
        accumulates: false,
        about: "episodes to segment",
    },
    Port {
        name: "cuts",
        kind: Kind::Cuts,
        required: true,
        routing: Routing::ByEpisode,
        accumulates: false,
        about: "candidate boundaries of these episodes",
    },
    Port {
        name: "bank",
        kind: Kind::Bank,
        required: true,
        routing: Routing::Broadcast,
        accumulates: false,
        about: "skills to label with, and the segments that bank maintenance relabelled; a feedback edge",
    },
];

/// Segments of all episodes in `experiences`, sorted by id. The order of the rows does not matter, and each episode's segments depend on
/// that episode, its cuts and the labels alone. An episode without cuts is one segment.
///
/// # Errors
/// If an episode has more segments than ids (1,000).
pub fn infer_segmentation(
    experiences: &[Experience],
    cuts: &[Cut],
    labels: &Labels,
    config: &Config,
) -> Result<Vec<Segment>, OperatorError> {
    let mut episodes: BTreeMap<EpisodeId, (Vec<&Experience>, Vec<&Cut>)> = BTreeMap::new();
    for row in experiences {
        episodes.entry(row.episode).or_default().0.push(row);
    }
    for cut in cuts {
        if let Some((_, cuts)) = episodes.get_mut(&cut.episode) {
            cuts.push(cut);
        }
    }
    let mut segments = Vec::new();
    for (mut rows, cuts) in episodes.into_values() {
        rows.sort_by_key(|row| row.t);
        segments.extend(episode::segment(&rows, &cuts, labels, config)?);
    }
    segments.sort_by_key(|segment| segment.segment);
    Ok(segments)
}

/// Whether a segment is held out: a fixed hash of its id, so that the answer never changes and needs no state.
pub fn is_held_out(segment: SegmentId, share: f64) -> bool {
    /// Keeps these draws apart from others that hash ids ("holdout" in ASCII).
    const KEY: u64 = 0x686f_6c64_6f75_7400;
    // SplitMix64 (Steele, Lea, Flood 2014).
    let mut bits = (segment.0 ^ KEY).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    ((bits >> 11) as f64) / ((1u64 << 53) as f64) < share
}

/// The latest row of every segment so far. Relabelled segments are looked up here.
#[derive(Debug, Default)]
pub struct SegmentMemory {
    latest: BTreeMap<SegmentId, Segment>,
}

impl SegmentMemory {
    /// Notes rows of `segments`; later rows replace earlier ones of the same segment.
    pub fn note(&mut self, segments: impl IntoIterator<Item = Segment>) {
        self.latest.extend(segments.into_iter().map(|segment| (segment.segment, segment)));
    }

    /// The row that a relabelled segment appears as again; it is noted as the segment's latest row. None if the segment is not held here.
    pub fn relabel(&mut self, relabel: &Relabel) -> Option<Segment> {
        let segment = self.latest.get_mut(&relabel.segment)?;
        segment.relabelled = true;
        segment.previous = relabel.previous;
        segment.skill = relabel.skill;
        Some(segment.clone())
    }
}

/// The operator. Its state is the latest row of each segment of this worker's episodes.
struct InferSegmentation {
    context: NodeContext,
    env: EnvInfo,
    config: Config,
    memory: SegmentMemory,
}

impl InferSegmentation {
    fn holds(&self, episode: EpisodeId) -> bool {
        worker_of_episode(episode.index(), self.context.workers.max(1)) == self.context.worker
    }

    /// Rows of segments that the bank relabelled, and the number of relabels that name a segment that should be here and is not.
    fn relabelled(&mut self, relabels: &[Relabel]) -> (Vec<Segment>, usize) {
        let mut lost = 0;
        let mut rows = Vec::new();
        for relabel in relabels {
            match self.memory.relabel(relabel) {
                Some(row) => rows.push(row),
                None => lost += usize::from(self.holds(relabel.segment.episode())),
            }
        }
        (rows, lost)
    }
}

impl Operator for InferSegmentation {
    fn step(&mut self, _step: u64, inputs: &Inputs) -> Result<Outputs, OperatorError> {
        let (relabelled, lost) = self.relabelled(&inputs.rows::<Relabel>("bank")?);
        let labels = Labels::new(&inputs.rows::<Skill>("bank")?, &self.env, &self.config)?;
        let experiences = inputs.rows::<Experience>("rollouts")?;
        let fresh = infer_segmentation(&experiences, &inputs.rows::<Cut>("cuts")?, &labels, &self.config)?;
        self.memory.note(fresh.iter().cloned());

        let mut outputs = Outputs::default();
        let unexplained = fresh.iter().filter(|segment| segment.skill.is_none());
        let counts = [
            ("segments", fresh.len()),
            ("segments_new", unexplained.clone().count()),
            ("steps", experiences.len()),
            ("steps_new", unexplained.map(|segment| (segment.end - segment.start) as usize).sum()),
            ("relabelled", relabelled.len()),
            ("relabels_without_segment", lost),
        ];
        for (name, count) in counts {
            outputs.metric(&self.context.node, name, count as f64);
        }
        let mut rows = relabelled;
        rows.extend(fresh);
        rows.sort_by_key(|row| row.segment);
        outputs.push(&rows)?;
        Ok(outputs)
    }

    fn restore(&mut self, _step: u64, inputs: &Inputs) -> Result<(), OperatorError> {
        let rows = inputs.rows::<Segment>("segments")?;
        let held: Vec<Segment> = rows.into_iter().filter(|row| self.holds(row.episode)).collect();
        self.memory.note(held);
        Ok(())
    }
}

/// Finds what the schema cannot say.
fn check(config: &serde_json::Value) -> Vec<ConfigProblem> {
    match configuration::<Config>(NAME, config) {
        Ok(config) if config.longest_segment < config.shortest_segment => vec![ConfigProblem {
            key: "longest_segment",
            message: format!("is {} but must be at least `shortest_segment`, {}", config.longest_segment, config.shortest_segment),
            valid: Vec::new(),
        }],
        _ => Vec::new(),
    }
}

/// `infer_segmentation` in the registry.
pub static INFO: OperatorInfo = OperatorInfo {
    name: NAME,
    about: "Chooses among the candidate boundaries and labels each segment with a skill of the bank or NEW, by exact Viterbi decoding; \
            passes on segments that bank maintenance relabelled.",
    paper: "section 4.2, infer segmentation",
    inputs: INPUTS,
    output: Kind::Segments,
    schedule: Schedule::EveryStep,
    restores: &[TableName::Segments],
    inherits: &[],
    prepare: None,
    plays: false,
    learns: false,
    schema: || schemars::schema_for!(Config),
    resolve: resolve::<Config>,
    check: |config, _| check(config),
    build: |config, context: NodeContext| {
        let config = configuration::<Config>(NAME, config)?;
        let settings = &context.settings.env;
        let options = EnvOptions { game: settings.game.clone(), max_steps: settings.max_steps };
        let env = cosplay_envs::make(&options)?.info().clone();
        Ok(Box::new(InferSegmentation { context, env, config, memory: SegmentMemory::default() }))
    },
};

#[cfg(test)]
mod games;
#[cfg(test)]
pub(crate) mod planted;
#[cfg(test)]
mod tests;
