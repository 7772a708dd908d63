//! `experiences`: one row an environment step.

use crate::ids::{EpisodeId, SkillId};

crate::table! {
    /// One environment step e_t = (o, a, r, o′, d, z) of the paper's section 3.
    pub struct Experience in "experiences" by (episode, t) {
        /// Key of the episode.
        episode: EpisodeId,
        /// Time within the episode, from 0.
        t: u32,
        /// Who acted; 0 in single-player games.
        player: u32,
        /// Observation text before the action.
        observation: String,
        /// State summary (`key=value | …`, at most 400 characters) before the action.
        summary: String,
        /// Words of the state (bucketed features), for value baselines.
        state_words: Vec<String>,
        /// Names of the predicates that hold before the action, in the environment's order.
        predicates: Vec<String>,
        /// Texts of the actions that were valid.
        valid_actions: Vec<String>,
        /// Text of the action that was played.
        action: String,
        /// Reward of the environment for this step.
        reward: f64,
        /// True on the last step of the episode.
        done: bool,
        /// Names of the predicates that hold after the action.
        next_predicates: Vec<String>,
        /// Names of the events of this step, for example `event.merged_ge_64`.
        events: Vec<String>,
        /// Observation text after the action, on the last step only (else it is the next row's `observation`).
        next_observation: Option<String>,
        /// Intention tag, one of the thirteen canonical tags; empty if nobody stated one (imported rollouts).
        intention_tag: String,
        /// Intention phrase.
        intention: String,
        /// Active skill, if any.
        skill: Option<SkillId>,
        /// Why the skill was kept, dropped or replaced: `keep`, `no_bank`, `unavailable`, `exhausted`, `ineffective`, `succeeded`,
        /// `aborted` or `intention_shift`.
        switch_reason: String,
        /// Surprisal of the action, −ln π(a), in nats; from the recorded log-probability.
        surprisal: Option<f64>,
    }
}
