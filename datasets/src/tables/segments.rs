//! `segments`: one row a labelled segment.

use crate::ids::{EpisodeId, SegmentId, SkillId};

crate::table! {
    /// One labelled segment of an episode. A segment that bank maintenance relabels appears again, in the step that takes note of it,
    /// with `relabelled` true: the latest row of a segment holds.
    pub struct Segment in "segments" by (segment) {
        /// Key of the segment.
        segment: SegmentId,
        /// Key of the episode.
        episode: EpisodeId,
        /// First experience of the segment.
        start: u32,
        /// First experience after the segment.
        end: u32,
        /// Skill that explains the segment; null is NEW.
        skill: Option<SkillId>,
        /// True if this row withdraws an earlier label (`previous`) of the same segment.
        relabelled: bool,
        /// Label before a relabelling; null is NEW.
        previous: Option<SkillId>,
        /// Skill that the agent had active in most of its steps; null if that is none.
        played: Option<SkillId>,
        /// Dominant intention tag of the segment.
        tag: String,
        /// Predicates that hold before the segment.
        preconditions: Vec<String>,
        /// Predicates that hold after the segment and did not before.
        added: Vec<String>,
        /// Predicates that held before the segment and do not after.
        deleted: Vec<String>,
        /// Events within the segment, each once.
        events: Vec<String>,
        /// Sum of rewards.
        ret as "return": f64,
        /// Score of the segment under its label, part of the Viterbi path's score.
        score: f64,
        /// Score of the label minus that of the best other label on the same stretch.
        margin: f64,
        /// Best other label; null is NEW.
        runner_up: Option<SkillId>,
        /// True if the segment belongs to the held-out share, on which contracts are verified and never learnt.
        holdout: bool,
    }
}

crate::table! {
    /// A segment whose label bank maintenance has changed; the next step's segmentation passes it on as a row of `segments`.
    pub struct Relabel in "relabels" by (segment) {
        /// Key of the segment.
        segment: SegmentId,
        /// New label; null is NEW.
        skill: Option<SkillId>,
        /// Label before; null is NEW.
        previous: Option<SkillId>,
        /// Kind of bank event that changed it.
        kind: String,
    }
}
