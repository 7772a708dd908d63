//! Split: a skill whose instances do two different things becomes two skills.

use crate::contract::Contract;
use crate::learn_contracts::{passes, share};
use crate::maintain_bank::cluster::{Cluster, clusters};
use crate::maintain_bank::evidence::Record;
use crate::maintain_bank::materialize::{Candidate, fault, found_skill};
use crate::maintain_bank::{RETIRED, Verdict, Work, instances, segment_ids};
use cosplay_datasets::{SegmentId, SkillId};
use std::collections::BTreeMap;

const KIND: &str = "split";

struct Proposal {
    parent: SkillId,
    children: Vec<Candidate>,
    /// Instances that belong to no child.
    rest: Vec<SegmentId>,
    evidence: Vec<SegmentId>,
    figures: String,
}

/// Splits skills. A proposal is made for a skill whose instances form two clusters with different effects, if the two cover nearly all of
/// them or, at a low pass rate, at least half as many. It is accepted only if every child passes.
pub fn split(work: &mut Work<'_>) {
    for proposal in proposals(work) {
        let (verdict, reason) = judge(work, &proposal);
        let mut skills = vec![proposal.parent];
        if verdict == Verdict::Accepted {
            skills.extend(apply(work, &proposal));
        }
        work.note(KIND, skills, reason, &proposal.evidence, verdict);
    }
}

fn proposals(work: &Work<'_>) -> Vec<Proposal> {
    let by_label: BTreeMap<Option<SkillId>, Vec<&Record>> = work.evidence.by_label();
    let step = work.step as u32;
    let propose = |skill: SkillId| {
        let entry = work.skills.get(&skill)?;
        // A skill that has just been made or changed is judged by what comes next.
        let settled = entry.row.updated < step;
        let records = by_label.get(&Some(skill)).filter(|_| settled)?;
        propose(work, skill, &entry.contract, records)
    };
    work.active().into_iter().filter_map(propose).collect()
}

fn propose(work: &Work<'_>, parent: SkillId, contract: &Contract, records: &[&Record]) -> Option<Proposal> {
    let config = work.config;
    let min_size = config.min_segments as usize;
    if records.len() < 2 * min_size {
        return None;
    }
    let all = instances(records);
    let holdout = all.iter().filter(|instance| instance.holdout).count() as u32;
    let pass_rate = share(passes(&all, contract, &config.contract), holdout);
    let failing = holdout >= config.contract.min_holdout && pass_rate < config.split_below;
    let limit = 1.0 - config.min_distance;
    let parts: Vec<Cluster<'_>> = clusters(records, min_size, limit, limit).into_iter().take(2).collect();
    let covered: usize = parts.iter().map(|part| part.members.len()).sum();
    let coverage = covered as f64 / records.len() as f64;
    let enough = if failing { config.split_coverage / 2.0 } else { config.split_coverage };
    if parts.len() < 2 || coverage < enough || parts[0].centroid.jaccard(&parts[1].centroid) > limit {
        return None;
    }
    let children: Vec<Candidate> = parts.iter().map(|part| Candidate::of(part, &config.contract)).collect();
    let evidence = segment_ids(records);
    let rest = evidence.iter().copied().filter(|segment| children.iter().all(|child| child.segments.binary_search(segment).is_err()));
    let trigger = if failing { "low pass rate" } else { "two kinds of effect" };
    Some(Proposal {
        parent,
        rest: rest.collect(),
        figures: format!("{trigger}: pass rate {pass_rate:.2}, two parts cover {coverage:.2} of {} instances", records.len()),
        children,
        evidence,
    })
}

fn judge(work: &Work<'_>, proposal: &Proposal) -> (Verdict, String) {
    let config = work.config;
    let mut reason = proposal.figures.clone();
    let mut passed = true;
    for child in &proposal.children {
        let learned = &child.learned;
        let words = learned.contract.spell(work.info).join(", ");
        reason += &format!("; {} segments share {{{words}}}: {}", child.segments.len(), learned.explain(&config.contract));
        if let Some(fault) = fault(work, child, &[proposal.parent]) {
            reason += &fault;
            passed = false;
        }
        if work.skills.get(&proposal.parent).is_some_and(|parent| learned.contract.minus(&parent.contract).is_empty()) {
            reason += "; it promises nothing that the whole does not";
            passed = false;
        }
        if learned.pass_rate() < config.split_pass_rate {
            reason += &format!("; a child must pass on {:.2}", config.split_pass_rate);
            passed = false;
        }
    }
    let similarity = proposal.children[0].learned.contract.jaccard(&proposal.children[1].learned.contract);
    if 1.0 - similarity < config.min_distance {
        reason += &format!("; the children's contracts agree by {similarity:.2}");
        passed = false;
    }
    match passed {
        false => (Verdict::Rejected, reason),
        true if !work.has_room() => (Verdict::Deferred, format!("{reason}; the bank holds {} skills already", config.max_skills)),
        true => (Verdict::Accepted, format!("{reason}; {} segments go back to NEW", proposal.rest.len())),
    }
}

fn apply(work: &mut Work<'_>, proposal: &Proposal) -> Vec<SkillId> {
    let step = work.step as u32;
    let mut generation = 1;
    if let Some(parent) = work.skills.get_mut(&proposal.parent) {
        parent.row.state = RETIRED.to_owned();
        parent.row.updated = step;
        generation = parent.row.generation + 1;
    }
    work.relabel(&proposal.rest, None, KIND);
    proposal.children.iter().map(|child| found_skill(work, child, &[proposal.parent], generation, KIND)).collect()
}
