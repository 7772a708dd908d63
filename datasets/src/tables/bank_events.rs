//! `bank_events`: one row a proposed change of the bank.

use crate::ids::{SegmentId, SkillId};

crate::table! {
    /// One proposal of bank maintenance with its evidence and its verdict.
    pub struct BankEvent in "bank_events" by (event) {
        /// Ordinal within the step.
        event: u32,
        /// `refine`, `materialize`, `merge`, `split` or `retire`.
        kind: String,
        /// Skills concerned: those changed first, then those created.
        skills: Vec<SkillId>,
        /// What was proposed, and the figures that speak for or against it.
        reason: String,
        /// Segments that the proposal rests on (at most 32, in order).
        evidence: Vec<SegmentId>,
        /// Number of segments that the proposal rests on.
        support: u32,
        /// `statistics`, or the adapter that proposed it.
        proposed_by: String,
        /// `accepted`, `rejected` or `deferred`.
        verdict: String,
    }
}
