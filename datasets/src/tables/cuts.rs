//! `cuts`: one row a candidate boundary.

use crate::ids::EpisodeId;

crate::table! {
    /// One candidate boundary: a segment may end before experience `t`.
    pub struct Cut in "cuts" by (episode, t) {
        /// Key of the episode.
        episode: EpisodeId,
        /// First step after the boundary (1 to length − 1).
        t: u32,
        /// Plausibility of the boundary: sum of its signals' weights.
        score: f64,
        /// Names of the signals that fired, sorted: `change_point`, `event`, `intention`, `predicate`, `reward`, `surprisal`, `switch`,
        /// `uniform`.
        signals: Vec<String>,
    }
}
