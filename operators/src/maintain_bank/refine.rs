//! Refine: a skill's contract follows its evidence. An accepted contract that differs makes a new version; where none is accepted and the
//! skill's own one fails, its weak clauses are dropped.

use crate::contract::{Contract, Literal};
use crate::learn_contracts::{passes, share};
use crate::maintain_bank::describe::describe_entry;
use crate::maintain_bank::evidence::Record;
use crate::maintain_bank::{Verdict, Work, instances, segment_ids};
use cosplay_datasets::tables::Clause;
use cosplay_datasets::{SegmentId, SkillId};
use std::collections::BTreeMap;

const KIND: &str = "refine";

/// Refines every active skill. `clauses` are this step's rows of `contracts`, `learnt` the accepted contracts among them.
pub fn refine(work: &mut Work<'_>, clauses: &[Clause], learnt: &BTreeMap<SkillId, Contract>) {
    let mut by_skill: BTreeMap<SkillId, Vec<&Clause>> = BTreeMap::new();
    clauses.iter().for_each(|clause| by_skill.entry(clause.skill).or_default().push(clause));
    for skill in work.active() {
        let rows = by_skill.get(&skill).map_or(&[][..], Vec::as_slice);
        match learnt.get(&skill).filter(|contract| !contract.is_empty()) {
            Some(contract) => follow(work, skill, *contract, rows),
            None if !rows.is_empty() => weaken_skill(work, skill),
            None => {}
        }
    }
}

/// Takes over the learnt contract.
fn follow(work: &mut Work<'_>, skill: SkillId, contract: Contract, rows: &[&Clause]) {
    let Some(entry) = work.skills.get(&skill) else { return };
    // A skill that turns out to bring about what is to be avoided is retired, not refined.
    if entry.contract == contract || !contract.adds.intersection(work.config.dangers(work.info)).is_empty() {
        return;
    }
    let (gained, lost) = (contract.minus(&entry.contract), entry.contract.minus(&contract));
    let mut words = Vec::new();
    for (sign, changed) in [("gains", gained), ("loses", lost)] {
        words.extend(changed.literals().map(|literal| format!("{sign} {}{}", literal.spell(work.info), rate(literal, rows, work))));
    }
    let pass_rate = rows.first().map_or(0.0, |row| row.pass_rate);
    let reason = format!("the learnt contract {}; {pass_rate:.2} of the held-out instances pass", words.join(", "));
    let evidence = supporting(rows);
    adopt(work, skill, contract);
    work.note(KIND, vec![skill], reason, &evidence, Verdict::Accepted);
}

fn rate(literal: Literal, rows: &[&Clause], work: &Work<'_>) -> String {
    let (name, effect) = (literal.name(work.info), literal.kind.name());
    let row = rows.iter().find(|row| row.literal == name && row.effect == effect);
    row.map_or(" (no longer occurs)".to_owned(), |row| format!(" ({} of {} instances)", row.support, row.instances))
}

fn supporting(rows: &[&Clause]) -> Vec<SegmentId> {
    let mut evidence: Vec<SegmentId> = rows.iter().filter(|row| row.accepted).flat_map(|row| row.evidence.iter().copied()).collect();
    evidence.sort_unstable();
    evidence.dedup();
    evidence
}

/// Makes a new version of a skill with another contract.
pub(crate) fn adopt(work: &mut Work<'_>, skill: SkillId, contract: Contract) {
    let records: Vec<&Record> = work.evidence.records().filter(|record| record.label == Some(skill)).collect();
    let Some(entry) = work.skills.get_mut(&skill) else { return };
    entry.contract = contract;
    entry.row.version += 1;
    entry.row.updated = work.step as u32;
    describe_entry(entry, &records, &work.base, work.config, work.info);
}

/// Drops the weak clauses of a contract that fails on the held-out instances, if what is left passes on them.
fn weaken_skill(work: &mut Work<'_>, skill: SkillId) {
    let Some(entry) = work.skills.get(&skill) else { return };
    let contract = entry.contract;
    let records = work.records(skill);
    let (evidence, all) = (segment_ids(&records), instances(&records));
    let (holdout, learning): (Vec<_>, Vec<_>) = all.into_iter().partition(|instance| instance.holdout);
    let rules = &work.config.contract;
    let total = holdout.len() as u32;
    let pass_rate = |contract: &Contract| share(passes(&holdout, contract, rules), total);
    let before = pass_rate(&contract);
    if total < rules.min_holdout || before >= rules.pass_rate {
        return;
    }
    // Which clauses are weak, the learning instances say: the held-out ones verify what is left.
    let holds = |literal: Literal| learning.iter().filter(|instance| instance.effect.holds(literal)).count() as u32;
    let rates: Vec<(Literal, f64)> = contract.literals().map(|literal| (literal, share(holds(literal), learning.len() as u32))).collect();
    let weaker = weaken(&rates, work.config.weaken_below);
    let after = pass_rate(&weaker);
    let dropped = contract.minus(&weaker).spell(work.info);
    let figures = format!("the contract passes on {before:.2} of {total} held-out instances, below {:.2}", rules.pass_rate);
    if dropped.is_empty() {
        work.note(KIND, vec![skill], format!("{figures}; no clause is weak enough to be dropped"), &evidence, Verdict::Rejected);
    } else if after < rules.pass_rate {
        let reason = format!("{figures}; without {} it would pass on {after:.2}", dropped.join(", "));
        work.note(KIND, vec![skill], reason, &evidence, Verdict::Rejected);
    } else {
        let reason = format!("{figures}; drops {}, then it passes on {after:.2}", dropped.join(", "));
        adopt(work, skill, weaker);
        work.note(KIND, vec![skill], reason, &evidence, Verdict::Accepted);
    }
}

/// The clauses that hold often enough; the best one stays in any case, so that no contract becomes empty.
pub fn weaken(rates: &[(Literal, f64)], below: f64) -> Contract {
    let kept: Contract = rates.iter().filter(|(_, rate)| *rate >= below).map(|(literal, _)| *literal).collect();
    if kept.is_empty() {
        let best = rates.iter().min_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        return best.map(|(literal, _)| *literal).into_iter().collect();
    }
    kept
}
