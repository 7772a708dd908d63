//! Retire: a skill that nothing supports any more, that does not do what it promises, or that brings about what is to be avoided, is no longer
//! offered. It stays in the table.

use crate::contract::Contract;
use crate::learn_contracts::{passes, share};
use crate::maintain_bank::evidence::Record;
use crate::maintain_bank::{RETIRED, Verdict, Work, instances, segment_ids};
use cosplay_datasets::{SegmentId, SkillId};
use cosplay_envs::PredicateSet;
use std::collections::BTreeMap;

const KIND: &str = "retire";

/// Retires skills; `learnt` are the accepted contracts of this step. Their segments of the last steps go back to NEW, where they may become part of a better skill; older ones keep their
/// label as a record of what the skill rested on.
pub fn retire(work: &mut Work<'_>, learnt: &BTreeMap<SkillId, Contract>) {
    let by_label = work.evidence.by_label();
    let none = Vec::new();
    let found: Vec<(SkillId, String, Vec<SegmentId>)> = work
        .active()
        .into_iter()
        .filter_map(|skill| {
            let records = by_label.get(&Some(skill)).unwrap_or(&none);
            reason(work, skill, records, learnt.get(&skill)).map(|reason| (skill, reason, segment_ids(records)))
        })
        .collect();
    let oldest = (work.step + 1).saturating_sub(u64::from(work.config.window));
    for (skill, reason, evidence) in found {
        if let Some(entry) = work.skills.get_mut(&skill) {
            entry.row.state = RETIRED.to_owned();
            entry.row.updated = work.step as u32;
        }
        let recent: Vec<SegmentId> =
            work.evidence.select(&evidence).iter().filter(|record| record.step >= oldest).map(|record| record.segment).collect();
        work.relabel(&recent, None, KIND);
        work.note(KIND, vec![skill], reason, &evidence, Verdict::Accepted);
    }
}

fn reason(work: &Work<'_>, skill: SkillId, records: &[&Record], learnt: Option<&Contract>) -> Option<String> {
    let config = work.config;
    let entry = work.skills.get(&skill)?;
    let last = records.iter().map(|record| record.step).max().unwrap_or(u64::from(entry.row.created));
    let idle = work.step.saturating_sub(last);
    // A skill that was made in this step has had no chance yet.
    if idle >= u64::from(config.patience) && u64::from(entry.row.created) < work.step {
        return Some(format!("no segment has supported it since step {last}: {idle} steps, and the patience is {}", config.patience));
    }
    let dangers = learnt.map_or(PredicateSet::EMPTY, |contract| contract.adds.intersection(config.dangers(work.info)));
    if !dangers.is_empty() {
        return Some(format!("its segments bring about {}, which is to be avoided", work.info.names(dangers).join(", ")));
    }
    let all = instances(records);
    let holdout = all.iter().filter(|instance| instance.holdout).count() as u32;
    let pass_rate = share(passes(&all, &entry.contract, &config.contract), holdout);
    (holdout >= config.floor_holdout && pass_rate < config.floor)
        .then(|| format!("its contract passes on {pass_rate:.2} of {holdout} held-out instances, below the floor {:.2}", config.floor))
}
