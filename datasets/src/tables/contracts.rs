//! `contracts`: one row a clause of a skill's contract.

use crate::ids::{SegmentId, SkillId};

crate::table! {
    /// One clause, with the evidence for it as of this step. Only clauses with `accepted` are part of the contract.
    pub struct Clause in "contracts" by (skill, effect, literal) {
        /// Skill that the clause belongs to.
        skill: SkillId,
        /// Predicate or event of the clause.
        literal: String,
        /// `add`, `delete` or `event`.
        effect: String,
        /// Learning instances in which the effect occurred.
        support: u32,
        /// Learning instances of the skill.
        instances: u32,
        /// support / instances.
        rate: f64,
        /// Held-out instances in which the effect occurred.
        holdout_support: u32,
        /// Held-out instances of the skill.
        holdout_instances: u32,
        /// holdout_support / holdout_instances (0 if there is none).
        holdout_rate: f64,
        /// Share of held-out instances that fulfil the whole contract.
        pass_rate: f64,
        /// True if the contract passed its gate and the clause is part of it.
        accepted: bool,
        /// Why it was accepted or not.
        reason: String,
        /// First segments that the clause rests on, at most eight, in order; `cosplay bank why` lists all.
        evidence: Vec<SegmentId>,
    }
}
