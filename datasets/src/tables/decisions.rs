//! `decisions`: one row a decision of a model.

use crate::ids::EpisodeId;

crate::table! {
    /// One model decision with the token ids and log-probabilities of the moment when it was sampled.
    pub struct Decision in "decisions" by (episode, t, call) {
        /// Key of the episode.
        episode: EpisodeId,
        /// Time within the episode.
        t: u32,
        /// Ordinal of the decision within the environment step.
        call: u32,
        /// Adapter that decided: `action`, `retrieval`, or `base` for the shared model alone.
        adapter: String,
        /// What was decided: `action`, `skill` or `intention`.
        task: String,
        /// Form of the choice: `per_option`, `joint` or `text`.
        form: String,
        /// Token ids of the prompts; with `per_option` those of all options in order, one after the other.
        prompt_ids: Vec<u32>,
        /// Length of each prompt in `prompt_ids`.
        prompt_lengths: Vec<u32>,
        /// Token ids of the answer: the answer token of the choice, or the generated text.
        completion_ids: Vec<u32>,
        /// `choices`: ln π of every option, at the temperature of the sampling; `text`: of every token of the completion.
        logprobs: Vec<f32>,
        /// Which tokens of the completion count in training.
        mask: Vec<bool>,
        /// Texts of the options.
        choices: Vec<String>,
        /// Index of the chosen option.
        chosen: u32,
        /// ln π of what was chosen.
        logprob: f32,
        /// Sampling temperature (0 is greedy).
        temperature: f32,
        /// `model`, `only_choice` or the name of a scripted policy.
        source: String,
        /// Version of the policy.
        policy_version: u32,
    }
}
