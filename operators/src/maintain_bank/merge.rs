//! Merge: two skills that promise the same become one. The one with more instances stays and inherits the evidence of the other.

use crate::contract::Contract;
use crate::learn_contracts::{self, learn_contract, passes, share};
use crate::maintain_bank::evidence::Record;
use crate::maintain_bank::refine::adopt;
use crate::maintain_bank::{RETIRED, Verdict, Work, instances, segment_ids};
use cosplay_datasets::SkillId;
use std::collections::BTreeSet;

const KIND: &str = "merge";

/// Merges similar skills, the most similar ones first, until no two are similar enough.
pub fn merge(work: &mut Work<'_>) {
    let mut refused = BTreeSet::new();
    while let Some((a, b, similarity)) = most_similar(work, &refused) {
        if !merge_two(work, a, b, similarity) {
            refused.insert((a, b));
        }
    }
}

/// The most similar pair (lower id first) that may be merged and was not refused; ties go to the lower ids.
fn most_similar(work: &Work<'_>, refused: &BTreeSet<(SkillId, SkillId)>) -> Option<(SkillId, SkillId, f64)> {
    let active = work.active();
    let mut best: Option<(SkillId, SkillId, f64)> = None;
    for (position, &a) in active.iter().enumerate() {
        for &b in &active[position + 1..] {
            let similarity = work.skills[&a].contract.jaccard(&work.skills[&b].contract);
            let better = best.is_none_or(|(_, _, most)| similarity > most);
            if better && similarity >= work.config.merge_similarity && !refused.contains(&(a, b)) {
                best = Some((a, b, similarity));
            }
        }
    }
    best
}

fn merge_two(work: &mut Work<'_>, a: SkillId, b: SkillId, similarity: f64) -> bool {
    let (of_a, of_b) = (work.records(a), work.records(b));
    let (stays, goes) = if of_b.len() > of_a.len() { (b, a) } else { (a, b) };
    let counts = format!("{} and {} instances", of_a.len(), of_b.len());
    let absorbed = segment_ids(if goes == a { &of_a } else { &of_b });
    let all: Vec<&Record> = of_a.into_iter().chain(of_b).collect();
    let evidence = segment_ids(&all);
    let contract = contract_of_both(work, stays, &all);
    let figures = format!("contracts of skills {a} and {b} agree by {similarity:.2} ({counts})");
    let Some((contract, pass_rate)) = contract else {
        let gate = work.config.contract.pass_rate;
        let reason = format!("{figures}, but no contract passes on {gate:.2} of their held-out instances together");
        work.note(KIND, vec![a, b], reason, &evidence, Verdict::Rejected);
        return false;
    };
    work.relabel(&absorbed, Some(stays), KIND);
    inherit(work, stays, goes);
    adopt(work, stays, contract);
    let reason = format!("{figures}; skill {stays} stays, {pass_rate:.2} of the held-out instances of both pass");
    work.note(KIND, vec![stays, goes], reason, &evidence, Verdict::Accepted);
    true
}

/// The contract of the merged skill with its pass rate: learnt anew on the evidence of both, or else the survivor's own if it passes.
fn contract_of_both(work: &Work<'_>, stays: SkillId, records: &[&Record]) -> Option<(Contract, f64)> {
    let rules = &work.config.contract;
    let all = instances(records);
    let learned = learn_contract(&all, rules);
    let dangerous = !learned.contract.adds.intersection(work.config.dangers(work.info)).is_empty();
    if learned.verdict(rules) == learn_contracts::Verdict::Accepted && !dangerous {
        return Some((learned.contract, learned.pass_rate()));
    }
    let own = work.skills.get(&stays)?.contract;
    let pass_rate = share(passes(&all, &own, rules), learned.holdout_instances);
    (learned.holdout_instances >= rules.min_holdout && pass_rate >= rules.pass_rate).then_some((own, pass_rate))
}

fn inherit(work: &mut Work<'_>, stays: SkillId, goes: SkillId) {
    let step = work.step as u32;
    let Some(absorbed) = work.skills.get_mut(&goes) else { return };
    absorbed.row.state = RETIRED.to_owned();
    absorbed.row.merged_into = Some(stays);
    absorbed.row.updated = step;
    let (parents, generation) = (absorbed.row.parents.clone(), absorbed.row.generation);
    let Some(survivor) = work.skills.get_mut(&stays) else { return };
    let row = &mut survivor.row;
    row.parents = row.parents.iter().copied().chain(parents).chain([goes]).filter(|parent| *parent != stays).collect();
    row.parents.sort_unstable();
    row.parents.dedup();
    row.generation = row.generation.max(generation) + 1;
}
