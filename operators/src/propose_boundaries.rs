//! Boundary proposal: where in an episode one sub-behaviour may end and the next begin (paper section 4.2).
//!
//! Five kinds of evidence are looked at in every episode: changes of predicates, shifts of intention, spikes of reward and events,
//! surprising actions, and change points of the predicate vector; in addition the agent's own switches of skill. Each finding is a
//! *trigger* with a strength. Triggers that lie close together are merged, and the number of candidates is bounded from below and from
//! above. A cut at `t` means that a new segment may begin with experience `t`: effects of step `t − 1` lie before it.

use crate::kind::Kind;
use crate::operator::{Inputs, NodeContext, Operator, OperatorError, Outputs, Port, Routing, Schedule};
use crate::registry::{OperatorInfo, configuration, resolve};
use cosplay_datasets::EpisodeId;
use cosplay_datasets::tables::{Cut, Experience};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod density;
mod signals;

pub use signals::Signal;
use signals::Trigger;

/// Name of the operator.
const NAME: &str = "propose_boundaries";

/// Weight of each signal: what a trigger of full strength adds to the score of a cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SignalWeights {
    /// Predicates that became true or false, weighted by how seldom they do so in the episode.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub predicate: f64,
    /// Shift of the intention tag.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub intention: f64,
    /// Events of the environment, weighted by how seldom they occur in the episode.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub event: f64,
    /// Spike of the reward.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub reward: f64,
    /// Surprising action.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub surprisal: f64,
    /// Change point of the predicate vector.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub change_point: f64,
    /// The agent took up another skill, or dropped one.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub switch: f64,
    /// Evenly spaced cuts that fill up when there is too little evidence.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub uniform: f64,
}

impl Default for SignalWeights {
    fn default() -> Self {
        // Ours: what the agent says and what the state shows weigh one; indirect evidence weighs half.
        Self { predicate: 1.0, intention: 1.0, event: 0.8, reward: 0.5, surprisal: 0.5, change_point: 0.5, switch: 1.0, uniform: 0.1 }
    }
}

/// Configuration of `propose_boundaries`. Constants marked "published" are those of the published code of COS-PLAY.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Weight of each signal.
    pub weights: SignalWeights,
    /// A predicate that flips in more than this share of an episode's steps is ignored there (published: 0.4). If all that flip are
    /// above it, the least volatile is kept.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub volatility: f64,
    /// A shift of intention is ignored if fewer steps than this have passed since the last one that counted (published: 3).
    #[schemars(range(min = 1, max = 1000))]
    pub intention_gap: u32,
    /// Taken off the strength of a shift that is taken back in the very next step (published: 0.3).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub ping_pong_penalty: f64,
    /// A reward is a spike from mean + this many standard deviations on (published: 2).
    #[schemars(range(min = 0.0, max = 10.0))]
    pub reward_deviations: f64,
    /// A surprisal is a spike from mean + this many standard deviations on (published: 2).
    #[schemars(range(min = 0.0, max = 10.0))]
    pub surprisal_deviations: f64,
    /// A local maximum of surprisal is one within this many steps on both sides (published: 3).
    #[schemars(range(min = 1, max = 1000))]
    pub surprisal_radius: u32,
    /// Taken off each distance, beyond the episode's mean, before it is added up by CUSUM (published: 0.05).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub change_point_drift: f64,
    /// A change point is a local maximum of CUSUM within this many steps on both sides (published: 5).
    #[schemars(range(min = 1, max = 1000))]
    pub change_point_radius: u32,
    /// Triggers within this many steps become one cut, at the strongest (published: 3). Short episodes use less: at most an eighth of
    /// their length, at least 1.
    #[schemars(range(min = 0, max = 1000))]
    pub merge_radius: u32,
    /// Fewest steps per segment on average: an episode of length T gets at most T / this cuts, the strongest ones, and never more than 999.
    #[schemars(range(min = 1, max = 100_000))]
    pub shortest_mean_segment: u32,
    /// Longest mean segment for episodes of up to 12 times this length; longer ones get segments of a twelfth of their length (published:
    /// 5). Evenly spaced cuts are added where the evidence gives fewer.
    #[schemars(range(min = 1, max = 100_000))]
    pub fallback_segment: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            weights: SignalWeights::default(),
            volatility: 0.4,
            intention_gap: 3,
            ping_pong_penalty: 0.3,
            reward_deviations: 2.0,
            surprisal_deviations: 2.0,
            surprisal_radius: 3,
            change_point_drift: 0.05,
            change_point_radius: 5,
            merge_radius: 3,
            // Ours: with 8, an episode of 2048 of 200 steps gets segments of about 8 to 20 steps.
            shortest_mean_segment: 8,
            fallback_segment: 5,
        }
    }
}

