//! Rewards of appendix F.1.

mod action;
mod retrieval;

pub use action::{ActionReward, ActionTerms, action_rewards};
pub use retrieval::{RETRIEVAL_CONFIDENCE, RetrievalReward, SkillUse, retrieval_reward, skill_uses};
