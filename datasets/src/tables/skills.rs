//! `skills`: one row a skill and step.

use crate::ids::{SegmentId, SkillId};

crate::table! {
    /// One skill of the bank at the end of a step, with the five parts of the paper's section 3 (summary, preconditions, plan,
    /// success and abort criteria) and its contract.
    pub struct Skill in "skills" by (skill) {
        /// Key of the skill.
        skill: SkillId,
        /// Raised by every change of contract or text.
        version: u32,
        /// Stable name.
        name: String,
        /// `active` or `retired`; retired skills are never offered.
        state: String,
        /// 0 for skills that came from segments, one more than the parents' for merged or split ones.
        generation: u32,
        /// Dominant intention tag.
        tag: String,
        /// What the skill does, in a sentence.
        summary: String,
        /// Predicates that held at the start of most instances.
        preconditions: Vec<String>,
        /// Steps of the protocol.
        plan: Vec<String>,
        /// Predicates or events that mean success: literals, `+p` (now true), `-p` (now false), `event.e`.
        success: Vec<String>,
        /// Literals that mean that the skill should be given up.
        abort: Vec<String>,
        /// Contract: predicates that become true.
        adds: Vec<String>,
        /// Contract: predicates that become false.
        deletes: Vec<String>,
        /// Contract: events that occur.
        events: Vec<String>,
        /// Skills that it came from.
        parents: Vec<SkillId>,
        /// Skill that absorbed it, if it was merged away.
        merged_into: Option<SkillId>,
        /// Labelled segments (learning and held-out).
        instances: u32,
        /// Share of held-out instances that fulfil the contract.
        pass_rate: f64,
        /// Segments in most of which the agent had the skill active, whatever segmentation took them for.
        uses: u32,
        /// Those of them that fulfil its contract.
        successes: u32,
        /// Mean return of its instances, minus the mean return of all segments of like length.
        fitness: f64,
        /// Quality in 0 to 1.
        quality: f64,
        /// Median length of its instances, in environment steps.
        duration: f64,
        /// Spread of the length of its instances.
        duration_spread: f64,
        /// Step in which it entered the bank.
        created: u32,
        /// Step of its last change.
        updated: u32,
        /// Last step in which a segment supported it.
        supported: u32,
        /// First segments that it rests on, at most eight.
        evidence: Vec<SegmentId>,
    }
}
