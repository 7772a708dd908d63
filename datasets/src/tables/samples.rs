//! `samples`: one row a training sample.

use crate::ids::EpisodeId;

crate::table! {
    /// One training sample: a decision with its reward terms (appendix F.1) and its advantage.
    pub struct Sample in "samples" by (adapter, episode, t, call) {
        /// Adapter that the sample trains.
        adapter: String,
        /// Start state of the episode: the group of GRPO.
        group: u32,
        /// Key of the episode.
        episode: EpisodeId,
        /// Time within the episode.
        t: u32,
        /// Ordinal of the decision within the environment step.
        call: u32,
        /// Reward of the environment.
        r_env: f64,
        /// Reward for following the active skill's contract.
        r_follow: f64,
        /// Cost of queries and switches (zero or negative).
        r_cost: f64,
        /// Reward that is trained on.
        reward: f64,
        /// Discounted return from here.
        ret as "return": f64,
        /// Value baseline.
        baseline: f64,
        /// Advantage, after normalisation.
        advantage: f64,
        /// ln π at sampling.
        logprob: f32,
        /// True if the sample was used in the update.
        trained: bool,
        /// Why it was or was not used: `trained`, `zero_advantage`, `only_choice`, `not_drawn`.
        reason: String,
    }
}
