//! `episodes`: one row an episode.

use crate::ids::EpisodeId;

crate::table! {
    /// One episode, from reset to its end.
    pub struct Episode in "episodes" by (episode) {
        /// Key of the episode.
        episode: EpisodeId,
        /// Name of the node that played it.
        node: String,
        /// Environment, for example `2048`.
        env: String,
        /// `train`, `validation` or `test`; set where the seed is drawn, never later.
        split: String,
        /// Role or seat of the player that the row is about (`player` in single-player games).
        role: String,
        /// Seed of the environment.
        seed: u64,
        /// Ordinal of the start state; episodes with one start form a group (GRPO).
        group: u32,
        /// How the episode ended, for example `stuck` or `cap`.
        outcome: String,
        /// Sum of the environment's rewards, in the environment's own unit.
        ret as "return": f64,
        /// Number of environment steps.
        length: u32,
        /// Version of the policy that played (0 is the cold start).
        policy_version: u32,
        /// Version of the bank that was offered (0 is the empty bank).
        bank_version: u32,
    }
}
