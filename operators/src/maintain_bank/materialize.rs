//! Materialize: segments that no skill explains (NEW) and that do the same thing become a skill.

use crate::contract::ClauseKind;
use crate::learn_contracts::{self, Instance, Learned, LiteralCount, learn_contract, passes_one, share};
use crate::maintain_bank::cluster::{Cluster, clusters};
use crate::maintain_bank::describe::{describe, name};
use crate::maintain_bank::evidence::Record;
use crate::maintain_bank::{ACTIVE, Entry, Verdict, Work, segment_ids};
use cosplay_datasets::tables::Skill;
use cosplay_datasets::{EpisodeId, SegmentId, SkillId};
use cosplay_envs::Tag;
use std::collections::BTreeSet;

const KIND: &str = "materialize";

/// Segments that may become a skill.
pub(crate) struct Candidate {
    /// Their dominant tag.
    pub(crate) tag: Option<Tag>,
    /// The segments, in order.
    pub(crate) segments: Vec<SegmentId>,
    /// Number of episodes that they come from.
    pub(crate) episodes: usize,
    /// What their evidence says.
    pub(crate) learned: Learned,
}

impl Candidate {
    /// Learns and verifies the contract of a cluster.
    pub(crate) fn of(cluster: &Cluster<'_>, config: &learn_contracts::Config) -> Self {
        let instances: Vec<Instance> = cluster.members.iter().map(|record| record.instance()).collect();
        let episodes: BTreeSet<EpisodeId> = cluster.members.iter().map(|record| record.episode).collect();
        Self {
            tag: cluster.tag,
            segments: segment_ids(&cluster.members),
            episodes: episodes.len(),
            learned: learn_contract(&instances, config),
        }
    }
}

/// Makes skills of the NEW segments of the last steps. Members of a new skill are relabelled at once, so that no later proposal, in this
/// step or another, uses them again.
pub fn materialize(work: &mut Work<'_>) {
    let config = work.config;
    // Retracing the window from the step's own number keeps a rebuilt run equal to the live one.
    let oldest = (work.step + 1).saturating_sub(u64::from(config.window));
    let pool: Vec<&Record> = work.evidence.records().filter(|record| record.label.is_none() && record.step >= oldest).collect();
    let similarity_of_others = 1.0 - config.min_distance;
    let found = clusters(&pool, config.min_segments as usize, config.cluster_similarity, similarity_of_others);
    let candidates: Vec<Candidate> = found.iter().map(|cluster| Candidate::of(cluster, &config.contract)).collect();
    let mut made = 0;
    for candidate in candidates {
        let (verdict, reason) = judge(work, &candidate, made);
        let mut skills = Vec::new();
        if verdict == Verdict::Accepted {
            made += 1;
            skills.push(found_skill(work, &candidate, &[], 0, KIND));
        }
        work.note(KIND, skills, reason, &candidate.segments, verdict);
    }
}

fn judge(work: &Work<'_>, candidate: &Candidate, made: u32) -> (Verdict, String) {
    let config = work.config;
    let Candidate { segments, episodes, learned, .. } = candidate;
    let figures = format!(
        "{} NEW segments of {episodes} episodes share {{{}}}; {}",
        segments.len(),
        learned.contract.spell(work.info).join(", "),
        learned.explain(&config.contract)
    );
    if let Some(fault) = fault(work, candidate, &[]) {
        return (Verdict::Rejected, format!("{figures}{fault}"));
    }
    if *episodes < config.min_episodes as usize {
        return (Verdict::Rejected, format!("{figures}; at least {} episodes are asked for", config.min_episodes));
    }
    if made >= config.max_new {
        return (Verdict::Deferred, format!("{figures}; {made} skills were made in this step already"));
    }
    if !work.has_room() {
        return (Verdict::Deferred, format!("{figures}; the bank holds {} skills already", config.max_skills));
    }
    (Verdict::Accepted, figures)
}

/// What speaks against a candidate as a new skill beside the active ones other than `except`; empty text if the verdict on its contract
/// says it already.
pub(crate) fn fault(work: &Work<'_>, candidate: &Candidate, except: &[SkillId]) -> Option<String> {
    let (config, learned) = (work.config, &candidate.learned);
    if learned.verdict(&config.contract) != learn_contracts::Verdict::Accepted {
        return Some(String::new());
    }
    if let Some(danger) = danger(work, learned) {
        return Some(danger);
    }
    let (nearest, similarity) = work.nearest(&learned.contract, except)?;
    let distance = 1.0 - similarity;
    if distance < config.min_distance {
        return Some(format!("; its distance {distance:.2} to skill {nearest} is below {:.2}", config.min_distance));
    }
    let explains = |skill: &SkillId| !except.contains(skill) && explains(work, *skill, candidate);
    let other = work.active().into_iter().find(explains)?;
    Some(format!("; skill {other} promises all of it, and its contract holds on these segments too"))
}

/// Says if a danger occurs at least half as often as what becomes a clause.
fn danger(work: &Work<'_>, learned: &Learned) -> Option<String> {
    let dangers = work.config.dangers(work.info);
    let limit = work.config.contract.frequency / 2.0;
    let brought = |count: &&LiteralCount| {
        let danger = count.literal.kind == ClauseKind::Add && dangers.contains(usize::from(count.literal.predicate));
        danger && share(count.support, learned.instances) >= limit
    };
    let count = learned.counts.iter().find(brought)?;
    let (name, support, instances) = (count.literal.name(work.info), count.support, learned.instances);
    Some(format!("; {support} of {instances} learning instances bring about {name}, which is to be avoided"))
}

/// Whether a skill promises all that the candidate does, and its contract passes on the candidate's segments. Where some of what it promises
/// was already so, fewer effects occur, and a part of a known contract looks like a new one.
fn explains(work: &Work<'_>, skill: SkillId, candidate: &Candidate) -> bool {
    let Some(entry) = work.skills.get(&skill).filter(|entry| candidate.learned.contract.minus(&entry.contract).is_empty()) else {
        return false;
    };
    let rules = &work.config.contract;
    let records = work.evidence.select(&candidate.segments);
    let passed = records.iter().filter(|record| passes_one(&record.effect, &entry.contract, rules)).count();
    share(passed as u32, records.len() as u32) >= rules.pass_rate
}

/// Puts a new skill into the bank and relabels its segments.
pub(crate) fn found_skill(work: &mut Work<'_>, candidate: &Candidate, parents: &[SkillId], generation: u32, kind: &str) -> SkillId {
    let skill = work.next_id();
    let contract = candidate.learned.contract;
    let taken = |name: &str| work.skills.values().any(|entry| entry.row.name == name);
    let mut row = Skill {
        skill,
        version: 1,
        name: name(&contract, candidate.tag, &work.base, work.info, taken),
        state: ACTIVE.to_owned(),
        generation,
        parents: parents.to_vec(),
        created: work.step as u32,
        updated: work.step as u32,
        ..Skill::default()
    };
    let records = work.evidence.select(&candidate.segments);
    describe(&mut row, &contract, candidate.tag, &records, &work.base, work.config, work.info);
    work.skills.insert(skill, Entry { row, contract });
    work.relabel(&candidate.segments, Some(skill), kind);
    skill
}