/// Input ports.
const INPUTS: &[Port] = &[Port {
    name: "rollouts",
    kind: Kind::Rollouts,
    required: true,
    routing: Routing::ByEpisode,
    accumulates: false,
    about: "episodes to cut",
}];

/// Candidate boundaries of all episodes in `experiences`, sorted by episode and time. The order of the rows does not matter, and
/// each episode's cuts depend on that episode alone.
pub fn propose_boundaries(experiences: &[Experience], config: &Config) -> Vec<Cut> {
    let mut episodes: BTreeMap<EpisodeId, Vec<&Experience>> = BTreeMap::new();
    for row in experiences {
        episodes.entry(row.episode).or_default().push(row);
    }
    let mut cuts = Vec::new();
    for (episode, mut rows) in episodes {
        rows.sort_by_key(|row| row.t);
        cuts.extend(episode_cuts(episode, &rows, config));
    }
    cuts
}

/// Candidate boundaries of one episode whose rows are sorted by time.
fn episode_cuts(episode: EpisodeId, rows: &[&Experience], config: &Config) -> Vec<Cut> {
    // Rows may lack times (a player's view of a game with several players), so cuts are found by position and named by time.
    let triggers = signals::triggers(rows, config);
    density::candidates(&triggers, rows.len(), config)
        .into_iter()
        .filter_map(|candidate| {
            let row = rows.get(candidate.at)?;
            let signals = candidate.strengths.keys().map(|signal| signal.name().to_owned()).collect();
            Some(Cut { episode, t: row.t, score: candidate.score, signals })
        })
        .collect()
}

/// The operator: no state, one pass over each step's episodes.
struct ProposeBoundaries {
    node: String,
    config: Config,
}

impl Operator for ProposeBoundaries {
    fn step(&mut self, _step: u64, inputs: &Inputs) -> Result<Outputs, OperatorError> {
        let cuts = propose_boundaries(&inputs.rows::<Experience>("rollouts")?, &self.config);
        let mut outputs = Outputs::default();
        outputs.push(&cuts)?;
        outputs.metric(&self.node, "cuts", cuts.len() as f64);
        for signal in Signal::ALL {
            let fired = cuts.iter().filter(|cut| cut.signals.iter().any(|name| name == signal.name())).count();
            outputs.metric(&self.node, format!("cuts_{}", signal.name()), fired as f64);
        }
        Ok(outputs)
    }
}

/// `propose_boundaries` in the registry.
pub static INFO: OperatorInfo = OperatorInfo {
    name: NAME,
    about: "Proposes candidate boundaries in each episode from predicate changes, intention shifts, reward and event spikes, surprisal \
            and change points.",
    paper: "section 4.2, boundary proposal",
    inputs: INPUTS,
    output: Kind::Cuts,
    schedule: Schedule::EveryStep,
    restores: &[],
    inherits: &[],
    prepare: None,
    plays: false,
    learns: false,
    schema: || schemars::schema_for!(Config),
    resolve: resolve::<Config>,
    check: |_, _| Vec::new(),
    build: |config, context: NodeContext| {
        let config = configuration::<Config>(NAME, config)?;
        Ok(Box::new(ProposeBoundaries { node: context.node, config }))
    },
};

#[cfg(test)]
mod tests;
